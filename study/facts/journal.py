"""The journal file of a study.

The journal survives a power cut, because every event is synced to disk. A launch stops if another process writes to the
journal.
"""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path

import msgspec

from study.facts.events import FILE, Event, add_checksum, is_json, utc_now
from study.facts.journal_copy import check_not_lost, keep_copy
from study.facts.lock import StudyLock
from study.facts.study_facts import read_facts
from study.terminal.signals import delay_signals
from study.terminal.text import counted
from trainables.configuration.schema import Reader
from trainables.files.atomic_files import flush, naming_full_disk, write_bytes


class Journal:
    """The journal of a study and the study's state. Appending an event writes it to disk and updates the state.

    A failed append leaves the file unchanged.
    """

    def __init__(self, folder: Path):
        """Lock the study folder for this process, and read its journal.

        An incomplete last line, or blank lines at the end, are removed with a warning.

        Raises:
            ValueError: another launch runs the study, lines are lost, or a line is invalid (the message names file and
                line).
        """
        self.folder = folder
        check_not_lost(folder)  # before the lock creates the file
        self._lock = StudyLock(folder)
        try:
            flush(folder)
            self._path, self._reader, self._descriptor = folder / FILE, Reader(Event), self._lock.descriptor
            self._cut_torn_tail()
            self._cut_blank_lines()
            self._size = os.fstat(self._descriptor).st_size
            self.facts = read_facts(folder)
            keep_copy(folder)
        except BaseException:
            self._lock.release()
            raise

    def _cut_torn_tail(self) -> None:
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content) and is_json(content[whole:]):
            os.write(self._descriptor, b"\n")  # only the line end was lost
        elif whole < len(content):
            removed = f"removed an incomplete last line of {len(content) - whole} bytes"
            warnings.warn(f"{self._path}: {removed}", stacklevel=3)
            os.ftruncate(self._descriptor, whole)

    def _cut_blank_lines(self) -> None:
        content = self._path.read_bytes()
        text = content.rstrip()
        if content[len(text) :] in (b"", b"\n"):
            return
        number = content.count(b"\n", len(text)) - bool(text)
        warnings.warn(f"{self._path}: removed {counted(number, 'blank line')} at its end", stacklevel=3)
        os.ftruncate(self._descriptor, len(text))
        if text:
            os.write(self._descriptor, b"\n")

    def now(self) -> str:
        """Return the time for a new event: the current time, but never earlier than the last event."""
        return max(utc_now(), self.facts.time)

    def append(self, *events: Event) -> None:
        """Write the events to disk with one sync, then update the state. `STOP_SIGNALS` are delayed meanwhile.

        Raises:
            ValueError: an event is invalid, or another process changed, replaced or deleted the file.
        """
        with delay_signals():
            self._write(b"".join(map(self._encode, events)))
            for event in events:
                self.facts.apply(event)

    def _encode(self, event: Event) -> bytes:
        line = msgspec.json.encode(event)
        self._reader.read(line, where=f"{self._path}, a new line")
        return add_checksum(line) + b"\n"

    def _write(self, content: bytes) -> None:
        self.check_untouched()
        try:
            with naming_full_disk(self.folder):
                self._append(content)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(content)

    def _append(self, content: bytes) -> None:
        written = os.write(self._descriptor, content)
        if written != len(content):
            raise OSError(f"{self._path}: only {written} of {len(content)} bytes could be written; is the disk full?")
        os.fdatasync(self._descriptor)

    def check_untouched(self) -> None:
        """Raise ValueError if another launch runs the study now, or another process changed or deleted the file.

        A deleted file is restored before the error is raised.
        """
        if successor := self._lock.find_successor():
            raise ValueError(f"{self.folder} is now run by another launch: {successor}; this process stops writing")
        now = os.fstat(self._descriptor)
        if now.st_nlink and now.st_size != self._size:
            raise ValueError(f"{self._path}: another process has written to the file; this process stops writing")
        if not now.st_nlink:
            if not self._path.exists():
                write_bytes(self._path, os.pread(self._descriptor, self._size, 0))
            raise ValueError(
                f"{self._path} was deleted or replaced while in use; run the same command again to continue with the "
                "current file"
            )

    def close(self) -> None:
        """Copy the journal, unless another process changed it, and let other launches run the study."""
        with suppress(OSError, ValueError):  # the copy of the start remains
            self.check_untouched()
            keep_copy(self.folder)
        self._lock.release()
