"""python -m pytest tests/analysis/test_samples.py"""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.made_studies import edit_records, predicted_study
from helpers.made_studies import predictions as make_predictions

from analysis.layouts.answer import caveats, warn_of_weak_models
from analysis.layouts.evidence import gather
from analysis.layouts.paper_tables import CHOSEN, MEANS
from analysis.statistics.samples import (
    Sample,
    best_constant,
    resampled_scores,
)
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import Predictions, predictions_from
from analysis.tables import write_tables
from trainables.data.tasks import TASKS


def predictions(task: str, labels: np.ndarray) -> Predictions:
    arrays = make_predictions("palbert", task, 0.7, seed=1, num_examples=len(labels), salt=0) | {"labels": labels}
    return predictions_from(TASKS[task], arrays)


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
    answers = predictions(task, np.array(labels))
    constant = best_constant(answers)
    found = None if constant is None else answers.score_answers(constant)
    assert found == (expected and pytest.approx(expected))


@pytest.mark.slow
def test_a_table_names_the_cells_that_read_nothing(tmp_path):
    study = predicted_study(tmp_path, {"albert": 0.8, "palbert": 0.3}, ["rte", "mrpc", "stsb"])
    found = gather([load_study(study)]).not_above_constant
    assert set(found) == {("palbert", "rte"), ("palbert", "mrpc")}
    write_tables([study], tmp_path / "tables")
    (note,) = [
        line
        for line in (tmp_path / "tables" / "dev.md").read_text().splitlines()
        if line.startswith("- ° marks scores")
    ]
    assert note.startswith("- ° marks scores that are not shown to be better than a constant answer: palbert ")
    assert "albert on" not in note.replace("palbert on", "")


def test_cells_that_read_nothing_are_marked_and_come_first(tmp_path):
    study = predicted_study(tmp_path, {"albert": 0.8, "palbert": 0.3}, ["rte"])
    evidence = gather([load_study(study)])
    write_tables([study], tmp_path / "tables")
    assert re.search(r"\| palbert, mean[^|]*\| +[\d.]+ \([^|]*\)°↓ \|", (tmp_path / "tables" / "dev.md").read_text())
    (weak,), (constant, *_) = warn_of_weak_models(evidence), (caveat.text for caveat in caveats(evidence))
    assert weak.startswith("Even if no text leaves early")
    assert constant.startswith("° marks scores that are not shown to be better than a constant answer")
    answer = (tmp_path / "tables" / "answer.md").read_text()
    assert "° marks scores that are not shown to be better than a constant answer" in answer
    assert re.search(r"^\| palbert/rte +\| +[\d.]+° \|[^|]*\| [^|]*↓ \|", answer, re.MULTILINE)


@pytest.mark.slow
def test_separate_studies_have_weak_models_on_each_task(tmp_path):
    """The plain models of each task are in a study of their own."""
    folders = [predicted_study(tmp_path / "own", {"palbert": 0.3}, ["rte", "mrpc"])]
    folders += [predicted_study(tmp_path / task, {"albert": 0.8}, [task]) for task in ("rte", "mrpc")]
    weak = gather([load_study(folder) for folder in folders], separate=True).weak_models
    assert {*weak} == {("palbert (own)", "rte"), ("palbert (own)", "mrpc")}


CHOOSING = {
    "best epoch on dev": ("dev", {"epochs": 25}, True),
    "best epoch on a holdout": ("holdout", {"epochs": 25}, False),
    "last epoch": ("dev", {"epochs": 25, "select": "last"}, False),
    "a single epoch": ("dev", {"epochs": 1}, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CHOOSING)
def test_rows_name_the_choice_of_epochs_on_dev_beside_the_interval(tmp_path, case):
    selection, settings, is_chosen = CHOOSING[case]
    methods = {"albert": 0.8, "palbert": 0.85}
    study = predicted_study(tmp_path, methods, ["rte"], protocol={"selection": selection})
    edit_records(study, lambda rows: [row["config"].update(settings) for row in rows])
    write_tables([study], tmp_path / "tables")
    text = (tmp_path / "tables" / "dev.md").read_text()
    assert bool(re.search(r"\| palbert, mean, epochs chosen on these rows +\| [\d.]+ \(", text)) == is_chosen
    assert (CHOSEN in text) == is_chosen and MEANS in text
    words = "Epochs chosen on these rows (albert and palbert): each trial kept its best epoch on the same dev"
    assert (words in (tmp_path / "tables" / "answer.md").read_text()) == is_chosen


def test_single_seed_cell_is_compared_with_constant(tmp_path):
    study = predicted_study(tmp_path, {"palbert": 0.3}, ["rte"])
    edit_records(study, lambda rows: rows.__delitem__(slice(1, 5)))
    assert set(gather([load_study(study)]).not_above_constant) == {("palbert", "rte")}


def test_other_examples_move_the_constant_answer_too():
    """5 points above it on dev, and below it on a third of the resamples."""
    rng = np.random.default_rng(0)
    resampled = 0.6 + rng.normal(0, 0.01, (1_000, 2))
    assert not Sample([0.6, 0.6], resampled, "", [], 0.55 + rng.normal(0, 0.1, 1_000)).is_above_constant
    assert Sample([0.6, 0.6], resampled, "", [], resampled[:, 0] - 0.05).is_above_constant


def test_a_table_without_such_cells_says_nothing_of_them(tmp_path):
    study = predicted_study(tmp_path, {"albert": 0.8, "palbert": 0.85}, ["rte"])
    write_tables([study], tmp_path / "tables")
    assert "constant answer" not in (tmp_path / "tables" / "dev.md").read_text()


EXAMPLES = 500


def sample_of(answers):
    """Of models (seeds, n) to which 1 is the right answer."""
    splits = np.full(EXAMPLES, "dev")
    resampled = resampled_scores(TASKS["rte"], answers, np.ones(EXAMPLES, int), splits, seed=0)
    return Sample(answers.mean(axis=1).tolist(), resampled, "", [])


def test_models_that_err_alike_spread_over_dev_examples_alone():
    one = (np.random.default_rng(0).random(EXAMPLES) < 0.8).astype(int)
    found = sample_of(np.repeat(one[None], 5, axis=0))
    assert found.spread_over_seeds == 0.0
    assert found.spread_over_examples == pytest.approx(np.sqrt(one.mean() * (1 - one.mean()) / EXAMPLES), rel=0.05)


def test_uncertainty_of_few_examples_ignores_seed_errors():
    """250 examples at 80 %: 2.5 points, whether the seeds err on the same examples or not."""
    answers = (np.random.default_rng(0).random((20, EXAMPLES)) < 0.8).astype(int)
    found = sample_of(answers)
    alone = np.sqrt(0.8 * 0.2 / EXAMPLES)
    assert found.spread_over_seeds == pytest.approx(alone, rel=0.35)
    assert found.spread_over_examples == pytest.approx(alone, rel=0.05)
