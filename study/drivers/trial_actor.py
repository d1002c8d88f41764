"""The Ray actor that runs trials, one assignment after another. Ray's own checkpoints are not used."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import ray
from ray import tune

from study.drivers.messages import ASSIGNMENTS
from study.drivers.worker import Worker

MESSAGE = "message"  # the one value of a Ray config and of a Ray result: JSON, so that Ray flattens and copies nothing
WAIT_SECONDS = 0.1  # for the smoke steps of other actors, between two looks


class TrialActor(tune.Trainable):
    """Runs the trial of the assignment in `config`; one `step` is one epoch, or a second of it."""

    _worker: Worker | None = None

    def setup(self, config: dict[str, Any]) -> None:
        self._worker = self._worker or Worker()
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else None
        self._worker.begin(ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment"), node=node)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        assert self._worker is not None
        message = self._worker.step()
        if not (message.news or message.steps or message.smoke):  # its smoke steps are taken, those of others are not
            time.sleep(WAIT_SECONDS)
        return {MESSAGE: msgspec.json.encode(message).decode()}

    def cleanup(self) -> None:
        assert self._worker is not None
        self._worker.release()
