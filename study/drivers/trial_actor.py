"""The Ray actor that runs trials, one assignment after another. Ray's own checkpoints are not used."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray import tune

from study.drivers.messages import ASSIGNMENTS
from study.drivers.worker import Worker

MESSAGE = "message"  # the one value of a Ray config and of a Ray result: JSON, so that Ray flattens and copies nothing
WAIT_SECONDS = 0.1  # for the smoke steps of other actors, between two looks


class TrialActor(tune.Trainable):
    """An actor that runs the trial of the assignment in `config`; one `step` is one epoch, or a second of it."""

    _worker: Worker | None = None

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the assignment of a new actor."""
        assignment = ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment")
        if self._worker is None:
            self._worker = Worker()
            _print_to(assignment.log)
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else None
        self._worker.begin(assignment, node=node)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin the next assignment of a warm actor."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Run a step, and return its message for the driver."""
        assert self._worker is not None
        message = self._worker.step()
        if not (message.news or message.steps or message.smoke):  # its smoke steps are taken, those of others are not
            time.sleep(WAIT_SECONDS)
        return {MESSAGE: msgspec.json.encode(message).decode()}

    def cleanup(self) -> None:
        """Release the trial."""
        assert self._worker is not None
        self._worker.release()


def _print_to(log: str | None) -> None:
    """Append what this process prints to a file; a node that cannot open it leaves it to Ray's session."""
    if log is None:
        return
    with suppress(OSError), Path(log).open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
