"""Once imported, the packages named in ABSENT_PACKAGES cannot be found, as where they are not installed.

As `sitecustomize.py` on PYTHONPATH it does so in every process that is started.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

ABSENT = "ABSENT_PACKAGES"  # names, at commas apart

_absent = frozenset(os.environ.get(ABSENT, "").split(","))
_find = PathFinder.find_spec


def _find_spec(cls: type, name: str, path=None, target=None) -> ModuleSpec | None:
    return None if name.partition(".")[0] in _absent else _find(name, path, target)


PathFinder.find_spec = classmethod(_find_spec)  # type: ignore
assert not _absent & sys.modules.keys()
