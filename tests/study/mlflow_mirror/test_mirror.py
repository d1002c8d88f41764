"""The MLflow mirror, on journals written by hand: pytest tests/study/mlflow_mirror/test_mirror.py"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import statistics
from functools import partialmethod
from pathlib import Path

import psutil
import pytest
from helpers.glue_folders import write_glue
from helpers.journals import MadeJournal
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import predicted_study, write_plan_of
from helpers.messages import says
from helpers.mlflow_stores import content, curves, planned, stored_runs
from helpers.places import free_port
from msgspec.structs import replace

from analysis.tables import write_tables
from study.facts.events import FILE, TrialReopened, TrialRestarted
from study.facts.journal_copy import COPY, keep_copy
from study.facts.plan_file import require_plan
from study.launching.child_processes import MIRROR_NICENESS, start_mirror
from study.mirror import Mirror, main, mirror
from study.mlflow_mirror.tracking import build_default_uri
from trainables.configuration.ranges import Interval

pytestmark = pytest.mark.slow


def test_each_trial_has_its_data_set_after_one_request(
    journal: MadeJournal, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.entities import DatasetInput
    from mlflow.tracking import MlflowClient

    calls = list[str]()
    log_inputs = MlflowClient.log_inputs

    def count(client: MlflowClient, run_id: str, data: list[DatasetInput]) -> None:
        calls.append(run_id)
        log_inputs(client, run_id, data)

    monkeypatch.setattr(MlflowClient, "log_inputs", count)
    mirror(journal.folder, uri)
    mirror(journal.folder, uri)
    (found,) = stored_runs(uri)["d" * 16].inputs.dataset_inputs
    assert (found.dataset.name, found.dataset.source_type) == ("GLUE RTE", "hugging_face")
    assert [(tag.key, tag.value) for tag in found.tags] == [("mlflow.data.context", "training")]
    assert len(calls) == len(set(calls)) == len(journal.facts.trials)


def test_data_set_has_the_rows_of_its_folder(tmp_path: Path) -> None:
    data = write_glue(tmp_path / "glue", rows=40)
    study = launched_study(tmp_path / "mine", mini_plan(methods=("albert",), tasks=("rte",), seeds=1, data=str(data)))
    mirrored = Mirror(study, uri="")
    mirrored.read()
    assert {run.data.rows for run in mirrored.runs(final=False) if run.data} == {40}


def test_live_looks_take_a_share_of_the_time(journal: MadeJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look of two seconds is followed by one after twenty; the last follows the end of the launch at once.

    The nine seconds in which a new database gets its tables do not count.
    """
    clock, looks = [0.0], list[tuple[float, bool]]()

    def connect(self: Mirror) -> None:
        clock[0] += 9 if not looks else 0

    def look(self: Mirror, *, final: bool) -> None:
        looks.append((clock[0], final))
        clock[0] += 2

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > 59 and journal.facts.last_launch.ended is None:
            journal.end()

    monkeypatch.setattr(Mirror, "connect", connect)
    monkeypatch.setattr(Mirror, "write", look)
    monkeypatch.setattr("study.mirror.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("study.mirror.time.sleep", sleep)
    mirror(journal.folder, "", follow=1)
    assert looks == [(9, False), (31, False), (53, False), (61, True)]


def test_follower_ends_with_its_launch_if_another_begins(
    journal: MadeJournal, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter((1, 2))

    def sleep(seconds: float) -> None:
        if next(looks) == 1:
            journal.end()
            journal.begin(launch=2)

    monkeypatch.setattr("study.mirror.time.sleep", sleep)
    assert main([str(journal.folder), "--follow", "--tracking-uri", uri]) == 0
    tags = stored_runs(uri)["study"].data.tags
    assert (tags["launches"], tags["status"]) == ("2", "running")


def test_follower_of_an_earlier_launch_ends_at_once(
    journal: MadeJournal, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another launch began while it waited for the follower of the launch before its own."""
    journal.end()
    journal.begin(launch=2)
    looks = iter((1,))
    monkeypatch.setattr("study.mirror.time.sleep", lambda seconds: next(looks))
    mirror(journal.folder, uri, follow=1)
    assert stored_runs(uri)["a" * 16].info.status == "FINISHED"


def test_epochs_before_a_restart_are_in_no_curve(tmp_path: Path) -> None:
    journal = MadeJournal(tmp_path / "s")
    journal.begin()
    journal.start("k")
    journal.epoch("k", 1, 0.5)
    journal.epoch("k", 2, 0.6)
    journal.append(TrialRestarted(time=journal.now(), key="k", reason="its state is damaged"))
    journal.epoch("k", 1, 0.7)
    copy = Mirror(tmp_path / "s", "sqlite://")
    copy.read()
    assert [event.row.selection_score for event in copy.reports["k"]] == [0.7]


def test_arm_with_another_winner_loses_the_old_score(tmp_path: Path, uri: str) -> None:
    journal = planned(tmp_path / "mine")
    plan = require_plan(journal.folder).plan
    (arm,) = plan.arms
    arm = replace(arm, space={"learning_rate": Interval(low=1e-5, high=1e-4)}, fixed={"batch_size": 32, "epochs": 3})
    write_plan_of(journal.folder, replace(plan, arms=(replace(arm, samples=1),)))
    journal.begin()
    journal.whole_trial("a" * 16, [0.5])
    journal.whole_trial("c" * 16, [0.6], phase="confirm", trial=0)
    journal.whole_trial("d" * 16, [0.7], phase="confirm", trial=1)
    journal.end()
    mirror(journal.folder, uri)
    assert stored_runs(uri)["palbert/rte"].data.metrics["score"] == pytest.approx(0.65)
    write_plan_of(journal.folder, replace(plan, arms=(replace(arm, samples=2),)))
    better = {"learning_rate": 3e-05, "batch_size": 32, "epochs": 3}
    journal.begin(launch=2)
    journal.whole_trial("b" * 16, [0.9], trial=1, config=better)
    journal.whole_trial("e" * 16, [0.9], phase="confirm", trial=0, config=better)
    journal.end(launch=2, status="interrupted")
    mirror(journal.folder, uri)
    run = stored_runs(uri)["palbert/rte"].data
    assert run.tags["winner.learning_rate"] == "3e-05"
    assert all(math.isnan(run.metrics[name]) for name in ("score", "mean_score", "mean_layers"))
    journal.begin(launch=3)
    journal.whole_trial("f" * 16, [0.8], phase="confirm", trial=1, config=better)
    journal.end(launch=3)
    mirror(journal.folder, uri)
    assert stored_runs(uri)["palbert/rte"].data.metrics["score"] == pytest.approx(0.85)


def test_stored_arms_have_spread_and_interval_of_tables(tmp_path: Path, uri: str) -> None:
    study = predicted_study(tmp_path / "mine", {"albert": 0.6, "palbert": 0.8}, ["rte"])
    dev, *_ = write_tables([study], study / "tables")
    mirror(study, uri)
    runs, means = stored_runs(uri), {mean["row"]: mean for mean in dev.sidecar["means"]}
    for cell in dev.sidecar["cells"]:
        mean, scores = means[cell["method"]], cell["scores"]
        metrics = runs[f"{cell['method']}/rte"].data.metrics
        assert metrics["score"] == pytest.approx(statistics.median(scores))
        spread = (metrics["mean_score"], metrics["score_deviation"])
        assert spread == pytest.approx((statistics.mean(scores), statistics.stdev(scores)))
        assert (metrics["lowest_score"], metrics["highest_score"]) == (min(scores), max(scores))
        assert (metrics["mean_score_low"], metrics["mean_score_high"]) == (mean["low"], mean["high"])


def test_interval_of_other_records_is_left_out(journal: MadeJournal, uri: str) -> None:
    (journal.folder / "tables").mkdir()
    place = {"row": "palbert", "task": "rte"}
    for number, records in enumerate((["c" * 16], ["c" * 16, "d" * 16])):
        numbers = {"cells": [{**place, "records": records}], "means": [{**place, "low": 0.6, "high": 0.8}]}
        (journal.folder / "tables" / "dev.json").write_text(json.dumps(numbers))
        mirror(journal.folder, uri)
        assert ("mean_score_low" in stored_runs(uri)["palbert/rte"].data.metrics) == bool(number)


def test_every_run_and_point_is_there_once(journal: MadeJournal, uri: str) -> None:
    journal.end()
    mirror(journal.folder, uri)
    runs = stored_runs(uri)
    assert set(runs) == {"study", "palbert/rte", *(letter * 16 for letter in "abcdf")}
    trial = runs["a" * 16]
    assert trial.info.status == "FINISHED"
    assert trial.data.params == {
        "learning_rate": "2e-05",
        "batch_size": "32",
        "epochs": "3",
        "seed": "42",
    }
    assert [(step, value) for step, value, _ in curves(uri, trial)["epoch/score"]] == [(1, 0.5), (2, 0.7), (3, 0.6)]
    assert [(step, value) for step, value, _ in curves(uri, trial)["score"]] == [(0, None), (2, 0.7)]
    parents = {key: run.data.tags.get("mlflow.parentRunId") for key, run in runs.items()}
    assert parents["a" * 16] == runs["palbert/rte"].info.run_id
    assert parents["palbert/rte"] == runs["study"].info.run_id
    assert runs["b" * 16].info.status == "FINISHED" and runs["f" * 16].info.status == "FAILED"


def test_score_is_the_first_metric_of_a_trial(journal: MadeJournal, uri: str) -> None:
    """MLflow's page that compares runs opens with the metric that the store names first."""
    key = "e" * 16
    journal.start(key, phase="confirm", trial=2)
    journal.epoch(key, 1, 0.5)
    mirror(journal.folder, uri)
    first = stored_runs(uri)[key].data.metrics
    assert next(iter(first)) == "score" and math.isnan(first["score"])
    journal.finish(key)
    journal.end()
    mirror(journal.folder, uri)
    then = stored_runs(uri)[key].data.metrics
    assert next(iter(then)) == "score" and then["score"] == 0.5


def test_mirroring_again_changes_nothing(journal: MadeJournal, uri: str) -> None:
    journal.end()
    mirror(journal.folder, uri)
    before = content(uri)
    mirror(journal.folder, uri)
    assert content(uri) == before


def test_half_written_runs_are_completed_without_doubles(journal: MadeJournal, uri: str) -> None:
    from mlflow.tracking import MlflowClient

    journal.end()
    mirror(journal.folder, uri)
    before = content(uri)
    client = MlflowClient(tracking_uri=uri)
    for run in stored_runs(uri).values():
        client.set_tag(run.info.run_id, "content", "never finished")
    client.update_run(before["a" * 16][0], status="RUNNING")
    mirror(journal.folder, uri)
    assert content(uri) == before


def test_resumed_trial_stays_in_its_run(journal: MadeJournal, uri: str) -> None:
    key = "e" * 16
    journal.start(key, trial=3)
    journal.epoch(key, 1, 0.5)
    journal.end(status="interrupted")
    mirror(journal.folder, uri)
    first = stored_runs(uri)[key]
    assert first.info.status == "SCHEDULED"
    journal.begin(launch=2)
    journal.epoch(key, 2, 0.6)
    journal.finish(key)
    journal.end(launch=2)
    mirror(journal.folder, uri)
    second = stored_runs(uri)[key]
    assert (second.info.run_id, second.info.status) == (first.info.run_id, "FINISHED")
    assert [(step, value) for step, value, _ in curves(uri, second)["epoch/score"]] == [(1, 0.5), (2, 0.6)]


@pytest.mark.parametrize("is_followed", [True, False])
@pytest.mark.parametrize("again", [TrialRestarted, TrialReopened])
def test_trial_that_ran_again_has_the_curves_of_a_new_store(
    again: type, is_followed: bool, journal: MadeJournal, uri: str, empty_store: Path, tmp_path: Path
) -> None:
    """Whether one process writes both attempts, or another one does after a kill."""
    key, mirrored = "e" * 16, Mirror(journal.folder, uri)
    journal.start(key, trial=3)
    for epoch in (1, 2, 3):
        journal.epoch(key, epoch, 0.1 * epoch)
    mirrored.read()
    mirrored.write(final=False)
    if again is TrialReopened:
        journal.finish(key, error="boom")
        mirrored.read()
        mirrored.write(final=False)
    journal.append(again(time=journal.now(), key=key, reason="asked"))
    journal.epoch(key, 1, 0.5)
    if is_followed:
        mirrored.read()
        mirrored.write(final=False)
    journal.epoch(key, 2, 0.6)
    journal.finish(key)
    journal.end()
    mirror(journal.folder, uri)
    new = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'new.db')}"
    mirror(journal.folder, new)
    assert curves(uri, stored_runs(uri)[key]) == curves(new, stored_runs(new)[key])
    before = content(uri)
    mirror(journal.folder, uri)
    assert content(uri) == before


def test_torn_last_line_is_left_for_later(journal: MadeJournal, uri: str) -> None:
    journal.end()
    whole = (journal.folder / "events.jsonl").read_bytes()
    cut = whole.rstrip(b"\n").rfind(b"\n") + 20
    (journal.folder / "events.jsonl").write_bytes(whole[:cut])
    mirror(journal.folder, uri)
    assert (journal.folder / "events.jsonl").read_bytes() == whole[:cut]
    (journal.folder / "events.jsonl").write_bytes(whole)
    mirror(journal.folder, uri)
    assert stored_runs(uri)["study"].info.status == "FINISHED"


def test_tables_are_artifacts_of_the_study(journal: MadeJournal, uri: str) -> None:
    from mlflow.tracking import MlflowClient

    journal.end()
    (journal.folder / "tables").mkdir()
    (journal.folder / "tables" / "dev.md").write_text("| method | RTE |\n")
    mirror(journal.folder, uri)
    run = stored_runs(uri)["study"]
    assert run.data.tags["mlflow.note.content"] == "| method | RTE |\n"
    client = MlflowClient(tracking_uri=uri)
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["plan.json", "tables"]
    assert (journal.folder / "mlartifacts" / run.info.run_id / "artifacts" / "tables" / "dev.md").exists()


def test_studies_of_one_name_stay_apart(tmp_path: Path, uri: str) -> None:
    from mlflow.tracking import MlflowClient

    for seconds, owner in enumerate(("anna", "bert")):
        journal = planned(tmp_path / owner / "mine")
        journal.clock = seconds
        journal.begin()
        journal.whole_trial("a" * 16, [0.5])
        journal.end()
    for owner in ("anna", "bert"):
        mirror(tmp_path / owner / "mine", uri)
    client = MlflowClient(tracking_uri=uri)
    assert len(client.search_runs(["1"], "tags.level = 'study'")) == 2


def test_copy_in_the_same_store_is_not_compared(journal: MadeJournal, uri: str) -> None:
    journal.end()
    mirror(journal.folder, uri)
    original = journal.folder
    journal.folder = shutil.copytree(original, original.with_name("copy"))
    journal.begin(launch=2)
    journal.whole_trial("e" * 16, [0.5], phase="confirm", trial=2)
    journal.end(launch=2)
    mirror(journal.folder, uri)
    for study in (original, journal.folder):
        assert main([str(study), "--tracking-uri", uri, "--compare"]) == 0


def test_renamed_study_is_compared_with_its_former_experiment(journal: MadeJournal, uri: str) -> None:
    journal.end()
    mirror(journal.folder, uri)
    renamed = journal.folder.rename(journal.folder.with_name("renamed"))
    assert main([str(renamed), "--tracking-uri", uri, "--compare"]) == 0


def test_study_is_compared_in_a_store_of_many_experiments(
    journal: MadeJournal, uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow.tracking import MlflowClient

    journal.end()
    mirror(journal.folder, uri)
    MlflowClient(tracking_uri=uri).create_experiment("newer")
    search = partialmethod(MlflowClient.search_experiments, max_results=1)  # MLflow returns the newest 1000
    monkeypatch.setattr(MlflowClient, "search_experiments", search)
    assert main([str(journal.folder), "--tracking-uri", uri, "--compare"]) == 0
    assert capsys.readouterr().out == ""


# On the command line


def test_broken_line_in_the_middle_is_named(journal: MadeJournal, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (journal.folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (journal.folder / "events.jsonl").write_bytes(b"".join([*lines[:2], b'{"event": \n', *lines[2:]]))
    assert main([str(journal.folder)]) == 2
    assert "events.jsonl:3: the text is not a JSON object" in capsys.readouterr().err


def test_the_default_store_lies_in_the_study_folder(journal: MadeJournal) -> None:
    journal.end()
    assert main([str(journal.folder)]) == 0
    assert set(stored_runs(build_default_uri(journal.folder))) >= {"study"}


def test_copied_study_has_its_artifacts_in_its_own_folder(journal: MadeJournal, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient
    from mlflow.tracking._tracking_service import utils

    (journal.folder / "tables").mkdir()
    (journal.folder / "tables" / "dev.md").write_text("before\n")
    journal.end()
    mirror(journal.folder, build_default_uri(journal.folder))
    copy = shutil.copytree(journal.folder, tmp_path / "elsewhere" / journal.folder.name)
    (copy / "tables" / "dev.md").write_text("after\n")
    utils._artifact_repos_cache.clear()  # that of this process; each command is a process of its own
    uri = build_default_uri(copy)
    mirror(copy, uri)
    (old,) = (journal.folder / "mlartifacts").rglob("dev.md")
    (new,) = (copy / "mlartifacts").rglob("dev.md")
    assert (old.read_text(), new.read_text()) == ("before\n", "after\n")
    places = {run.info.artifact_uri for run in stored_runs(uri).values()}
    assert all(place.startswith((copy / "mlartifacts").as_uri()) for place in places)
    (experiment,) = (e for e in MlflowClient(tracking_uri=uri).search_experiments() if e.name == copy.name)
    assert experiment.artifact_location == (copy / "mlartifacts").as_uri()


@pytest.mark.long
def test_only_the_default_store_skips_disk_flushes(journal: MadeJournal, tmp_path: Path) -> None:
    """Other databases hold what no journal has."""
    uris = [build_default_uri(journal.folder), f"sqlite:///{tmp_path / 'mlflow.db'}"]
    levels = []
    for uri in uris:
        store = mirror(journal.folder, uri).connect().client._tracking_client.store
        with store.engine.connect() as connection:
            levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar())
    assert levels == [0, 2]  # OFF, FULL


def test_folder_without_a_study_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "has no events.jsonl" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_emptied_journal_is_refused_with_the_copy_to_restore(
    journal: MadeJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_copy(journal.folder)
    (journal.folder / FILE).write_bytes(b"")
    assert main([str(journal.folder)]) == 2
    assert f"to restore it: cp {journal.folder / COPY} {journal.folder / FILE}" in capsys.readouterr().err


def test_unknown_store_is_refused_in_one_line(journal: MadeJournal, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(journal.folder), "--tracking-uri", "carrier-pigeon://loft"]) == 2
    message = capsys.readouterr().err
    assert "is carrier-pigeon://loft; allowed: sqlite:///FILE, a server's URL" in message and message.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (["--compare", "--register"], "allowed: without --follow and --register"),
        (["--compare", "--follow"], "allowed: without --follow and --register"),
        (["--include", "methods"], "--include is methods; allowed: with --register"),
    ],
)
def test_options_that_exclude_each_other_are_refused(journal: MadeJournal, options, allowed, capsys) -> None:
    assert main([str(journal.folder), *options]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"{allowed}\n") and error.count("\n") == 1


def test_mirror_without_mlflow_is_refused_in_one_line(journal: MadeJournal, monkeypatch, capsys) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main([str(journal.folder)]) == 2
    error = capsys.readouterr().err
    assert says(error, "needs the package mlflow", "pip install ", "[train]'\n") and error.count("\n") == 1


def test_absent_server_is_reported_with_the_command(journal: MadeJournal, capsys: pytest.CaptureFixture[str]) -> None:
    journal.end()
    uri = f"http://127.0.0.1:{free_port()}"
    assert main([str(journal.folder), "--follow", "--tracking-uri", uri, "--patience", "0"]) == 1
    assert f"python -m study.mirror {journal.folder} --tracking-uri {uri}" in capsys.readouterr().err


def test_awaited_server_is_named_once(journal: MadeJournal, capsys: pytest.CaptureFixture[str]) -> None:
    journal.end()
    uri = f"http://127.0.0.1:{free_port()}"
    assert main([str(journal.folder), "--tracking-uri", uri, "--patience", "3"]) == 1
    waits, gives_up = capsys.readouterr().err.splitlines()
    assert waits.startswith(f"{uri} does not answer: ") and waits.endswith("; retrying for 3 s")
    assert gives_up.startswith(f"study.mirror: {uri} does not answer: ")


def test_driver_and_trials_go_before_the_mirror(tmp_path):
    own = psutil.Process().nice()
    follower = start_mirror(tmp_path, "sqlite:///nowhere.db")
    try:
        assert psutil.Process(follower.pid).nice() == min(own + MIRROR_NICENESS, 19)  # nobody may take niceness back
    finally:
        follower.kill()
        follower.wait()
