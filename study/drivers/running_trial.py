"""One trial on a worker: training is `trainables.runs.training`, this only carries it to and from its place.

A trial keeps its state in the study's storage; whoever runs it next finds it there and goes on. So a trial that comes
back first repeats the rows it had reported.
"""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from study.drivers.messages import AssignedTrial, News
from study.drivers.provenance import provenance
from study.facts.attestation import Attestation, contradictions
from study.facts.events import Report
from study.storage.stored_models import local_model
from study.storage.trial_places import place_at
from trainables.atomic_files import write_json
from trainables.runs.trial import EpochRow, Outcome
from trainables.schema import to_plain

if TYPE_CHECKING:
    from trainables.runs.training import TrainingRun


class RunningTrial:
    """A trial whose folder this process holds until `release`."""

    def __init__(self, assigned: AssignedTrial, *, device: str, gpus: float):
        """Takes the trial up where it is: a new one, or one that was saved. `gpus` is the share that it holds."""
        self.key = assigned.key
        self.is_over = False  # no more news to come
        self._assigned = assigned
        self._device = device
        self._place = place_at(assigned.place)
        self._held = ExitStack()
        self._folder = self._held.enter_context(self._place.work())
        self._clock = Clock(self._folder / "clock.json", gpus=gpus)
        self._refused: str | None = None
        self._known: deque[EpochRow] = deque()  # rows of epochs that were run before
        try:
            self._run = self._resumed_run() if (self._folder / "state.pt").exists() else self._new_run()
            self._attested: Attestation | None = attest(self._run)  # told until an epoch was trained
        except ValueError as error:  # nothing that trying again would mend
            self._refused = str(error)
            return
        self._known.extend(self._run.history)
        self._epochs_before = len(self._known)

    def next_news(self) -> News:
        """Runs an epoch, or repeats one that was run before."""
        from trainables.runs.training import TrainingError

        if self._refused:
            return self._failed(self._refused)
        if self._attested and contradictions(self._attested, self._assigned.expected):
            self.is_over = True
            return News(key=self.key, host=socket.gethostname(), refused=self._attested)
        try:
            row = self._known.popleft() if self._known else self._train_epoch()
            self.is_over = row.finished
            report = self._report(row, self._outcome() if row.finished else None)
            if row.epoch > self._epochs_before:
                self._attested = None
            return News(key=self.key, host=report.host, report=report)
        except TrainingError as error:
            return self._failed(str(error))

    def release(self) -> None:
        """Lets go of the model and of the folder."""
        vars(self).pop("_run", None)
        self._held.close()

    def _failed(self, error: str) -> News:
        self.is_over = True
        return News(key=self.key, host=socket.gethostname(), failure=error)

    def _resumed_run(self) -> TrainingRun:
        from trainables.data.tokenised import cache_folder
        from trainables.runs.training import TrainingRun

        return TrainingRun.resume(self._folder, device=self._device, cache=cache_folder())

    def _new_run(self) -> TrainingRun:
        from trainables.data.tokenised import cache_folder
        from trainables.runs.training import TrainingRun

        spec = self._assigned.spec
        with ExitStack() as stack:
            start = str(stack.enter_context(local_model(spec.start))) if spec.start else None
            run = TrainingRun(replace(spec, start=start), device=self._device, cache=cache_folder())
        run.spec = spec  # says where the start lies for everybody
        return run

    def _train_epoch(self) -> EpochRow:
        row = self._run.run_epoch()
        self._run.save(self._folder)
        self._clock.save()
        self._place.send_state(self._folder, epoch=row.epoch)
        return row

    def _outcome(self) -> Outcome:
        """The run's outcome, with the address of its model if that stays."""
        if self._assigned.predictions is None:
            return replace(self._run.outcome(), model=None)
        outcome = self._run.outcome(predictions=self._folder / self._assigned.predictions)
        assert outcome.model is not None
        return replace(outcome, model=self._place.send_outcome(Path(outcome.model)))

    def _report(self, row: EpochRow, outcome: Outcome | None) -> Report:
        wall_seconds, gpu_seconds = self._clock.read()
        return Report(
            row=row,
            outcome=outcome,
            wall_seconds=wall_seconds,
            gpu_seconds=gpu_seconds,
            host=socket.gethostname(),
            device=self._device,
            gpu_share=gpu_share(self._device),
            attested=self._attested,
        )


def attest(run: TrainingRun) -> Attestation:
    """What this process trains on, and with."""
    from trainables.runs.training import content_of

    code = provenance()
    return Attestation(**to_plain(content_of(run)), code_digest=code.code_digest, versions=code.versions)


class Clock:
    """Seconds that a trial has been worked on, and those times its share of a GPU, over all processes that did."""

    def __init__(self, path: Path, *, gpus: float):
        self._path = path
        self._gpus = gpus
        before = json.loads(path.read_text()) if path.exists() else {"wall_seconds": 0.0, "gpu_seconds": 0.0}
        self._before = float(before["wall_seconds"]), float(before["gpu_seconds"])
        self._started = time.monotonic()

    def read(self) -> tuple[float, float]:
        """Wall-clock seconds and GPU seconds so far."""
        seconds = time.monotonic() - self._started
        return self._before[0] + seconds, self._before[1] + seconds * self._gpus

    def save(self) -> None:
        wall_seconds, gpu_seconds = self.read()
        write_json(self._path, {"wall_seconds": wall_seconds, "gpu_seconds": gpu_seconds})


def gpu_share(device: str) -> float | None:
    """The largest part of the GPU's memory that this process has held since its trial began; None on a CPU."""
    if device == "cpu":
        return None
    import torch

    return torch.cuda.max_memory_reserved() / torch.cuda.get_device_properties(0).total_memory
