"""python -m pytest tests/analysis/test_verify.py"""

import json
import re
import shutil

import numpy as np
import pytest
from helpers.edited_studies import has
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import edit_records

from analysis.report import write_report
from analysis.studies.load import load_study
from analysis.tables import write_tables
from analysis.verify import main, verify
from study.facts.journal import Journal
from study.plans.identity import digest


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    plan = mini_plan(methods=("palbert", "pondernet"), tasks=("rte", "stsb"))
    return launched_study(tmp_path_factory.mktemp("runs") / "s", plan)


@pytest.fixture
def study(made, tmp_path):
    return shutil.copytree(made, tmp_path / "s")


def confirmed(study, method):
    rows = [json.loads(line) for line in (study / "records.jsonl").read_text().splitlines()]
    return next(row for row in rows if (row["method"], row["phase"]) == (method, "confirm"))


def first_predictions(study):
    return study / "predictions" / f"{confirmed(study, 'palbert')['key']}.npz"


def edit_array(path, name, change):
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays[name])
    np.savez(path, **arrays)


# ---- the whole


@pytest.mark.slow
def test_untouched_study_verifies(study, capsys):
    assert verify(study) == []
    assert main([str(study)]) == 0
    said = capsys.readouterr().out
    assert "plan, records, journal, optuna.journal, predictions and tables agree; not checked, because" in said
    assert said.endswith("the study has none: report\n")


def test_a_folder_that_was_moved_verifies(study):
    assert verify(shutil.move(study, study.with_name("elsewhere"))) == []


def test_a_folder_without_a_plan_is_no_study(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == (f"analysis.verify: no plan.json in {tmp_path}; allowed: the folder of a study\n")


def test_an_edited_plan_is_a_drift(study, capsys):
    path = study / "plan.json"
    path.write_text(path.read_text().replace('"samples": 3', '"samples": 4', 1))
    assert main([str(study)]) == 1
    assert f"drift: {path} was edited" in capsys.readouterr().err


def test_a_plan_that_does_not_follow_from_what_was_asked_is_a_drift(study):
    path = study / "plan.json"
    plain = json.loads(path.read_text())
    plain["plan"]["arms"][0]["seeds"] = [42, 44]
    plain.pop("digest")
    path.write_text(json.dumps(plain | {"digest": digest(plain)}))
    assert "plan.json: palbert/rte seeds is [42, 44]; should be [42, 43]" in verify(study)


# ---- records


def test_changed_score_is_found(study):
    edit_records(study, lambda rows: rows[0].update(score=0.5))
    record = json.loads((study / "records.jsonl").read_text().splitlines()[0])
    where = f"records.jsonl:1 {record['method']}/{record['task']} search seed {record['seed']} (key {record['key']})"
    assert has(verify(study), f"{where}: score is 0.5; should be ")


def ninety_nine(row: dict) -> dict:
    return {"score": 0.99, "metrics": dict.fromkeys(row["metrics"], 0.99)}


def test_changed_score_is_found_without_journal_and_predictions(study):
    (study / "events.jsonl").unlink()
    shutil.rmtree(study / "predictions")
    write_tables([study], study / "tables")
    assert verify(study) == []
    edit_records(study, lambda rows: [row.update(ninety_nine(row)) for row in rows if row["phase"] == "confirm"])
    assert has(verify(study), f"{study}/tables/dev.md is not what the records give: line ", "99.0")


def test_changed_seed_is_found_without_a_journal(study):
    (study / "events.jsonl").unlink()
    edit_records(study, lambda rows: rows[0].update(seed=7))
    assert has(verify(study), "records.jsonl:1", "seed is 7; should be ")
    assert has(verify(study), "records.jsonl:1", "key is ")


def test_removed_record_is_found(study):
    key = confirmed(study, "palbert")["key"]
    edit_records(study, lambda rows: rows.remove(next(row for row in rows if row["key"] == key)))
    drift = verify(study)
    assert has(drift, "records.jsonl lacks the record of palbert/", key)
    assert has(drift, f"{key}.npz belongs to no completed confirm record")


def test_removed_record_is_found_without_a_journal(study):
    (study / "events.jsonl").unlink()
    edit_records(study, lambda rows: rows.pop(0))  # of the search: no number of the dev table changes
    assert has(verify(study), f"{study}/tables/dev.json is not what the records give")


def test_doubled_record_is_found(study):
    edit_records(study, lambda rows: rows.append(rows[0]))
    assert has(verify(study), "was already on line 1")


def test_records_in_another_order_are_found(study):
    path = study / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))
    assert has(verify(study), "records.jsonl has its records in another order")


def test_a_broken_line_is_a_drift_and_the_rest_is_checked(study):
    path = study / "records.jsonl"
    path.write_text("{broken\n" + path.read_text().partition("\n")[2].replace('"device":"cuda:0"', '"device":"cpu"', 1))
    drift = verify(study)
    assert has(drift, "records.jsonl:1: not a JSON object")
    assert has(drift, "records.jsonl:2", 'device is "cpu"; should be "cuda:0"')


def test_a_record_that_cannot_be_read_is_told_once_and_how_it_comes_back(study):
    path = study / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "[1, 2 3]\n", *lines[2:]]))  # a list, and then no JSON
    fault = "records.jsonl:2: not a JSON object: '[1, 2 3]'; the same launch writes it anew from the journal"
    assert verify(study) == [fault, "numbers cannot be made anew: see records.jsonl:2 above"]
    with pytest.raises(ValueError, match=re.escape(f"{study}/{fault}")):  # as the other commands say it
        load_study(study)
    with pytest.warns(UserWarning, match="was not what the journal gives: written anew"):
        Journal(study).close()
    assert verify(study) == []


