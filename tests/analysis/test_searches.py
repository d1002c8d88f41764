"""python -m pytest tests/analysis/test_searches.py"""

from itertools import product

import numpy as np
import pytest
from helpers.made_studies import record, rows_in, write_study

from analysis.statistics.searches import (
    at_equal_budget,
    expected_best,
    optimism_of_search,
    search_noise,
    variance_of_best,
)
from analysis.statistics.uncertainty import SearchNoise, Variance, paired_bootstrap

SEEDS = [0.70, 0.72, 0.71, 0.74, 0.69]


@pytest.mark.parametrize("number", [1, 4, 12, 36])
def test_variance_of_the_best_is_that_of_simulated_ones(number):
    best = np.random.default_rng(0).normal(size=(50_000, number)).max(axis=1)
    assert variance_of_best(number) == pytest.approx(best.var(), rel=0.03)


def test_configurations_that_are_all_alike_leave_nothing_to_luck():
    same = np.mean(SEEDS) + np.array([0.01, -0.01] * 6) * np.std(SEEDS)
    assert search_noise(same, SEEDS).value == 0.0
    assert search_noise([0.7] * 12, SEEDS).value == 0.0


def test_configurations_far_apart_leave_the_seeds_and_the_best_of_them_to_luck():
    found = search_noise(np.linspace(0.0, 0.9, 12), SEEDS)
    upper = np.linspace(0.0, 0.9, 12)[6:] - 0.45
    spread = np.sum(upper**2) / 5
    assert found.given_best == pytest.approx(np.var(SEEDS, ddof=1), rel=0.01)
    assert found.of_best.value == pytest.approx(spread * variance_of_best(12), rel=0.02)
    assert found.of_best.freedom == 6


def test_a_few_failures_do_not_widen_the_spread():
    good = np.linspace(0.6, 0.75, 12)
    expected = search_noise(good, SEEDS).value
    assert search_noise([*good[:4] - 0.5, *good[4:]], SEEDS).value == pytest.approx(expected)


@pytest.mark.parametrize(("configurations", "seeds"), [(3, 5), (12, 1)])
def test_too_few_trials_say_nothing(configurations, seeds):
    assert search_noise(np.linspace(0.5, 0.7, configurations), SEEDS[:seeds]) is None


def test_the_seeds_freedom_is_counted_once():
    scores, other = np.array(SEEDS), np.array(SEEDS) - 0.02
    noise = SearchNoise(given_best=0.01, of_best=Variance(0.0, 6))
    found = paired_bootstrap(np.zeros((9, 5)), np.zeros((9, 5)), scores, other, searches=(noise, noise))
    assert found.freedom == pytest.approx(8)
    assert found.standard_error**2 == pytest.approx(2 * (np.var(scores, ddof=1) / 5 + 0.01))


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
    assert found.of_search.difference == pytest.approx(0.04)


def test_one_confirm_trial_says_nothing():
    best, confirmed = trials(REPORTED)
    assert optimism_of_search(best, confirmed[:1]) is None


def searched(method, scores, **fields):
    return [record(method, "rte", score, phase="search", seed=i, trial=i, **fields) for i, score in enumerate(scores)]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_expected_best_is_the_mean_over_all_draws(number):
    scores = [0.5, 0.7, 0.6]
    every = [max(drawn) for drawn in product(scores, repeat=number)]
    assert expected_best(scores, number) == pytest.approx(np.mean(every))


def test_expected_best_is_biased_downwards_as_stated():
    assert expected_best([0.0] * 99 + [1.0], 100) == pytest.approx(1 - np.exp(-1), abs=0.002)


def test_no_trial_has_no_best():
    with pytest.raises(ValueError, match="number of trials is 0; allowed: at least 1"):
        expected_best([0.5], 0)


@pytest.mark.parametrize(
    ("unit", "fields", "budget"),
    [
        ("trials", {}, 1),
        ("epochs", {"epochs": 8}, 8),
        ("examples", {}, 20_000),
        ("seconds", {}, 120.0),
        ("seconds", {"gpu_seconds": 0.0, "wall_seconds": 50.0}, 50.0),  # of the clock
    ],
)
def test_budgets_are_in_the_unit_asked_for(tmp_path, unit, fields, budget):
    records = [one for method in ("palbert", "albert") for one in searched(method, [0.5], **fields)]
    (found,) = at_equal_budget(rows_in(write_study(tmp_path, records)), unit)
    assert (found.budget, found.scores) == (budget, {"palbert": 0.5, "albert": 0.5})


def test_stopped_and_failed_trials_are_part_of_what_a_search_cost(tmp_path):
    records = searched("palbert", [0.5, 0.7], epochs=8) + searched("albert", [0.6, 0.6], epochs=8)
    records += [record("palbert", "rte", 0.4, phase="search", seed=8, trial=8, status="stopped", epochs=2)]
    records += [record("palbert", "rte", None, phase="search", seed=9, trial=9, epochs=2)]
    (found,) = at_equal_budget(rows_in(write_study(tmp_path, records)), "epochs")
    assert (found.budget, found.scores["palbert"]) == (16, pytest.approx(expected_best([0.5, 0.7], 1.6)))


def test_every_row_is_scored_at_the_smallest_budget(tmp_path):
    records = searched("palbert", [0.5, 0.7, 0.6, 0.8]) + searched("albert", [0.6, 0.7])
    (found,) = at_equal_budget(rows_in(write_study(tmp_path, records)), "trials")
    assert (found.task, found.budget) == ("rte", 2)
    assert found.scores["albert"] == pytest.approx(expected_best([0.6, 0.7], 2))
    assert found.scores["palbert"] == pytest.approx(expected_best([0.5, 0.6, 0.7, 0.8], 2))


def test_a_budget_below_one_trial_buys_no_score(tmp_path):
    records = searched("palbert", [0.5, 0.7], epochs=20) + searched("albert", [0.6], epochs=8)
    (found,) = at_equal_budget(rows_in(write_study(tmp_path, records)), "epochs")
    assert found.scores == {"palbert": None, "albert": 0.6}


def test_a_task_that_one_row_has_is_not_compared(tmp_path):
    rows = rows_in(write_study(tmp_path, searched("palbert", [0.5, 0.7])))
    assert at_equal_budget(rows, "trials") == []
