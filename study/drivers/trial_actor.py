"""The Ray actor that runs trials, one assignment after another. Ray's own checkpoints are not used.

Ray reuses an actor for any trial. Therefore, work that runs a user's own methods has a process of its own.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import ray
from msgspec.structs import replace
from ray import tune

from study.drivers.messages import ASSIGNMENTS, Message
from study.drivers.trial_process import STEP, TrialProcess
from study.drivers.worker import Worker

MESSAGE = "message"  # the only key of Ray's configs and results; its value is JSON, which Ray does not flatten or copy
WAIT_SECONDS = 0.1  # between two checks of the other actors' smoke steps


class TrialActor(tune.Trainable):
    """An actor that works on the assignment in `config`; a step ends after one second or at the epoch's end."""

    _worker: Worker | None = None
    _process: TrialProcess | None = None  # runs the assignment instead of `_worker`, and ends with it

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the assignment in `config`. Ray calls this method when the actor starts."""
        assignment = ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment")
        if self._worker is None:
            self._worker = Worker()
            if assignment.log is not None:
                _print_to(assignment.log)
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else None
        if assignment.runs_own_methods:
            gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            self._process = TrialProcess(gpus=gpus, threads=assignment.threads, log=None)
            self._process.send(replace(assignment, node=node))
        else:
            self._worker.begin(assignment, node=node)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another assignment in the same actor."""
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Run a step, and return its message for the driver, as JSON."""
        assert self._worker is not None
        message = self._step_process(self._process) if self._process else self._worker.step()
        if not (message.news or message.steps or message.smoke):  # this actor waits for the smoke steps of others
            time.sleep(WAIT_SECONDS)
        return {MESSAGE: msgspec.json.encode(message).decode()}

    def cleanup(self) -> None:
        """Free the memory of the trial, and release its folder."""
        assert self._worker is not None
        self._worker.release()
        if self._process:
            self._process.end()
            self._process.wait()
            self._process = None

    @staticmethod
    def _step_process(process: TrialProcess) -> Message:
        if not process.is_busy:  # a new process begins with its first step
            process.send(STEP)
        return process.receive()


def _print_to(log: str) -> None:
    """Redirect the output of this process to a file, or leave it to Ray if the file cannot be opened."""
    with suppress(OSError), Path(log).open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
