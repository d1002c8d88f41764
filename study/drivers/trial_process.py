"""A worker process, which receives assignments and sends answers over a pipe.

The process runs `python -m study.drivers.trial_process`; `TrialProcess` is the handle for the process. The process
leads a group, which ends with it: a process that a method forks does not outlive the worker.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType

import msgspec

from study.drivers.causes import is_of_the_method
from study.drivers.messages import ASSIGNMENTS, MESSAGES, Assignment, Loss, Message
from study.drivers.worker import Worker
from study.facts.study_folder import WORKERS_LOG
from study.terminal.processes import STOP_SIGNALS
from trainables.files.method_files import format_error

STARTED = b""  # the first message of a process, which has then imported its modules
STEP, RELEASE = b"step", b"release"  # messages other than assignments: run a step; free the trial
NICENESS = 5  # added to the launch's niceness, so that the driver has priority on busy CPUs; Ray does the same
START_SECONDS = 600.0  # longest wait for the end of a process that is still importing
LEAVE_SECONDS = 10.0  # longest wait for the end of an idle process, in which a method may have left a thread
SILENCE_FACTOR = 10.0  # a process hangs if a step takes this much longer than its longest step so far
LOOK_SECONDS = 5.0  # longest time that counts between two looks; this process may have been stopped or starved
TRACE_SECONDS = 1.0  # for a process that hangs, to write the traces of its threads to its log
PLACE_BYTES = 128
# Options of Linux's prctl: send a signal when the parent ends; become the parent of orphaned descendants.
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# The signals by which a process ends itself. The other signals come from elsewhere, such as the kernel's out-of-memory
# killer (SIGKILL).
CRASHES = (
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
)


class ProcessLost(Exception):
    """The error for a process that has ended or is about to end; `loss` gives the reason."""

    def __init__(self, loss: Loss):
        """Store the reason; it is also the error's message."""
        super().__init__(loss.error)
        self.loss = loss


