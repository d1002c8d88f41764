"""python -m pytest tests/analysis/test_verdicts.py"""

import numpy as np
import pytest
from scipy import stats

from analysis.layouts.published_numbers import FILE
from analysis.statistics.uncertainty import Variance, variance_of_ranked
from analysis.statistics.verdicts import read_statistic, verdict

CLOSE = [0.910, 0.911, 0.912, 0.909, 0.908]
WIDE = [0.70, 0.78, 0.74, 0.72, 0.77]


@pytest.mark.parametrize(
    ("scores", "published", "word"),
    [
        (CLOSE, 0.911, "reproduced"),
        (CLOSE, 0.93, "not by this configuration"),
        (CLOSE, 0.913, "reproduced"),  # another number, but within a point
        (CLOSE, 0.921, "not by this configuration"),
        (CLOSE, 0.919, "undecided"),  # excluded, and within a point: neither can be said
        (WIDE, 0.74, "undecided"),
        (WIDE, 0.85, "not by this configuration"),
    ],
)
def test_word(scores, published, word):
    assert verdict(scores, published, "median of 5", None).word == word


@pytest.mark.parametrize(
    ("deviation", "word"), [(0.0, "not reproduced"), (0.002, "not reproduced"), (0.02, "undecided")]
)
def test_spread_over_searches_widens_the_interval(deviation, word):
    alone = verdict(CLOSE, 0.93, "median of 5", None)
    found = verdict(CLOSE, 0.93, "median of 5", None, search=Variance(deviation**2, 5))
    assert found.word == word
    assert (found.high - found.low > alone.high - alone.low) == (deviation > 0)


def test_variance_over_searches_counts_for_both_numbers():
    found = verdict([0.7] * 5, 0.7, "mean of 5", None, search=Variance(0.0004, 1e6))
    assert found.high == pytest.approx(1.96 * 0.0008**0.5, rel=1e-3)


def test_interval_of_means_with_a_printed_deviation_is_welchs():
    found = verdict(WIDE, 0.76, "mean of 5", 0.02)
    expected = stats.ttest_ind_from_stats(np.mean(WIDE), np.std(WIDE, ddof=1), 5, 0.76, 0.02, 5, equal_var=False)
    assert found.difference == pytest.approx(np.mean(WIDE) - 0.76)
    error = found.difference / expected.statistic
    freedom = error**4 / sum((s**2 / 5) ** 2 / 4 for s in (np.std(WIDE, ddof=1), 0.02))
    half = stats.t.ppf(0.975, freedom) * error
    assert (found.low, found.high) == pytest.approx((found.difference - half, found.difference + half))


def test_our_spread_stands_in_where_none_is_printed():
    found = verdict(WIDE, 0.76, "mean of 10", None)
    half = stats.t.ppf(0.975, 4) * np.std(WIDE, ddof=1) * np.sqrt(1 / 5 + 1 / 10)
    assert (found.high - found.low) / 2 == pytest.approx(half)


def test_reproduced_is_an_interval_within_the_margin(monkeypatch):
    found = verdict(CLOSE, 0.916, "median of 5", None)
    width = max(-found.low, found.high)
    for margin, word in ((width + 1e-9, "reproduced"), (width - 1e-9, "undecided")):
        monkeypatch.setattr("analysis.statistics.verdicts.MARGIN", margin)
        assert verdict(CLOSE, 0.916, "median of 5", None).word == word


@pytest.mark.parametrize("number", [1, 3, 5, 9])
def test_variance_of_a_median_is_that_of_simulated_ones(number):
    medians = np.median(np.random.default_rng(0).normal(size=(50_000, number)), axis=1)
    assert variance_of_ranked((number + 1) // 2, number) == pytest.approx(medians.var(), rel=0.03)


@pytest.mark.parametrize("statistic", ["best-dev model", "n/a", "best of 10 by dev", "median, many seeds"])
def test_unknown_seed_statistics_get_no_verdict(statistic):
    assert statistic in FILE.read_text()
    assert verdict(WIDE, 0.7, statistic, None) is None


def test_statistics_of_the_published_file_that_are_read():
    assert read_statistic("median of 5") == ("median", 5)
    assert read_statistic("mean of 10") == ("mean", 10)
    assert read_statistic("single run") == ("mean", 1)
