"""python -m pytest tests/analysis/test_variance_components.py"""

import numpy as np
import pytest

from analysis.statistics.comparisons import Sample
from analysis.statistics.resampling import resampled_scores
from analysis.statistics.uncertainty import SearchNoise, Variance
from analysis.statistics.variance_components import variance_components
from trainables.data.tasks import TASKS

EXAMPLES = 500


def sample_of(answers, search=None):
    """Of models (seeds, n) to which 1 is the right answer."""
    splits = np.full(EXAMPLES, "dev")
    resampled = resampled_scores(TASKS["rte"], answers, np.ones(EXAMPLES, int), splits, resamples=2_000, seed=0)
    return Sample([], answers.mean(axis=1).tolist(), resampled, search)


def test_models_that_err_alike_spread_over_dev_examples_alone():
    one = (np.random.default_rng(0).random(EXAMPLES) < 0.8).astype(int)
    found = variance_components(sample_of(np.repeat(one[None], 5, axis=0)))
    assert found.seed == 0.0
    assert found.dev_examples == pytest.approx(np.sqrt(one.mean() * (1 - one.mean()) / EXAMPLES), rel=0.05)


def test_a_model_is_as_uncertain_as_its_examples_are_few_however_its_seeds_err():
    """250 examples at 80 %: 2.5 points, whether the seeds err on the same examples or not."""
    answers = (np.random.default_rng(0).random((20, EXAMPLES)) < 0.8).astype(int)
    found = variance_components(sample_of(answers))
    alone = np.sqrt(0.8 * 0.2 / EXAMPLES)
    assert found.seed == pytest.approx(alone, rel=0.35)
    assert found.dev_examples == pytest.approx(alone, rel=0.05)


def test_search_is_the_luck_of_the_search():
    answers = np.ones((5, EXAMPLES), int)
    assert variance_components(sample_of(answers)).search is None
    noise = SearchNoise(given_best=0.0003, of_best=Variance(0.0001, 6))
    assert variance_components(sample_of(answers, noise)).search == pytest.approx(0.02)
