"""Files that are written whole or not at all, and survive a power cut. Standard library only.

All have the mode of a file that is simply opened here, whatever wrote them: `safetensors` would let nobody else read.
Whatever a killed process has left unfinished is removed by the next one that writes the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Replace `path` by the file that `write` fills, whole or not at all, safe from a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.touch()
        with _held(unfinished, path.name):
            mode = unfinished.stat().st_mode
            write(unfinished)
            _give_mode(unfinished, mode)
            flush(unfinished)
            os.replace(unfinished, path)
        flush(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, whole or not at all."""
    write_atomically(path, lambda file: file.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8), whole or not at all."""
    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: object) -> None:
    """Replace `path` by a plain value as JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_folder(folder: Path, fill: Callable[[Path], object]) -> None:
    """Make, or replace, a folder by the files that `fill` puts into an empty one, never by a part of them.

    A kill meanwhile leaves the old folder, the new one or, between two renames, neither.
    """
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    replaced = folder.with_name(f"{unfinished.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    with _filled(unfinished, folder.name, fill):
        with suppress(FileNotFoundError):
            os.replace(folder, replaced)
        os.replace(unfinished, folder)
    shutil.rmtree(replaced, ignore_errors=True)
    flush(folder.parent)


def add_files(folder: Path, fill: Callable[[Path], object]) -> None:
    """Add to a folder the files that `fill` puts into the empty one it is given, each whole or not at all."""
    unfinished = folder / f".files.{os.getpid()}"
    with _filled(unfinished, "files", fill):
        for path in sorted(unfinished.iterdir()):
            os.replace(path, folder / path.name)
        flush(folder)


def is_unfinished(path: Path, of: str | None = None) -> bool:
    """Tell whether a killed write left this; one of the file or folder `of` this name, if one is given."""
    name = r".+" if of is None else re.escape(of)
    return re.fullmatch(rf"\.{name}\.\d+(\.replaced)?", path.name) is not None


@contextmanager
def _held(unfinished: Path, name: str) -> Iterator[None]:
    """Mark it as being written while this process lives, and remove what others have left of the same name."""
    with _locked(unfinished):
        for leftover in unfinished.parent.iterdir():
            if leftover != unfinished and is_unfinished(leftover, of=name):
                with suppress(OSError), _locked(leftover) as is_ours:  # of a process that lives, it is not
                    if is_ours:
                        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        yield


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock a file or folder for this process, if no other process has and the disk has locks; gives whether it did."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_locked = True
    except OSError:
        is_locked = False
    try:
        yield is_locked
    finally:
        os.close(descriptor)


@contextmanager
def _filled(unfinished: Path, name: str, fill: Callable[[Path], object]) -> Iterator[None]:
    """Make an empty folder, fill it and flush its files; at the end remove what is left of it."""
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        with _held(unfinished, name):
            probe = unfinished / ".mode"
            probe.touch()
            mode = probe.stat().st_mode  # by the umask and the folder's own access list
            probe.unlink()
            fill(unfinished)
            for path in unfinished.rglob("*"):
                if path.is_file():
                    _give_mode(path, mode)
                flush(path)
            yield
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)  # on a full disk it would be in the way


def _give_mode(path: Path, mode: int) -> None:
    if path.stat().st_mode != mode:  # some shares refuse a change
        path.chmod(stat.S_IMODE(mode))


def flush(path: Path) -> None:
    """Make the content of a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
