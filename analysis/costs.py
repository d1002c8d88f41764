"""What the numbers cost: the compute ledger and the speed table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis import statistics
from analysis.aggregate import Cell, Row, arm_records
from study.record import Record

LARGEST_EXCESS = 0.2  # rows whose compute differs by more were not given the same chance


@dataclass(frozen=True)
class Entry:
    """The compute of one row: all trials of its arms, stopped and failed ones too."""

    row: str
    unit: str  # "GPU" or "wall-clock"
    search_seconds: float
    confirm_seconds: float
    trials: dict[str, int]  # by status

    @property
    def seconds(self) -> float:
        return self.search_seconds + self.confirm_seconds

    def in_words(self) -> str:
        counts = ", ".join(f"{number} {status}" for status, number in self.trials.items())
        return f"{self.row} {hours(self.seconds)} (search {hours(self.search_seconds)}; {counts})"

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"seconds": self.seconds}


def ledger(rows: list[Row]) -> list[Entry]:
    """One entry per row, in GPU time where any record has some and in wall-clock time elsewhere."""
    records = {row.label: [record for cell in row.cells.values() for record in arm_records(cell)] for row in rows}
    on_gpu = any(record.gpu_seconds > 0 for own in records.values() for record in own)
    seconds: Callable[[Record], float] = seconds_on_gpu if on_gpu else seconds_of_clock
    return [_entry(label, own, "GPU" if on_gpu else "wall-clock", seconds) for label, own in records.items()]


def seconds_on_gpu(record: Record) -> float:
    return record.gpu_seconds


def seconds_of_clock(record: Record) -> float:
    return record.wall_seconds


def ledger_notes(entries: list[Entry]) -> list[str]:
    """The ledger in words, with a warning where two rows differ by more than 20 %."""
    spent = [entry for entry in entries if entry.trials]
    if not spent:
        return []
    notes = [f"compute, {spent[0].unit} time: " + "; ".join(entry.in_words() for entry in spent)]
    excess = statistics.largest_excess([entry.seconds for entry in spent])
    if excess > LARGEST_EXCESS:
        ordered = sorted(spent, key=lambda entry: entry.seconds)
        notes.append(
            f"warning: compute differs by more than 20 %: {ordered[-1].row} had {hours(ordered[-1].seconds)}, "
            f"{ordered[0].row} {hours(ordered[0].seconds)}"
        )
    return notes


def hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds >= 360 else f"{seconds:.0f} s"


def _entry(label: str, records: list[Record], unit: str, seconds: Callable[[Record], float]) -> Entry:
    totals = {phase: float(sum(seconds(record) for record in records if record.phase == phase)) for phase in _PHASES}
    statuses: list[str] = [record.status for record in records]
    counts = {status: statuses.count(status) for status in _STATUSES if status in statuses}
    return Entry(label, unit, totals["search"], totals["confirm"], counts)


_PHASES = ("search", "confirm")
_STATUSES: tuple[str, ...] = ("completed", "stopped", "failed")


def speed_facts(cell: Cell) -> dict[str, Any]:
    """Medians over the confirm records: layers run, layer ratio, and measured seconds."""

    def median(value: Callable[[Record], float | None]) -> float | None:
        found = [number for record in cell.records if (number := value(record)) is not None]
        return float(np.median(found)) if found else None

    return {
        "num_layers": median(lambda record: record.num_layers),
        "mean_layers": median(lambda record: record.mean_layers),
        "layer_ratio": median(_layer_ratio),
        "eval_seconds_per_epoch": median(lambda record: record.eval_seconds / record.epochs if record.epochs else None),
        "train_examples_per_second": median(
            lambda record: record.train_examples / record.train_seconds if record.train_seconds else None
        ),
        "seconds_per_trial": median(seconds_of_clock),
    }


def _layer_ratio(record: Record) -> float | None:
    return record.num_layers / record.mean_layers if record.num_layers and record.mean_layers else None
