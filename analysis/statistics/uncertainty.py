"""Small pure functions that say how sure a number is. Scores in, numbers out; each says what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np
from scipy import special

LEVEL = 0.95  # of every interval that can reach it
ALPHA = 0.05  # below it a difference is marked
MOST_FREEDOM = 1e6  # beyond it Student's t is the normal distribution
WIDEST = 2.0  # scores lie between -1 (of a correlation) and 1


@dataclass(frozen=True)
class Interval:
    """Bounds, and the probability with which they cover what they are about."""

    low: float
    high: float
    coverage: float


class Variance(NamedTuple):
    """A variance, and the degrees of freedom with which it was estimated."""

    value: float
    freedom: float


@dataclass(frozen=True)
class PairedTest:
    """A difference of two methods' mean scores, its 95 % interval, and the two-sided p-value of no difference."""

    difference: float
    low: float
    high: float
    p_value: float
    standard_error: float
    freedom: float  # degrees of freedom


def bootstrap_interval(resampled: np.ndarray, *, level: float = LEVEL) -> Interval:
    """Percentile bootstrap interval of a statistic from its values on resamples, (resamples,)."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(low=low, high=high, coverage=level)


def welch_test(
    resampled: np.ndarray,
    other_resampled: np.ndarray,
    scores: Sequence[float],
    other_scores: Sequence[float],
) -> PairedTest:
    """Welch-Satterthwaite t-test of two methods' mean scores, with a bootstrapped variance of the dev examples.

    `scores` are one per seed; row r of `resampled` (resamples, seeds) holds the same scores on the r-th resample of the
    examples, which both methods share: that is the pairing. The variance of the difference of mean scores is the sum
    of what the seeds of either method leave open (Welch) and of what the examples leave open beyond that (bootstrap).
    With five seeds a bootstrap over seeds would be too sure of itself.
    """
    over_examples = float(np.var(resampled.mean(axis=1) - other_resampled.mean(axis=1), ddof=1))
    between_seeds = _variance_between_seeds(resampled) + _variance_between_seeds(other_resampled)
    of_examples = Variance(max(0.0, over_examples - between_seeds), inf)
    variances = [of_examples, _variance_over_seeds(scores), _variance_over_seeds(other_scores)]
    return paired_test(float(np.mean(scores) - np.mean(other_scores)), variances)


def mean_interval(resampled: np.ndarray, scores: Sequence[float]) -> Interval:
    """Compute the 95 % confidence interval of a mean score under resampling of seeds and dev examples.

    By the method of `welch_test`, whose `resampled` and `scores` these are.
    """
    over_examples = float(np.var(resampled.mean(axis=1), ddof=1))
    of_examples = Variance(max(0.0, over_examples - _variance_between_seeds(resampled)), inf)
    test = paired_test(float(np.mean(scores)), [of_examples, _variance_over_seeds(scores)])
    if test.standard_error == 0:  # nothing spreads: the scores are all that is known
        return Interval(test.difference, test.difference, LEVEL)
    return Interval(test.low, test.high, LEVEL)


def at_level(test: PairedTest, level: float) -> PairedTest:
    """Give the test its interval at another level."""
    if test.standard_error == 0:
        return test
    half = float(special.stdtrit(test.freedom, (1 + level) / 2)) * test.standard_error
    return replace(test, low=test.difference - half, high=test.difference + half)


def paired_test(difference: float, variances: Sequence[Variance]) -> PairedTest:
    """Test a difference whose variance is the sum of these.

    Degrees of freedom after Satterthwaite (1946), but each part counts (ν + 2) / ν times in them. As it stands his
    formula is too sure of itself if a part that is known well meets one of few degrees of freedom that comes out
    small by chance: at the level that Holm asks of the first of 32 comparisons it rejects a true null 1.3 times as
    often as it should (`python -m benchmarks.statistics freedom`). Parts of like freedom are not changed (Welch).

    If nothing spreads there is nothing to hold a difference against: it may be any, and p is 1. Of methods that do
    not differ at all (the same answers to all examples) the interval is 0 alone.
    """
    variance = sum(part.value for part in variances)
    if variance == 0:
        half = WIDEST if difference else 0.0
        return PairedTest(difference, -half, half, p_value=1.0, standard_error=0.0, freedom=MOST_FREEDOM)
    counted = [Variance(part.value * (1 + 2 / part.freedom), part.freedom) for part in variances]
    shares = sum(part.value**2 / part.freedom for part in counted) / sum(part.value for part in counted) ** 2
    freedom = 1 / max(shares, 1 / MOST_FREEDOM)
    error = variance**0.5
    half = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    p_value = 2 * float(special.stdtr(freedom, -abs(difference) / error))
    return PairedTest(difference, difference - half, difference + half, p_value, error, freedom)


def _variance_over_seeds(scores: Sequence[float]) -> Variance:
    """Compute the variance of the mean score."""
    return Variance(float(np.var(scores, ddof=1)) / len(scores), len(scores) - 1)


def _variance_between_seeds(resampled: np.ndarray) -> float:
    """Compute how much of the mean score's variance over examples differs by seed: the seeds show it too."""
    seeds = resampled.shape[1]
    deviations = resampled - resampled.mean(axis=1, keepdims=True)
    return float(np.var(deviations, axis=0, ddof=1).sum() / (seeds - 1) / seeds)


def variance_of_ranked(rank: int, number: int) -> float:
    """Compute the variance of the value of this rank, from the lowest, among so many standard normal values."""
    from scipy import stats  # takes a second to import

    return float(stats.order_statistic(stats.Normal(), r=rank, n=number).variance())


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values so that any false positive among them all stays below the level (Holm, 1979)."""
    ascending = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(factors * np.asarray(p_values, dtype=float)[ascending]), 1.0)
    return list(map(float, adjusted[np.argsort(ascending, kind="stable")]))
