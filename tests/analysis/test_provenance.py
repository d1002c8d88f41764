"""python -m pytest tests/analysis/test_provenance.py"""

import pytest
from helpers.made_studies import arm, predicted_study, record, write_study

from analysis.explain import explain
from analysis.studies.load import load_study


@pytest.fixture
def study(tmp_path):
    return predicted_study(tmp_path / "s", {"palbert": 0.8, "pondernet": 0.75}, ["rte", "stsb"], num_examples=60)


def test_explain_leads_from_the_cell_to_its_runs(study):
    text = explain(load_study(study), "palbert/rte")
    record = load_study(study).records[0]
    assert f"seed 42: {100 * record.score:.1f} points at epoch 3; key {record.key}" in text
    for told in ('"learning_rate": 1e-05', "commit: 0123abc", "data fingerprint: RTE f00d", "versions: torch 2.13.0"):
        assert told in text
    assert f"{study}/events.jsonl:2: trial_started" in text
    assert "search: 4 trials, 3 completed" in text
    assert str(study / "predictions" / f"{record.key}.npz") in text


def test_explain_names_the_search_that_finds_each_run_in_mlflow(study):
    record = load_study(study).records[0]
    assert f"    MLflow filter: tags.key = '{record.key}'\n" in explain(load_study(study), "palbert/rte")


def test_explain_of_an_unknown_cell_names_the_menu(study):
    with pytest.raises(
        ValueError, match=r"no cell of .* named 'bert/rte'.*available: palbert/rte, palbert/stsb, pondernet/rte"
    ):
        explain(load_study(study), "bert/rte")


def test_explain_of_an_arm_that_failed_says_of_what(tmp_path):
    error = "KeyError: 'b' (methods/x.py, line 54)"
    failed = [record("palbert", "rte", None, seed=seed, phase="search", trial=seed, error=error) for seed in range(4)]
    folder = write_study(tmp_path, failed)
    text = explain(load_study(folder), "palbert/rte")
    assert "search: 4 trials, 0 completed\n  4 failed: KeyError: 'b' (methods/x.py, line 54)\n" in text
    assert f"tracebacks: python -m study.status {folder} --failures\n" in text


def test_explain_of_a_missing_cell_says_so(tmp_path):
    study = load_study(write_study(tmp_path, arm("palbert", "rte", [0.7] * 5), tasks=["rte", "cola"]))
    assert "palbert/cola" in explain(study, "palbert/cola")
    assert "no number (missing: not begun" in explain(study, "palbert/cola")
