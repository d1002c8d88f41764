"""A study as pandas frames: pytest tests/analysis/test_frames.py"""

import re

import pytest
from helpers.launched_studies import launch, launched_study, mini_plan
from helpers.places import ROOT
from helpers.swept_studies import swept_study

import analysis
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_predictions

FRAMES = ("records", "epochs", "losses", "predictions", "sweeps")
PLAN = mini_plan(methods=("albert", "palbert"), tasks=("rte", "stsb"), start_from={})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return launched_study(tmp_path_factory.mktemp("runs") / "s", PLAN)


def documented(frame):
    """Column -> dtype, as the page has them."""
    section = (ROOT / "docs" / "frames.md").read_text().partition(f"## `{frame}`")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| (\w*)", section, re.MULTILINE))


def columns_of(frame):
    """Column -> dtype, those of a name in capitals once."""
    capitals = {"config": "config.FIELD", "metrics": "metrics.NAME", "versions": "versions.PACKAGE"}
    capitals |= {"probabilities": "probabilities.CLASS", "losses": "losses.NAME"}
    named = {capitals.get(name.split(".")[0], name): str(dtype) for name, dtype in frame.dtypes.items()}
    return {name: "" if name == "config.FIELD" else dtype for name, dtype in named.items()}


@pytest.mark.parametrize("name", FRAMES)
def test_page_has_every_column_and_its_dtype(folder, name):
    assert columns_of(getattr(analysis.load(folder), name)) == documented(name)


@pytest.mark.parametrize("killed_after", [0, 9])
@pytest.mark.parametrize("name", FRAMES)
def test_running_study_has_the_same_columns(folder, tmp_path, name, killed_after):
    launch(tmp_path / "s", PLAN, killed_after=killed_after)
    columns = columns_of(getattr(analysis.load(tmp_path / "s"), name))
    of_rows = {"versions.PACKAGE": "str", "losses.NAME": "float64"}  # named by the rows, of which there may be none
    assert of_rows | columns == of_rows | documented(name)


def test_epochs_frame_has_curves_without_restarts(folder, tmp_path):
    launch(tmp_path / "s", PLAN, killed_after=9, broken={4: "restart"})
    frame, study = analysis.load(tmp_path / "s").epochs, load_study(tmp_path / "s")
    curves = {key: dict(zip(own["epoch"], own["selection_score"], strict=True)) for key, own in frame.groupby("key")}
    assert curves == {key: trial.scores for key, trial in study.facts.trials.items() if trial.scores}
    assert "under way" in set(frame["status"])


def test_parts_of_the_loss_are_curves_with_several_points_an_epoch(folder):
    frames = analysis.load(folder)
    one = frames.losses.query("phase == 'confirm'").groupby("key").get_group(frames.losses["key"].iloc[-1])
    assert one["step"].tolist() == list(range(4, 8 * one["epoch"].max() + 1, 4))
    assert one["losses.kl"].head(2).tolist() == [0.2, 0.1]
    means = frames.epochs.set_index(["key", "epoch"])["losses.kl"]
    assert means[one["key"].iloc[0], 1] == pytest.approx(0.15)


def test_losses_picture_draws_the_parts_of_confirm_trials(folder):
    picture = analysis.load(folder).picture("losses")
    names = {axes.get_title(loc="left") for axes in picture.figure.axes}
    assert "palbert, RTE" in names and "palbert: loss from 0.8 to 0.15, kl from 0.2 to 0.025" in picture.alt


def test_predictions_and_sweeps_are_those_that_are_stored(tmp_path):
    frames = analysis.load(swept_study(tmp_path / "s", ["palbert"], ["rte"], examples=60))
    scores = frames.records.query("counts").set_index("seed")["score"]
    assert frames.predictions.groupby("seed")["right"].mean().to_dict() == pytest.approx(scores.to_dict())
    record = next(one for one in frames.study.records if one.phase == "confirm")
    stored = read_predictions(frames.study, record)
    own = frames.sweeps[frames.sweeps["key"] == record.key]
    assert own["score"].tolist() == stored.sweep_score.tolist() and set(own["rule"]) == {"threshold"}


def test_answers_of_a_regression_are_neither_right_nor_wrong(folder):
    right = analysis.load(folder).predictions.groupby("task")["right"]
    assert right.count()["stsb"] == 0 and right.count()["rte"] == right.size()["rte"] > 0
