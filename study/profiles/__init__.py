"""Profiles: one Python file per whole plan. `mini` runs anywhere, `paper` is the paper's protocol.

The profile `NAME` is `NAME.py`. `plan()` of a file is what runs if nothing else is asked
for; its `METHODS` are what `--method all` means there.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from study.plans.plan import Plan
from trainables.spelling import no_such


def available() -> list[str]:
    """The names of the profiles."""
    return sorted(path.stem.replace("_", "-") for path in Path(__file__).parent.glob("[!_]*.py"))


def load(name: str) -> Plan:
    """The plan of the profile.

    Raises:
        ValueError: no profile has this name.
    """
    return _module(name).plan()


def methods(name: str) -> tuple[str, ...]:
    """All methods of the profile.

    Raises:
        ValueError: no profile has this name.
    """
    return _module(name).METHODS


def _module(name: str) -> ModuleType:
    if name not in available():
        raise no_such("profile", name, ["auto", *available()])
    return importlib.import_module(f"study.profiles.{name.replace('-', '_')}")
