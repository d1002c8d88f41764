"""Trials left out of all numbers: pytest tests/study/test_drop.py"""

import json
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.edited_studies import edit_events, read_event_lines, write_events
from helpers.launched_studies import launch, launched_study, mini_plan
from helpers.messages import says, shown
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.swept_studies import SKILLS, swept_study

from analysis import tables, verify
from analysis.layouts.certainty_tables import search_repeats_table, verdicts_table
from analysis.layouts.evidence import gather
from analysis.layouts.exit_tables import exits_table
from analysis.layouts.rendering import json_text
from analysis.pictures.study_pictures import pictures
from analysis.studies.cells import find_repeats, make_rows
from analysis.studies.load import load_study
from study import drop
from study.decisions.progress import compute_progress
from study.facts.events import LaunchBegan
from study.facts.journal import Journal
from study.facts.plan_file import require_plan
from study.facts.study_facts import read_facts
from study.facts.study_folder import predictions_file
from study.launching.screen import arms_table
from study.mlflow_mirror.run_content import StudyRuns
from study.terminal.text import points

PLAN = mini_plan(methods=("albert",), tasks=("rte",), samples=3, seeds=3)


@pytest.fixture
def folder(tmp_path):
    return launched_study(tmp_path / "s", PLAN)


def arm_of(folder):
    return compute_progress(PLAN, read_facts(folder)).arm("albert/rte")


def test_dropped_seed_leaves_cell_incomplete(folder, capsys, snapshot):
    first = arm_of(folder).confirmed[0]
    assert drop.main([str(folder), first.key[:12], "--because", "the  node\nswapped"]) == 0
    assert "is dropped: the node swapped" in capsys.readouterr().out
    arm = arm_of(folder)
    assert [record.seed for record in arm.confirmed] == [43, 44]
    assert arm.missing == snapshot
    launch(folder, PLAN)
    assert arm_of(folder).missing == arm.missing
    assert StudyRuns("s", require_plan(folder).plan, read_facts(folder), {}).arm("albert/rte").status == "failed"
    (row,) = make_rows([load_study(folder)])
    cell = row.cells["rte"]
    assert cell.seeds == [43, 44] and cell.shortfall.endswith("dropped seeds: 42")
    assert len(read_facts(folder).records) == 6  # it is still there


def test_mlflow_keeps_no_median_with_a_dropped_score(folder):
    def points():
        return StudyRuns("s", require_plan(folder).plan, read_facts(folder), {}).arm("albert/rte").points

    before = points()
    key = arm_of(folder).confirmed[0].key
    assert drop.main([str(folder), key, "--because", "a bad disk"]) == 0
    without = points()
    assert {point.name for point in without} >= {point.name for point in before}
    assert all(math.isnan(point.value) and point.time > before[0].time for point in without)
    assert drop.main([str(folder), key, "--undo"]) == 0
    again = points()
    assert [(point.name, point.value) for point in again] == [(point.name, point.value) for point in before]
    assert again[0].time > without[0].time


def test_dropped_winner_gives_way_to_the_best_of_the_rest(folder, capsys):
    before = arm_of(folder).winner.search
    drop.main([str(folder), before.key, "--because", "a bad disk"])
    assert f"-m study.launch --continue {folder}" in capsys.readouterr().out
    after = arm_of(folder).winner.search
    assert after.trial != before.trial and after.selection_score <= before.selection_score
    launch(folder, PLAN)
    assert arm_of(folder).missing == "" and len(arm_of(folder).facts.search) == 3
    assert verify.main([str(folder)]) == 0


def test_dropped_search_trial_is_in_no_status_or_picture(folder):
    best = points(arm_of(folder).winner.search.selection_score)
    assert best in best_column(folder) and f"ends at {best}" in caption(folder)
    drop.main([str(folder), arm_of(folder).winner.search.key, "--because", "a bad disk"])
    assert best not in best_column(folder) and f"ends at {best}" not in caption(folder)


def best_column(folder):
    table = arms_table(compute_progress(PLAN, read_facts(folder)).arms, width=200)
    return [*next(column for column in table.columns if column.header == "best search").cells]


