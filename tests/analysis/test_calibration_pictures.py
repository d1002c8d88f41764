"""Reliability and expected best scores: python -m pytest tests/analysis/test_calibration_pictures.py"""

import numpy as np
import pytest
from helpers.swept_studies import swept_study

from analysis.pictures.budget_pictures import budget_picture
from analysis.pictures.calibration_pictures import calibrations, confidence_picture, posterior_picture
from analysis.pictures.subject import subject_of
from analysis.studies.joined import rows_of
from analysis.studies.load import load_study


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    folder = swept_study(tmp_path_factory.mktemp("runs") / "s", ["pabee", "palbert"], ["rte"])
    return subject_of(rows_of([load_study(folder)]))


def test_reliability_has_a_posterior_of_ponder_models_alone_and_a_mark_per_layer(subject):
    found = calibrations(subject)
    picture = posterior_picture(subject, found)
    (axes,) = picture.figure.axes
    marked = [line for line in axes.get_lines() if line.get_marker() not in ("", "None", None)]
    assert [len(line.get_xdata()) for line in marked] == [subject.exits["palbert", "rte"].num_layers - 1]
    assert "palbert" in picture.alt and "pabee" not in picture.alt
    assert "pabee" in confidence_picture(subject, found).alt


def test_expected_best_score_never_falls_with_the_budget(subject):
    lines = [line for axes in budget_picture(subject).figure.axes for line in axes.get_lines()]
    assert lines and all((np.diff(line.get_ydata()) >= -1e-9).all() for line in lines)
