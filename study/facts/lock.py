"""The lock that allows only one launch of a study at a time.

A launch locks the journal, and updates a lease file every few seconds. On some network shares, other machines see only
the lease file, not the lock. A launch stops if another process has taken the study over, and it deletes no lease but
its own.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from study.facts.events import FILE, utc_now
from study.terminal.text import to_second
from trainables.configuration.schema import Typed
from trainables.files.atomic_files import write_bytes

LEASE = "launch.lease"
BEAT_SECONDS = 5.0
SILENT_SECONDS = 15.0  # a launch on another machine counts as dead after this time without a beat
_LOCK_ATTEMPTS = 10
_MOUNTS = Path("/proc/mounts")


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
    """Read the start time of a process in kernel ticks; "" if the process is gone, or dead and not yet reaped."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in ("Z", "X") else fields[18]


def is_running(pid: int) -> bool:
    """Check whether a process exists on this machine. One that is dead and not yet reaped does not count."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return bool(_read_start_time(pid)) or not Path("/proc/self/stat").exists()


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
        mounts = [line.split()[1:3] for line in _MOUNTS.read_text().splitlines()]
        above = [(len(place), f"{kind} at {place}") for place, kind in mounts if folder.resolve().is_relative_to(place)]
        if above:  # a changed root hides its own mount
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