def caption(folder):
    drawn = pictures(gather([load_study(folder)]))
    return next(picture.alt for picture in drawn if picture.name == "search-progress")


def test_arm_that_began_from_the_dropped_model_is_named(tmp_path, capsys, snapshot):
    plan = mini_plan(methods=("albert",), tasks=("rte", "mrpc"))
    folder = launched_study(tmp_path / "s", plan)
    start = read_facts(folder).arms["albert/mrpc"].start_key
    drop.main([str(folder), start, "--because", "a bad disk"])
    assert shown(capsys.readouterr().out, tmp_path) == snapshot


def test_table_names_the_trial_and_the_reason(folder, snapshot):
    drop.main([str(folder), arm_of(folder).confirmed[1].key, "--because", "a bad disk"])
    tables.main([str(folder)])
    for name in ("dev.md", "answer.md"):
        lines = (folder / "tables" / name).read_text().splitlines()
        assert [line for line in lines if "a bad disk" in line] == snapshot


def test_study_with_a_dropped_final_run_still_agrees(folder, capsys):
    trial = arm_of(folder).confirmed[1]
    assert drop.main([str(folder), trial.key, "--because", "a bad disk"]) == 0
    assert not any(trial.key in line for line in verify.verify(folder))
    predictions_file(folder, trial.key).write_bytes(b"other")
    assert any(trial.key in line for line in verify.verify(folder))


def test_drop_of_a_scored_trial_changes_the_median_but_no_test(tmp_path):
    plan = mini_plan(methods=("albert", "palbert"), tasks=("rte",), samples=1, seeds=3)
    folder = launched_study(tmp_path / "s", plan)
    before = gather([load_study(folder)])
    worst = min(before.cells_by_place["palbert", "rte"].records, key=lambda record: record.score)
    drop.main([str(folder), worst.key, "--because", "a bad disk"])
    after = gather([load_study(folder)])
    assert after.comparisons == before.comparisons
    assert after.samples["palbert", "rte"].scores == before.samples["palbert", "rte"].scores
    assert after.cells_by_place["palbert", "rte"].seeds != before.cells_by_place["palbert", "rte"].seeds
    assert any(f"means and tests keep its score, {points(worst.score)}" in note for note in after.limits)


@pytest.mark.long
@pytest.mark.slow
def test_drop_of_a_scored_trial_changes_no_statement_about_exits(tmp_path, monkeypatch):
    monkeypatch.setitem(SKILLS, "palbert", 0.7)  # weak even with all layers
    folder = swept_study(tmp_path / "s", ["albert", "palbert", "pabee"], ["rte"])
    before = gather([load_study(folder)])
    assert before.gains and before.savings and before.rules and before.weak_models
    for method in ("albert", "palbert", "pabee"):
        worst = min(before.cells_by_place[method, "rte"].records, key=lambda record: record.score)
        assert drop.main([str(folder), worst.key, "--because", "a bad disk"]) == 0
    after = gather([load_study(folder)])
    assert {len(cell.records) for _, cell in after.cells} == {4}
    assert exits_table(after).blocks[0] == exits_table(before).blocks[0]
    assert (
        json.loads(json_text(verdicts_table(after)))["lines"] == json.loads(json_text(verdicts_table(before)))["lines"]
    )
    assert after.weak_models == before.weak_models
    for place, saving in before.savings.items():
        assert after.savings[place].reference_score == saving.reference_score
        assert [own and own.mean_layers for own in (after.savings[place].own, after.savings[place].of_all)] == [
            own and own.mean_layers for own in (saving.own, saving.of_all)
        ]
    assert after.compare_curves(after.curves) == before.compare_curves(before.curves) != {}


