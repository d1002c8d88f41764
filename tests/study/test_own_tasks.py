"""Tasks of one's own, as docs/own_task.md has them: pytest tests/study/test_own_tasks.py"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from helpers.glue_folders import write_glue
from helpers.launches import WITHOUT_RAY
from helpers.launches_here import analyse_here, launching_here
from helpers.messages import says
from helpers.own_methods import write_methods
from helpers.own_tasks import PAGE, forget_tasks, write_learnable_tasks, write_page_task
from helpers.plan_files import options_from, write_plan_of_launch
from helpers.trials import spec_of
from msgspec.json import encode
from msgspec.structs import replace

from analysis import tables, verify
from analysis.studies.load import load_study
from study import export, launch, predict, rebuild, status, submit
from study.facts.plan_file import require_plan
from study.facts.study_facts import read_facts
from study.launching.planned_study import resolve_study
from trainables.configuration.schema import from_json
from trainables.data.own_tasks import read_tasks
from trainables.data.tasks import TASKS
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec, Unavailable

BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, block in BLOCKS if not language for line in block.splitlines()]
METHODS = "albert,palbert"


@pytest.fixture(autouse=True)
def only_tasks_of_glue() -> Iterator[None]:
    yield
    forget_tasks()


def test_dry_run_of_page_names_arms_without_paper_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_page_task(tmp_path / "tasks")
    monkeypatch.chdir(tmp_path)
    assert (
        launch.main(["--include", "tasks", "--task", "Claims", "--method", METHODS, "--dry-run", "--departures"]) == 0
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "albert/claims " in said and "palbert/claims " in said
    assert "generated and tiny" not in said and "weights of backbones: random" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--include", "tasks", "--task", "clams"), "no task named 'clams'; .*; did you mean claims?"),
        (("--task", "claims"), "no task named 'claims'; .* --include FOLDER."),
        (
            ("--include", "tasks/claims"),
            "--include tasks/claims: .*; .*did you mean tasks?",
        ),
        (
            ("--include", "tasks", "--task", "claims", "--data", "hub"),
            "--data .* only has claims; leave out --data",
        ),
        (("--include", "."), "--include .: .*no methods; allowed: .*"),
    ],
)
def test_unknown_task_is_one_line_with_the_nearest(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    write_page_task(tmp_path / "tasks")
    monkeypatch.chdir(tmp_path)
    assert launch.main([*options, "--method", "albert", "--dry-run"]) == 2
    assert re.fullmatch(f"study.launch: {message}".replace("?", r"\?"), capsys.readouterr().err.strip())


def test_a_folder_may_hold_methods_and_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_page_task(write_methods(tmp_path / "mine"))
    command = ["--include", str(folder), "--method", "entropy", "--task", "claims,rte", "--out", str(tmp_path)]
    assert launch.main([*command, "--dry-run", "--departures"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "entropy/claims " in said and "entropy/rte " in said and "generated and tiny" in said


def test_moved_data_of_glue_are_named_while_an_own_task_is_launched(tmp_path: Path) -> None:
    write_glue(tmp_path / "glue", rows=50)
    write_page_task(tmp_path / "tasks")
    asked = ["--method", "albert", "--task", "rte,claims", "--backbone", "mini-albert"]
    options = options_from("--profile", "mini", *asked, "--data", f"{tmp_path}/glue", "--include", f"{tmp_path}/tasks")
    write_plan_of_launch(tmp_path / "s", resolve_study(options).resolved)
    moved = (tmp_path / "glue").rename(tmp_path / "moved")
    more = options_from("--continue", str(tmp_path / "s"), "--task", "claims", "--data", str(moved))
    assert resolve_study(more).resolved.request.data == str(moved)


def test_missing_task_files_are_listed(tmp_path: Path) -> None:
    (task,) = read_tasks(write_page_task(tmp_path / "tasks"))
    spec = from_json(TrialSpec, encode(spec_of("albert", "claims", own_task=task)), where="spec")  # as a worker has it
    shutil.rmtree(tmp_path / "tasks")
    with pytest.raises(Unavailable, match=f"no folder {tmp_path}/tasks/claims .*; if .* moved"):
        TrainingRun(spec, cache=tmp_path / "cache")


@pytest.mark.long
@pytest.mark.slow
def test_commands_of_the_page_run_in_the_order_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_page_task(tmp_path / "tasks")
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 5
    for line in COMMANDS:
        program, _, module, *words = line.split()
        assert program == ".venv/bin/python"
        words += [*WITHOUT_RAY, "--tracking-uri", "none"] * (module == "study.launch")
        forget_tasks()
        capsys.readouterr()
        assert import_module(module).main(words) == 0, line
    answers = capsys.readouterr().out.splitlines()
    assert answers[0] == "index\tprediction\texit_layer" and len(answers) == 4
    assert {answer.split("\t")[1] for answer in answers[1:]} <= {"supported", "refuted", "open"}


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of a method on a task of two texts with three labels and on a regression."""
    place = tmp_path_factory.mktemp("studied")
    tasks = write_learnable_tasks(place / "tasks")
    command = ["--include", str(tasks), "--method", "albert", "--task", "claims,stars", "--samples", "1"]
    command += ["--seeds", "2", "--epochs", "4", "--name", "own", "--out", str(place)]
    with launching_here():
        assert launch.main([*command, "--tracking-uri", "none", *WITHOUT_RAY]) == 0
    forget_tasks()  # as in the process that writes tables and report, which reads the tasks from the plan
    assert analyse_here(place / "own")
    return place / "own"


