"""python -m pytest tests/analysis/test_power.py"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis.layouts.notes import comparison_notes
from analysis.statistics.comparisons import Comparison
from analysis.statistics.power import detectable_difference, detectable_from_spread, power
from analysis.statistics.uncertainty import paired_test

RTE = dict(n_examples=277, seeds=5, seed_standard_deviation=0.02, accuracy=0.75)


def test_power_without_a_difference_is_the_level():
    assert power(0.0, **RTE) == pytest.approx(0.05)


def test_power_rises_with_the_difference_the_examples_and_the_seeds():
    assert 0.1 < power(0.02, **RTE) < power(0.03, **RTE) < power(0.05, **RTE) < 0.7
    assert power(0.03, **{**RTE, "n_examples": 40_430}) > power(0.03, **RTE)
    assert power(0.03, **{**RTE, "seeds": 10}) > power(0.03, **RTE)
    assert power(0.03, **RTE, comparisons=32) < power(0.03, **RTE)


def test_power_is_that_of_students_t_test_where_models_vary_as_they_are_said_to():
    rng = np.random.default_rng(0)
    error = np.sqrt(0.02**2 + 0.75 * 0.25 / 277)
    scores = rng.normal([[0.05], [0.0]], error, size=(20_000, 2, 5))
    found = np.mean(stats.ttest_ind(scores[:, 0], scores[:, 1], axis=1).pvalue < 0.05)
    assert power(0.05, **RTE) == pytest.approx(found, abs=0.015)


def test_detectable_difference_is_found_with_80_percent():
    error = np.sqrt(2 * (0.02**2 + 0.75 * 0.25 / 277) / 5)
    assert power(detectable_difference(error, 8), **RTE) == pytest.approx(0.8, abs=1e-3)
    many = detectable_difference(error, 8, comparisons=32)
    assert power(many, **RTE, comparisons=32) == pytest.approx(0.8, abs=1e-3)


def test_detectable_difference_of_many_degrees_of_freedom_is_the_normal_one():
    expected = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert detectable_difference(1.0, 1e6) == pytest.approx(expected)
    assert detectable_difference(1.0, 9_999) == pytest.approx(expected, rel=1e-3)


def test_detectable_difference_of_a_spread_is_that_of_two_rows_that_have_it():
    scores = [0.70, 0.72, 0.71, 0.74, 0.69]
    assert detectable_from_spread(scores) == detectable_difference(np.std(scores, ddof=1) * np.sqrt(2 / 5), 8)


def test_scores_that_are_all_alike_say_nothing_of_what_would_be_found():
    assert detectable_from_spread([0.5, 0.5, 0.5]) is None


def test_the_table_says_that_it_is_not_known():
    alike = paired_test(0.0, [])
    comparison = Comparison("palbert", "albert", "rte", "baseline", alike, 1.0, None, None, None, [])
    assert comparison_notes([comparison])[-1].endswith("four times in five: RTE not known")
    known = replace(comparison, detectable_difference=0.12)
    assert comparison_notes([comparison, known])[-1].endswith("four times in five: RTE 12.0 points")