def test_drop_of_a_scored_trial_changes_no_test_over_searches(tmp_path):
    plan = mini_plan(methods=("albert", "palbert"), tasks=("rte",), samples=1, seeds=2, search_repeats=2)
    folder = launched_study(tmp_path / "s", plan)
    before = gather([load_study(folder)])
    for cell in (before.cells_by_place["palbert", "rte"], find_repeats(before.cells_by_place["albert", "rte"])[1]):
        assert drop.main([str(folder), cell.records[0].key, "--because", "a bad disk"]) == 0
    after = gather([load_study(folder)])
    assert after.comparisons_of_methods == before.comparisons_of_methods != []
    notes = [note for note in after.limits if note.endswith("a bad disk") or "a bad disk;" in note]
    assert sorted(note.split(" of ")[1].split(" (")[0] for note in notes) == ["albert/rte@2", "palbert/rte"]
    assert not any("left out" in note for note in search_repeats_table(after).notes)


def test_undo_brings_back_the_same_record(folder):
    records = read_facts(folder).records
    drop.main([str(folder), records[-1].key, "--because", "a bad disk"])
    assert read_facts(folder).records != records
    assert drop.main([str(folder), records[-1].key, "--undo"]) == 0
    assert read_facts(folder).records == records


@pytest.mark.parametrize(
    "arguments",
    [
        "zz --because x",
        "KEY",
        "KEY --because ' '",
        "KEY --undo",
    ],
)
def test_what_cannot_be_dropped_is_named_in_one_line(folder, capsys, arguments, snapshot):
    key, before = arm_of(folder).confirmed[0].key, (folder / "events.jsonl").read_bytes()
    assert drop.main([str(folder), *(key if own == "KEY" else own for own in shlex.split(arguments))]) == 2
    assert shown(capsys.readouterr().err, folder) == snapshot
    assert (folder / "events.jsonl").read_bytes() == before


def test_study_that_a_launch_runs_is_left_alone(folder, capsys):
    key, journal = arm_of(folder).confirmed[0].key, Journal(folder)
    assert drop.main([str(folder), key, "--because", "x"]) == 2
    error = capsys.readouterr().err
    assert "is being run by another launch" in error and error.endswith("; wait until it ends\n")
    journal.close()


# ---- the weights of models


def model_folders(folder):
    return sorted(path for path in folder.glob("trials/*/model-*"))


def test_dropped_models_leave_their_descriptions_and_all_numbers(folder, capsys, snapshot):
    before, records = (folder / "events.jsonl").read_bytes(), read_facts(folder).records
    assert drop.main([str(folder), "--models"]) == 0
    assert shown(capsys.readouterr().out, folder) == snapshot
    assert [[path.name for path in model.iterdir()] for model in model_folders(folder)] == [["model.json"]] * 3
    assert (folder / "events.jsonl").read_bytes() == before and read_facts(folder).records == records
    assert verify.main([str(folder)]) == 0
    assert drop.main([str(folder), "--models"]) == 0  # nothing is left to delete
    assert capsys.readouterr().out.split("deleted the weights of ")[-1].startswith("0 models")


@pytest.mark.parametrize("command", ["predict", "export", "time", "submit"])
def test_commands_name_dropped_models(folder, tmp_path, command, snapshot):
    assert drop.main([str(folder), "--models"]) == 0
    (tmp_path / "in.tsv").write_text("sentence1\tsentence2\na\tb\n")
    arguments = {"predict": [str(tmp_path / "in.tsv")], "export": ["--to", str(tmp_path / "to")]}
    line = [sys.executable, "-m", f"study.{command}", str(folder), *arguments.get(command, [])]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 2 and done.stdout == ""
    assert shown(done.stderr, tmp_path) == snapshot


def test_models_from_which_others_start_are_kept(tmp_path, capsys, snapshot):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte", "mrpc")))
    start = read_facts(folder).arms["albert/mrpc"].start_key
    assert drop.main([str(folder), "--models"]) == 0
    said = capsys.readouterr().out
    assert start in said and shown(said, tmp_path) == snapshot
    kept = [model for model in model_folders(folder) if (model / "model.safetensors").exists()]
    assert [model.parent.name for model in kept] == [start]


