"""python -m pytest tests/analysis/test_commands.py"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import arm, write_study
from helpers.messages import says
from helpers.places import ROOT

from analysis import explain, report, tables, verify
from analysis.studies.load import load_study, newest_study
from study.plans.resolved_plan import digest

SLOW_TO_IMPORT = ("pandas", "matplotlib", "sklearn", "scipy.stats", "torch", "ray", "mlflow", "optuna")
LOADED = f"import sys, analysis.tables; print(*[name for name in {SLOW_TO_IMPORT} if name in sys.modules])"


def test_importing_the_tables_loads_nothing_that_takes_long():
    found = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, cwd=ROOT)
    assert (found.returncode, found.stdout) == (0, "\n"), found.stderr


@pytest.mark.parametrize("module", [tables, verify, report, explain], ids=lambda module: module.__name__)
def test_a_users_error_is_one_line_and_status_2(module, tmp_path, capsys):
    cell = ["palbert/rte"] if module is explain else []
    assert module.main([str(tmp_path / "nowhere"), *cell]) == 2
    out, err = capsys.readouterr()
    assert says(err, f"{module.__name__}: ", f"no folder {tmp_path / 'nowhere'}; ", "folder of a study\n")
    assert out == "" and err.count("\n") == 1


@pytest.mark.parametrize("module", [tables, report], ids=lambda module: module.__name__)
def test_unwritable_folder_is_refused_before_computing(module, tmp_path, capsys, monkeypatch):
    def full(**_):
        raise PermissionError

    study = write_study(tmp_path / "study", arm("palbert", "rte", [0.5, 0.7]))
    monkeypatch.setattr("study.storage.addresses.tempfile.TemporaryFile", full)
    monkeypatch.setattr("analysis.tables.gather", lambda *_, **__: pytest.fail("computed"))
    monkeypatch.setattr("analysis.report.gather", lambda *_, **__: pytest.fail("computed"))
    assert module.main([str(study)]) == 2
    place = f"--out {study / 'tables'}" if module is tables else f"the study {study}"
    out, err = capsys.readouterr()
    assert says(err, f"{module.__name__}: ", f"{place} cannot be written: ", f"{study} is not writable; ", "\n")
    assert out == "" and err.count("\n") == 1


def test_a_wrong_argument_is_one_line_with_the_menu(capsys):
    assert tables.main(["runs/one", "--format", "pdf"]) == 2
    out, err = capsys.readouterr()
    assert says(err, "analysis.tables: --format is 'pdf'; ", "allowed: md, csv, tex, html") and err.count("\n") == 1
    assert out == ""


def test_an_unknown_argument_is_one_line_that_points_to_the_help(capsys):
    assert tables.main(["runs/one", "--colour", "blue"]) == 2
    assert says(capsys.readouterr().err, "analysis.tables: ", "--colour blue; ", "--help\n")


def test_unknown_field_is_one_line_of_error_and_nothing_is_written(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5))
    journal = study / "events.jsonl"
    journal.write_text(journal.read_text().replace('"phase":', '"colour":"blue","phase":', 1))
    command = [sys.executable, "-m", "analysis.tables", str(study)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (found.returncode, found.stdout) == (2, "")
    start = f"analysis.tables: {journal}:2: no field named colour"
    assert found.stderr.startswith(start) and found.stderr.count("\n") == 1
    assert not (study / "tables").exists()


@pytest.mark.slow
def test_a_warning_of_a_command_is_one_line(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5))
    with (study / "events.jsonl").open("a") as file:
        file.write('{"key": "torn')
    command = [sys.executable, "-m", "analysis.tables", str(study)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0
    torn, untested = found.stderr.splitlines(keepends=True)
    assert says(torn, f"warning: {study}/events.jsonl:27: ", "incomplete last line", "13 bytes\n")
    assert says(untested, f"warning: {study}: palbert/rte: 5 of 5 predictions are missing")


def test_torn_last_line_is_left_out_with_a_warning(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5))
    with (study / "events.jsonl").open("a") as file:
        file.write('{"key": "torn')
    with pytest.warns(UserWarning, match="events.jsonl:27: ignored an incomplete last line"):
        assert len(load_study(study).records) == 6


def edit_plan(study, change):
    """Rewrites plan.json after `change` was applied to it, with the digest that belongs to what it says then."""
    content = json.loads((study / "plan.json").read_text())
    del content["digest"]
    change(content)
    (study / "plan.json").write_text(json.dumps({**content, "digest": digest(content)}))


def test_plan_without_a_field_names_it(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5))
    edit_plan(study, lambda content: content.pop("protocol_hash"))
    with pytest.raises(ValueError, match=r"plan.json: the field protocol_hash is missing"):
        load_study(study)


def test_plan_field_of_wrong_type_is_named(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5))
    edit_plan(study, lambda content: content["plan"]["asked"].update(seeds="five"))
    with pytest.raises(ValueError, match=r"plan.json: plan.asked.seeds is 'five'; allowed: "):
        load_study(study)


def test_plan_that_was_edited_is_refused(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5))
    path = study / "plan.json"
    path.write_text(path.read_text().replace('"dev"', '"holdout"'))
    with pytest.raises(ValueError, match=r"plan.json was edited: "):
        load_study(study)


def test_plan_with_an_unknown_task_names_the_menu(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5), tasks=["rte", "squad"])
    with pytest.raises(ValueError, match=r"plan.json: no task named 'squad'; "):
        load_study(study)


def test_records_of_an_arm_outside_the_plan_are_named(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5), tasks=["cola"])
    with pytest.warns(UserWarning, match="not in the plan .*: palbert/rte"):
        load_study(study)


def test_broken_journal_line_is_named(tmp_path):
    folder = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5))
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"time": "now"}\n')
    with pytest.raises(ValueError, match=r"events.jsonl:27: the field event is missing"):
        load_study(folder)


def test_study_without_records_is_a_table_of_gaps(tmp_path):
    folder = write_study(tmp_path, [], methods=["palbert"], tasks=["rte"])
    assert "palbert/rte: missing" in "".join(tables.write_tables([folder], tmp_path / "out")[0].notes)
    assert report.write_report(folder).exists()
    explained = explain.explain(load_study(folder), "palbert/rte")
    assert "no number (missing" in explained and "MLflow filter: tags.arm = 'palbert/rte'" in explained


def test_newest_study_is_that_of_the_plan_written_last(tmp_path, monkeypatch):
    for name in ("one", "two"):
        write_study(tmp_path / "runs" / name, arm("palbert", "rte", [0.7] * 5))
    os.utime(tmp_path / "runs" / "two" / "plan.json", (1, 1))
    monkeypatch.chdir(tmp_path)
    assert newest_study().name == "one"


def test_newest_study_is_searched_in_runs_of_a_folder_above(tmp_path, monkeypatch):
    write_study(tmp_path / "runs" / "one", arm("palbert", "rte", [0.7] * 5))
    (tmp_path / "notebooks").mkdir()
    for folder in (tmp_path, tmp_path / "notebooks"):
        monkeypatch.chdir(folder)
        assert newest_study().parent == tmp_path / "runs"


def test_no_study_is_an_error_that_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"no study under {tmp_path / 'runs'}"):
        newest_study()


@pytest.mark.long
@pytest.mark.slow
def test_all_commands_work_on_a_whole_study(tmp_path):
    study = launched_study(tmp_path / "s", mini_plan(tasks=("rte",)))
    assert tables.main([str(study)]) == 0
    assert report.main([str(study)]) == 0
    assert verify.main([str(study)]) == 0
    assert explain.main([str(study), "pondernet/rte"]) == 0


def test_a_study_that_was_moved_explains_itself_with_its_new_paths(tmp_path):
    old = launched_study(tmp_path / "old", mini_plan(methods=("albert",), tasks=("rte",)))
    new = old.rename(tmp_path / "new")
    told = explain.explain(load_study(new), "albert/rte")
    models = re.findall(r"^    model: (.*)$", told, re.MULTILINE)
    assert len(models) == 2 and all(Path(model).is_relative_to(new) for model in models)
    assert str(old) not in told
