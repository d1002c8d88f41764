"""python -m pytest tests/analysis/test_search_noise.py"""

import numpy as np
import pytest

from analysis.statistics.search_noise import search_noise, variance_of_best
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
