"""Estimate how much luck affects the result of a search, whether it was too narrow, and what it finds at equal cost.

`search_variance` estimates how much a score varies if the search is repeated. `find_edges` lists the winner's values at
an end of their ranges. `at_equal_budget` estimates the best score that each row's search finds within a common budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from msgspec.structs import replace

from analysis.statistics.uncertainty import Variance, variance_of_ranked
from analysis.studies.cells import Cell, Row
from study.facts.record import Record
from trainables.configuration.ranges import Choices, Interval, format_searched

FEWEST_CONFIGURATIONS = 4  # with fewer, the spread of the better half is unknown
ROUNDING = 1e-9  # tolerance for a budget in trials
EDGE = 0.1  # share of a range, at each end, in which a winner suggests that better values lie outside
_WIDENING = 3.0  # factor by which a wider range exceeds the former end of a logarithmic range

Unit = Literal["trials", "epochs", "examples", "seconds"]
UNITS: tuple[Unit, ...] = get_args(Unit)


def search_variance(search_scores: Sequence[float], seed_scores: Sequence[float]) -> Variance | None:
    """Estimate how much the expected score of the chosen configuration varies if the search is repeated.

    A search chooses the best of K trials by their scores S = μ + noise. μ depends on the configuration. The noise
    depends on the seed; its variance σ² is estimated from `seed_scores`. Configurations explain a share b of the
    variance of S. The estimate is b σ² + b² Var(best S), if S is normal. The variance of S is estimated from the scores
    above the median, because diverged trials have very low scores.

    Returns:
        None if there are fewer than 4 trials or fewer than 2 seeds.

    Args:
        search_scores: selection scores of the completed search trials.
        seed_scores: selection scores of several seeds of the chosen configuration.
    """
    if len(search_scores) < FEWEST_CONFIGURATIONS or len(seed_scores) < 2:
        return None
    above = np.asarray(search_scores) - np.median(search_scores)
    upper = above[above >= 0]
    spread = float(np.sum(upper**2) / (len(upper) - 1))
    of_seeds = float(np.var(seed_scores, ddof=1))
    share = max(0.0, 1 - of_seeds / spread) if spread > 0 else 0.0
    value = share * of_seeds + share**2 * spread * variance_of_ranked(len(search_scores), len(search_scores))
    return Variance(value, max(1.0, len(search_scores) / 2 - 1))


def variance_over_searches(cell: Cell) -> Variance | None:
    """Estimate how much a cell's expected score varies if its search is repeated.

    Returns:
        None if nothing was searched, if there are too few trials or seeds, or if ASHA stopped trials.
    """
    if not cell.arm.space or any(record.status == "stopped" for record in cell.arm_records):
        return None
    of_seeds = [record.selection_score for record in cell.records if record.selection_score is not None]
    return search_variance(completed_scores(cell.arm_records), of_seeds)


@dataclass(frozen=True)
class Edge:
    """A winner's value in the first or last tenth of its range, and a wider range in the syntax of --search."""

    field: str
    value: int | float
    wider: str


def find_edges(cell: Cell) -> list[Edge]:
    """List the searched values of a cell's winner that are at an end of their ranges.

    An end that cannot be exceeded, such as 0 layers, does not count.
    """
    values = {field: (cell.config or {}).get(field) for field in cell.arm.space}
    return [
        Edge(field, value, format_searched(wider))
        for field, value in values.items()
        if isinstance(value, int | float) and (wider := widen_range(cell.arm.space[field], value)) is not None
    ]


def widen_range(allowed: Choices | Interval, value: int | float) -> Choices | Interval | None:
    """Extend a range at the end at which `value` is; return None if `value` is not at an end.

    Choices have ends if they are at least three numbers in ascending order.
    """
    if isinstance(allowed, tuple):
        return _add_choice(allowed, value)
    low, high, is_log = allowed.low, allowed.high, allowed.log
    start, place, stop = (math.log(number) if is_log else number for number in (low, value, high))
    if abs(2 * (place - start) / (stop - start) - 1) < 1 - 2 * EDGE:
        return None
    width = (high - low) / 2
    if place - start < stop - place:
        name, end, target = "low", low, low / _WIDENING if is_log else max(low - width, low / 2)
    else:
        name, end, target = "high", high, high * _WIDENING if is_log else high + width
    if isinstance(step := allowed.step, int):
        target = end + math.copysign(step * math.ceil(abs(target - end) / step), target - end)
    beyond = _round_beyond(end, target)
    return None if beyond is None else replace(allowed, **{name: beyond})


