"""python -m pytest tests/analysis/test_verify.py"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.edited_files import replace_in
from helpers.edited_studies import edit_events, has
from helpers.glue_folders import write_glue
from helpers.launched_studies import launch, launched_study, mini_plan
from helpers.messages import says
from msgspec.structs import replace

from analysis.report import write_report
from analysis.tables import write_tables
from analysis.verify import main, verify
from study.facts.events import FILE, EpochReported, LaunchBegan, read_events
from study.facts.plan_file import require_plan, write_plan
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.facts.study_folder import compute_journal_digest, predictions_file
from study.plans.resolved_plan import digest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = mini_plan(methods=("palbert", "pondernet"), tasks=("rte",))
    return launched_study(tmp_path_factory.mktemp("runs") / "s", plan)


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "s")


def confirmed(study: Path, method: str = "palbert") -> Record:
    records = read_facts(study).records
    return next(record for record in records if (record.method, record.phase) == (method, "confirm"))


def first_predictions(study: Path, method: str = "palbert") -> Path:
    return predictions_file(study, confirmed(study, method).key)


def edit_array(path: Path, name: str, change: Callable[[np.ndarray], object]) -> None:
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays[name])
    np.savez(path, **arrays)


def number_of_last_epoch(study: Path, key: str) -> int:
    """Which of the `epoch_reported` events is the trial's last."""
    keys = [event.key for event in read_events(study) if isinstance(event, EpochReported)]
    return len(keys) - 1 - keys[::-1].index(key)


# ---- a study that agrees


