"""Atomic writes: a file or folder gets its final name only when it is complete, even after a kill or a power cut.

Every file gets the permissions that `open` would give it. If a process is killed while it writes, the next write to the
same path removes the leftover files.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)  # numbers of the errors of a full disk and of an exhausted quota
_PROBE_BYTES = 2**16


class DiskFull(OSError):
    """Raised if a file cannot be written because its disk, or the user's quota there, is full."""

    def __init__(self, place: Path | str, remedy: str = ""):
        """Name the folder that cannot be written to; `remedy` follows in the message."""
        super().__init__(errno.ENOSPC, f"the disk of {place} is full{_describe_inodes(Path(place))}{remedy}")
        self.place, self.remedy = str(place), remedy

    def __reduce__(self) -> tuple[type[DiskFull], tuple[str, str]]:
        """Pickle what the constructor takes: several processes pretrain, and send their errors to the first."""
        return DiskFull, (self.place, self.remedy)

    def __str__(self) -> str:
        """Return the message without the number of the error."""
        return str(self.strerror)


def name_full_disk(error: OSError) -> OSError:
    """Return the error of a full disk as `DiskFull` if it names a file there; return any other error unchanged."""
    is_named = error.errno in FULL and error.filename is not None and not isinstance(error, DiskFull)
    return DiskFull(Path(os.fsdecode(error.filename)).parent) if is_named else error


def read_full_place(message: str) -> str | None:
    """Return the folder that a message of `DiskFull` names; None for any other message."""
    match = re.match(r"the disk of (.+?) is full", message)
    return match and match[1]


def _describe_inodes(place: Path) -> str:
    with suppress(OSError):
        disk = os.statvfs(place)
        if disk.f_files and not disk.f_favail and disk.f_bavail:
            return " (it has free space, but no inodes for more files)"
    return ""


@contextmanager
def naming_full_disk(folder: Path) -> Iterator[None]:
    """Raise DiskFull instead of an error inside the context, if this error is due to the full disk of `folder`.

    PyTorch and other libraries raise errors that do not mention the disk.
    """
    try:
        yield
    except DiskFull:
        raise
    except Exception as error:
        is_said = any(os.strerror(number) in str(error) for number in FULL)  # also by libraries in Rust and C++
        if is_said or _is_full(folder):
            raise DiskFull(folder) from error
        raise


def _is_full(folder: Path) -> bool:
    """Check by writing a small file, because other numbers do not include quotas."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in FULL
    return False


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write a file in a temporary folder, then move the file to `path`.

    After a kill or a power cut, `path` has either its old or its new content.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with _filled(unfinished, path.name, lambda folder: write(folder / path.name)):
        os.replace(unfinished / path.name, path)
    flush(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the content of a file in one step."""
    write_atomically(path, lambda file: file.write_bytes(content))


def write_files(contents: Mapping[Path, bytes], *, remove: Iterable[Path] = ()) -> None:
    """Replace the content of each file and delete the files to `remove`; go on with the others if one fails.

    Raises:
        OSError: if one or more files cannot be written or deleted; the message names the first.
    """
    faults = list[str]()
    for path in (*contents, *remove):
        try:
            write_bytes(path, contents[path]) if path in contents else path.unlink(missing_ok=True)
        except DiskFull:
            raise
        except OSError as error:
            faults.append(describe_blocked(path) or f"{path} cannot be written: {error.strerror or error}")
    if faults:
        more = f" (and {len(faults) - 1} more files)" * (len(faults) > 1)
        raise OSError(f"{faults[0]}{more}")


def describe_blocked(path: Path) -> str | None:
    """Explain how to make room for a file if there is a folder at its path; else return None."""
    is_blocked = path.is_dir()
    return f"{path} is a folder, but a file belongs there; move or delete the folder" if is_blocked else None


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file by a text in UTF-8, in one step."""
    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: object) -> None:
    """Replace the content of a file by a value in JSON, in one step."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_folder(folder: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write files into a temporary folder, then rename the temporary folder to `folder`.

    An existing folder is replaced. A kill leaves the old or the new folder; between the two renames, it leaves neither.
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
    """Let `fill` write files into a temporary folder, then move the files one by one into `folder`."""
    unfinished = folder / f".files.{os.getpid()}"
    with _filled(unfinished, "files", fill):
        for path in sorted(unfinished.iterdir()):
            os.replace(path, folder / path.name)
        flush(folder)


def is_unfinished(path: Path, of: str | None = None) -> bool:
    """Check whether a path has the name of a temporary folder of this module.

    Args:
        of: name of the finished file or folder; None means any name.
    """
    name = r".+" if of is None else re.escape(of)
    return re.fullmatch(rf"\.{name}\.\d+(\.replaced)?", path.name) is not None


@contextmanager
def _locked_for_writing(unfinished: Path, name: str) -> Iterator[None]:
    """Create and lock the folder `unfinished`, and delete the folders that killed writers of `name` left."""
    unfinished.mkdir(parents=True)
    with _locked(unfinished):
        for leftover in unfinished.parent.iterdir():
            if leftover != unfinished and is_unfinished(leftover, of=name):
                with suppress(OSError), _locked(leftover) as is_ours:  # False if another process is writing it
                    if is_ours:
                        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        yield


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Try to lock a file or folder; yield True if this process has the lock.

    Yield False if another process has the lock, or the disk does not support locks.
    """
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
    """Let `fill` write files into the new folder `unfinished`, and flush the files to the disk.

    When the context ends, the folder is deleted if it still exists.
    """
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with naming_full_disk(unfinished.parent), _locked_for_writing(unfinished, name):
            probe = unfinished / ".mode"
            probe.touch()
            mode = probe.stat().st_mode  # the permissions that the umask and the folder's access list give a new file
            probe.unlink()
            fill(unfinished)
            for path in unfinished.rglob("*"):
                if path.is_file() and path.stat().st_mode != mode:  # some shares refuse to change permissions
                    path.chmod(stat.S_IMODE(mode))
                flush(path)
            yield
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)  # an unfinished folder would take up space on a full disk


def flush(path: Path) -> None:
    """Flush a file's content, or a folder's list of entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
