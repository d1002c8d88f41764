"""python -m pytest tests/analysis/test_optimism.py"""

import pytest
from helpers.made_studies import record

from analysis.statistics.optimism import optimism_of_search

SELECTION = [0.80, 0.82, 0.81, 0.84, 0.79]
REPORTED = [0.75, 0.76, 0.77, 0.78, 0.76]


def trials(reported):
    best = record("palbert", "rte", 0.70, phase="search", selection_score=0.85)
    pairs = zip(reported, SELECTION, strict=True)
    return best, [record("palbert", "rte", score, selection_score=own) for score, own in pairs]


def test_like_is_compared_with_like_under_holdout():
    found = optimism_of_search(*trials(REPORTED))
    assert found.of_search.difference == pytest.approx(0.85 - 0.81)
    assert (found.of_search.low, found.of_search.high) == pytest.approx((0.85 - 0.84, 0.85 - 0.79))
    assert found.of_search.coverage == 0.9375


def test_what_the_slice_makes_easier_is_told_apart():
    found = optimism_of_search(*trials(REPORTED))
    assert found.of_slice.difference == pytest.approx(0.05)  # of 0.05, 0.06, 0.04, 0.06, 0.03
    assert (found.of_slice.low, found.of_slice.high) == pytest.approx((0.03, 0.06))


def test_where_dev_selects_there_is_no_gap_of_the_slice():
    found = optimism_of_search(*trials(SELECTION))
    assert (found.of_slice.difference, found.of_slice.low, found.of_slice.high) == (0, 0, 0)
    assert found.to_json()["of_search"]["difference"] == pytest.approx(0.04)


def test_one_confirm_trial_says_nothing():
    best, confirmed = trials(REPORTED)
    assert optimism_of_search(best, confirmed[:1]) is None
