"""What is trained: one file per method, over shared parts. Importing this package imports nothing heavy.

A method is a file here that has a twin of the same name in `search_spaces/`; `-` in its name is `_` in the file's.
"""

import importlib
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).parent


def available() -> list[str]:
    """Names of all methods, in alphabetical order."""
    twins = {path.name for path in (_HERE.parent / "search_spaces").glob("[!_]*.py")}
    return sorted(path.stem.replace("_", "-") for path in _HERE.glob("[!_]*.py") if path.name in twins)


def load(method: str) -> ModuleType:
    """The module of a method: its `Config` and `build`.

    Raises:
        ValueError: no method has this name.
    """
    if method not in available():
        raise ValueError(f"no method named {method!r}; available: {', '.join(available())}")
    return importlib.import_module(f"trainables.{method.replace('-', '_')}")
