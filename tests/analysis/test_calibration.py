"""python -m pytest tests/analysis/test_calibration.py"""

import numpy as np
import pytest
from helpers.made_studies import predicted_study

from analysis.statistics.calibration import calibration
from analysis.studies.cell_sources import predictions_of
from analysis.studies.joined import rows_of
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import Predictions

N, LAYERS = 40_000, 3


def made(*, agreement, accuracy, confidence):
    """A model whose Λ leaves with 0.2, 0.3 and 0.5, and which leaves at layer 2."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=N)
    last = np.where(rng.random(N) < accuracy, labels, 1 - labels)
    answers = np.stack([np.where(rng.random(N) < share, last, 1 - last) for share in (*agreement, 1.0)])
    odds = np.log(confidence / (1 - confidence))
    return Predictions(
        task="rte",
        ids=np.arange(N),
        split=np.full(N, "dev"),
        labels=labels,
        logits=(np.eye(2)[last] * odds)[None],
        exit_layers=np.full((1, N), 2),
        layer_answers=answers,
        exit_probabilities=np.repeat([[0.2], [0.3], [0.5]], N, axis=1).astype(np.float16),
        sweep_rule=np.array([]),
        sweep_setting=np.array([]),
        sweep_score=np.array([]),
        sweep_mean_layers=np.array([]),
    )


def test_a_posterior_that_means_what_it_says_has_no_error():
    found = calibration([made(agreement=(0.2, 0.5), accuracy=0.9, confidence=0.9)])
    assert [each.layer for each in found.posterior] == [1, 2]
    assert [each.confidence for each in found.posterior] == pytest.approx([0.2, 0.5], abs=1e-3)
    assert [each.expected_calibration_error for each in found.posterior] == pytest.approx([0, 0], abs=0.01)


def test_a_posterior_that_is_too_sure_shows_by_how_much():
    found = calibration([made(agreement=(0.1, 0.1), accuracy=0.9, confidence=0.9)])
    assert [each.expected_calibration_error for each in found.posterior] == pytest.approx([0.1, 0.4], abs=0.01)


def test_confidence_is_held_against_accuracy_where_examples_leave():
    (exits,) = calibration([made(agreement=(0.5, 0.5), accuracy=0.75, confidence=0.95)]).exits
    assert (exits.layer, exits.examples) == (2, N)
    assert (exits.confidence, exits.share) == pytest.approx((0.95, 0.75), abs=0.01)
    assert exits.expected_calibration_error == pytest.approx(0.2, abs=0.01)
    assert sum(each.examples for each in exits.bins) == N


def test_cells_of_a_study_are_calibrated_where_they_can_be(tmp_path):
    methods = {"pabee": 0.7, "pondernet": 0.7}
    rows = rows_of([load_study(predicted_study(tmp_path, methods, ["rte", "stsb"], num_examples=50))])
    found = {(row.label, task): calibration(predictions_of(cell)) for row in rows for task, cell in row.cells.items()}
    assert found["pabee", "stsb"] is None
    assert found["pabee", "rte"].posterior is None
    assert len(found["pondernet", "rte"].posterior) == 11
    assert sum(each.examples for each in found["pondernet", "rte"].exits) == 50 * 5 * 4
    assert calibration([]) is None