def test_a_broken_record_without_a_journal_does_not_come_back(study):
    (study / "records.jsonl").write_text("{broken\n")
    (study / "events.jsonl").unlink()
    with pytest.raises(ValueError, match="records.jsonl:1: not a JSON object: '{broken'$"):
        load_study(study)


def test_the_help_fits_a_screen_and_says_where_the_whole_list_is(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert said.count("\n") < 30 and "workers.log (free text)" in said
    assert "analysis/verification/not_covered.py" in said


# ---- predictions and models


def test_changed_prediction_is_found(study):
    path = first_predictions(study)
    edit_array(path, "logits", lambda logits: logits.__imul__(-1))
    assert has(verify(study), str(path), "does not belong to the record")


def test_logits_with_the_same_answers_are_found(study):
    path = first_predictions(study)
    edit_array(path, "logits", lambda logits: logits.__imul__(2))
    drift = verify(study)
    assert not has(drift, "does not belong to the record")
    assert has(drift, f"{path}: SHA-256 is ", confirmed(study, "palbert")["predictions_digest"])


def test_changed_draw_of_a_sampled_exit_is_found(study):
    path = study / "predictions" / f"{confirmed(study, 'pondernet')['key']}.npz"
    edit_array(path, "logits", lambda draws: draws[1].__imul__(-1))
    assert has(verify(study), "score is", "from the predictions")


def test_predictions_of_another_record_are_found(study):
    one, other = sorted((study / "predictions").glob("*.npz"))[:2]
    shutil.copy(one, other)
    assert has(verify(study), str(other))


def test_missing_predictions_are_found(study):
    first_predictions(study).unlink()
    assert has(verify(study), "is missing: the predictions of palbert/", "confirm seed 42")


def test_predictions_that_are_no_npz_are_one_line(study):
    first_predictions(study).write_bytes(b"not a zip file")
    assert has(verify(study), "not a predictions file")


def test_pickled_predictions_are_not_loaded(study):
    path = first_predictions(study)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"ids": np.array([{"a": 1}] * 60, dtype=object)})
    assert has(verify(study), "not a predictions file", "allow_pickle=False")


def test_a_model_of_another_trial_is_found(study):
    path = next(study.glob("trials/*/model-epoch-*/model.json"))
    path.write_text(path.read_text().replace('"seed": 42', '"seed": 52').replace('"seed": 43', '"seed": 53'))
    assert has(verify(study), f"{path}: spec seed is 5")


def test_a_missing_model_is_found(tmp_path):
    study = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",)))
    shutil.rmtree(next(study.glob("trials/*")))
    assert has(verify(study), "model.json is missing: the model of ")


# ---- what is made of the records


@pytest.mark.slow
def test_edited_table_is_found(study, capsys):
    path = study / "tables" / "dev.md"
    path.write_text(path.read_text().replace("| palbert", "| PALBERT", 1))
    (line,) = verify(study)
    assert line.startswith(f"{path} is not what the records give: line ") and "'| PALBERT" in line
    assert main([str(study)]) == 1
    assert "1 drift" in capsys.readouterr().out


def test_missing_table_is_found(study):
    (study / "tables" / "speed.csv").unlink()
    assert "speed.csv is missing" in verify(study)[0]


def test_surplus_table_is_found(study):
    (study / "tables" / "old.md").write_text("| palbert | 99.9 |")
    assert verify(study) == [f"{study}/tables/old.md is a file that nothing here makes; stale, or of another hand"]


@pytest.mark.slow
def test_edited_report_and_surplus_picture_are_found(study):
    write_report(study)
    assert verify(study) == []
    page, picture = study / "report.html", study / "pictures" / "seeds.svg"
    page.write_text(page.read_text().replace("42", "43", 1))
    picture.write_bytes(picture.read_bytes()[:-1])
    (study / "pictures" / "old.svg").write_text("")
    drift = verify(study)
    assert len(drift) == 3
    assert has(drift, f"{page} is not what the records give") and has(drift, f"{picture} is not") and has(drift, "old")


def test_a_number_of_optunas_journal_that_is_not_the_records_is_found(study):
    path = study / "optuna.journal"
    path.write_text(path.read_text().replace('"seed":', '"seed":1', 1))
    assert has(verify(study), "user_attrs seed is ") and has(verify(study), "optuna.journal:")


# ---- several studies


@pytest.mark.slow
def test_tables_of_several_studies_are_made_anew(study, tmp_path, capsys):
    other = launched_study(tmp_path / "other", mini_plan(methods=("albert",), tasks=("rte", "stsb")))
    folders, out = [str(study), str(other)], tmp_path / "joined"
    write_tables([study, other], out)
    assert main([*folders, "--tables", str(out)]) == 0
    assert f"{out}: the tables agree with the records" in capsys.readouterr().out
    (out / "dev.csv").write_text((out / "dev.csv").read_text().replace("albert", "bert", 1))
    assert main([*folders, "--tables", str(out)]) == 1
    assert f"drift: {out / 'dev.csv'} is not what the records give: line 2" in capsys.readouterr().err


@pytest.mark.slow
def test_separate_tables_are_made_anew_as_such(study, tmp_path, capsys):
    other = launched_study(tmp_path / "other", mini_plan(methods=("palbert",), tasks=("rte", "stsb")))
    folders, out = [str(study), str(other)], tmp_path / "separate"
    write_tables([study, other], out, separate=True)
    assert main([*folders, "--tables", str(out), "--separate"]) == 0
    assert main([str(study), "--separate"]) == 2
    assert "--separate is of the tables of --tables FOLDER; allowed: both or none" in capsys.readouterr().err
