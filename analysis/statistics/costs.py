"""What the numbers cost: the compute ledger and the speed table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.statistics import uncertainty
from analysis.studies.cells import Cell, Row
from study.facts.ledger import Spent, count_by_status, in_words, ledger
from study.facts.record import Phase, Record
from trainables.schema import to_plain

LARGEST_EXCESS = 0.2  # rows whose compute differs by more were not given the same chance


@dataclass(frozen=True)
class Entry:
    """The compute of one row: all trials of its arms, stopped and failed ones too."""

    row: str
    unit: Literal["GPU", "wall-clock"]
    spent: list[Spent]  # per arm and phase

    @property
    def trials(self) -> dict[str, int]:
        return count_by_status(self.spent)

    @property
    def search_seconds(self) -> float:
        return self._seconds("search")

    @property
    def confirm_seconds(self) -> float:
        return self._seconds("confirm")

    @property
    def seconds(self) -> float:
        return self.search_seconds + self.confirm_seconds

    def _seconds(self, phase: Phase) -> float:
        name = "gpu_seconds" if self.unit == "GPU" else "wall_seconds"
        return float(sum(getattr(spent, name) for spent in self.spent if spent.phase == phase))

    def in_words(self) -> str:
        return f"{self.row} {hours(self.seconds)} (search {hours(self.search_seconds)}; {in_words(self.trials)})"

    def to_json(self) -> dict[str, Any]:
        seconds = {name: getattr(self, name) for name in ("search_seconds", "confirm_seconds", "seconds")}
        arms = to_plain(self.spent)
        return {"row": self.row, "unit": self.unit, **seconds, "trials": self.trials, "arms": arms}


def row_ledger(rows: list[Row]) -> list[Entry]:
    """One entry per row, in GPU time where any record has some and in wall-clock time elsewhere."""
    entries_by_row = {
        row.label: ledger(record for cell in row.cells.values() for record in cell.arm_records) for row in rows
    }
    on_gpu = any(entry.gpu_seconds > 0 for own in entries_by_row.values() for entry in own)
    return [Entry(label, "GPU" if on_gpu else "wall-clock", own) for label, own in entries_by_row.items()]


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
    excess = uncertainty.largest_excess([entry.seconds for entry in spent])
    if excess > LARGEST_EXCESS:
        ordered = sorted(spent, key=lambda entry: entry.seconds)
        notes.append(
            f"warning: compute differs by more than 20 %: {ordered[-1].row} had {hours(ordered[-1].seconds)}, "
            f"{ordered[0].row} {hours(ordered[0].seconds)}"
        )
    return notes


def hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds >= 360 else f"{seconds:.0f} s"


def speed_facts(cell: Cell) -> dict[str, Any]:
    """Medians over the confirm records: layers run, layer ratio, and measured seconds."""

    def median(value: Callable[[Record], float | None]) -> float | None:
        numbers = [number for record in cell.records if (number := value(record)) is not None]
        return float(np.median(numbers)) if numbers else None

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
