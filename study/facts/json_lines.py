"""Readers of JSON-lines files, which return only complete lines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trainables.schema import Reader


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
            if not line.endswith(b"\n") and not is_json(line):
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


def is_json(line: bytes) -> bool:
    """Check if a line is complete: a truncated object is not valid JSON."""
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True
