"""Two rows over all tasks that both have: mean difference, probability of improvement, lines of a forest plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.statistics.comparisons import Comparison
from analysis.statistics.uncertainty import LEVEL, PairedTest, Variance, bootstrap_interval, paired_test

RESAMPLES = 2_000


@dataclass(frozen=True)
class Improvement:
    """The probability that a run of one row scores above a run of the other on the same task, mean over the tasks."""

    probability: float
    low: float
    high: float
    coverage: float
    tasks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        return asdict(self)


@dataclass(frozen=True)
class ForestLine:
    """A difference of two rows with its 95 % interval, in scores; the p-value is not adjusted."""

    name: str  # task, or "macro"
    difference: float
    low: float
    high: float
    p_value: float


def macro_test(tests: Mapping[str, PairedTest]) -> PairedTest:
    """The difference of two rows' mean scores over the tasks, tested jointly, from their tests by task.

    Tasks have models and dev examples of their own, so the variance of the mean is the sum of theirs over the number
    of tasks squared; degrees of freedom after Satterthwaite.

    Raises:
        ValueError: no task.
    """
    if not tests:
        raise ValueError("no task is there to take a mean over; allowed: at least one that both rows have")
    number = len(tests)
    variances = [Variance((test.standard_error / number) ** 2, test.freedom) for test in tests.values()]
    return paired_test(float(np.mean([test.difference for test in tests.values()])), variances)


def by_task(comparisons: Sequence[Comparison], row: str, other: str) -> dict[str, PairedTest]:
    """The tests of `row` minus `other` by task, whichever way round they were compared."""
    found = {}
    for comparison in comparisons:
        if (comparison.row, comparison.other) == (row, other):
            found[comparison.task] = comparison.test
        elif (comparison.row, comparison.other) == (other, row):
            found[comparison.task] = _turned(comparison.test)
    return found


def forest(tests: Mapping[str, PairedTest]) -> list[ForestLine]:
    """One line per task, and the mean over them last; empty without tasks."""
    if not tests:
        return []
    named = [*tests.items(), ("macro", macro_test(tests))]
    return [ForestLine(name, test.difference, test.low, test.high, test.p_value) for name, test in named]


def probability_of_improvement(
    scores: Mapping[str, Sequence[float]], other_scores: Mapping[str, Sequence[float]], *, seed: int = 0
) -> Improvement:
    """P(X > Y) + P(X = Y) / 2 over all pairs of seeds, mean over the tasks of both (arXiv:2108.13264, section 4.3).

    The interval is the percentile bootstrap over seeds, within task and row (stratified). With five seeds it is
    somewhat too narrow: `python -m benchmarks.statistics improvement` prints its coverage.

    Args:
        scores: of every seed, by task.

    Raises:
        ValueError: no task that both have.
    """
    tasks = tuple(task for task in scores if task in other_scores)
    if not tasks:
        raise ValueError(f"no task in common: {', '.join(scores) or 'none'} and {', '.join(other_scores) or 'none'}")
    rng = np.random.default_rng(seed)
    pairs = [(np.asarray(scores[task]), np.asarray(other_scores[task])) for task in tasks]
    value = float(np.mean([_share_above(one[None], other[None])[0] for one, other in pairs]))
    resampled = [_share_above(_drawn(one, rng), _drawn(other, rng)) for one, other in pairs]
    interval = bootstrap_interval(np.mean(resampled, axis=0), level=LEVEL)
    return Improvement(value, interval.low, interval.high, interval.coverage, tasks)


def _drawn(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(scores, size=(RESAMPLES, len(scores)))


def _share_above(scores: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of (resamples, seeds) each, (resamples,)."""
    return ((np.sign(scores[:, :, None] - other[:, None, :]) + 1) / 2).mean(axis=(1, 2))


def _turned(test: PairedTest) -> PairedTest:
    return PairedTest(-test.difference, -test.high, -test.low, test.p_value, test.standard_error, test.freedom)