@pytest.fixture
def study(studied: Path, tmp_path: Path) -> Path:
    """A copy of it, read as by a new process that has no folder of tasks."""
    forget_tasks()
    return shutil.copytree(studied, tmp_path / "own")


@pytest.mark.slow
def test_table_has_the_tasks_and_nothing_published(study: Path) -> None:
    dev = (study / "tables" / "dev.md").read_text()
    assert says(dev, "## Dev scores, ", "median over 2 seeds") and "| Claims" not in dev
    assert (
        re.search(r"\| +claims \| +Stars \|", dev)
        and "published" not in dev.lower()
        and "macro " not in dev.splitlines()[2]
    )
    assert says(dev, "claims is not a GLUE task; ", "accuracy and macro F1 on 90 dev examples")
    assert says(dev, "Stars is not a GLUE task; ", "Pearson and Spearman on 90 dev examples")
    for table in (study / "tables").glob("*.md"):
        assert "published" not in table.read_text().lower() and "GLUE" not in table.read_text().splitlines()[0], table


@pytest.mark.long
@pytest.mark.slow
def test_study_is_verified_and_written_again_without_the_folder_of_tasks(study: Path) -> None:
    assert verify.main([str(study)]) == 0
    shutil.rmtree(study / "tables")
    assert tables.main([str(study)]) == 0 and status.main([str(study)]) == 0
    with launching_here():
        assert rebuild.main([str(study), "--tracking-uri", "none"]) == 0  # writes tables and report
    assert verify.main([str(study)]) == 0


@pytest.mark.slow
def test_another_task_of_the_same_name_shares_no_table(study: Path) -> None:
    (claims, _) = (require_plan(study).plan.own_tasks or {}).values()
    TASKS["claims"] = replace(claims, metrics=("accuracy",), title="Other")
    with pytest.raises(ValueError, match=r"plan.json: task claims has other columns, labels or metrics"):
        load_study(study)
    TASKS["claims"] = replace(claims, place="/elsewhere", title="Other")
    assert load_study(study).records


@pytest.mark.slow
def test_tasks_are_learnt(study: Path) -> None:
    scores = [(one.task, one.score or 0) for one in read_facts(study).records if one.phase == "confirm"]
    assert max(score for task, score in scores if task == "claims") > 0.5
    assert max(score for task, score in scores if task == "stars") > 0.8


@pytest.mark.slow
def test_exported_model_answers_with_the_labels_of_the_task(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "claim\tevidence\na red car stands here\tthere is no car\na red car stands here\twe like lamp\n"
    (tmp_path / "input.tsv").write_text(rows)
    model = tmp_path / "exported"
    assert export.main([str(study), "--method", "albert", "--task", "claims", "--to", str(model)]) == 0
    assert str(study.parent) not in (model / "model.json").read_text()
    forget_tasks()
    capsys.readouterr()
    assert predict.main([str(model), str(tmp_path / "input.tsv")]) == 0
    exported = capsys.readouterr().out
    assert predict.main([str(study), "--method", "albert", "--task", "claims", str(tmp_path / "input.tsv")]) == 0
    assert capsys.readouterr().out == exported
    assert {line.split("\t")[1] for line in exported.splitlines()[1:]} <= {"supported", "refuted", "open"}


@pytest.mark.slow
def test_a_submission_of_no_task_of_glue_is_refused(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main([str(study), "--method", "albert"]) == 2
    assert says(capsys.readouterr().err, "claims, stars; ", "only GLUE tasks")


@pytest.mark.slow
def test_study_accepts_moved_folder_but_not_other_rows(
    studied: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--continue", str(study), *WITHOUT_RAY, "--tracking-uri", "none", "--dry-run"]
    assert launch.main(again) == 0
    moved = shutil.move(studied.parent / "tasks", tmp_path / "tasks")
    try:
        forget_tasks()
        capsys.readouterr()
        assert launch.main(again) == 2
        assert says(capsys.readouterr().err, f"no folder {studied.parent}/tasks/claims ", "with --include")
        assert launch.main([*again, "--include", str(moved)]) == 0
        rows = tmp_path / "tasks" / "claims" / "dev.tsv"
        rows.write_text(rows.read_text().replace("\topen\n", "\trefuted\n", 1))
        assert launch.main([*again, "--include", str(moved)]) == 2
        assert "data_fingerprint" in capsys.readouterr().err
    finally:
        shutil.move(moved, studied.parent / "tasks")
    assert require_plan(study).plan.own_tasks
