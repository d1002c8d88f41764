"""A worker process of the launch on this machine, which gets assignments and answers over a pipe.

`python -m study.drivers.trial_process` is the process, `TrialProcess` its handle in the launch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from study.drivers.messages import ASSIGNMENTS, MESSAGES, Assignment, Message
from study.drivers.worker import Worker
from study.facts.study_folder import WORKERS_LOG

STEP, RELEASE = b"step", b"release"  # messages beside assignments: to go on; to release its trial
NICENESS = 5  # over the launch's own, as Ray's workers have: if processors are short the driver goes first
END_SECONDS = 600.0  # for a process that is idle; one that still imports on a busy machine takes minutes
PR_SET_PDEATHSIG = 1  # of Linux's prctl: a signal when the parent is gone


class ProcessLost(Exception):
    """A process that is gone, or about to be, with what ended it."""


class TrialProcess:
    """A process that is busy from an assignment or a step to its answer."""

    def __init__(self, *, gpus: str, threads: int, log: Path):
        """Start it; `gpus`: the CUDA_VISIBLE_DEVICES of the process; its output is appended to `log`."""
        self.connection, worker_end = Pipe()
        self.is_busy = False
        variables = {"CUDA_VISIBLE_DEVICES": gpus, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
        variables["PYTHONUNBUFFERED"] = "1"  # what a method prints is in the log at once, even if the process is killed
        command = [sys.executable, "-m", __name__, str(worker_end.fileno()), str(os.getpid())]
        with worker_end, log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                pass_fds=[worker_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | variables,
                start_new_session=True,  # Ctrl-C is the launcher's
            )

    def tell(self, what: Assignment | bytes) -> None:
        """Send an assignment, whose first step follows, the next step (`STEP`), or a release (`RELEASE`).

        Raises:
            ProcessLost: it is gone.
        """
        self.is_busy = self.is_busy or what != RELEASE
        try:
            self.connection.send_bytes(what if isinstance(what, bytes) else msgspec.json.encode(what))
        except OSError:
            raise ProcessLost(self._end_in_words()) from None

    def hear(self) -> Message:
        """Wait for the message after a step.

        Raises:
            ProcessLost: it is gone.
        """
        try:
            received = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise ProcessLost(self._end_in_words()) from None
        self.is_busy = False
        message: Message = MESSAGES.read(received, where="a message of a worker")
        if message.broken is not None:
            self.end()
            self.wait()
            raise ProcessLost(message.broken)
        return message

    def end(self) -> None:
        """End it, at once if it is busy; `wait` is to follow."""
        self.connection.close()
        if self.is_busy:
            self._process.kill()

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        try:
            self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._process.returncode

    def _end_in_words(self) -> str:
        self.is_busy = False  # it has closed its end: it is ending by itself
        self.end()
        status = self.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"its process {how}; see {WORKERS_LOG}"


def main() -> None:
    """Work for the launch that started this process, until that closes the pipe or is gone."""
    pipe, launch = map(int, sys.argv[1:])
    _end_with(launch)
    os.nice(NICENESS)
    with Connection(pipe) as connection:
        try:
            _work(connection)
        except Exception as error:  # noqa: BLE001  # the launch tells whose trials this was
            traceback.print_exc()
            lines = str(error).strip().splitlines() or [""]
            broken = Message(broken=f"{type(error).__name__}: {lines[0]}")
            with suppress(OSError):
                connection.send_bytes(msgspec.json.encode(broken))
            sys.exit(1)


def _work(connection: Connection) -> None:
    worker = Worker()
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
            worker.begin(ASSIGNMENTS.read(received, where="an assignment"), node=socket.gethostname())
        connection.send_bytes(msgspec.json.encode(worker.step()))


def _end_with(launch: int) -> None:
    """Have the kernel kill this process when the launch is gone; exit if it already is.

    Without Linux, a process that trains ends at its next message.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launch:
        sys.exit("the launch is gone")


if __name__ == "__main__":
    main()
