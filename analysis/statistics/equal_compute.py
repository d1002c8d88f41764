"""Scores against the compute that was spent to find them, and of every row at one and the same budget.

The expected best of n search trials (Dodge et al. 2019, arXiv:1909.03004, equation 3): every one of n trials is drawn
with replacement from those that were run. It is biased downwards, most where n is near the number of trials (Tang et
al. 2020, arXiv:2004.13705): it cannot see a better trial than the best that was run, and misses even that one with
probability 1/e. Trials that a search proposes one after the other are taken for exchangeable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from analysis.studies.cells import Cell, Row
from study.facts.record import Record

Unit = Literal["trials", "epochs", "examples", "seconds"]
UNITS: tuple[Unit, ...] = ("trials", "epochs", "examples", "seconds")


@dataclass(frozen=True)
class BudgetCurve:
    """The expected best selection score of a search against its budget."""

    unit: Unit
    budgets: list[float]  # of 1, 2, ... completed trials
    scores: list[float]


@dataclass(frozen=True)
class EqualBudget:
    """The rows of a task at the smallest budget that all of them had."""

    task: str
    unit: Unit
    budget: float
    scores: dict[str, float | None]  # by row label; None where it buys less than one trial that completes

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        return asdict(self)


def expected_best(scores: Sequence[float], number: float) -> float:
    """The expected highest of `number` draws (at least 1, a part of a draw counts in part) from these scores."""
    if number < 1:
        raise ValueError(f"number of trials is {number}; allowed: at least 1")
    ordered, shares = np.sort(scores), np.arange(len(scores) + 1) / len(scores)
    return float(ordered @ np.diff(shares**number))


def expected_best_curve(records: Sequence[Record], unit: Unit) -> BudgetCurve:
    """The curve of an arm's search trials, up to as many trials as completed; empty without any.

    Stopped and failed trials never are the best, but what they cost is part of what each completed trial cost.
    `seconds` are GPU seconds, or wall-clock seconds where none of the records has any.
    """
    scores = _completed_scores(records)
    cost = _cost_per_completed(records, unit)
    numbers = range(1, len(scores) + 1)
    return BudgetCurve(unit, [number * cost for number in numbers], [expected_best(scores, n) for n in numbers])


def at_equal_budget(rows: Sequence[Row], unit: Unit) -> list[EqualBudget]:
    """Of every task that two rows or more have searched: their expected best scores at the smallest of their budgets.

    A row's budget is what its search cost. Seconds are compared on one kind of clock and one kind of device only: that
    is the reader's to know.
    """
    tasks = list(dict.fromkeys(task for row in rows for task in row.cells))
    found = (
        _at_equal_budget(task, {row.label: row.cells[task] for row in rows if task in row.cells}, unit)
        for task in tasks
    )
    return [budget for budget in found if budget is not None]


def _at_equal_budget(task: str, cells: dict[str, Cell], unit: Unit) -> EqualBudget | None:
    arms = {label: records for label, cell in cells.items() if _completed_scores(records := cell.arm_records)}
    if len(arms) < 2:
        return None
    on_gpu = all(_on_gpu(records) for records in arms.values())
    costs = {label: _cost_per_completed(records, unit, on_gpu=on_gpu) for label, records in arms.items()}
    budget = min(costs[label] * len(_completed_scores(records)) for label, records in arms.items())
    scores = {label: _score_at(records, budget, costs[label]) for label, records in arms.items()}
    return EqualBudget(task, unit, budget, scores)


def _score_at(records: Sequence[Record], budget: float, cost: float) -> float | None:
    number = budget / cost if cost else len(_completed_scores(records))
    return expected_best(_completed_scores(records), number) if number >= 1 - 1e-9 and number else None


def _completed_scores(records: Sequence[Record]) -> list[float]:
    completed = [record for record in records if record.phase == "search" and record.status == "completed"]
    return [record.selection_score for record in completed if record.selection_score is not None]


def _on_gpu(records: Sequence[Record]) -> bool:
    return any(record.gpu_seconds > 0 for record in records)


def _cost_per_completed(records: Sequence[Record], unit: Unit, *, on_gpu: bool | None = None) -> float:
    on_gpu = _on_gpu(records) if on_gpu is None else on_gpu
    searched = [record for record in records if record.phase == "search"]
    completed = len(_completed_scores(records))
    return sum(_cost(record, unit, on_gpu=on_gpu) for record in searched) / completed if completed else 0.0


def _cost(record: Record, unit: Unit, *, on_gpu: bool) -> float:
    costs: dict[Unit, float] = {
        "trials": 1,
        "epochs": record.epochs,
        "examples": record.train_examples,
        "seconds": record.gpu_seconds if on_gpu else record.wall_seconds,
    }
    return costs[unit]
