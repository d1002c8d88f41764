"""Quantify the uncertainty of scores: intervals, tests, and corrections for several tests."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np
from scipy import special

LEVEL = 0.95  # coverage of every interval
ALPHA = 0.05  # significance level
MOST_FREEDOM = 1e6  # degrees of freedom above which Student's t is taken as normal
FEW_SEEDS = 3  # so few seeds, against more seeds, get the degrees of freedom of the few alone
ROUNDING = 1e-12  # smaller differences and deviations of scores are rounding errors
WIDEST = 2.0  # largest difference of two scores in [-1, 1]


@dataclass(frozen=True)
class ConfidenceInterval:
    """Bounds of a 95 % interval."""

    low: float
    high: float


class Variance(NamedTuple):
    """A variance, and the degrees of freedom of its estimate."""

    value: float
    freedom: float


@dataclass(frozen=True)
class PairedTest:
    """Difference of two methods' mean scores, its 95 % interval, and its two-sided p-value."""

    difference: float
    low: float
    high: float
    p_value: float
    standard_error: float
    freedom: float  # degrees of freedom


def bootstrap_interval(resampled: np.ndarray) -> ConfidenceInterval:
    """Compute the 95 % percentile bootstrap interval of a statistic from its values on resamples, (resamples,)."""
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return ConfidenceInterval(low, high)


def welch_test(
    resampled: np.ndarray,
    other_resampled: np.ndarray,
    scores: Sequence[float],
    other_scores: Sequence[float],
) -> PairedTest:
    """Test the difference between the mean scores of two methods: Welch over seeds, bootstrap over dev examples.

    The variance of the difference is the sum of three variances: one over the seeds of each method (Welch), and one
    over examples (bootstrap). The interaction of seeds and examples is counted once. If one method has 2 or 3 seeds and
    the other has more, the variance over all seeds gets the degrees of freedom of the few seeds, because the test would
    reject too many true nulls otherwise (`python -m benchmarks.statistics unequal`).

    Args:
        resampled: (resamples, seeds) scores on resamples of the examples. Both methods share the resamples.
        other_resampled: resampled scores of the other method.
        scores: one per seed, on all examples.
        other_scores: scores of the other method, one per seed.
    """
    of_examples = Variance(variance_over_examples(resampled, other_resampled), inf)
    over_seeds = [_variance_over_seeds(scores), _variance_over_seeds(other_scores)]
    fewest, most = sorted((len(scores), len(other_scores)))
    if fewest <= FEW_SEEDS and fewest < most:
        over_seeds = [Variance(sum(part.value for part in over_seeds), fewest - 1)]
    return paired_test(float(np.mean(scores) - np.mean(other_scores)), [of_examples, *over_seeds])


def variance_over_examples(resampled: np.ndarray, other_resampled: np.ndarray) -> float:
    """Estimate the variance over examples of a difference of means, without the interaction of seeds and examples.

    The arguments are those of `welch_test`.
    """
    over_examples = float(np.var(resampled.mean(axis=1) - other_resampled.mean(axis=1), ddof=1))
    between_seeds = _variance_between_seeds(resampled) + _variance_between_seeds(other_resampled)
    return float(max(0.0, over_examples - between_seeds))


def variance_of_interaction(resampled: np.ndarray) -> float:
    """Estimate how much the interaction of seeds and examples adds to the variance of a score of one seed."""
    return float(resampled.shape[1] * _variance_between_seeds(resampled))


def mean_interval(resampled: np.ndarray, scores: Sequence[float]) -> ConfidenceInterval:
    """Compute the 95 % confidence interval of a mean score over seeds and dev examples.

    The arguments and the estimate of the variance are those of `welch_test`.
    """
    test = mean_test(resampled, scores)
    if test.standard_error == 0:  # without any spread, the interval is the score itself
        return ConfidenceInterval(test.difference, test.difference)
    return ConfidenceInterval(test.low, test.high)


def mean_test(resampled: np.ndarray, scores: Sequence[float]) -> PairedTest:
    """Test whether a mean over seeds is 0: of gains, or of the differences between two exit rules on the same models.

    The arguments and the estimate of the variance are those of `welch_test`.
    """
    return paired_test(float(np.mean(scores)), mean_variances(resampled, scores))


def mean_variances(resampled: np.ndarray, scores: Sequence[float]) -> list[Variance]:
    """Estimate the variances of a mean over seeds: over examples, and over seeds. See `welch_test`."""
    over_examples = float(np.var(resampled.mean(axis=1), ddof=1))
    of_examples = Variance(max(0.0, over_examples - _variance_between_seeds(resampled)), inf)
    return [of_examples, _variance_over_seeds(scores)]


def at_level(test: PairedTest, level: float) -> PairedTest:
    """Recompute the interval of a test at the confidence level `level`."""
    if test.standard_error == 0:
        return test
    half = float(special.stdtrit(test.freedom, (1 + level) / 2)) * test.standard_error
    return replace(test, low=test.difference - half, high=test.difference + half)


def paired_test(difference: float, variances: Sequence[Variance]) -> PairedTest:
    """Test whether a difference is 0; the variance of the difference is the sum of `variances`.

    Degrees of freedom are Satterthwaite's (1946), with one change: a variance with ν degrees of freedom gets the weight
    (ν + 2) / ν. Without these weights, the test rejects a true null too often (`python -m benchmarks.statistics
    freedom`).

    If the variance is 0, p is 1, and the interval is [-2, 2]. If the difference is 0 too, the interval is [0, 0]. What
    is as small as a rounding error counts as 0.
    """
    variance = sum(part.value for part in variances)
    if variance < ROUNDING**2:
        difference = difference if abs(difference) > ROUNDING else 0.0
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
    """Estimate the variance over seeds of the mean of `scores`."""
    return Variance(float(np.var(scores, ddof=1)) / len(scores), len(scores) - 1)


def _variance_between_seeds(resampled: np.ndarray) -> float:
    """Estimate how much the interaction of seeds and examples adds to the variance of the mean over seeds."""
    seeds = resampled.shape[1]
    deviations = resampled - resampled.mean(axis=1, keepdims=True)
    return float(np.var(deviations, axis=0, ddof=1).sum() / (seeds - 1) / seeds)


@functools.cache
def variance_of_ranked(rank: int, number: int) -> float:
    """Compute the variance of the `rank`-th smallest of `number` standard normal values."""
    from scipy import stats  # takes a second to import

    return float(stats.order_statistic(stats.Normal(), r=rank, n=number).variance())


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's method (1979), which bounds the probability of one or more false positives."""
    ascending = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(factors * np.asarray(p_values, dtype=float)[ascending]), 1.0)
    return list(map(float, adjusted[np.argsort(ascending, kind="stable")]))
