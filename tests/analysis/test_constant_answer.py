"""python -m pytest tests/analysis/test_constant_answer.py"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.made_studies import predicted_study
from helpers.made_studies import predictions as make_predictions

from analysis.layouts.evidence import gather
from analysis.statistics.constant_answer import constant_score, not_shown_above_constant
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import Predictions
from analysis.tables import write_tables


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
