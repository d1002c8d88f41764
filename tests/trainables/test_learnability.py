"""Every mini task can be learnt from nothing in the mini budget. Run: pytest tests/trainables/test_learnability.py"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.trials import spec_of

import search_spaces
from trainables.data.glue import load_split
from trainables.data.metrics import compute_metrics, score
from trainables.data.tasks import GLUE_TASKS, TASKS
from trainables.runs.training import TrainingRun

pytestmark = pytest.mark.slow
SHORT = ("sst2", "stsb")  # a classification and a regression; the other tasks are long tests
MARGIN = 0.10  # points over the majority class, or correlation
SPACE = search_spaces.load_space("albert")
CONFIG = {**SPACE.mini_fixed, "num_hidden_layers": 0, "learning_rate": SPACE.mini_grid["learning_rate"][0]}


def majority_score(task):
    """Of the most frequent class of train on dev; constant scores correlate with nothing."""
    if task.is_regression:
        return 0.0
    majority = np.bincount(load_split(task, task.train_split, "mini").labels).argmax()
    dev = {split: load_split(task, split, "mini").labels for split in task.dev_splits}
    labels = np.concatenate(list(dev.values()))
    splits = np.repeat(list(dev), [len(part) for part in dev.values()])
    return score(task, compute_metrics(task, np.full_like(labels, majority), labels, splits))


def learnt_score(name, cache, backbone="mini-albert"):
    """The best score so far when the margin is passed, or at the end of the budget."""
    run, best = TrainingRun(spec_of(task=name, config=CONFIG, backbone=backbone), cache=cache), 0.0
    while not run.finished and best < majority_score(TASKS[name]) + MARGIN:
        best = max(best, run.run_epoch().selection_score)
    return best


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in GLUE_TASKS]
)
def test_albert_beats_the_majority_class(name, tmp_path):
    assert learnt_score(name, tmp_path) >= majority_score(TASKS[name]) + MARGIN


def test_sharebert_whose_weights_are_products_learns_too(tmp_path):
    assert learnt_score("sst2", tmp_path, "mini-sharebert") >= majority_score(TASKS["sst2"]) + MARGIN
