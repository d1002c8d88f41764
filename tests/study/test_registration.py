"""A plan that others know before its first trial: pytest tests/study/test_registration.py"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.journals import MadeJournal
from helpers.launched_studies import PROVENANCE, mini_plan
from helpers.launches import WITHOUT_RAY
from helpers.launches_here import launching_here
from helpers.messages import says
from helpers.places import ROOT, free_port
from helpers.plan_files import plan_from, with_lines
from msgspec.structs import replace

from analysis import verify
from analysis.report import registration
from analysis.studies.load import load_study
from analysis.verify import compare_plan, compare_registration
from study.facts.events import PlanRegistered
from study.facts.plan_file import write_plan
from study.facts.registration import find_plan_source
from study.facts.study_facts import read_facts
from study.facts.study_folder import compute_plan_digest
from study.launch import main
from study.launching.planned_study import plan_file
from study.mirror import Mirror
from study.mlflow_mirror.tracking import read_runs

pytestmark = pytest.mark.slow

KEPT_LATER = "822af730af64b3a985a513b55e7df709cee0ec6e"  # the commit of a later plan
STUDY = ["--method", "albert", "--task", "rte", "--samples", "0", "--seeds", "1", "--epochs", "1", "--name", "mine"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies lie in the folder of the test."""
    monkeypatch.chdir(tmp_path)


def test_plan_is_the_same_however_its_folders_are_named(tmp_path: Path) -> None:
    """So the tag of a dry run is the tag of a launch that names them in another way."""
    (tmp_path / "glue").mkdir()
    (tmp_path / "model").mkdir()
    plan = plan_from(*STUDY, "--data", f"{tmp_path}/glue", "--backbone", f"{tmp_path}/model")
    assert (plan.data, plan.backbone) == (f"{tmp_path}/glue", f"{tmp_path}/model")
    assert plan_from(*STUDY, "--data", "./glue", "--backbone", f"../{tmp_path.name}/model") == plan
    lines = with_lines(tmp_path, 'data = "glue"', 'backbone = "model"', 'tokenizer = "model"')
    assert plan_from(*STUDY, *lines) == replace(plan, tokenizer=f"{tmp_path}/model")
    (tmp_path / "mini").mkdir()
    assert plan_from(*STUDY, "--data", "mini").data == "mini"


def test_plan_is_registered_before_first_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STUDY, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    (command,) = re.findall(r"^  (git tag (plan-\w{16})) && git push origin \2$", printed, re.M)
    command = command[0]
    author = "-c user.name=a -c user.email=a@b"
    subprocess.run(
        f"git init -q . && git {author} commit -q --allow-empty -m a && {command}", shell=True, cwd=tmp_path, check=True
    )
    uri = f"sqlite:///{tmp_path}/others.db"
    with launching_here():
        assert main([*STUDY, *WITHOUT_RAY, "--register", "--tracking-uri", uri]) == 0
    folder = tmp_path / "runs" / "mine"
    places = {event.place: event.digest for event in read_facts(folder).registered}
    digest = compute_plan_digest(folder)
    assert places == {command: digest, f"MLflow {uri}": digest}
    assert command.endswith(digest)
    places_named = f"was registered before the first trial as {command}, MLflow {uri}."
    said = f"According to the journal, plan {digest} {places_named}"
    assert registration(load_study(folder)) == said
    assert said in (folder / "report.html").read_text()
    assert read_runs(uri, Mirror(folder, uri).study_id, name="mine")["study"].tags["plan"] == digest
    lines = (folder / "events.jsonl").read_text().splitlines()
    assert ['"plan_registered"' in line for line in lines[:4]] == [False, True, True, False]


@pytest.mark.long
def test_launch_ends_before_any_trial_if_mlflow_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    assert main([*STUDY, *WITHOUT_RAY, "--register", "--tracking-uri", gone]) == 2
    said = capsys.readouterr().err
    assert "study.launch: --register: " in said and said.rstrip().endswith("; no trial was started")
    assert not read_facts(tmp_path / "runs" / "mine").trials
    assert registration(load_study(tmp_path / "runs" / "mine")).endswith(" was not registered before the first trial.")


def test_register_without_an_mlflow_of_others_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STUDY, "--register"]) == 2
    assert says(capsys.readouterr().err, "--register needs an MLflow store ", "add --tracking-uri URI")


