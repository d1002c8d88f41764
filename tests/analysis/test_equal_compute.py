"""python -m pytest tests/analysis/test_equal_compute.py"""

from itertools import product

import numpy as np
import pytest
from helpers.made_studies import record, write_study

from analysis.statistics.equal_compute import at_equal_budget, expected_best, expected_best_curve
from analysis.studies.joined import rows_of
from analysis.studies.load import load_study


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


def test_a_curve_never_falls_and_counts_what_stopped_and_failed_trials_cost():
    records = searched("palbert", [0.5, 0.7], epochs=8)
    records += [record("palbert", "rte", 0.4, phase="search", seed=8, status="stopped", epochs=2)]
    records += [record("palbert", "rte", None, phase="search", seed=9, epochs=2)]
    curve = expected_best_curve(records, "epochs")
    assert curve.budgets == [10, 20]
    assert curve.scores == pytest.approx([0.6, 0.65])
    assert expected_best_curve(records, "trials").budgets == [2, 4]


@pytest.mark.parametrize(("unit", "each"), [("seconds", 120.0), ("examples", 20_000), ("epochs", 8)])
def test_budgets_are_in_the_unit_asked_for(unit, each):
    assert expected_best_curve(searched("palbert", [0.5]), unit).budgets == [each]


def test_seconds_are_of_the_clock_where_no_gpu_was_used():
    records = searched("palbert", [0.5], gpu_seconds=0.0, wall_seconds=50.0)
    assert expected_best_curve(records, "seconds").budgets == [50.0]


def test_every_row_is_scored_at_the_smallest_budget(tmp_path):
    records = searched("palbert", [0.5, 0.7, 0.6, 0.8]) + searched("albert", [0.6, 0.7])
    (found,) = at_equal_budget(rows_of([load_study(write_study(tmp_path, records))]), "trials")
    assert (found.task, found.budget) == ("rte", 2)
    assert found.scores["albert"] == pytest.approx(expected_best([0.6, 0.7], 2))
    assert found.scores["palbert"] == pytest.approx(expected_best([0.5, 0.6, 0.7, 0.8], 2))


def test_a_budget_below_one_trial_buys_no_score(tmp_path):
    records = searched("palbert", [0.5, 0.7], epochs=20) + searched("albert", [0.6], epochs=8)
    (found,) = at_equal_budget(rows_of([load_study(write_study(tmp_path, records))]), "epochs")
    assert found.scores == {"palbert": None, "albert": 0.6}


def test_a_task_that_one_row_has_is_not_compared(tmp_path):
    rows = rows_of([load_study(write_study(tmp_path, searched("palbert", [0.5, 0.7])))])
    assert at_equal_budget(rows, "trials") == []
