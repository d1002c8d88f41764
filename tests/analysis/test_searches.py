"""python -m pytest tests/analysis/test_searches.py"""

from itertools import product

import numpy as np
import pytest
from helpers.made_studies import arm, record, rows_in, write_study

from analysis.layouts.search_notes import edge_notes
from analysis.statistics.searches import (
    at_equal_budget,
    expected_best,
    search_variance,
    widen_range,
)
from analysis.statistics.uncertainty import variance_of_ranked
from trainables.configuration.ranges import Interval, format_searched

SEEDS = [0.70, 0.72, 0.71, 0.74, 0.69]


@pytest.mark.parametrize("number", [1, 4, 12, 36])
def test_variance_of_the_best_is_that_of_simulated_ones(number):
    best = np.random.default_rng(0).normal(size=(50_000, number)).max(axis=1)
    assert variance_of_ranked(number, number) == pytest.approx(best.var(), rel=0.03)


def test_configurations_that_are_all_alike_leave_nothing_to_luck():
    same = np.mean(SEEDS) + np.array([0.01, -0.01] * 6) * np.std(SEEDS)
    assert search_variance(same, SEEDS).value == 0.0
    assert search_variance([0.7] * 12, SEEDS).value == 0.0


def test_distant_configurations_dominate_seed_noise():
    found = search_variance(np.linspace(0.0, 0.9, 12), SEEDS)
    upper = np.linspace(0.0, 0.9, 12)[6:] - 0.45
    spread = np.sum(upper**2) / 5
    assert found.value == pytest.approx(np.var(SEEDS, ddof=1) + spread * variance_of_ranked(12, 12), rel=0.02)


def test_luck_of_five_trials_is_that_of_the_formula():
    found = search_variance([0.70, 0.74, 0.71, 0.78, 0.76], SEEDS)  # 0, 0.02 and 0.04 above the median
    spread, of_seeds = (0.02**2 + 0.04**2) / 2, 0.00037
    share = 1 - of_seeds / spread
    assert found == pytest.approx((share * of_seeds + share**2 * spread * variance_of_ranked(5, 5), 1.5))


def test_a_few_failures_do_not_widen_the_spread():
    good = np.linspace(0.6, 0.75, 12)
    failed = search_variance([*good[:4] - 0.5, *good[4:]], SEEDS)
    assert failed == pytest.approx(search_variance(good, SEEDS))


@pytest.mark.parametrize(("configurations", "seeds"), [(3, 5), (12, 1)])
def test_too_few_trials_say_nothing(configurations, seeds):
    assert search_variance(np.linspace(0.5, 0.7, configurations), SEEDS[:seeds]) is None


def searched(method, scores, **fields):
    return [record(method, "rte", score, phase="search", seed=i, trial=i, **fields) for i, score in enumerate(scores)]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_expected_best_is_the_mean_over_all_draws(number):
    scores = [0.5, 0.7, 0.6]
    every = [max(drawn) for drawn in product(scores, repeat=number)]
    assert expected_best(scores, number) == pytest.approx(np.mean(every))


def test_expected_best_is_biased_downwards_as_stated():
    assert expected_best([0.0] * 99 + [1.0], 100) == pytest.approx(1 - np.exp(-1), abs=0.002)


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


def test_failed_trial_that_ran_again_costs_twice(tmp_path):
    records = searched("palbert", [0.5, 0.7], epochs=8) + searched("albert", [0.6, 0.6], epochs=8)
    failed = record("palbert", "rte", None, phase="search", seed=0, trial=0, epochs=4)
    (found,) = at_equal_budget(rows_in(write_study(tmp_path, [failed, *records])), "epochs")
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


def interval(low, high, **fields):
    return Interval(low=low, high=high, **fields)


@pytest.mark.parametrize(
    ("allowed", "value", "wider"),
    [
        (interval(5e-5, 2e-4, log=True), 1.95e-4, "5e-05..0.0006:log"),  # PonderNet on CoLA, docs/real_results_cpu.md
        (interval(5e-5, 2e-4, log=True), 5.5e-5, "1.7e-05..0.0002:log"),
        (interval(0.15, 0.3), 0.16, "0.075..0.3"),
        (interval(0.2, 0.9), 0.85, "0.2..0.95"),  # a share stays below 1
        (interval(0.9, 0.999), 0.999, "0.9..0.9995"),
        (interval(1000.0, 1024.0), 1024.0, "1000.0..1040.0"),
        (interval(1, 3), 3, "1..4"),
        (interval(10, 100, step=10), 100, "10..150"),
        ((0.9, 0.95, 0.99), 0.99, "0.9,0.95,0.99,0.995"),
        ((16, 32, 128), 128, "16,32,128,512"),
        ((16, 32, 128), 16, "8,16,32,128"),
    ],
)
def test_winner_at_an_end_gets_a_wider_range(allowed, value, wider):
    assert format_searched(widen_range(allowed, value)) == wider


@pytest.mark.parametrize(
    ("allowed", "value"),
    [
        (interval(5e-5, 2e-4, log=True), 1e-4),
        (interval(0.0, 0.3), 0.01),  # nothing lies below 0
        (interval(1, 3), 1),
        ((3,), 3),
        ((16, 32, 128), 32),
        ((16, 128), 128),
        (("linear", "linear_cat", "rnn"), "rnn"),
        ((3, 1, 2), 3),
    ],
)
def test_winner_inside_its_range_and_at_a_natural_end_gets_none(allowed, value):
    assert widen_range(allowed, value) is None


@pytest.mark.parametrize("method", ["palbert", "palbert:beta=0.1"])
def test_winner_at_range_end_names_widening_option(method, tmp_path):
    """Of a value of a method, by the key of its method: the option cannot name the value."""
    rows = rows_in(write_study(tmp_path, arm(method, "rte", [0.7, 0.8], config={"learning_rate": 4.9e-5})))
    assert edge_notes(rows) == [
        "the search chose values in the first or last tenth of their ranges, so better ones may lie outside: "
        f"learning_rate 4.9e-05 of {method} on RTE (wider: --search palbert/rte:learning_rate=2e-06..0.00015:log)"
    ]