@pytest.mark.slow
def test_untouched_study_verifies(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(study) == []
    assert main([str(study)]) == 0
    said = capsys.readouterr().out
    assert says(said, "plan, journal, predictions and tables agree; ", "not checked, ", ": report\n")
    assert said.endswith(f"\nSHA-256 of the journal: {compute_journal_digest(study).describe()}\n")


def test_moved_study_verifies(study: Path) -> None:
    assert verify(shutil.move(study, study.with_name("elsewhere"))) == []


def test_launch_under_way_verifies(tmp_path: Path) -> None:
    launch(tmp_path / "s", mini_plan(), killed_after=30)
    write_tables([tmp_path / "s"], tmp_path / "s" / "tables")
    assert verify(tmp_path / "s") == []


def test_folder_without_a_plan_is_no_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert (
        says(said, f"analysis.verify: {tmp_path} has no plan.json; ", "folder of a study\n") and said.count("\n") == 1
    )


def test_study_without_tables_verifies_and_says_so(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(study / "tables")
    assert main([str(study)]) == 0
    assert says(capsys.readouterr().out, "agree; not checked, ", ": tables, report\n")


@pytest.mark.slow
def test_again_counts_the_models_that_cannot_be_drawn(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "analysis.verify._run", lambda *command: subprocess.CompletedProcess(command, 1, "", "no model")
    )
    weights = sorted(study.glob("trials/*/*/model.safetensors"))
    for path in weights[1:]:
        path.unlink()
    main([str(study), "--again", "1"])
    said = capsys.readouterr().out
    assert says(said, f"{study}: only 1 of {len(weights)} confirm trials ", "no stored models\n")


def test_again_without_stored_models_is_an_error(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in study.glob("trials/*/*/model.safetensors"):
        path.unlink()
    assert main([str(study), "--again", "1"]) == 2
    assert capsys.readouterr().err == f"analysis.verify: --again 1: {study} has no stored models\n"


def test_missing_journal_is_a_difference(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study / FILE).unlink()
    assert main([str(study)]) == 1
    assert capsys.readouterr().err.startswith(f"difference: {study / FILE} is missing, ")


def test_help_says_what_is_not_held(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert said.count("\n") < 30 and "runs stored models" in " ".join(said.split())
    assert "a whole folder can be invented" in " ".join(said.split())


# ---- an edit of each kind


def edit_plan(study: Path) -> str:
    replace_in(study / "plan.json", '"samples": 3', '"samples": 4')
    return f"{study / 'plan.json'} was edited"


def edit_plan_and_its_digest(study: Path) -> str:
    plain = json.loads((study / "plan.json").read_text())
    plain["plan"]["arms"][0]["seeds"] = [42, 44]
    plain.pop("digest")
    (study / "plan.json").write_text(json.dumps(plain | {"digest": digest(plain)}))
    return "plan.json: palbert/rte seeds is [42, 44]; should be [42, 43]"


def edit_what_the_plan_was_asked_for(study: Path) -> str:
    plain = json.loads((study / "plan.json").read_text())
    plain["plan"]["asked"]["profile"] = "paper"
    plain.pop("digest")
    (study / "plan.json").write_text(json.dumps(plain | {"digest": digest(plain)}))
    return 'plan.json: asked profile is "paper"; should be "mini"'


def edit_plan_of_the_journal(study: Path) -> str:
    edit_events(study, LaunchBegan, lambda event: event["plan"]["arms"][0].update(samples=4))
    return "plan.json: palbert/rte samples is 3; should be 4"


def break_a_line_of_the_journal(study: Path) -> str:
    lines = (study / FILE).read_bytes().splitlines(keepends=True)
    (study / FILE).write_bytes(b"".join([*lines[:2], b'{"event":"epoch\n', *lines[3:]]))
    return f'{study / FILE}:3: the text is not a JSON object: \'{{"event":"epoch\''


def take_a_line_out_of_the_journal(study: Path) -> str:
    lines = (study / FILE).read_bytes().splitlines(keepends=True)
    started = next(number for number, line in enumerate(lines) if b'"trial_started"' in line)
    (study / FILE).write_bytes(b"".join(lines[:started] + lines[started + 1 :]))
    return "was never started"


def edit_a_confirmed_score_of_the_journal(study: Path) -> str:
    record = confirmed(study)
    both = {"score": 0.99, "metrics": dict.fromkeys(record.metrics, 0.99)}
    number = number_of_last_epoch(study, record.key)
    edit_events(study, EpochReported, lambda event: event["outcome"]["reported"].update(both), number=number)
    return "score is 0.99 in the record and "


def edit_the_layers_of_the_journal(study: Path) -> str:
    record = confirmed(study)
    number = number_of_last_epoch(study, record.key)
    edit_events(study, EpochReported, lambda event: event["outcome"]["reported"].update(mean_layers=1.5), number=number)
    return "mean_layers is 1.5 in the record and "


def edit_a_searched_score_of_the_journal(study: Path) -> str:
    edit_events(study, EpochReported, lambda event: event["row"].update(selection_score=0.875))
    return f"{study}/tables/dev.json differs from what the study gives: line "


def edit_a_prediction(study: Path) -> str:
    edit_array(first_predictions(study), "logits", lambda logits: logits.__imul__(-1))
    return f"{first_predictions(study)} does not match the record of palbert/"


def edit_a_logit_that_changes_no_answer(study: Path) -> str:
    edit_array(first_predictions(study), "logits", lambda logits: logits.__imul__(2))
    return f"{first_predictions(study)}: SHA-256 is "


def edit_a_draw_of_a_sampled_exit(study: Path) -> str:
    edit_array(first_predictions(study, "pondernet"), "logits", lambda draws: draws[1].__imul__(-1))
    return " according to the predictions"


def edit_the_sweep(study: Path) -> str:
    edit_array(first_predictions(study), "sweep_score", lambda scores: scores.__isub__(0.01))
    return f"{first_predictions(study)}: SHA-256 is "


def swap_predictions(study: Path) -> str:
    one, other = sorted((study / "predictions").glob("*.npz"))[:2]
    shutil.copy(one, other)
    return f"{other}: SHA-256 is "


def remove_predictions(study: Path) -> str:
    first_predictions(study).unlink()
    return "is missing: the predictions of palbert/"


def add_predictions(study: Path) -> str:
    shutil.copy(first_predictions(study), study / "predictions" / "other.npz")
    return f"{study}/predictions/other.npz belongs to no completed confirm trial"


def overwrite_predictions(study: Path) -> str:
    first_predictions(study).write_bytes(b"not a zip file")
    return "the file is damaged, or has no predictions"


def pickle_predictions(study: Path) -> str:
    path = first_predictions(study)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"ids": np.array([{"a": 1}] * 60, dtype=object)})
    return "the file is damaged, or has no predictions"


def model_description(study: Path) -> Path:
    return next(path for path in study.rglob("model.json") if confirmed(study).key in path.parts)


def edit_a_model(study: Path) -> str:
    path, seed = model_description(study), confirmed(study).seed
    replace_in(path, f'"seed": {seed}', '"seed": 52')
    return f"{path}: spec seed is 52; should be {seed}"


def edit_the_epoch_of_a_model(study: Path) -> str:
    path, epoch = model_description(study), confirmed(study).epoch
    replace_in(path, f'"epoch": {epoch}', '"epoch": 99')
    return f"{path}: epoch is 99; should be {epoch}"


def remove_a_model(study: Path) -> str:
    model_description(study).unlink()
    return "model.json is missing: the model of palbert/"


def edit_a_table(study: Path) -> str:
    replace_in(study / "tables" / "dev.md", "| palbert", "| PALBERT")
    return f"{study}/tables/dev.md differs from what the study gives: line "


def remove_a_table(study: Path) -> str:
    (study / "tables" / "exits.csv").unlink()
    return f"exits.csv is missing; python -m study.rebuild {study} writes it"


def add_a_table(study: Path) -> str:
    (study / "tables" / "old.md").write_text("| palbert | 99.9 |")
    return f"{study}/tables/old.md is not a file of the tables"


def edit_the_repeated_texts_of_the_plan(study: Path) -> str:
    file = require_plan(study)
    counts = {task: replace(counted, dev_in_train=9) for task, counted in (file.plan.repeated_texts or {}).items()}
    write_plan(study, replace(file, plan=replace(file.plan, repeated_texts=counts)))
    return "plan.json: repeated_texts rte dev_in_train is 9; should be 0"


EDITS = (
    edit_the_repeated_texts_of_the_plan,
    edit_plan,
    edit_plan_and_its_digest,
    edit_what_the_plan_was_asked_for,
    edit_plan_of_the_journal,
    break_a_line_of_the_journal,
    take_a_line_out_of_the_journal,
    edit_a_confirmed_score_of_the_journal,
    edit_the_layers_of_the_journal,
    edit_a_searched_score_of_the_journal,
    edit_a_prediction,
    edit_a_logit_that_changes_no_answer,
    edit_a_draw_of_a_sampled_exit,
    edit_the_sweep,
    swap_predictions,
    remove_predictions,
    add_predictions,
    overwrite_predictions,
    pickle_predictions,
    edit_a_model,
    edit_the_epoch_of_a_model,
    remove_a_model,
    edit_a_table,
    remove_a_table,
    add_a_table,
)


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_edit_is_found(study: Path, edit: Callable[[Path], str]) -> None:
    line = edit(study)
    drift = verify(study)
    assert has(drift, line), drift


@pytest.mark.long
@pytest.mark.slow
def test_edit_of_report_or_picture_is_found(study: Path) -> None:
    write_report(study)
    assert verify(study) == []
    page, picture = study / "report.html", study / "pictures" / "seeds.svg"
    replace_in(page, "palbert", "parbert")
    picture.write_bytes(picture.read_bytes()[:-1])
    (study / "pictures" / "old.svg").write_text("")
    drift = verify(study)
    assert len(drift) == 3
    assert has(drift, f"{page} differs from what") and has(drift, f"{picture} differs") and has(drift, "old")


@pytest.mark.long
@pytest.mark.slow
def test_moved_study_has_the_same_report_and_answer(study: Path, tmp_path: Path) -> None:
    write_report(study)
    assert f"python -m study.time {study}" in (study / "tables" / "answer.md").read_text()
    assert f"python -m analysis.explain {study} METHOD/TASK" in (study / "report.html").read_text()
    moved = tmp_path / "elsewhere and so on"
    shutil.copytree(study, moved)
    assert verify(moved) == []


def test_words_after_a_printed_folder_are_compared(study: Path) -> None:
    write_report(study)
    answer = study / "tables" / "answer.md"
    assert verify(study) == []
    replace_in(answer, f"-m study.time {study}", f"-m study.time {study} and all is well")
    assert has(verify(study), f"{answer} differs")


@pytest.mark.slow
def test_command_prints_every_difference_and_exits_1(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_a_table(study)
    assert main([str(study)]) == 1
    said = capsys.readouterr()
    assert said.out == f"1 difference in {study}\n"
    assert says(said.err, f"difference: {study}/tables/dev.md differs ", ": line ")
    assert "| PALBERT" in said.err


def test_edited_number_of_rows_is_found(tmp_path: Path) -> None:
    data = write_glue(tmp_path / "glue", rows=40)
    study = launched_study(tmp_path / "s", mini_plan(methods=("palbert",), tasks=("rte",), data=str(data)))
    file = require_plan(study)
    write_plan(study, replace(file, plan=replace(file.plan, train_rows={"rte": 41})))
    assert verify(study) == ["plan.json: train_rows rte is 41; should be 40"]


def test_file_that_a_killed_write_left_is_no_drift(study: Path) -> None:
    (study / "tables" / ".dev.md.9726").touch()
    assert verify(study) == []


# ---- tables and a report of another version


OTHER = "0.0.9, sources 00000000, matplotlib 3.9.0"


@pytest.fixture(scope="module")
def made_by_another_version(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study with tables and report in other words."""
    study = shutil.copytree(made, tmp_path_factory.mktemp("other") / "s")
    with pytest.MonkeyPatch.context() as other:
        for module in ("analysis.tables", "analysis.report"):
            other.setattr(f"{module}.version", lambda: OTHER)
        other.setattr("analysis.report.headline", lambda *_: "Other words.")
        other.setattr("analysis.layouts.rendering.NOTES_SHOWN", 99)
        write_report(study)
    return study


@pytest.fixture
def of_another_version(made_by_another_version: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_by_another_version, tmp_path / "s")


@pytest.mark.slow
def test_files_of_another_version_are_not_compared(
    of_another_version: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = of_another_version
    assert main([str(study)]) == 0
    *notes, agreement, _ = capsys.readouterr().out.splitlines()
    parts = ["not compared, ", f"another version wrote it ({OTHER}); ", f"study.rebuild {study} "]
    for note, place in zip(notes, [study / "tables", study / "report.html"], strict=True):
        assert says(note, f"{place}: ", *parts)
    assert agreement == f"{study}: plan, journal and predictions agree"


def test_joint_tables_of_another_version_are_not_compared(
    of_another_version: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, tables = of_another_version, of_another_version / "tables"
    assert main([str(study), "--tables", str(tables), "--separate"]) == 0
    *_, note, last = capsys.readouterr().out.splitlines()
    command = f"python -m analysis.tables {study} --out {tables} --separate "
    assert says(note, f"{tables}: not compared, ", f"another version wrote it ({OTHER}); ", command)
    assert last == f"{tables}: nothing was compared"


@pytest.mark.long
@pytest.mark.slow
def test_files_that_name_no_version_are_compared(of_another_version: Path) -> None:
    (of_another_version / "tables" / "written_by.json").unlink()
    replace_in(of_another_version / "report.html", f"glue-exit-study {OTHER}", "")
    drift = verify(of_another_version)
    assert has(drift, "tables/written_by.json is missing")
    assert has(drift, "report.html differs")


# ---- several studies


@pytest.mark.long
@pytest.mark.slow
def test_tables_of_several_studies_are_made_anew(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = launched_study(tmp_path / "other", mini_plan(methods=("albert",), tasks=("rte",)))
    folders, out = [str(study), str(other)], tmp_path / "joined"
    write_tables([study, other], out)
    assert main([*folders, "--tables", str(out)]) == 0
    assert f"{out}: the tables agree with the studies" in capsys.readouterr().out
    replace_in(out / "dev.csv", "albert", "bert")
    assert main([*folders, "--tables", str(out)]) == 1
    assert says(capsys.readouterr().err, f"difference: {out / 'dev.csv'} differs ", ": line 2")


@pytest.mark.long
@pytest.mark.slow
def test_separate_tables_are_made_anew_as_such(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = launched_study(tmp_path / "other", mini_plan(methods=("palbert",), tasks=("rte",)))
    folders, out = [str(study), str(other)], tmp_path / "separate"
    write_tables([study, other], out, separate=True)
    assert main([*folders, "--tables", str(out), "--separate"]) == 0
    assert main([str(study), "--separate"]) == 2
    assert "--separate needs --tables FOLDER: " in capsys.readouterr().err


def test_tables_of_studies_that_share_no_table_are_bad_usage(study, tmp_path, capsys):
    twice = tmp_path / "same"
    twice.symlink_to(study)
    assert main([str(study), str(twice), "--tables", str(study / "tables")]) == 2
    assert "are the same study; " in capsys.readouterr().err