def _add_choice(allowed: Choices, value: int | float) -> Choices | None:
    """Add a choice beyond the first or last choice, at the ratio of the two nearest choices."""
    choices = [choice for choice in allowed if isinstance(choice, int | float)]
    if len(choices) < 3 or choices != sorted(choices) or len(choices) < len(allowed):
        return None
    if value not in (choices[0], choices[-1]):
        return None
    end, nearest = choices[:2] if value == choices[0] else choices[:-3:-1]
    beyond = _round_beyond(end, end * end / nearest) if end and nearest else None
    return None if beyond is None else tuple(sorted([*choices, beyond]))


def _round_beyond(end: int | float, target: float) -> int | float | None:
    """Round `target` to two digits, or more if needed, and keep shares below 1.

    Return None if no positive number lies beyond `end`.
    """
    if isinstance(end, int):
        step = math.floor(target) if target < end else math.ceil(target)
        return step if step != end and step >= 1 else None
    is_share = end < 1
    target = (1 + end) / 2 if is_share and target >= 1 else target
    for digits in range(2, 18):
        value = float(f"{target:.{digits}g}")
        if value > 0 and value != end and (value > end) == (target > end) and not (is_share and value >= 1):
            return value
    return None


def best_minus_last(cell: Cell) -> float | None:
    """Subtract the last epoch's selection score from that of the selected epoch; return the median over seeds.

    Return None if there are no scores of epochs.
    """
    gains = []
    for record in cell.records:
        scores = cell.find_study(record).facts.trials[record.key].scores
        if scores and record.selection_score is not None:
            gains.append(record.selection_score - scores[max(scores)])
    return float(np.median(gains)) if gains else None


@dataclass(frozen=True)
class EqualBudget:
    """Expected best search score of each row on one task, if all searches have the same budget."""

    task: str
    budget: float
    scores: dict[str, float | None]  # by row label; None if the budget buys less than one completed trial


def expected_best(scores: Sequence[float], number: float) -> float:
    """Compute the expected maximum of `number` draws from `scores`, with replacement.

    `number` is at least 1 and may be fractional (Dodge et al. 2019, arXiv:1909.03004, equation 3). The result is biased
    downwards, most strongly if `number` is near the number of scores (Tang et al. 2020, arXiv:2004.13705).
    """
    ordered, shares = np.sort(scores), np.arange(len(scores) + 1) / len(scores)
    return float(ordered @ np.diff(shares**number))


def at_equal_budget(rows: Sequence[Row], unit: Unit) -> list[EqualBudget]:
    """Estimate the best search score of each row within the cost of the cheapest search, for each task.

    Tasks with a single searched row are left out. Seconds are GPU seconds if all rows used GPUs, else wall-clock
    seconds. The kind of device is not checked.
    """
    budgets = []
    for task in dict.fromkeys(task for row in rows for task in row.cells):
        cells = {row.label: row.cells[task] for row in rows if task in row.cells}
        scores = {label: own for label, cell in cells.items() if (own := completed_scores(cell.arm_records))}
        if len(scores) < 2:
            continue
        paid = {label: cells[label].paid for label in scores}
        on_gpu = all(any(record.gpu_seconds > 0 for record in records) for records in paid.values())
        costs = {label: _cost(paid[label], unit, on_gpu=on_gpu) / len(own) for label, own in scores.items()}
        budget = min(costs[label] * len(own) for label, own in scores.items())
        numbers = {label: budget / costs[label] if costs[label] else len(own) for label, own in scores.items()}
        best = {
            label: expected_best(own, max(1.0, numbers[label])) if numbers[label] >= 1 - ROUNDING else None
            for label, own in scores.items()
        }
        budgets.append(EqualBudget(task, budget, best))
    return budgets


def completed_scores(records: Sequence[Record]) -> list[float]:
    """List the selection scores of the completed search trials."""
    completed = [record for record in records if record.phase == "search" and record.status == "completed"]
    return [record.selection_score for record in completed if record.selection_score is not None]


def _cost(records: Sequence[Record], unit: Unit, *, on_gpu: bool) -> float:
    """Add up the cost of a search in `unit`, including stopped and failed trials, also if they ran again."""
    searched = [record for record in records if record.phase == "search"]
    if unit == "trials":
        return len(searched)
    field = {"epochs": "epochs", "examples": "train_examples", "seconds": "gpu_seconds" if on_gpu else "wall_seconds"}
    return float(sum(getattr(record, field[unit]) for record in searched))
