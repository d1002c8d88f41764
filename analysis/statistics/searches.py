"""What a search leaves to luck, what it promises too much, and what it finds for its cost.

Three questions about the scores of search trials: how much another search would have changed (`search_noise`), how
much worse the best trial is on fresh seeds (`optimism_of_search`), and what every row would have found at one and the
same budget (`at_equal_budget`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from analysis.statistics.uncertainty import SearchNoise, Variance, median_interval
from analysis.studies.cells import Cell, Row
from study.facts.record import Record

FEWEST_CONFIGURATIONS = 4  # below, the spread of the better half is a guess
ROUNDING = 1e-9  # of a budget in trials

Unit = Literal["trials", "epochs", "examples", "seconds"]
UNITS: tuple[Unit, ...] = ("trials", "epochs", "examples", "seconds")


def search_noise(search_scores: Sequence[float], seed_scores: Sequence[float]) -> SearchNoise | None:
    """The luck of one search; None with fewer than 4 trials or 2 seeds.

    σ² is the variance of `seed_scores`. The spread of search scores is taken from the better half alone, as the mean
    square above the median, so that some failures do not widen it; Var(S) is that of the best of K normal values of
    this spread (an empirical bootstrap of a maximum is too sure of itself).

    `python -m benchmarks.statistics search` prints how often a true null is rejected. For searches over one and the
    same grid that rate holds on average over grids: the noise is overstated if a configuration stands out, and
    understated if chance decides among a few equals.

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
    best = share**2 * spread * variance_of_best(len(search_scores))
    return SearchNoise(given_best=share * of_seeds, of_best=Variance(best, len(search_scores) / 2))


@cache
def variance_of_best(number: int) -> float:
    """Variance of the greatest of so many independent standard normal values."""
    from scipy import integrate, special  # takes a second to import

    def moment(power: int) -> float:
        def density(x: float) -> float:
            normal = x**power * number * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
            return float(normal * special.ndtr(x) ** (number - 1))

        return float(integrate.quad(density, -12, 12, points=[0, 2, 4])[0])

    return float(moment(2) - moment(1) ** 2)


@dataclass(frozen=True)
class Gap:
    """A difference of scores, with bounds that cover it with this probability."""

    difference: float
    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class Optimism:
    """What a search score promises beyond what is reported, in its two parts; scores in [-1, 1].

    `of_search`: the best search trial's selection score minus the median of the confirm trials' selection scores.
    Both are of the same split, so only the luck of the seed that was chosen for it is in it.
    `of_slice`: the median over the confirm trials of selection score minus reported score: how much easier the split
    is that selects. Zero where the reported split selects.
    """

    of_search: Gap
    of_slice: Gap


def optimism_of_search(best: Record, confirmed: Sequence[Record]) -> Optimism | None:
    """The optimism of the best search trial, beside the completed confirm trials; None with fewer than two of these.

    The bounds are order statistics: they cover the median over all seeds, whatever the scores' distribution, with five
    seeds in 93.75 % of cases.
    """
    selection = [record.selection_score for record in confirmed if record.selection_score is not None]
    reported = [record.score for record in confirmed if record.score is not None]
    if best.selection_score is None or len(selection) < 2:
        return None
    search = best.selection_score - np.array(selection)
    slice_gaps = np.array(selection) - np.array(reported)
    return Optimism(of_search=_median_gap(search), of_slice=_median_gap(slice_gaps))


def _median_gap(differences: np.ndarray) -> Gap:
    interval = median_interval(differences.tolist())
    return Gap(float(np.median(differences)), interval.low, interval.high, interval.coverage)


@dataclass(frozen=True)
class EqualBudget:
    """The rows of a task at the smallest budget that all of them had."""

    task: str
    unit: Unit
    budget: float
    scores: dict[str, float | None]  # by row label; None if the budget buys less than one completed trial


def expected_best(scores: Sequence[float], number: float) -> float:
    """The expected highest of `number` draws (at least 1, a part of a draw counts in part) from these scores.

    The expected best of n search trials (Dodge et al. 2019, arXiv:1909.03004, equation 3): every one of n trials is
    drawn with replacement from those that were run. It is biased downwards, most where n is near the number of trials
    (Tang et al. 2020, arXiv:2004.13705): it cannot see a better trial than the best that was run, and misses even that
    one with probability 1/e. Trials that a search proposes one after the other are taken for exchangeable.
    """
    if number < 1:
        raise ValueError(f"number of trials is {number}; allowed: at least 1")
    ordered, shares = np.sort(scores), np.arange(len(scores) + 1) / len(scores)
    return float(ordered @ np.diff(shares**number))


def at_equal_budget(rows: Sequence[Row], unit: Unit) -> list[EqualBudget]:
    """The expected best scores of rows at the smallest of their budgets, for every task that two or more have searched.

    A row's budget is what its search cost. Seconds are of GPUs, or of the clock unless all rows used GPUs; whether they
    are of one kind of device is for the reader to know.
    """
    tasks = list(dict.fromkeys(task for row in rows for task in row.cells))
    budgets = (
        _at_equal_budget(task, {row.label: row.cells[task] for row in rows if task in row.cells}, unit)
        for task in tasks
    )
    return [budget for budget in budgets if budget is not None]


def _at_equal_budget(task: str, cells: dict[str, Cell], unit: Unit) -> EqualBudget | None:
    arms = {label: cell.arm_records for label, cell in cells.items() if completed_scores(cell.arm_records)}
    if len(arms) < 2:
        return None
    on_gpu = all(any(record.gpu_seconds > 0 for record in records) for records in arms.values())
    scores = {label: completed_scores(records) for label, records in arms.items()}
    costs = {label: _cost(records, unit, on_gpu=on_gpu) / len(scores[label]) for label, records in arms.items()}
    budget = min(costs[label] * len(arm_scores) for label, arm_scores in scores.items())
    best = {label: _score_at(arm_scores, budget, costs[label]) for label, arm_scores in scores.items()}
    return EqualBudget(task, unit, budget, best)


def completed_scores(records: Sequence[Record]) -> list[float]:
    """The selection scores of an arm's completed search trials."""
    completed = [record for record in records if record.phase == "search" and record.status == "completed"]
    return [record.selection_score for record in completed if record.selection_score is not None]


def _cost(records: Sequence[Record], unit: Unit, *, on_gpu: bool) -> float:
    """The cost of a search, stopped and failed trials included."""
    searched = [record for record in records if record.phase == "search"]
    if unit == "trials":
        return len(searched)
    field = {"epochs": "epochs", "examples": "train_examples", "seconds": "gpu_seconds" if on_gpu else "wall_seconds"}
    return float(sum(getattr(record, field[unit]) for record in searched))


def _score_at(scores: list[float], budget: float, cost: float) -> float | None:
    """The expected best score for a budget, if a completed trial costs `cost`; None below the cost of one."""
    number = budget / cost if cost else len(scores)
    return expected_best(scores, max(1.0, number)) if number >= 1 - ROUNDING else None
