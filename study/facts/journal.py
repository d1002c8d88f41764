"""The journal file of a study, and the lock that allows only one launch of the study at a time.

The journal survives a power cut, because every event is synced to disk. A launch locks the journal, and updates a lease
file every few seconds. On some network shares, other machines see only the lease file, not the lock. A launch stops if
another process writes to the journal or has taken the study over, and it deletes no lease but its own.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import msgspec

from study.facts.events import FILE, Event, add_checksum, is_json, utc_now
from study.facts.journal_copy import check_not_lost, keep_copy
from study.facts.plain_words import counted, to_second
from study.facts.study_facts import read_facts
from study.own_packages import STOP_SIGNALS
from trainables.atomic_files import flush, naming_full_disk, write_bytes
from trainables.schema import Reader, Typed

LEASE = "launch.lease"
BEAT_SECONDS = 5.0
SILENT_SECONDS = 15.0  # a launch on another machine counts as dead after this time without a beat
_LOCK_ATTEMPTS = 10


class Lease(Typed, frozen=True, kw_only=True):
    """The process of a running launch, as stored in the lease file."""

    host: str
    boot: str  # kernel boot ID and PID namespace; "" if the system has none
    pid: int
    started: str  # start time of the process in kernel ticks, since PIDs are reused
    since: str

    @classmethod
    def for_this_process(cls) -> Lease:
        """Create a lease for this process."""
        host, pid = socket.gethostname(), os.getpid()
        return cls(host=host, boot=_read_boot_id(), pid=pid, started=_read_start_time(pid), since=to_second(utc_now()))

    def __str__(self) -> str:
        """Format the lease for messages: `process 41 on host since TIME`."""
        return f"process {self.pid} on {self.host} since {self.since}"

    @property
    def is_of_this_machine(self) -> bool:
        """True if the process was started on this host, in this container and since the last boot."""
        return bool(self.boot) and (self.host, self.boot) == (socket.gethostname(), _read_boot_id())

    @property
    def runs_here(self) -> bool:
        """True if the process of the lease still runs on this machine and is not the current process."""
        return self.is_of_this_machine and self.pid != os.getpid() and _read_start_time(self.pid) == self.started


def _read_boot_id() -> str:
    """Return the kernel's boot ID and the PID namespace, or "" if they are unknown.

    Containers on the same host have different PID namespaces.
    """
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _read_start_time(pid: int) -> str:
    """Read the start time of a process in kernel ticks; "" if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def read_lease(folder: Path) -> Lease | None:
    """Read the lease file of a study folder; None if the file is missing or unreadable."""
    try:
        return msgspec.json.decode((folder / LEASE).read_bytes(), type=Lease)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


class StudyLock:
    """A lock that lets only one launch use a study folder. The kernel releases the lock when the process ends."""

    def __init__(self, folder: Path):
        """Lock the journal and write the lease file.

        Raises:
            ValueError: another launch runs the study, or the file system does not support locks.
        """
        self._folder, self._path = folder, folder / LEASE
        self.descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)  # of the journal
        try:
            is_locked = self._take_lock(folder)
            lease = read_lease(folder)
            if not is_locked or (lease is not None and self._is_alive(lease)):
                holder = lease or "holder unknown"
                raise ValueError(f"study {folder} is being run by another launch: {holder}; wait until it ends")
            self._lease = Lease.for_this_process()
            self._write_lease()
        except BaseException:
            os.close(self.descriptor)
            raise
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    def _take_lock(self, folder: Path) -> bool:
        """Try to take the lock several times, because `find_lock_holder` holds it for a moment."""
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.02)
            except OSError as error:
                raise ValueError(
                    f"{folder} is on {_find_mount(folder)}, which cannot lock files ({error.strerror}); choose "
                    "an --out folder on another file system, or mount this one with locks (for NFS, without `nolock`)"
                ) from None
        return False

    def _is_alive(self, lease: Lease) -> bool:
        """Check if the launch that wrote the lease still runs.

        For a launch on another machine, wait up to `SILENT_SECONDS` for an update of the lease file.
        """
        if lease.is_of_this_machine:
            return lease.runs_here
        print(
            f"waiting {SILENT_SECONDS:g} s to see if another launch of the study still runs: {lease}",
            file=sys.stderr,
            flush=True,
        )
        before, end = self._read_last_beat(), time.monotonic() + SILENT_SECONDS
        while time.monotonic() < end:
            time.sleep(min(1.0, SILENT_SECONDS / 10))
            if self._read_last_beat() != before:
                return self._path.exists()
        return False

    def _read_last_beat(self) -> int:
        try:
            with self._path.open("rb") as file:  # on a network file system, open() refreshes the file's times
                return os.fstat(file.fileno()).st_mtime_ns
        except FileNotFoundError:
            return 0

    def _beat(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            with suppress(OSError):  # the disk is full or unreachable
                if self.find_successor():
                    return
                if self._path.exists():
                    os.utime(self._path)
                else:
                    self._write_lease()

    def _write_lease(self) -> None:
        write_bytes(self._path, msgspec.json.encode(self._lease))

    def find_successor(self) -> Lease | None:
        """Return the lease of a launch that has taken the study over, because this process seemed to have ended."""
        lease = read_lease(self._folder)
        return None if lease == self._lease else lease

    def release(self) -> None:
        """Delete the lease file, unless it is another launch's, and release the lock."""
        self._is_over.set()
        self._thread.join()
        if self.find_successor() is None:
            self._path.unlink(missing_ok=True)
        os.close(self.descriptor)


def _find_mount(folder: Path) -> str:
    """Return the type and mount point of a folder's file system: `nfs4 at /home`."""
    with suppress(OSError):
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
        above = [(len(place), f"{kind} at {place}") for place, kind in mounts if folder.resolve().is_relative_to(place)]
        return max(above)[1]
    return "a file system"


def find_lock_holder(folder: Path) -> str | None:
    """Describe the launch that is running the study; None if no launch is running."""
    lease = read_lease(folder)
    try:
        with (folder / FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return str(lease) if lease else "a launch that is just starting"
    except OSError:  # no journal, or no locks
        pass
    return str(lease) if lease and lease.runs_here else None


@contextmanager
def delay_signals() -> Iterator[None]:
    """Delay `STOP_SIGNALS` until the block ends.

    Outside the main thread, nothing is delayed, because only the main thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    try:
        with handle_signals(lambda number, _: received.append(number)):
            yield
    finally:
        for number in received:
            signal.raise_signal(number)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `handler` on any of `STOP_SIGNALS` until the block ends."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


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
