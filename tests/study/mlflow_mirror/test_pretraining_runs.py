"""A pretraining in MLflow, as data: pytest tests/study/mlflow_mirror/test_pretraining_runs.py"""

from __future__ import annotations

import pytest
from helpers.launched_studies import PRETRAINING, launched_study, mini_plan

from study.mlflow_mirror.follower import Mirror
from study.mlflow_mirror.run_content import StudyRuns
from study.plans.plan_file import require_plan

NAME = "albert-mlm/pretraining"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> StudyRuns:
    small = {"methods": ("albert",), "tasks": ("rte",), "seeds": 1, "pretraining": PRETRAINING}
    folder = launched_study(tmp_path_factory.mktemp("runs") / "mine", mini_plan(**small))
    mirrored = Mirror(folder, uri="")
    mirrored.read()
    return StudyRuns("mine", require_plan(folder), mirrored.facts, mirrored.reports)


@pytest.mark.slow
def test_its_run_has_curves_steps_and_scores_and_none_of_glue(runs):
    run = runs.trial(runs.plan.plan.pretraining_key)
    names = {point.name for point in run.points}
    assert {"epoch/train_loss", "epoch/mlm_accuracy", "epoch/tokens", "mlm_accuracy", "steps", "gpu_seconds"} <= names
    assert (
        not {"score", "epoch/score", "selection_score", "epoch/selection_score", "mean_layers", "layer_ratio"} & names
    )
    assert [point.value for point in run.points if point.name == "epoch/steps"] == [20, 30]
    assert run.params["steps"] == "30" and run.status == "completed" and run.parent == NAME
    assert run.tags["mlflow.note.content"].startswith("After 30 steps, held out: mlm_loss 4.5625, mlm_accuracy 0.3000")


def test_its_arm_is_completed_and_has_no_median(runs):
    arm = runs.arm(NAME)
    assert (arm.status, arm.points, arm.name) == ("completed", (), "albert-mlm / pretraining")


def test_trials_that_load_its_model_name_it(runs):
    tags = {run.tags.get("pretrained_by") for run in map(runs.trial, runs.facts.trials) if run.parent != NAME}
    assert tags == {runs.plan.plan.pretraining_key}
    assert "pretrained_by" not in runs.trial(runs.plan.plan.pretraining_key).tags


def test_the_study_has_medians_of_the_arms_alone(runs):
    assert {point.name for point in runs.study(files={}, note="").points} == {"albert/rte"}
