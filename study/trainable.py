"""The Ray actor that runs trials, one after another: training is `trainables.runs.training`, this only carries it.

A trial keeps its state in the study's storage; whoever runs the trial next finds it there and goes on. So Ray's own
checkpoints are not used, and a trial that comes back first repeats the rows it had reported.
"""

from __future__ import annotations

import gc
import json
import socket
import sys
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune

from study.journal import write_json
from study.storage import local_model, place_at

if TYPE_CHECKING:
    from trainables.runs.training import TrainingRun

MESSAGE = "message"  # the one value of a Ray config and of a Ray result: JSON, so that Ray flattens and copies nothing


class StudyTrainable(tune.Trainable):
    """Runs the trial that `config` describes; one `step` is one epoch."""

    def setup(self, config: dict[str, Any]) -> None:
        self._begin(json.loads(config[MESSAGE]))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(json.loads(new_config[MESSAGE]))
        return True

    def step(self) -> dict[str, Any]:
        return {MESSAGE: json.dumps(self._next_row())}

    def cleanup(self) -> None:
        self._release()

    def _begin(self, assignment: dict[str, Any]) -> None:
        """`assignment`: a `TrialSpec`'s fields as `spec`, the trial's place as `folder` (path or URI), `predictions`
        (path, also from within that place, or null where neither they nor the model stay), `device`, `cpus`, `gpus`,
        `threads`."""
        import torch

        self._release()
        torch.set_num_threads(assignment["threads"])
        self._assignment = assignment
        self._place = place_at(assignment["folder"])
        self._held = ExitStack()
        self._folder = self._held.enter_context(self._place.work())
        self._clock = Clock(self._folder / "clock.json", gpus=assignment["gpus"])
        self._refused: str | None = None
        try:
            self._run = self._resumed_run() if (self._folder / "state.pt").exists() else self._new_run()
        except ValueError as error:  # nothing that trying again would mend
            self._refused = str(error)
            return
        self._known = deque(self._run.history)

    def _resumed_run(self) -> TrainingRun:
        from trainables.data.tokenised import cache_folder
        from trainables.runs.training import TrainingRun

        return TrainingRun.resume(self._folder, device=self._assignment["device"], cache=cache_folder())

    def _new_run(self) -> TrainingRun:
        from trainables.data.tokenised import cache_folder
        from trainables.runs.training import TrainingRun, TrialSpec

        spec = TrialSpec(**self._assignment["spec"])
        with ExitStack() as stack:
            start = spec.start_from and str(stack.enter_context(local_model(spec.start_from)))
            where = {"device": self._assignment["device"], "cache": cache_folder()}
            run = TrainingRun(replace(spec, start_from=start), **where)
        run.spec = spec  # says where the start lies for everybody
        return run

    def _next_row(self) -> dict[str, Any]:
        from trainables.runs.training import TrainingError

        if self._refused:
            return {"error": self._refused}
        try:
            row = dict(self._known.popleft() if self._known else self._train_epoch())
            if row["finished"]:
                row["outcome"] = self._outcome()
        except TrainingError as error:
            return {"error": str(error)}
        return row | {
            **self._clock.read(),
            "host": socket.gethostname(),
            "device": self._assignment["device"],
            "gpu_share": gpu_share(self._assignment["device"]),
        }

    def _train_epoch(self) -> dict[str, Any]:
        row = self._run.run_epoch()
        self._run.save(self._folder)
        self._clock.save()
        self._place.send_state(self._folder, epoch=row["epoch"])
        return row

    def _outcome(self) -> dict[str, Any]:
        """The run's outcome, with the address of its model if that stays."""
        predictions = self._assignment["predictions"]
        if predictions is None:
            return self._run.outcome() | {"model": None}
        outcome = self._run.outcome(predictions=self._folder / predictions)
        return outcome | {"model": self._place.send_outcome(Path(outcome["model"]))}

    def _release(self) -> None:
        """Lets go of the model, its memory and its folder before the next trial."""
        vars(self).pop("_run", None)
        if held := vars(self).pop("_held", None):
            held.close()
        gc.collect()
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()


class Clock:
    """Seconds that a trial has been worked on, and those times its share of a GPU, over all processes that did."""

    def __init__(self, path: Path, *, gpus: float):
        self._path = path
        self._gpus = gpus
        self._before = json.loads(path.read_text()) if path.exists() else {"wall_seconds": 0.0, "gpu_seconds": 0.0}
        self._started = time.monotonic()

    def read(self) -> dict[str, float]:
        """`wall_seconds` and `gpu_seconds` so far."""
        seconds = time.monotonic() - self._started
        spent = {"wall_seconds": seconds, "gpu_seconds": seconds * self._gpus}
        return {name: self._before[name] + value for name, value in spent.items()}

    def save(self) -> None:
        write_json(self._path, self.read())


def gpu_share(device: str) -> float | None:
    """The largest part of the GPU's memory that this process has held since its trial began; null on a CPU."""
    if device == "cpu":
        return None
    import torch

    return torch.cuda.max_memory_reserved() / torch.cuda.get_device_properties(0).total_memory
