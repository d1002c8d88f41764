"""The Ray actor that runs trials, one assignment after another. Ray's own checkpoints are not used.

The trials run in a process that the actor starts, because Ray does not report how a process ended.
"""

from __future__ import annotations

import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import msgspec
import ray
from msgspec.structs import replace
from ray import tune

from study.drivers.messages import ASSIGNMENTS, Assignment, Message
from study.drivers.trial_process import RELEASE, STEP, ProcessLost, TrialProcess

MESSAGE = "message"  # the only key of Ray's configs and results; its value is JSON, which Ray does not flatten or copy
WAIT_SECONDS = 0.1  # between two checks of the other actors' smoke steps
LOOK_SECONDS = 1.0  # between two checks of a silent process


class TrialActor(tune.Trainable):
    """An actor that works on the assignment in `config`; a step ends after one second or at the epoch's end."""

    _process: TrialProcess | None = None
    _assignment: Assignment | None = None  # not yet sent to the process
    _node: str | None = None  # id of the node

    def setup(self, config: dict[str, Any]) -> None:
        """Take the assignment in `config`. Ray calls this method when the actor starts."""
        assignment = ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment")
        self._node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else None
        self._assignment = replace(assignment, node=self._node)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take another assignment in the same actor."""
        if self._process is not None and self._process.is_spent:
            self.cleanup()
        elif self._process is not None:
            try:
                self._process.send(RELEASE)
            except ProcessLost:
                self._process = None
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Run a step, and return its message for the driver, as JSON."""
        try:
            message = self._exchange()
        except ProcessLost as lost:
            self._process = None
            message = Message(lost=lost.loss, node=self._node)
        if not (message.key or message.steps or message.smoke or message.lost):  # waits for the smoke steps of others
            time.sleep(WAIT_SECONDS)
        return {MESSAGE: msgspec.json.encode(message).decode()}

    def cleanup(self) -> None:
        """End the process. Ray calls this method when the actor ends."""
        if self._process is not None:
            self._process.end()
            self._process.wait()
            self._process = None

    def _exchange(self) -> Message:
        """Send the assignment or `STEP` to the process, and wait for the answer."""
        assignment, self._assignment = self._assignment, None
        if assignment is not None and self._process is None:
            log = Path(assignment.log) if assignment.log else None
            self._process = TrialProcess(gpus=None, threads=assignment.threads, log=log, niceness=0)
        if self._process is None:  # it was lost, and the driver has not taken the assignment back yet
            return Message()
        self._process.send(assignment or STEP)
        while True:
            if not wait(self._process.handles, timeout=LOOK_SECONDS):
                self._process.check_silence()
            elif message := self._process.receive():
                return message
