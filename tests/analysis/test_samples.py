"""python -m pytest tests/analysis/test_samples.py"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.made_studies import predicted_study
from helpers.made_studies import predictions as make_predictions

from analysis.layouts.evidence import gather
from analysis.statistics.samples import (
    Sample,
    constant_score,
    not_shown_above_constant,
    resampled_scores,
    variance_components,
)
from analysis.statistics.uncertainty import SearchNoise, Variance
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import Predictions
from analysis.tables import write_tables
from trainables.data.tasks import TASKS


def predictions(task: str, labels: np.ndarray) -> Predictions:
    arrays = make_predictions("palbert", task, 0.7, seed=1, num_examples=len(labels), salt=0) | {"labels": labels}
    return Predictions(task=task, **{"exit_probabilities": None} | arrays)


@pytest.mark.parametrize(
    ("task", "labels", "expected"),
    [
        ("rte", [0, 0, 0, 1], 0.75),
        ("rte", [1, 1, 1, 0], 0.75),
        ("mrpc", [1, 1, 1, 0], (0.75 + 6 / 7) / 2),  # F1 of saying 1 to all
        ("cola", [0, 1, 1, 1], 0.0),
        ("stsb", [0.0, 1.5, 2.0, 5.0], None),
    ],
)
def test_one_answer_for_all_scores_what_its_best_class_does(task, labels, expected):
    assert constant_score(predictions(task, np.array(labels))) == (expected and pytest.approx(expected))


def test_a_table_names_the_cells_that_read_nothing(tmp_path):
    study = predicted_study(tmp_path, {"albert": 0.8, "palbert": 0.3}, ["rte", "mrpc", "stsb"])
    found = not_shown_above_constant(gather([load_study(study)]).samples)
    assert set(found) == {("palbert", "rte"), ("palbert", "mrpc")}
    write_tables([study], tmp_path / "tables")
    (note,) = [line for line in (tmp_path / "tables" / "dev.md").read_text().splitlines() if "the one answer" in line]
    assert note.startswith(
        "- not shown to be better than always giving the one answer that scores best (its score in brackets): palbert "
    )
    assert "albert on" not in note.replace("palbert on", "")


def test_a_table_without_such_cells_says_nothing_of_them(tmp_path):
    study = predicted_study(tmp_path, {"albert": 0.8, "palbert": 0.85}, ["rte"])
    write_tables([study], tmp_path / "tables")
    assert "one answer" not in (tmp_path / "tables" / "dev.md").read_text()


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
