"""Classes and functions that read and write JSON-lines files, always in complete lines."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trainables.atomic_files import flush, write_bytes
from trainables.schema import Reader


class AppendOnlyFile:
    """A JSON-lines file to which complete lines are appended and synced to disk.

    Opening the file removes an incomplete last line, with a warning. A failed append leaves the file unchanged.
    """

    def __init__(self, path: Path, reader: Reader):
        """Open or create the file; `reader` checks each line before it is written."""
        self.path = path
        self._reader = reader
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        flush(path.parent)
        self._cut_torn_tail()
        self._size = os.fstat(self._descriptor).st_size

    def append_lines(self, lines: Sequence[bytes]) -> None:
        """Append lines of JSON, given without line breaks, and sync them to disk together.

        Raises:
            ValueError: a line is invalid, or another process changed, replaced or deleted the file.
        """
        for line in lines:
            self._reader.read(line, where=f"{self.path}, a new line")
        self._check_untouched()
        content = b"".join(line + b"\n" for line in lines)
        try:
            written = os.write(self._descriptor, content)
            if written != len(content):
                raise OSError(
                    f"{self.path}: only {written} of {len(content)} bytes could be written; is the disk full?"
                )
            os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += written

    def _check_untouched(self) -> None:
        """Raise ValueError if another process changed, replaced or deleted the file.

        A deleted file is restored before the error is raised.
        """
        now = os.fstat(self._descriptor)
        if now.st_nlink and now.st_size != self._size:
            raise ValueError(f"{self.path}: another process has written to the file; this process stops writing")
        if not now.st_nlink:
            if not self.path.exists():
                write_bytes(self.path, os.pread(self._descriptor, self._size, 0))
            raise ValueError(
                f"{self.path} was deleted or replaced while in use; run the same command again to continue with the "
                "current file"
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _cut_torn_tail(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content) and _is_json(content[whole:]):
            os.write(self._descriptor, b"\n")  # only the line end was lost
        elif whole < len(content):
            warnings.warn(f"{self.path}: removed an incomplete last line of {len(content) - whole} bytes", stacklevel=3)
            os.ftruncate(self._descriptor, whole)


def read_lines(path: Path, reader: Reader) -> Iterator[tuple[int, Any]]:
    """Yield each line's number (from 1) and content; yield nothing if the file is missing.

    An incomplete last line, which can result from a crash, is skipped with a warning.

    Raises:
        ValueError: a complete line is invalid (the message names file, line and field), or the path is a folder.
    """
    if not path.exists():
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder; allowed: the file of a study")
    name = str(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") and not _is_json(line):
                warnings.warn(f"{path}:{number}: incomplete last line ignored ({len(line)} bytes)", stacklevel=2)
                return
            yield number, reader.read(line, where=f"{name}:{number}")


class Tail:
    """A reader that follows a growing file. An incomplete last line is returned only after it has been completed."""

    def __init__(self, path: Path, reader: Reader) -> None:
        """Start before the first line of the file, which need not exist yet."""
        self._path = path
        self._reader = reader
        self._offset = 0
        self._line = 0

    def read(self) -> list[tuple[int, Any]]:
        """Return the lines added since the last call, each with its line number (from 1).

        Raises:
            ValueError: a line is invalid; the message names file, line and field.
        """
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        lines = list(enumerate(whole.splitlines(), start=self._line + 1))
        self._offset, self._line = self._offset + len(whole), self._line + len(lines)
        return [(number, self._reader.read(line, where=f"{self._path}:{number}")) for number, line in lines]


def _is_json(line: bytes) -> bool:
    """Check if a line is complete: a truncated object is not valid JSON."""
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True