def test_registration_of_another_plan_is_not_named(tmp_path: Path) -> None:
    """The plan may change after a launch that registered it and started no trial."""
    plans = [mini_plan(methods=("albert",), tasks=("rte",), seeds=seeds) for seeds in (1, 2)]
    write_plan(tmp_path, plan_file(tmp_path, plans[1], PROVENANCE))
    journal, places = MadeJournal(tmp_path), ["git tag one", "MLflow two"]
    for number, (plan, place) in enumerate(zip(plans, places, strict=True), start=1):
        journal.begin(number, plan=plan)
        said = registration(load_study(tmp_path))
        assert said.endswith(" was not registered before the first trial.")
        journal.append(PlanRegistered(time=journal.now(), digest=compute_plan_digest(tmp_path), place=place))
        assert registration(load_study(tmp_path)).endswith(f" was registered before the first trial as {place}.")
    study = load_study(tmp_path)
    assert [line for line in compare_plan(tmp_path, study.file, study.facts) if "registered" in line] == []


KEPT = ROOT / "benchmarks" / "results" / "real" / "cpu" / "cpu-cola"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy of a kept study whose plan is in a commit of this repository."""
    if subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", find_plan_source(read_facts(KEPT)).commit]).returncode:
        pytest.skip("the history of the repository is not here")
    return Path(shutil.copytree(KEPT, tmp_path / "kept"))


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / "events.jsonl").read_text()
    assert old in text
    (folder / "events.jsonl").write_text(text.replace(old, new))


def test_verify_compares_the_commit_of_the_plan_with_the_first_trial(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = find_plan_source(read_facts(kept)).commit
    assert verify.main([str(kept)]) == 0
    said = capsys.readouterr().out
    assert says(said, "benchmarks/plans/cpu-cola.toml is in commit ", f"{commit}, made 0:51 before ")
    assert f"cpu-cola.toml at commit {commit}." in registration(load_study(kept))


def test_file_of_the_plan_is_of_the_first_launch_with_the_plan_of_the_first_trial() -> None:
    journal = MadeJournal()
    journal.begin()
    began = journal.facts.last_launch.began
    other = replace(began.plan, request=replace(began.plan.request, seeds=2))
    for number, (file, plan) in enumerate(
        {"refused": began.plan, "ran": other, "again": other, "later": began.plan}.items(), 1
    ):
        journal.clock += 1
        launch = {"launch": number, "git_commit": 40 * f"{number}", "command": f"study.launch --plan {file}.toml"}
        journal.append(replace(began, time=journal.now(), plan=plan, **launch))
        assert find_plan_source(journal.facts) == (
            (1, "refused.toml", 40 * "1") if number == 1 else (2, "ran.toml", 40 * "2")
        )
        if number == 3:
            journal.start("a")


def test_plan_without_a_registration_is_told_with_its_file_and_commit(kept: Path) -> None:
    commit, file = find_plan_source(read_facts(kept)).commit, kept / "events.jsonl"
    file.write_text("".join(line for line in file.open() if '"plan_registered"' not in line))
    said = registration(load_study(kept))
    assert says(
        said, "not registered before the first trial; the first launch ran ", f"cpu-cola.toml at commit {commit}."
    )


def test_verify_accepts_a_plan_that_is_in_no_commit(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = find_plan_source(read_facts(kept))
    change(kept, "--plan benchmarks/plans/cpu-cola.toml", "--plan=plan.toml")
    assert verify.main([str(kept)]) == 0
    assert says(capsys.readouterr().out, "plan.toml, ", f"not in commit {source.commit}")


def test_verify_finds_a_commit_that_was_made_after_the_first_trial(kept: Path) -> None:
    source = find_plan_source(read_facts(kept))
    change(kept, source.commit, KEPT_LATER)
    (line,) = compare_registration(read_facts(kept))
    assert "after the first trial began (2026-11-25 15:19:37" in line


def test_verify_says_if_the_history_lacks_the_commit(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(kept, find_plan_source(read_facts(kept)).commit, 40 * "0")
    assert verify.main([str(kept)]) == 0
    assert says(capsys.readouterr().out, "not a repository with this commit: ", "0000")
