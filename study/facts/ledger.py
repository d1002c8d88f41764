"""The compute that each arm (a method on a task) used, including stopped and failed trials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from study.facts.record import Phase, Record, Status
from trainables.schema import Typed


class Spent(Typed, frozen=True, kw_only=True):
    """The compute of the ended search or confirm trials of one arm."""

    arm: str
    phase: Phase
    trials: dict[str, int]  # number by status
    epochs: int
    train_examples: int  # each repeat counts
    train_seconds: float
    eval_seconds: float
    wall_seconds: float  # includes start-up and waiting for data
    gpu_seconds: float  # share of a GPU times the seconds it was held
    cpu_seconds: float  # wall-clock seconds of the trials that held no GPU

    @property
    def task(self) -> str:
        """The task of the arm."""
        return self.arm.rpartition("/")[2].partition("@")[0]


def ledger(records: Iterable[Record]) -> list[Spent]:
    """Sum the compute of trials by arm and phase; arms keep the order of the records, search precedes confirm."""
    arms: dict[str, list[Record]] = {}
    for record in records:
        arms.setdefault(record.arm, []).append(record)
    return [
        _spent(arm, phase, chosen)
        for arm, arm_records in arms.items()
        for phase in get_args(Phase)
        if (chosen := [record for record in arm_records if record.phase == phase])
    ]


def count_by_status(entries: Iterable[Spent]) -> dict[str, int]:
    """Count the trials of several entries by status; a status without trials is omitted."""
    counts = [entry.trials for entry in entries]
    totals = {status: sum(count.get(status, 0) for count in counts) for status in get_args(Status)}
    return {status: number for status, number in totals.items() if number}


def format_counts(trials: dict[str, int]) -> str:
    """Format numbers of trials by status: `3 completed, 1 stopped`."""
    return ", ".join(f"{number} {status}" for status, number in trials.items())


def _spent(arm: str, phase: Phase, records: list[Record]) -> Spent:
    statuses = [record.status for record in records]
    counts = {status: statuses.count(status) for status in get_args(Status) if status in statuses}
    sums = {name: sum(getattr(record, name) for record in records) for name in _SUMMED}
    on_cpu = sum(record.wall_seconds for record in records if record.gpu_seconds == 0)
    return Spent(arm=arm, phase=phase, trials=counts, cpu_seconds=on_cpu, **sums)


_SUMMED = ("epochs", "train_examples", "train_seconds", "eval_seconds", "wall_seconds", "gpu_seconds")
