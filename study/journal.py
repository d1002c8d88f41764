"""The journal of a study: append-only files that survive a power cut, and the lock that keeps launches apart.

`events.jsonl` holds the facts; `records.jsonl` holds the record of every `trial_ended` event, for analysis.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from study.record import is_json, read_events, read_records
from trainables.atomic_files import flush, write_atomically

_LOCK_ATTEMPTS = 10


def utc_now() -> str:
    """The time, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def write_json(path: Path, value: Any) -> None:
    """Replaces `path` by `value` as JSON, whole or not at all."""
    write_atomically(path, lambda file: file.write_text(json.dumps(value, indent=1) + "\n"))


class AppendOnlyFile:
    """A JSON-lines file to which whole lines are added and synced to disk, one at a time.

    Opening it cuts a torn last line off, with a warning. A failed append (disk full) leaves the file as it was.
    """

    def __init__(self, path: Path):
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        flush(path.parent)
        self._cut_torn_tail()

    def append(self, row: dict[str, Any]) -> None:
        line = json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        end = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(f"{self.path}: only {written} of {len(line)} bytes could be written; is the disk full?")
            os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, end)
            raise

    def close(self) -> None:
        os.close(self._descriptor)

    def _cut_torn_tail(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content) and is_json(content[whole:]):
            os.write(self._descriptor, b"\n")  # only the end of the line was lost
        elif whole < len(content):
            warnings.warn(f"{self.path}: cut a torn last line of {len(content) - whole} bytes", stacklevel=3)
            os.ftruncate(self._descriptor, whole)


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


class Journal:
    """The facts of a study, read once at opening and appended to since.

    `events` are those on disk at opening. ValueError: another launch holds the study, or a line in the middle of
    a file is broken (file and line are named).
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock = StudyLock(folder)
        try:
            self._events_file = AppendOnlyFile(folder / "events.jsonl")
            self._records_file = AppendOnlyFile(folder / "records.jsonl")
            self.events = read_events(folder)
            self._complete_records()
        except BaseException:
            self._lock.release()
            raise

    def append(self, event: str, **values: Any) -> dict[str, Any]:
        """The event, after it is safe on disk; the record of a `trial_ended` is in `records.jsonl` too."""
        row = {"event": event, "time": utc_now(), **values}
        self._events_file.append(row)
        if event == "trial_ended":
            self._records_file.append(row["record"])
        return row

    def close(self) -> None:
        self._events_file.close()
        self._records_file.close()
        self._lock.release()

    def _complete_records(self) -> None:
        """A crash between an event and its record leaves the record out: append it now."""
        present = {record.key for record in read_records(self._records_file.path)}
        for event in self.events:
            if event["event"] == "trial_ended" and event["key"] not in present:
                warnings.warn(f"{self._records_file.path}: added the record of {event['key']}", stacklevel=3)
                self._records_file.append(event["record"])
