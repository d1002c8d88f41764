"""The journal of a study: append-only files that survive a power cut, and the lock that keeps launches apart.

`events.jsonl` holds the facts; `records.jsonl` holds the record of every `trial_ended` event, for analysis.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import msgspec

from study.facts.chain import START, checked_head, linked, unlinked
from study.facts.events import FILE, READER, Event, TrialEnded, utc_now
from study.facts.json_lines import AppendOnlyFile
from study.facts.record import READER as RECORD_READER
from study.facts.record import read_records
from study.facts.study_facts import StudyFacts, read_facts

_LOCK_ATTEMPTS = 10


class StudyLock:
    """Held by one launch per study folder; the kernel lets go of it when the process dies."""

    def __init__(self, folder: Path):
        self._descriptor = os.open(folder / "launch.lock", os.O_RDWR | os.O_CREAT, 0o644)
        if not self._taken():
            holder = os.read(self._descriptor, 200).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise ValueError(f"study {folder} is being run by another launch: {holder or 'holder unknown'}")
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()} since {utc_now()}".encode(), 0)

    def _taken(self) -> bool:
        """Whether the lock is ours now. `lock_holder` takes it for a moment to look, so once is not enough."""
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.02)
        return False

    def release(self) -> None:
        os.close(self._descriptor)


def lock_holder(folder: Path) -> str | None:
    """The launch that runs the study now, in words; None if none does."""
    try:
        with (folder / "launch.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return (folder / "launch.lock").read_text().strip() or "a launch that is just starting"
    except FileNotFoundError:
        pass
    return None


class MemoryJournal:
    """The facts of a study without a folder: for simulations."""

    def __init__(self, events: Iterable[Event] = ()):
        """Goes on after these events."""
        self.facts = StudyFacts()
        self.head = START  # there are no lines
        self.events: list[Event] = []
        for event in events:
            self.append(event)

    def now(self) -> str:
        return utc_now()

    def append(self, event: Event) -> None:
        self.events.append(event)
        self.facts.apply(event)


class Journal:
    """The facts of a study, read once at opening, and the one way to add to them."""

    def __init__(self, folder: Path):
        """Opens the journal of the folder, for this process alone.

        Raises:
            ValueError: another launch holds the study, or a line is broken or was changed (file and line are named).
        """
        self.folder = folder
        self._lock = StudyLock(folder)
        try:
            self._events_file = AppendOnlyFile(folder / FILE, READER)
            self._records_file = AppendOnlyFile(folder / "records.jsonl", RECORD_READER)
            self.facts = read_facts(folder)
            with self._events_file.path.open("rb") as lines:
                self.head = checked_head(self._events_file.path, lines)  # the chain of the last line
            self._complete_records()
        except BaseException:
            self._lock.release()
            raise

    def now(self) -> str:
        return utc_now()

    def append(self, event: Event) -> None:
        """Makes an event safe on disk, and a fact; the record of a `trial_ended` is in `records.jsonl` too."""
        line = linked(msgspec.json.encode(event), self.head)
        self._events_file.append_line(line)
        self.head = unlinked(line)[1]
        if isinstance(event, TrialEnded):
            self._records_file.append(event.record)
        self.facts.apply(event)

    def close(self) -> None:
        self._events_file.close()
        self._records_file.close()
        self._lock.release()

    def _complete_records(self) -> None:
        """A crash between an event and its record leaves the record out: append it now."""
        present = {(record.key, record.ended) for record in read_records(self._records_file.path)}
        for record in self.facts.records:
            if (record.key, record.ended) not in present:
                warnings.warn(f"{self._records_file.path}: added the record of {record.key}", stacklevel=3)
                self._records_file.append(record)
