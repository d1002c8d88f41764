"""The Ray actor that runs trials, one assignment after another. Ray's own checkpoints are not used."""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

import msgspec
import ray
from msgspec.structs import replace
from ray import tune

from study.drivers.messages import ASSIGNMENTS, Assignment, Message
from study.drivers.running_trial import RunningTrial
from study.drivers.smoke_steps import smoke_report
from trainables.method_files import include

MESSAGE = "message"  # the one value of a Ray config and of a Ray result: JSON, so that Ray flattens and copies nothing
WAIT_SECONDS = 0.1  # for the smoke steps of other actors, between two looks


class TrialActor(tune.Trainable):
    """Runs the trials of the assignment in `config`; one `step` is one epoch of each."""

    _trials: list[RunningTrial] = []
    _smoke: Assignment | None = None  # whose steps are to be taken first
    _node: str | None = None  # Ray's number of it

    def setup(self, config: dict[str, Any]) -> None:
        self._begin(ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment"))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        news = tuple(trial.next_news() for trial in self._trials if not trial.is_over)
        message = Message(news=news, node=self._node)
        if smoke := self._smoke:
            message = replace(message, smoke=smoke_report(smoke.smoke, device=smoke.device, node=self._node))
            self._smoke = None
        elif not self._trials:  # its smoke steps are taken, those of others are not
            time.sleep(WAIT_SECONDS)
        return {MESSAGE: msgspec.json.encode(message).decode()}

    def cleanup(self) -> None:
        self._release()

    def _begin(self, assignment: Assignment) -> None:
        self._release()
        self._node, gpu = place_of_actor() if ray.is_initialized() else (None, None)
        include(assignment.included)
        _set_threads(assignment.threads)
        self._smoke = assignment if assignment.smoke else None
        gpus = assignment.gpus / max(1, len(assignment.trials))
        self._trials = []
        for assigned in assignment.trials:
            self._trials.append(RunningTrial(assigned, device=assignment.device, gpus=gpus, gpu=gpu, node=self._node))

    def _release(self) -> None:
        """Lets go of the models, their memory and their folders before the next assignment."""
        for trial in self._trials:
            trial.release()
        self._trials = []
        gc.collect()
        gc.freeze()  # modules: half a million objects that need not be looked through after each trial
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()


def place_of_actor() -> tuple[str, str | None]:
    """Ray's numbers of the node and, where the actor holds any of one, of its GPU there."""
    return ray.get_runtime_context().get_node_id(), ",".join(map(str, ray.get_gpu_ids())) or None


def _set_threads(number: int) -> None:
    """Of torch; where it cannot be loaded, the trials say so as theirs."""
    try:
        import torch
    except (ImportError, OSError):
        return
    torch.set_num_threads(number)
