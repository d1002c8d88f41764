"""Launches that train, and write their tables and report, in the process of the test: a new process takes seconds."""

from __future__ import annotations

import socket
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from helpers.trials import training_on_few_rows

from analysis import report
from study.drivers.messages import ASSIGNMENTS, MESSAGES, Assignment, Message
from study.drivers.trial_process import RELEASE
from study.drivers.worker import Worker
from study.facts.events import TimesMeasured
from study.time import Options


class WorkerHere:
    """Stands for `TrialProcess`: each step is made at once, and its answer waits until it is received."""

    is_leaving = False

    def __init__(self, **_: Any) -> None:
        self._worker, self._answers = Worker(), deque[bytes]()
        self._is_ready, self._wake = Pipe(duplex=False)
        self.is_spent = False

    @property
    def handles(self) -> list[Connection]:
        return [self._is_ready]

    def send(self, message: Assignment | bytes) -> None:
        if message == RELEASE:
            self._worker.release()
            return
        if isinstance(message, Assignment):
            self.is_spent = self.is_spent or message.runs_own_methods
            received = ASSIGNMENTS.read(msgspec.json.encode(message), where="an assignment")
            self._worker.begin(received, node=received.node or socket.gethostname())
        self._answers.append(msgspec.json.encode(self._worker.step()))
        self._wake.send_bytes(b"")

    def receive(self) -> Message:
        self._is_ready.recv_bytes()
        return MESSAGES.read(self._answers.popleft(), where="a message of a worker")

    def check_silence(self) -> None:
        """Nothing: it never hangs."""

    def end(self) -> None:
        self._worker.release()

    def wait(self) -> bool:
        self._is_ready.close()
        self._wake.close()
        return True


def analyse_here(folder: Path) -> bool:
    """Stands for `study.rebuild.analyse`."""
    with redirect_stdout(StringIO()):
        return report.main([str(folder)]) == 0


def measure_nothing(options: Options) -> TimesMeasured:
    """Stands for `study.time.measure_times`."""
    raise subprocess.CalledProcessError(1, "study.stored_models.time_models")


@contextmanager
def training_here() -> Iterator[None]:
    """Launches with `--driver local` start no process for trials, which train on few rows, and measure no times."""
    with training_on_few_rows(), pytest.MonkeyPatch.context() as here:
        here.setattr("study.drivers.local_driver.TrialProcess", WorkerHere)
        here.setattr("study.launching.child_processes.measure_times", measure_nothing)
        yield


@contextmanager
def launching_here() -> Iterator[None]:
    """`training_here`, and tables and report are written here too."""
    with training_here(), pytest.MonkeyPatch.context() as here:
        here.setattr("study.rebuild.analyse", analyse_here)
        yield
