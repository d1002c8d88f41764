"""python -m pytest tests/analysis/test_provenance.py"""

import json
import shutil
import sqlite3

import numpy as np
import pytest
from helpers.made_studies import arm, edit_records, predicted_study, write_study

from analysis.explain import explain, mlflow_run_ids
from analysis.studies.load import load_study
from analysis.tables import write_tables
from analysis.verify import main, verify


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    study = predicted_study(
        tmp_path_factory.mktemp("runs") / "s", {"palbert": 0.8, "pondernet": 0.75}, ["rte", "stsb"], num_examples=60
    )
    write_tables([study], study / "tables")
    return study


@pytest.fixture
def study(made, tmp_path):
    return shutil.copytree(made, tmp_path / "s")


def first_predictions(study):
    rows = [json.loads(line) for line in (study / "records.jsonl").read_text().splitlines()]
    key = next(row["key"] for row in rows if (row["method"], row["phase"]) == ("palbert", "confirm"))
    return study / "predictions" / f"{key}.npz"


def edit_array(path, name, change):
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays[name])
    np.savez(path, **arrays)


def test_untouched_study_verifies(study, capsys):
    assert verify(study) == []
    assert main([str(study)]) == 0
    assert "agree" in capsys.readouterr().out


def test_changed_score_is_found(study):
    edit_records(study, lambda rows: rows[0].update(score=0.5, metrics={"accuracy": 0.5}))
    drift = "\n".join(verify(study))
    assert "records.jsonl and the journal differ about palbert/rte confirm seed 42" in drift
    assert "score is 0.5 in the record" in drift
    assert "the tables cannot be made anew" in drift


def test_changed_score_is_found_without_journal_and_predictions(study):
    (study / "events.jsonl").unlink()
    shutil.rmtree(study / "predictions")
    write_tables([study], study / "tables")
    assert verify(study) == []
    edit_records(study, lambda rows: [row.update(score=0.99, metrics={"accuracy": 0.99}) for row in rows[:5]])
    assert f"{study}/tables/dev.md is not what the records give" in verify(study)


def test_changed_search_score_is_found(study):
    edit_records(study, lambda rows: rows[6].update(selection_score=0.1))
    assert any("palbert/rte search" in line and "selection_score" in line for line in verify(study))


def test_removed_record_is_found(study):
    edit_records(study, lambda rows: rows.pop(0))
    drift = verify(study)
    assert any("records.jsonl lacks the record of" in line for line in drift)
    assert any("belongs to no completed confirm record" in line for line in drift)


def test_removed_record_is_found_without_a_journal(study):
    (study / "events.jsonl").unlink()
    edit_records(study, lambda rows: rows.pop(6))  # of the search: no number of the dev table changes
    assert f"{study}/tables/dev.json is not what the records give" in verify(study)


def test_doubled_record_is_found(study):
    edit_records(study, lambda rows: rows.append(rows[0]))
    with pytest.raises(ValueError, match="was already on line 1"):
        verify(study)


def test_changed_prediction_is_found(study):
    path = first_predictions(study)
    edit_array(path, "logits", lambda logits: logits.__setitem__(0, logits[0][::-1]))
    assert any(str(path) in line and "does not belong to the record" in line for line in verify(study))


def test_changed_draw_of_a_sampled_exit_is_found(study):
    rows = [json.loads(line) for line in (study / "records.jsonl").read_text().splitlines()]
    row = next(row for row in rows if (row["method"], row["phase"]) == ("pondernet", "confirm"))
    edit_array(study / "predictions" / f"{row['key']}.npz", "logits", lambda draws: draws[1].__imul__(-1))
    assert any("score is" in line and "from the predictions" in line for line in verify(study))


def test_predictions_of_another_record_are_found(study):
    one, other = sorted((study / "predictions").glob("*.npz"))[:2]
    shutil.copy(one, other)
    assert any(line.startswith(str(other)) for line in verify(study))


def test_missing_predictions_are_found(study):
    first_predictions(study).unlink()
    assert any("is missing: the predictions of palbert/rte confirm seed 42" in line for line in verify(study))


def test_predictions_that_are_no_npz_are_one_line(study):
    first_predictions(study).write_bytes(b"not a zip file")
    assert any("not a predictions file" in line for line in verify(study))


def test_pickled_predictions_are_not_loaded(study):
    path = first_predictions(study)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"ids": np.array([{"a": 1}] * 60, dtype=object)})
    assert any("not a predictions file" in line and "allow_pickle=False" in line for line in verify(study))


def test_edited_table_is_found(study, capsys):
    path = study / "tables" / "dev.md"
    path.write_text(path.read_text().replace("| palbert", "| PALBERT", 1))
    assert verify(study) == [f"{path} is not what the records give"]
    assert main([str(study)]) == 1
    assert "1 drift" in capsys.readouterr().out


def test_missing_table_is_found(study):
    (study / "tables" / "speed.csv").unlink()
    assert "speed.csv is missing" in verify(study)[0]


def test_explain_leads_from_the_cell_to_its_runs(study):
    text = explain(load_study(study), "palbert/rte")
    record = load_study(study).records[0]
    assert f"seed 42: {100 * record.score:.1f} points at epoch 3; key {record.key}" in text
    for told in ('"learning_rate": 1e-05', "commit: 0123abc", "data fingerprint: f00d", '"torch": "2.13.0"'):
        assert told in text
    assert f"{study}/events.jsonl:2: trial_started" in text
    assert "search: 4 trials, 3 completed" in text
    assert str(study / "predictions" / f"{record.key}.npz") in text


def test_explain_names_the_mlflow_runs_of_the_studys_own_store(study):
    key = load_study(study).records[0].key
    with sqlite3.connect(study / "mlflow.db") as store:
        store.execute("CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT)")
        store.execute("INSERT INTO tags VALUES ('key', ?, 'run-1')", (key,))
    assert mlflow_run_ids(load_study(study)) == {key: "run-1"}
    assert "MLflow run: run-1" in explain(load_study(study), "palbert/rte")


def test_explain_of_an_unknown_cell_names_the_menu(study):
    with pytest.raises(
        ValueError, match="no cell named 'bert/rte'.*available: palbert/rte, palbert/stsb, pondernet/rte"
    ):
        explain(load_study(study), "bert/rte")


def test_explain_of_a_missing_cell_says_so(tmp_path):
    study = load_study(write_study(tmp_path, arm("palbert", "rte", [0.7] * 5), tasks=["rte", "cola"]))
    assert "palbert/cola" in explain(study, "palbert/cola")
    assert "no number (missing: found none" in explain(study, "palbert/cola")
