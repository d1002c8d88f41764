"""The journal of a study, a file that survives a power cut, and the lock that keeps launches apart."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

import msgspec

from study.facts.events import FILE, READER, Event, utc_now
from study.facts.json_lines import AppendOnlyFile
from study.facts.plain_words import to_second
from study.facts.study_facts import read_facts

_LOCK_ATTEMPTS = 10


class StudyLock:
    """Held by one launch per study folder; the kernel lets go of it when the process dies."""

    def __init__(self, folder: Path):
        self._descriptor = os.open(folder / "launch.lock", os.O_RDWR | os.O_CREAT, 0o644)
        if not self._taken():
            holder = os.read(self._descriptor, 200).decode(errors="replace").strip()
            os.close(self._descriptor)
            who = holder or "holder unknown"
            raise ValueError(f"study {folder} is being run by another launch: {who}; allowed: wait for its end")
        os.ftruncate(self._descriptor, 0)
        since = to_second(utc_now())
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}".encode(), 0)

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


class Journal:
    """The facts of a study, read once at opening, and the one way to add to them."""

    def __init__(self, folder: Path):
        """Opens the journal of the folder, for this process alone.

        Raises:
            ValueError: another launch holds the study, or a line is broken (file and line are named).
        """
        self.folder = folder
        self._lock = StudyLock(folder)
        try:
            self._events_file = AppendOnlyFile(folder / FILE, READER)
            self.facts = read_facts(folder)
        except BaseException:
            self._lock.release()
            raise

    def now(self) -> str:
        """The time of an event that happens now: never before the last one, even if somebody has set the clock back."""
        return max(utc_now(), self.facts.time)

    def append(self, *events: Event) -> None:
        """Makes events safe on disk, all at once, and then facts."""
        self._events_file.append_lines([msgspec.json.encode(event) for event in events])
        for event in events:
            self.facts.apply(event)

    def close(self) -> None:
        """Lets other launches have the study."""
        self._events_file.close()
        self._lock.release()
