"""python -m pytest tests/analysis/test_load.py"""

import math

import pytest
from helpers.launches import WITHOUT_RAY
from helpers.launches_here import launching_here
from helpers.made_studies import record, write_study
from msgspec.structs import replace

from analysis.studies.load import check_record, load_studies
from study import launch
from study.facts.record import Record


def changed(**fields) -> Record:
    """A sound record but for these fields: its constructor looks at no range."""
    return replace(record("palbert", "mrpc", 0.725), **fields)


def test_study_under_two_names_is_refused_with_both(tmp_path):
    folder = write_study(tmp_path / "s", [record("palbert", "rte", 0.7)])
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ValueError, match=f"{folder} and {tmp_path}/link are the same study; pass each study only once"):
        load_studies([folder, tmp_path / "link"])


@pytest.mark.slow
@pytest.mark.long
def test_mnli_is_analysed_after_a_search_on_a_holdout(tmp_path):
    command = ["--method", "albert", "--task", "mnli", "--data", "mini", "--selection", "holdout", "--samples", "1"]
    command += ["--seeds", "2", "--epochs", "1", "--name", "s", "--out", str(tmp_path)]
    with launching_here():
        assert launch.main([*command, "--tracking-uri", "none", *WITHOUT_RAY]) == 0
    assert "MNLI" in (tmp_path / "s" / "tables" / "dev.md").read_text() and (tmp_path / "s" / "report.html").exists()


@pytest.mark.parametrize("task", ["rte", "cola", "mrpc", "mnli", "qqp", "stsb", "wnli"])
def test_a_sound_record_passes(task):
    assert check_record(record("palbert", task, 0.725), {}) == ""
    assert check_record(record("palbert", task, None), {}) == ""


def test_a_search_trial_on_a_slice_of_mnlis_train_has_one_accuracy():
    of_slice = {"score": 0.725, "metrics": {"accuracy": 0.725}}
    searched, confirmed = (record("palbert", "mnli", 0.725, phase=phase) for phase in ("search", "confirm"))
    assert check_record(replace(searched, **of_slice), {}) == ""
    lacking = "metrics lack accuracy_matched, accuracy_mismatched; mnli has accuracy_matched, accuracy_mismatched"
    assert check_record(replace(confirmed, **of_slice), {}) == lacking


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"metrics": {"accuracy": 0.725}}, "metrics lack f1; mrpc has accuracy, f1"),
        ({"metrics": {"accuracy": 0.7, "f1": 72.5}}, "score is 0.725, but the mean of accuracy, f1 is 36.600000"),
        ({"metrics": {"accuracy": 0.7, "f1": math.nan}}, "score is 0.725, but the mean of accuracy, f1 is nan"),
        ({"metrics": {"accuracy": 0.7, "f1": 0.8}}, "score is 0.725, but the mean of accuracy, f1 is 0.750000"),
        ({"mean_layers": 0.5}, "mean_layers is 0.5; allowed: 1 to 12, which is the model's num_layers"),
        ({"mean_layers": 70.0}, "mean_layers is 70.0; allowed: 1 to 12, which is the model's num_layers"),
    ],
)
def test_each_defect_is_one_line(fields, line):
    assert check_record(changed(**fields), {}) == line


def test_metrics_beside_the_tasks_own_may_be_anything():
    metrics = {"accuracy": 0.725, "f1": 0.725, "expected_mean_layers": 7.5, "sample_std": 0.0}
    assert check_record(changed(metrics=metrics), {}) == ""


def test_a_stopped_trial_under_holdout_has_no_score():
    assert check_record(changed(status="stopped", score=None, metrics={}), {}) == ""
