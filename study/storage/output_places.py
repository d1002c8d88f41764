"""Checks that a command's output can be written, before the command starts its work.

Each check raises a ValueError of one line. `option` is the command-line option that gave the path.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_FILE = "a file in a writable folder"
_FOLDER = "a writable folder, or a new folder in one"


def check_file(option: str, path: Path) -> None:
    """Check that a file can be written at `path`, which may be an existing file."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path} is not a file; allowed: {_FILE}")
    _check_within(path.parent, f"{option} {path}", allowed=_FILE)


def check_new_file(option: str, path: Path) -> None:
    """Check that `path` does not exist, and that a file can be written there in an existing folder."""
    if os.path.lexists(path):
        raise ValueError(f"{option} {path} exists; allowed: a new file")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: its folder does not exist; allowed: a new file in an existing folder")
    check_file(option, path)


def check_folder(option: str, path: Path) -> None:
    """Check that files can be written in the folder, or that the folder can be created."""
    _check_within(path, f"{option} {path}", allowed=_FOLDER)


def check_new_folder(option: str, path: Path) -> None:
    """Check that a new folder can be created at `path`; an existing folder must be empty."""
    folder = Path(os.path.realpath(path))
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{option} {path} exists; allowed: a new or an empty folder")
    _check_within(folder.parent, f"{option} {path}", allowed="a new folder in a writable one")


def _check_within(folder: Path, what: str, *, allowed: str) -> None:
    """Check that files can be written in the folder or, if it is missing, in the nearest existing parent."""
    whole = Path(os.path.realpath(folder))
    there = next(place for place in (whole, *whole.parents) if os.path.lexists(place))
    if not there.is_dir():
        raise ValueError(f"{what} cannot be written: {there} is not a folder; allowed: {allowed}")
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError:
        raise ValueError(f"{what} cannot be written: {there} is not writable; allowed: {allowed}") from None
