"""Verdicts on published numbers: ours minus published, with what the seeds of both leave open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from analysis.statistics.uncertainty import PairedTest, Variance, paired_test, variance_of_ranked
from study.facts.plain_words import counted

MARGIN = 0.01  # 1 point: smaller differences are the same number for most purposes

Statistic = Literal["median", "mean"]
Word = Literal["reproduced", "not reproduced", "not by this configuration", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """Ours minus published, its 95 % interval, and what follows; scores in [-1, 1]."""

    difference: float
    low: float
    high: float
    word: Word
    published_spread: Literal["printed", "ours"]  # whose standard deviation over seeds stands for the published one's


class PublishedStatistic(NamedTuple):
    """The statistic of its runs that a published number is."""

    statistic: Statistic
    seeds: int


def verdict(
    our_scores: Sequence[float],
    published_value: float,
    published_statistic: str,
    published_deviation: float | None,
    *,
    search: Variance | None = None,
    margin: float = MARGIN,
) -> Verdict | None:
    """Hold ours against a published number; None if it does not say of how many seeds it is the median or mean.

    Ours is the same statistic of our seeds. The interval is Student's t with the sampling variance of both numbers: of
    a median of five it is 1.43 times that of a mean (order statistics of normal seeds). If no deviation is printed,
    ours stands in for the published one's: the runs are then taken to have spread alike. Both of the same dev set.
    Both searched: what another search would change is added twice, as far as our search tells it.

    "reproduced": the interval lies within the margin, which is two one-sided tests at 2.5 %; with seeds as skewed as
    lognormal ones, whose intervals are a little short, a difference of the margin is so called in up to 6 %.
    "not reproduced": the interval excludes no difference, and the difference is beyond the margin; if it is not known
    what another search would change, "not by this configuration". "undecided": all else, which five seeds make of most
    small tasks.
    `python -m benchmarks.statistics verdict` prints how often the interval covers and each word is wrong.

    Args:
        our_scores: one per seed, at least two.
        published_value: in [-1, 1], as all scores here: printed points divided by 100.
        published_statistic: as in `published.csv`: "median of 5", "mean of 10", "single run", "single model".
        published_deviation: of single seeds (n - 1), in the same unit; None if none is printed.
        search: variance of our expected score over repeated searches; None if it is not known.
        margin: within which numbers count as the same.

    Raises:
        ValueError: fewer than two seeds; a published value that is no share.
    """
    if len(our_scores) < 2:
        raise ValueError(
            f"{counted(len(our_scores), 'score')} of ours; allowed: at least two, for the spread over seeds"
        )
    if not -1 <= published_value <= 1:
        raise ValueError(f"published value {published_value}; allowed: a share in [-1, 1], points divided by 100")
    published = read_statistic(published_statistic)
    if published is None:
        return None
    ours = np.median(our_scores) if published.statistic == "median" else np.mean(our_scores)
    of_searches = [] if search is None else [Variance(2 * search.value, search.freedom)]
    variances = [*_variances(our_scores, published, published_deviation), *of_searches]
    test = paired_test(float(ours) - published_value, variances)
    return Verdict(
        difference=test.difference,
        low=test.low,
        high=test.high,
        word=_word(test, margin, knows_search=search is not None),
        published_spread="ours" if published_deviation is None else "printed",
    )


def read_statistic(text: str) -> PublishedStatistic | None:
    """Read a statistic of `published.csv`; None for one whose sampling spread is not known (best of, n/a)."""
    if text in ("single run", "single model"):
        return PublishedStatistic("mean", 1)
    if text.startswith(("median of ", "mean of ")):
        statistic, _, seeds = text.partition(" of ")
        if re.fullmatch(r"[1-9]\d*", seeds):
            return PublishedStatistic("median" if statistic == "median" else "mean", int(seeds))
    return None


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
    return variance_of_ranked(middle, 2 * middle - 1)  # of an even number, that of one fewer


def _word(test: PairedTest, margin: float, *, knows_search: bool) -> Word:
    if -margin < test.low and test.high < margin:
        return "reproduced"
    if test.low <= 0 <= test.high or abs(test.difference) <= margin:
        return "undecided"
    return "not reproduced" if knows_search else "not by this configuration"
