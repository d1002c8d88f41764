"""A local worker process, which receives assignments and sends answers over a pipe.

The process runs `python -m study.drivers.trial_process`; `TrialProcess` is the launch's handle for the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import nullcontext, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from study.drivers.messages import ASSIGNMENTS, MESSAGES, Assignment, Message
from study.drivers.worker import Worker
from study.facts.study_folder import WORKERS_LOG

STEP, RELEASE = b"step", b"release"  # messages other than assignments: run a step; free the trial
NICENESS = 5  # added to the launch's niceness, so that the driver has priority on busy CPUs; Ray does the same
END_SECONDS = 600.0  # longest wait for an idle process to end; one that is still importing may take minutes
PR_SET_PDEATHSIG = 1  # option of Linux's prctl: send a signal when the parent ends


class ProcessLost(Exception):
    """The error for a process that has ended or is about to end; the error's message gives the reason."""


class TrialProcess:
    """The handle of a worker process. The process is busy while an assignment or a `STEP` has no answer yet.

    After work that runs a user's own methods, the process must end: their code may have changed anything in it.
    """

    def __init__(self, *, gpus: str, threads: int, log: Path | None):
        """Start the process with `gpus` as CUDA_VISIBLE_DEVICES.

        Its output is appended to `log`, or goes where this process's output goes.
        """
        self.connection, worker_end = Pipe()
        self.is_busy = False
        variables = {"CUDA_VISIBLE_DEVICES": gpus, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
        variables["PYTHONUNBUFFERED"] = "1"  # so that a killed process has logged its output
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # Ray gives its workers the launch's
        command = [sys.executable, "-m", __name__, str(worker_end.fileno()), str(os.getpid())]
        with worker_end, log.open("ab") if log else nullcontext() as output:
            self._process = subprocess.Popen(
                command,
                pass_fds=[worker_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | variables,
                start_new_session=True,  # Ctrl-C reaches only the launcher
            )

    def send(self, message: Assignment | bytes) -> None:
        """Send an assignment (which starts its first step), `STEP` or `RELEASE`.

        Raises:
            ProcessLost: if the process has ended.
        """
        self.is_busy = self.is_busy or message != RELEASE
        try:
            self.connection.send_bytes(message if isinstance(message, bytes) else msgspec.json.encode(message))
        except OSError:
            raise ProcessLost(self._describe_end()) from None

    def receive(self) -> Message:
        """Wait for the answer to a step.

        Raises:
            ProcessLost: if the process has ended, or has reported an exception that ends it.
        """
        try:
            received = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise ProcessLost(self._describe_end()) from None
        self.is_busy = False
        message: Message = MESSAGES.read(received, where="a message of a worker")
        if message.broken is not None:
            self.end()
            self.wait()
            raise ProcessLost(message.broken)
        return message

    def end(self) -> None:
        """Ask an idle process to end, or kill a busy one; call `wait` afterwards."""
        self.connection.close()
        if self.is_busy:
            self._process.kill()

    def wait(self) -> int:
        """Wait until the process has ended, and return its exit status. After `END_SECONDS`, kill the process."""
        try:
            self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._process.returncode

    def _describe_end(self) -> str:
        self.is_busy = False  # the process has closed the pipe, so it is ending
        self.end()
        status = self.wait()
        if status < 0:
            return f"its process was killed by {signal.Signals(-status).name}; see {WORKERS_LOG}"
        return f"its process ended with status {status}; see {WORKERS_LOG}"


def main() -> None:
    """Work for the launch that started this process, until the launch closes the pipe or ends."""
    pipe, launch = map(int, sys.argv[1:])
    _end_with_launch(launch)
    os.nice(NICENESS)
    with Connection(pipe) as connection:
        try:
            _work(connection)
        except Exception as error:  # noqa: BLE001  # the launch reports it with its trial
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
            assignment = ASSIGNMENTS.read(received, where="an assignment")
            worker.begin(assignment, node=assignment.node or socket.gethostname())
        connection.send_bytes(msgspec.json.encode(worker.step()))


def _end_with_launch(launch: int) -> None:
    """Have the kernel kill this process when the launch ends; exit if the launch has already ended.

    Only Linux can kill it. On other systems, the process notices the end of the launch after its current step.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launch:
        sys.exit("the launch has ended")


if __name__ == "__main__":
    main()
