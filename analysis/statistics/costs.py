"""What the numbers cost: the compute ledger and the speed table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.statistics import uncertainty
from analysis.studies.cells import Cell, Row
from study.facts.ledger import Spent, count_by_status, in_words, ledger
from study.facts.record import Record
from trainables.schema import to_plain

LARGEST_EXCESS = 0.2  # rows whose compute differs by more were not given the same chance


@dataclass(frozen=True)
class Compute:
    """Time of trials: on GPUs by the share held, on CPUs by the clock. The two are never added up."""

    gpu_seconds: float
    cpu_seconds: float

    def in_words(self) -> str:
        told = [f"{hours(self.gpu_seconds)} of GPU"] * (self.gpu_seconds > 0)
        told += [f"{hours(self.cpu_seconds)} by the clock on CPU"] * (self.cpu_seconds > 0)
        return " and ".join(told) or hours(0.0)


@dataclass(frozen=True)
class Entry:
    """The compute of one row: all trials of its arms, stopped and failed ones and those that ran again too."""

    row: str
    spent: list[Spent]  # per arm and phase

    @property
    def trials(self) -> dict[str, int]:
        return count_by_status(self.spent)

    @property
    def search(self) -> Compute:
        return _total(spent for spent in self.spent if spent.phase == "search")

    @property
    def confirm(self) -> Compute:
        return _total(spent for spent in self.spent if spent.phase == "confirm")

    @property
    def total(self) -> Compute:
        return _total(self.spent)

    @property
    def tasks(self) -> set[str]:
        """The tasks on which it spent anything."""
        return {spent.task for spent in self.spent}

    def on(self, tasks: Collection[str]) -> Compute:
        """What it spent on these tasks."""
        return _total(spent for spent in self.spent if spent.task in tasks)

    def in_words(self) -> str:
        return f"{self.row} {self.total.in_words()} (search {self.search.in_words()}; {in_words(self.trials)})"

    def to_json(self) -> dict[str, Any]:
        totals = {name: vars(getattr(self, name)) for name in ("search", "confirm", "total")}
        return {"row": self.row, **totals, "trials": self.trials, "arms": to_plain(self.spent)}


def _total(spent: Iterable[Spent]) -> Compute:
    entries = list(spent)
    return Compute(sum(entry.gpu_seconds for entry in entries), sum(entry.cpu_seconds for entry in entries))


def row_ledger(rows: list[Row]) -> list[Entry]:
    """One entry per row."""
    return [Entry(row.label, ledger(record for cell in row.cells.values() for record in cell.paid)) for row in rows]


def seconds_on_gpu(record: Record) -> float:
    return record.gpu_seconds


def seconds_of_clock(record: Record) -> float:
    return record.wall_seconds


def ledger_notes(entries: list[Entry]) -> list[str]:
    """The ledger in words, and a warning where rows had unlike compute on the tasks that all of them ran."""
    spent = [entry for entry in entries if entry.trials]
    if not spent:
        return []
    notes = ["compute: " + "; ".join(entry.in_words() for entry in spent)]
    common = set.intersection(*(entry.tasks for entry in spent))
    return notes + _warnings({entry.row: entry.on(common) for entry in spent}) if common else notes


def _warnings(computes: dict[str, Compute]) -> list[str]:
    computes = {row: own for row, own in computes.items() if own.gpu_seconds or own.cpu_seconds}
    if len(computes) < 2:
        return []
    devices = {row: (compute.gpu_seconds > 0, compute.cpu_seconds > 0) for row, compute in computes.items()}
    if len(set(devices.values())) > 1:
        told = ", ".join(f"{row} {compute.in_words()}" for row, compute in computes.items())
        return [f"warning: not all rows ran on the same kind of device, so their compute is not compared: {told}"]
    warnings = []
    for unit in ("gpu_seconds", "cpu_seconds"):
        ordered = sorted(computes, key=lambda row: getattr(computes[row], unit))
        least, most = computes[ordered[0]], computes[ordered[-1]]
        if uncertainty.largest_excess([getattr(least, unit), getattr(most, unit)]) > LARGEST_EXCESS:
            warnings.append(
                "warning: compute on the tasks that all rows ran differs by more than 20 %: "
                f"{ordered[-1]} had {most.in_words()}, {ordered[0]} {least.in_words()}"
            )
    return warnings


def hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds >= 360 else f"{seconds:.0f} s"


def speed_facts(cell: Cell) -> dict[str, Any]:
    """Medians over the confirm records: parameters (millions), layers run, layer ratio, and measured seconds."""

    def median(value: Callable[[Record], float | None]) -> float | None:
        numbers = [number for record in cell.records if (number := value(record)) is not None]
        return float(np.median(numbers)) if numbers else None

    layers = [record.mean_layers for record in cell.records if record.mean_layers is not None]
    parameters = median(lambda record: record.num_parameters)
    depth, run = median(lambda record: record.num_layers), median(lambda record: record.mean_layers)
    return {
        "parameters": None if parameters is None else parameters / 1e6,
        "num_layers": depth,
        "mean_layers": run,
        "fewest_layers": min(layers, default=None),
        "most_layers": max(layers, default=None),
        "layer_ratio": depth / run if depth and run else None,
        "eval_seconds_per_epoch": median(lambda record: record.eval_seconds / record.epochs if record.epochs else None),
        "train_examples_per_second": median(
            lambda record: record.train_examples / record.train_seconds if record.train_seconds else None
        ),
        "seconds_per_trial": median(seconds_of_clock),
    }


def speed_up(facts: Sequence[Mapping[str, Any]]) -> float | None:
    """All layers / layers run over the cells with these `speed_facts`, both summed; None without any."""
    pairs = [(own["num_layers"], own["mean_layers"]) for own in facts if own["num_layers"] and own["mean_layers"]]
    return sum(depth for depth, _ in pairs) / sum(run for _, run in pairs) if pairs else None