@pytest.mark.parametrize(
    "arguments",
    [
        "KEY --models",
        "--models --undo",
        "--because 'a bad disk'",
    ],
)
def test_models_are_dropped_alone(folder, capsys, arguments, snapshot):
    assert drop.main([str(folder), *shlex.split(arguments)]) == 2
    assert capsys.readouterr().err.strip() == snapshot
    assert all((model / "model.safetensors").exists() for model in model_folders(folder))


def test_models_of_a_running_study_are_left_alone(folder, capsys):
    journal = Journal(folder)
    assert drop.main([str(folder), "--models"]) == 2
    assert "is being run by another launch" in capsys.readouterr().err
    journal.close()
    assert all((model / "model.safetensors").exists() for model in model_folders(folder))


def test_printed_commands_quote_a_folder_with_blanks(tmp_path, capsys):
    folder = launched_study(tmp_path / "a study", mini_plan(methods=("albert",), tasks=("rte",)))
    record = read_facts(folder).records[-1]
    assert drop.main([str(folder), record.key, "--because", "a bad disk"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to rewrite the tables: ")]
    assert line.endswith(f" -m study.rebuild '{folder}'")


def edit_models(folder, place):
    """Change the journal: the models of all trials are in the folder `place`."""
    lines = [json.loads(line) for line in read_event_lines(folder)]
    for outcome in filter(None, (line.get("outcome") for line in lines)):
        if outcome.get("model"):
            outcome["model"] = str(place(outcome["model"]))
    write_events(folder, [json.dumps(line).encode() for line in lines])


@pytest.mark.parametrize("name", ["notes", "trials/KEY/model-epoch-3"])
def test_files_that_no_launch_stored_are_not_dropped(folder, tmp_path, capsys, name):
    shutil.rmtree(folder / "trials")
    files = [tmp_path / name / file for file in ("a.tex", "model.json")]
    files[0].parent.mkdir(parents=True)
    for file in files:
        file.touch()
    edit_models(folder, lambda model: tmp_path / name)
    assert drop.main([str(folder), "--models"]) == 2
    error = capsys.readouterr().err
    assert says(error, f"the journal of {folder} names {tmp_path / name} as the model", "allowed: ")
    assert error.count("\n") == 1 and all(file.exists() for file in files)


@pytest.fixture
def stored(folder, tmp_path):
    """A study whose models are in its area of a storage that studies share."""
    area = tmp_path / "storage" / "s-1a"
    area.mkdir(parents=True)
    (folder / "trials").rename(area / "trials")
    edit_models(folder, lambda model: area / Path(model).relative_to(folder))
    storage = {"storage": str(tmp_path / "storage"), "area": "s-1a", "folder": str(folder)}
    edit_events(folder, LaunchBegan, lambda event: event.update(storage))
    return area


def test_models_in_a_shared_storage_are_dropped(folder, stored, capsys):
    assert drop.main([str(folder), "--models"]) == 0
    assert "deleted the weights of 3 models" in capsys.readouterr().out
    assert [[path.name for path in model.iterdir()] for model in model_folders(stored)] == [["model.json"]] * 3


@pytest.mark.parametrize("change", ["none", "original is renamed", "copy is launched"])
def test_copy_of_a_study_keeps_the_models_of_the_original(folder, stored, tmp_path, capsys, change):
    copy = shutil.copytree(folder, tmp_path / "copy")
    if change == "original is renamed":
        folder.rename(tmp_path / "renamed")
    if change == "copy is launched":
        event = json.loads(read_event_lines(copy)[0]) | {"launch": 2, "area": "copy-2b", "folder": str(copy)}
        write_events(copy, [*read_event_lines(copy), json.dumps(event).encode()])
    assert drop.main([str(copy), "--models"]) == 2
    error = capsys.readouterr().err
    assert says(error, f"of the study {folder}, of which {copy} may be a copy", f"study.drop {folder} --models")
    assert error.count("\n") == 1 and all((model / "model.safetensors").exists() for model in model_folders(stored))
    if change == "copy is launched":
        assert drop.main([str(folder), "--models"]) == drop.main([str(copy), "--models"]) == 0
