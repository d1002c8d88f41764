"""Decide whether our scores reproduce published numbers, given the uncertainty of our scores and of the numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from analysis.statistics.uncertainty import PairedTest, Variance, paired_test, variance_of_ranked

MARGIN = 0.01  # 1 point: smaller differences count as reproduced

Statistic = Literal["median", "mean"]
Word = Literal["reproduced", "not reproduced", "not by this configuration", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """Our score minus the published score, the 95 % interval of this difference, and the verdict."""

    difference: float
    low: float
    high: float
    word: Word


class PublishedStatistic(NamedTuple):
    """Statistic that a published number reports, such as "median of 5 seeds"."""

    statistic: Statistic
    seeds: int


def verdict(
    our_scores: Sequence[float],
    published_value: float,
    published_statistic: str,
    published_deviation: float | None,
    *,
    search: Variance | None = None,
) -> Verdict | None:
    """Compare our scores with a published number, and decide whether it was reproduced.

    The published number is compared with the same statistic (median or mean) of our scores. Both numbers must be from
    the same dev set. The 95 % interval of the difference uses Student's t. The variance of the difference is the sum of
    both numbers' variances. If no standard deviation was published, our standard deviation is used for both numbers.
    The variance `search` is added twice: once for our number and once for the published number.

    - "reproduced": the interval lies within `MARGIN` of 0 (two one-sided tests at 2.5 %).
    - "not reproduced": the interval excludes 0, and the difference exceeds the margin.
    - "not by this configuration": like "not reproduced", but `search` is None.
    - "undecided": otherwise, as on most small tasks with five seeds.

    `python -m benchmarks.statistics verdict` prints the coverage of the interval, and how often each verdict is wrong.

    Args:
        our_scores: one per seed, in [-1, 1], at least two.
        published_value: the published number in [-1, 1], which is points divided by 100.
        published_statistic: as written in `published.csv`: "median of 5", "mean of 10", "single run", "single model".
        published_deviation: published standard deviation over seeds (divisor n - 1), in [0, 1]; None if unpublished.
        search: variance of our expected score over repeated searches; None if unknown.

    Returns:
        None if `published_statistic` does not give a number of seeds ("best of", "n/a").
    """
    assert len(our_scores) > 1
    assert -1 <= published_value <= 1, "points must be divided by 100"
    published = read_statistic(published_statistic)
    if published is None:
        return None
    ours = np.median(our_scores) if published.statistic == "median" else np.mean(our_scores)
    of_searches = [] if search is None else [Variance(2 * search.value, search.freedom)]
    variances = [*_variances(our_scores, published, published_deviation), *of_searches]
    test = paired_test(float(ours) - published_value, variances)
    return Verdict(test.difference, test.low, test.high, _word(test, knows_search=search is not None))


def read_statistic(text: str) -> PublishedStatistic | None:
    """Parse a statistic of `published.csv`; return None if it has no number of seeds ("best of", "n/a")."""
    if text in ("single run", "single model"):
        return PublishedStatistic("mean", 1)
    found = re.fullmatch(r"(median|mean) of ([1-9]\d*)", text)
    return found and PublishedStatistic("median" if found[1] == "median" else "mean", int(found[2]))


def _variances(scores: Sequence[float], published: PublishedStatistic, deviation: float | None) -> list[Variance]:
    factors = [_variance_factor(published.statistic, seeds) for seeds in (len(scores), published.seeds)]
    variance, freedom = float(np.var(scores, ddof=1)), len(scores) - 1
    if deviation is None or published.seeds < 2:
        return [Variance(variance * sum(factors), freedom)]
    return [Variance(variance * factors[0], freedom), Variance(deviation**2 * factors[1], published.seeds - 1)]


def _variance_factor(statistic: Statistic, seeds: int) -> float:
    if statistic == "mean":
        return 1 / seeds
    middle = (seeds + 1) // 2
    return variance_of_ranked(middle, 2 * middle - 1)  # an even number of seeds counts as one less


def _word(test: PairedTest, *, knows_search: bool) -> Word:
    if test.low > -MARGIN and test.high < MARGIN:
        return "reproduced"
    if test.low <= 0 <= test.high or abs(test.difference) <= MARGIN:
        return "undecided"
    return "not reproduced" if knows_search else "not by this configuration"