class TrialProcess:
    """The handle of a worker process. The process is busy while an assignment or a `STEP` has no answer yet.

    After work that runs a user's own methods, the process is spent: their code may have changed anything in it.
    """

    def __init__(self, *, gpus: str | None, threads: int, log: Path | None, niceness: int = NICENESS):
        """Start the process.

        Args:
            gpus: CUDA_VISIBLE_DEVICES of the process; None means that of this process.
            threads: number of CPU threads; this process's OMP_NUM_THREADS has no effect.
            log: file to which the process's output is appended. None, or a file that cannot be opened, means the
                output of this process.
            niceness: added to that of this process.
        """
        _adopt_orphans()
        self.connection, worker_end = Pipe()
        place = _anonymous_file()  # what the process does now, as its last words if it crashes
        variables = {"OMP_NUM_THREADS": str(threads)}
        variables["PYTHONUNBUFFERED"] = "1"  # so that a killed process has logged its output
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # Ray gives its workers the launch's
        if gpus is not None:
            variables["CUDA_VISIBLE_DEVICES"] = gpus
        descriptors = [worker_end.fileno(), place]
        command = [sys.executable, "-m", __name__, *map(str, descriptors), str(os.getpid()), str(niceness)]
        output = _open_log(log)
        with worker_end:
            self._process = subprocess.Popen(
                command,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | variables,
                start_new_session=True,  # Ctrl-C reaches only the launcher, and the process leads its own group
            )
        if output is not None:
            os.close(output)
        # Readable once the process has exited, although a forked child may still hold the pipe; Linux only.
        self._exit = os.pidfd_open(self._process.pid) if hasattr(os, "pidfd_open") else None
        self._place: int | None = place
        self.is_busy = self.is_spent = self._has_started = False
        self._silence_seconds, self._longest_seconds, self._allowed_seconds = 0.0, 0.0, float("inf")
        self._looked = time.monotonic()
        self._deadline = float("inf")  # until when a process that is asked to end may take

    @property
    def handles(self) -> list[Connection | int]:
        """What `multiprocessing.connection.wait` can wait for: if one of these is ready, `receive` does not block."""
        return [self.connection, *([] if self._exit is None else [self._exit])]

    def send(self, message: Assignment | bytes) -> None:
        """Send an assignment (which starts its first step), `STEP` or `RELEASE`.

        Raises:
            ProcessLost: if the process has ended.
        """
        if message != RELEASE:
            self.is_busy, self._silence_seconds, self._looked = True, 0.0, time.monotonic()
        if isinstance(message, Assignment):
            self._allowed_seconds = message.silence_seconds
            self.is_spent = self.is_spent or message.runs_own_methods
        try:
            self.connection.send_bytes(message if isinstance(message, bytes) else msgspec.json.encode(message))
        except OSError:
            raise ProcessLost(self._find_loss()) from None

    def receive(self) -> Message | None:
        """Wait for the answer to a step; return None if the process has only started.

        Raises:
            ProcessLost: if the process has ended, or has reported an exception that ends it.
        """
        if self.connection not in wait(self.handles):
            raise ProcessLost(self._find_loss())  # it has exited, although a forked child may still hold the pipe
        try:
            received = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise ProcessLost(self._find_loss()) from None
        if received == STARTED:
            self._has_started = True
            return None
        self.is_busy, self._longest_seconds = False, max(self._longest_seconds, self._silence_seconds)
        message: Message = MESSAGES.read(received, where="a message of a worker")
        if message.lost is not None:
            self.end()
            self.wait()
            raise ProcessLost(message.lost)
        return message

    def check_silence(self) -> None:
        """End the process if a step takes much longer than any step of this process before; call this regularly.

        Only the time counts in which this process runs as well.

        Raises:
            ProcessLost: if the process hung, and was therefore ended.
        """
        now = time.monotonic()
        self._silence_seconds += min(now - self._looked, LOOK_SECONDS)
        self._looked = now
        if not self.is_busy or self._silence_seconds < max(
            self._allowed_seconds, SILENCE_FACTOR * self._longest_seconds
        ):
            return
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGQUIT)  # it writes the traces of its threads
        self._has_exited(within=TRACE_SECONDS)
        place = self._read_place()
        self.end()
        self.wait()
        raise ProcessLost(Loss(error=f"its process hung{place}; see {WORKERS_LOG}", is_crash=True))

    def end(self) -> None:
        """Ask an idle process to end, or kill a busy one; call `wait` afterwards."""
        self.connection.close()
        may_be_importing = not (self._has_started or self.is_busy)
        self._deadline = time.monotonic() + (START_SECONDS if may_be_importing else LEAVE_SECONDS)
        if self.is_busy:
            self._end_group()

    @property
    def is_leaving(self) -> bool:
        """True if `wait` would block, because a process that was asked to end has not ended yet."""
        return not self._has_exited(within=0) and time.monotonic() < self._deadline

    def wait(self) -> bool:
        """Wait until the process has ended, and end its group. Return False if an idle process had to be killed."""
        has_ended = self._has_exited(within=max(0.0, self._deadline - time.monotonic()))
        self._end_group()
        with suppress(subprocess.TimeoutExpired):  # a process that waits for the kernel cannot be killed
            self._process.wait(timeout=LEAVE_SECONDS)
            self._reap_group()
        for descriptor in (self._exit, self._place):
            if descriptor is not None:
                os.close(descriptor)
        self._exit = self._place = None
        return has_ended

    def _has_exited(self, *, within: float) -> bool:
        """Wait for the exit of the process. On Linux, its number stays its own until `Popen.wait`."""
        if self._exit is not None:
            return bool(wait([self._exit], timeout=within))
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=within)
        return self._process.returncode is not None

    def _end_group(self) -> None:
        """Kill the process and all that it has forked; nothing else can have the group's number before `Popen.wait`."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _reap_group(self) -> None:
        """Collect the exit statuses of killed orphans; in a container, nobody else may, and they would stay."""
        deadline = time.monotonic() + LEAVE_SECONDS
        with suppress(ChildProcessError):
            while time.monotonic() < deadline:
                number, _ = os.waitpid(-self._process.pid, os.WNOHANG)
                if number == 0:
                    time.sleep(0.01)

    def _find_loss(self) -> Loss:
        """Wait for the end of a process that has closed its pipe, and describe it."""
        self.is_busy, place = False, self._read_place()
        self.end()
        has_ended = self.wait()
        status = -signal.SIGKILL if self._process.returncode is None else self._process.returncode
        see = f"{place}; see {WORKERS_LOG}"
        if not has_ended:
            return Loss(error=f"its process closed its connection to the launch{see}", is_crash=True)
        if status < 0:
            number = signal.Signals(-status)
            verb = "ended" if number in CRASHES else "killed"
            return Loss(error=f"its process was {verb} by {number.name}{see}", is_crash=number in CRASHES)
        return Loss(error=f"its process ended itself with exit status {status}{see}", is_crash=self._has_started)

    def _read_place(self) -> str:
        words = os.pread(self._place, PLACE_BYTES, 0).rstrip(b"\0 ").decode() if self._place is not None else ""
        return f" {words}" if words else ""


@cache
def _adopt_orphans() -> None:
    """Let the kernel make this process the parent of what its workers leave behind; only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _anonymous_file() -> int:
    """Open a file without a name, in memory if the system can."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("place")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _open_log(log: Path | None) -> int | None:
    if log is None:
        return None
    try:
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError:
        return None


# ---- the process


def main() -> None:
    """Work for the launch that started this process, until the launch closes the pipe or ends."""
    pipe, place, launch, niceness = map(int, sys.argv[1:])
    _end_with_launch(launch)
    _fork_guard()
    faulthandler.enable()
    faulthandler.register(signal.SIGQUIT)
    for number in STOP_SIGNALS:  # schedulers signal every process of a job; the launch decides what is saved
        signal.signal(number, _ignore)
    os.nice(niceness)
    with Connection(pipe) as connection:
        os.register_at_fork(after_in_child=lambda: _leave_to_parent(connection))
        try:
            _work(connection, place)
        except Exception as error:  # noqa: BLE001  # the launch reports it with its trial
            traceback.print_exc()
            lost = Message(lost=Loss(error=format_error(error), is_crash=is_of_the_method(error)))
            with suppress(OSError):
                connection.send_bytes(msgspec.json.encode(lost))
            sys.exit(1)
    faulthandler.dump_traceback_later(0.8 * LEAVE_SECONDS)  # names a thread that keeps this process from ending


def _work(connection: Connection, place: int) -> None:
    worker = Worker(lambda words: _write_place(place, words))
    connection.send_bytes(STARTED)
    while True:
        try:
            received = connection.recv_bytes()
        except EOFError:
            worker.release()
            return
        if received == RELEASE:
            worker.release()
            continue
        if received != STEP:
            assignment = ASSIGNMENTS.read(received, where="an assignment")
            worker.begin(assignment, node=assignment.node or socket.gethostname())
        connection.send_bytes(msgspec.json.encode(worker.step()))


def _write_place(descriptor: int, words: str) -> None:
    os.pwrite(descriptor, words.encode()[:PLACE_BYTES].ljust(PLACE_BYTES), 0)


def _end_with_launch(launch: int) -> None:
    """Have the kernel kill this process when the launch ends; exit if the launch has already ended.

    Only Linux can kill it. On other systems, the process notices the end of the launch after its current step.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launch:
        sys.exit("the launch has ended")


def _fork_guard() -> None:
    """Fork a process that kills this process group when this process has ended, even if the launch was killed.

    Without `pidfd_open` (only Linux has it), only the launch ends the group.
    """
    if not hasattr(os, "pidfd_open"):
        return
    worker = os.pidfd_open(os.getpid())
    if os.fork():
        os.close(worker)
        return
    os.closerange(3, worker)  # the pipe, which must end with the worker
    os.closerange(worker + 1, 256)
    for number in (*STOP_SIGNALS, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wait([worker])
    os.killpg(0, signal.SIGKILL)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignore a signal. Unlike `SIG_IGN`, a program that a method starts does not inherit this."""


def _leave_to_parent(connection: Connection) -> None:
    """Close the pipe in a forked child, and let signals end it."""
    connection.close()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main()
