"""The Ray actor that runs trials, one after another: training is `trainables.training`, this only carries it.

A trial keeps its state under `checkpoints/<key>`; whoever runs the trial next finds it there and goes on. So Ray's own
checkpoints are not used, and a trial that comes back first repeats the rows it had reported.
"""

from __future__ import annotations

import fcntl
import gc
import json
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import IO, Any

from ray import tune

from study.journal import write_json

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
        """`assignment`: a `TrialSpec`'s fields as `spec`, `folder`, `predictions` (path or null), `device`, `cpus`,
        `gpus`, `threads`."""
        import torch

        from trainables.tokenised import cache_folder
        from trainables.training import TrainingRun, TrialSpec

        self._release()
        torch.set_num_threads(assignment["threads"])
        self._assignment = assignment
        self._folder = Path(assignment["folder"])
        self._lock = hold(self._folder)
        self._clock = Clock(self._folder / "clock.json")
        where = {"device": assignment["device"], "cache": cache_folder()}
        self._refused: str | None = None
        try:
            if (self._folder / "state.pt").exists():
                self._run = TrainingRun.resume(self._folder, **where)
            else:
                self._run = TrainingRun(TrialSpec(**assignment["spec"]), **where)
        except ValueError as error:  # nothing that trying again would mend
            self._refused = str(error)
            return
        self._known = deque(self._run.history)

    def _next_row(self) -> dict[str, Any]:
        from trainables.training import TrainingError

        if self._refused:
            return {"error": self._refused}
        try:
            row = dict(self._known.popleft() if self._known else self._train_epoch())
            if row["finished"]:
                row["outcome"] = self._run.outcome(predictions=self._predictions())
        except TrainingError as error:
            return {"error": str(error)}
        wall_seconds = self._clock.seconds()
        return row | {
            "wall_seconds": wall_seconds,
            "gpu_seconds": wall_seconds * self._assignment["gpus"],
            "host": socket.gethostname(),
            "device": self._assignment["device"],
            "gpu_share": gpu_share(self._assignment["device"]),
        }

    def _train_epoch(self) -> dict[str, Any]:
        row = self._run.run_epoch()
        self._run.save(self._folder)
        self._clock.save()
        return row

    def _predictions(self) -> Path | None:
        path = self._assignment["predictions"]
        return Path(path) if path else None

    def _release(self) -> None:
        """Lets go of the model and its memory before the next trial."""
        vars(self).pop("_run", None)
        if lock := vars(self).pop("_lock", None):
            lock.close()
        gc.collect()
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()


def hold(folder: Path) -> IO[bytes]:
    """The trial's lock, once nobody else holds it: an actor whose launcher was killed lives on for a moment."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "trial.lock").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


class Clock:
    """Seconds that a trial has been worked on, over all processes that did."""

    def __init__(self, path: Path):
        self._path = path
        self._before = json.loads(path.read_text())["wall_seconds"] if path.exists() else 0.0
        self._started = time.monotonic()

    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def save(self) -> None:
        write_json(self._path, {"wall_seconds": self.seconds()})


def gpu_share(device: str) -> float | None:
    """The largest part of the GPU's memory that this process has held since its trial began; null on a CPU."""
    if device == "cpu":
        return None
    import torch

    return torch.cuda.max_memory_reserved() / torch.cuda.get_device_properties(0).total_memory
