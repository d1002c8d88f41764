"""What a plan will cost: epochs after early stopping, time and disk, from what was measured. No torch here.

Time and size come from a probe or from the study's earlier records; where there are neither, they are unknown.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal

from msgspec import UNSET

from study.decisions import asha
from study.facts.durations import clock
from study.facts.plain_words import counted
from study.facts.record import Record
from study.plans.plan import EarlyStopping
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.schema import Typed

# Expected epochs are the mean over simulated searches: so many, or fewer where a search has many trials itself.
_STUDIES = 30
_SIMULATED_TRIALS = 30_000  # of all searches together
_LONGEST_SEARCH = 10_000  # trials; the share that a longer one runs is the same


class Cost(Typed, frozen=True, kw_only=True):
    """What an arm is expected to cost, as `--dry-run --json` says it."""

    search_epochs: float
    confirm_epochs: int
    slot_seconds: float | None
    disk_bytes: int | None
    source: str | None


@dataclass(frozen=True)
class Measured:
    """What one arm's trials cost."""

    epoch_seconds: float
    model_bytes: int | None  # of one trained model on disk
    source: str  # "probe" or "records"


@dataclass(frozen=True)
class ArmEstimate:
    arm: Arm
    search_epochs: float  # expected over all search trials, those that ASHA stops included
    confirm_epochs: int  # at most: trials may stop by themselves
    bound: Literal["about", "at most"]  # what `search_epochs` is
    measured: Measured | None

    @property
    def epochs(self) -> float:
        return self.search_epochs + self.confirm_epochs

    @property
    def slot_seconds(self) -> float | None:
        return None if self.measured is None else self.epochs * self.measured.epoch_seconds

    @property
    def disk_bytes(self) -> int | None:
        """Of the models that stay: one per confirm trial."""
        if self.measured is None or self.measured.model_bytes is None:
            return None
        return self.measured.model_bytes * (self.confirm_epochs // self.arm.epochs)

    @property
    def cost(self) -> Cost:
        return Cost(
            search_epochs=self.search_epochs,
            confirm_epochs=self.confirm_epochs,
            slot_seconds=self.slot_seconds,
            disk_bytes=self.disk_bytes,
            source=self.measured.source if self.measured else None,
        )


def describe_estimate(item: ArmEstimate) -> str:
    """One arm in one line."""
    arm = item.arm
    precision = "" if arm.search_precision is UNSET else f" in {arm.search_precision}"
    search = f"{arm.samples:4} search{precision} ({item.bound} {counted(round(item.search_epochs), 'epoch')})"
    trials = f"{search} {len(arm.seeds):3} confirm ({item.confirm_epochs})"
    return f"{arm.name:24} {trials}  {_cost_in_words(item)}  {_beginning_in_words(arm)}"


def _beginning_in_words(arm: Arm) -> str:
    """The backbone, how it was pretrained, and the arm whose model trials start from, each where there is one."""
    pretrained = "" if arm.pretraining is UNSET else f", pretrained here with {arm.pretraining.objective}"
    start = "" if arm.start_from is None else f", from the best model of {arm.start_from}"
    return f"on {arm.backbone}{pretrained}{start}"


def _cost_in_words(item: ArmEstimate) -> str:
    if item.measured is None or item.slot_seconds is None:
        return "time unknown"
    return f"{clock(item.slot_seconds)} of one slot, by {item.measured.source}"


def total_in_words(estimates: Sequence[ArmEstimate]) -> str:
    """Epochs, time and disk of the whole plan, each as far as it is known."""
    epochs = f"{estimates[0].bound} {counted(round(sum(item.epochs for item in estimates)), 'epoch')}"
    seconds = [item.slot_seconds for item in estimates if item.slot_seconds is not None]
    if len(seconds) < len(estimates):
        unmeasured = f"{len(estimates) - len(seconds)} of {counted(len(estimates), 'arm')}"
        return f"{epochs}; time and disk are not known for {unmeasured}: --probe measures them"
    sizes = [item.disk_bytes for item in estimates if item.disk_bytes is not None]
    disk = f"{in_words(sum(sizes))} of models stay on disk" if len(sizes) == len(estimates) else "disk not known"
    return f"{epochs}, {clock(sum(seconds))} of one slot, {disk}"


def estimate(resolved: ResolvedPlan, measured: Mapping[str, Measured]) -> list[ArmEstimate]:
    """One estimate per arm; `measured` by the arm's name."""
    stopping = resolved.protocol.early_stopping
    return [
        ArmEstimate(
            arm=arm,
            search_epochs=expected_epochs(arm.samples, arm.epochs, stopping),
            confirm_epochs=len(arm.seeds) * arm.epochs,
            bound="at most" if stopping is None else "about",
            measured=measured.get(arm.name),
        )
        for arm in resolved.arms
    ]


@cache
def expected_epochs(samples: int, epochs: int, stopping: EarlyStopping | None) -> float:
    """Epochs of a search: at most, where nothing stops a trial but itself; under ASHA as many as with ranks that stay
    what they were at the first rung, the mean over simulated searches of random order, one trial after the other."""
    if stopping is None:
        return samples * epochs
    if samples > _LONGEST_SEARCH:
        return samples / _LONGEST_SEARCH * expected_epochs(_LONGEST_SEARCH, epochs, stopping)
    random, studies = Random(0), min(_STUDIES, max(1, _SIMULATED_TRIALS // max(1, samples)))
    return fmean(_epochs_of_search(random, samples, epochs, stopping) for _ in range(studies))


def _epochs_of_search(random: Random, samples: int, epochs: int, stopping: EarlyStopping) -> int:
    rungs: dict[int, list[float]] = {rung: [] for rung in asha.rungs_of(epochs, stopping)}  # ascending scores
    return sum(_epochs_of_trial(random.random(), rungs, epochs, stopping) for _ in range(samples))


def _epochs_of_trial(score: float, rungs: dict[int, list[float]], epochs: int, stopping: EarlyStopping) -> int:
    """How many epochs a trial of this score runs; at every rung that it reaches its score is recorded."""
    for rung, recorded in rungs.items():
        is_stopped = bool(recorded) and score < asha.cutoff_of(recorded, stopping)
        insort(recorded, score)
        if is_stopped:
            return rung
    return epochs


def measured_in(records: Sequence[Record]) -> dict[str, Measured]:
    """What the arms of a study cost so far."""
    by_arm: dict[str, list[Record]] = {}
    for record in records:
        if record.epochs:
            by_arm.setdefault(record.arm, []).append(record)
    return {name: _measured(arm_records) for name, arm_records in by_arm.items()}


def _measured(records: Sequence[Record]) -> Measured:
    seconds = sum(record.wall_seconds for record in records) / sum(record.epochs for record in records)
    model_folders = [Path(record.model) for record in records if record.model and Path(record.model).exists()]
    return Measured(seconds, folder_bytes(model_folders[0]) if model_folders else None, "records")


def folder_bytes(folder: Path) -> int:
    """Size of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def in_words(number_of_bytes: float) -> str:
    """A number of bytes with a unit: `1500000` as `1.5 MB`."""
    power = min(4, int(math.log10(max(1, number_of_bytes)) // 3))
    return f"{number_of_bytes / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
