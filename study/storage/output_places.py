"""Checks of the place for a command's output, before its work, with errors of one line that name the value.

Each check raises a ValueError. `option` is what the place was named by.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_FILE = "a file in a folder that can be written"
_FOLDER = "a folder that can be written, or be made in one"


def check_file(option: str, path: Path) -> None:
    """Check that a file can be written there; one that is there will be replaced."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path} is not a file; allowed: {_FILE}")
    _check_within(path.parent, f"{option} {path}", allowed=_FILE)


def check_new_file(option: str, path: Path) -> None:
    """Check that a file can be made there: none is there, though its folder is."""
    if os.path.lexists(path):
        raise ValueError(f"{option} {path} exists; allowed: a new file")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: its folder is not there; allowed: a new file in a folder that is")
    check_file(option, path)


def check_folder(option: str, path: Path) -> None:
    """Check that files can be written there; the folder may have to be made."""
    _check_within(path, f"{option} {path}", allowed=_FOLDER)


def check_new_folder(option: str, path: Path) -> None:
    """Check that a folder can be put there: there is none yet, or an empty one."""
    folder = Path(os.path.realpath(path))
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{option} {path} exists; allowed: a new or an empty folder")
    _check_within(folder.parent, f"{option} {path}", allowed="a folder in one that can be written")


def _check_within(folder: Path, what: str, *, allowed: str) -> None:
    """Check that something can be written in the folder or, if it is missing, in the next one above it."""
    whole = Path(os.path.realpath(folder))
    there = next(place for place in (whole, *whole.parents) if os.path.lexists(place))
    if not there.is_dir():
        raise ValueError(f"{what} cannot be written: {there} is not a folder; allowed: {allowed}")
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError:
        raise ValueError(f"{what} cannot be written: nothing can be made in {there}; allowed: {allowed}") from None
