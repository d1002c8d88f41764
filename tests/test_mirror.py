"""The MLflow mirror, on journals written by hand: pytest tests/test_mirror.py"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hand_made_journal import HandMadeJournal

from study.mirror import main, mirror
from study.mirrored_runs import StudyFacts, StudyRuns
from study.tracking import default_uri, masked

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def journal(tmp_path: Path) -> HandMadeJournal:
    """Two search trials (one stopped by ASHA), two confirm trials, and a failed one."""
    journal = HandMadeJournal(tmp_path / "runs" / "mine")
    journal.begin()
    journal.whole_trial("a" * 16, [0.5, 0.7, 0.6])
    journal.start("b" * 16, trial=1)
    journal.epoch("b" * 16, 1, 0.4)
    decision = {"rung": 1, "score": 0.4, "cutoff": 0.5, "recorded": 1, "decision": "stop"}
    journal.append("asha_decided", key="b" * 16, method="palbert", task="rte", **decision)
    journal.finish("b" * 16, score=0.4, epoch=1, status="stopped")
    journal.start("f" * 16, trial=2)
    journal.append("trial_retried", key="f" * 16, error="RuntimeError: node gone", failures=1)
    journal.finish("f" * 16, score=None, epoch=None, status="failed", error="loss is nan at step 3, learning rate 1.0")
    journal.whole_trial("c" * 16, [0.5, 0.6], phase="confirm", trial=0)
    journal.whole_trial("d" * 16, [0.5, 0.8], phase="confirm", trial=1)
    return journal


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose tables are made: MLflow takes a second for them."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    """An empty store on sqlite."""
    return f"sqlite:///{shutil.copy(empty_store, tmp_path)}"


def stored_runs(uri: str, name: str = "mine") -> dict[str, Any]:
    """Every MLflow run of the experiment, by its key; an error where a key is there twice."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    by_key = {run.data.tags["key"]: run for run in runs}
    assert len(by_key) == len(runs)
    return by_key


def curves(uri: str, run: Any) -> dict[str, list[tuple[int, float, int]]]:
    """(step, value, time) of every point of every curve of `run`."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return {
        name: sorted(
            (point.step, point.value, point.timestamp) for point in client.get_metric_history(run.info.run_id, name)
        )
        for name in run.data.metrics
    }


def content(uri: str) -> dict[str, Any]:
    """All that the store says of a study, for comparing before with after."""
    return {
        key: (run.info.run_id, run.info.status, run.info.end_time, run.data.params, run.data.tags, curves(uri, run))
        for key, run in stored_runs(uri).items()
    }


# What a run looks like


def runs_of(journal: HandMadeJournal) -> StudyRuns:
    facts = StudyFacts()
    for line in journal.path.read_text().splitlines():
        facts.apply(json.loads(line))
    return StudyRuns("mine", json.loads((journal.folder / "plan.json").read_text()), facts)


def test_runs_have_names_a_person_understands(journal: HandMadeJournal) -> None:
    runs = runs_of(journal)
    assert runs.study(files={}, note="").name == "mine"
    assert runs.arm("palbert", "rte").name == "palbert / rte"
    assert runs.trial("b" * 16).name == "search 1 · palbert / rte"


@pytest.mark.parametrize(
    ("key", "status", "note"),
    [
        ("a", "completed", "Score 0.7000 at epoch 2 of 3."),
        ("b", "stopped", "Stopped by ASHA after epoch 1: score 0.4000, the cutoff of 1 earlier trials was 0.5000."),
        ("f", "failed", "Failed: loss is nan at step 3, learning rate 1.0"),
    ],
)
def test_a_trial_says_what_became_of_it(journal: HandMadeJournal, key: str, status: str, note: str) -> None:
    run = runs_of(journal).trial(key * 16)
    assert (run.status, run.tags["mlflow.note.content"]) == (status, note)


def test_a_trial_cut_off_with_its_launch_waits_for_the_next(journal: HandMadeJournal) -> None:
    journal.start("e" * 16, trial=3)
    assert runs_of(journal).trial("e" * 16).status == "running"
    journal.end(status="interrupted")
    assert runs_of(journal).trial("e" * 16).status == "interrupted"
    journal.begin(launch=2)
    assert runs_of(journal).trial("e" * 16).status == "interrupted"
    journal.start("e" * 16, trial=3, launch=2)
    assert runs_of(journal).trial("e" * 16).status == "running"


def test_a_launch_whose_process_is_gone_is_over(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    journal = HandMadeJournal(tmp_path / "mine")
    journal.begin(pid=gone.pid)
    journal.start("e" * 16)
    assert runs_of(journal).trial("e" * 16).status == "interrupted"


def test_an_epoch_reported_again_after_a_crash_counts_once(journal: HandMadeJournal) -> None:
    before = runs_of(journal).trial("a" * 16).points
    journal.epoch("a" * 16, 2, 0.7)
    assert runs_of(journal).trial("a" * 16).points == before


def test_an_arm_shows_the_median_of_its_confirm_trials_once_all_are_there(journal: HandMadeJournal) -> None:
    points = {point.name: point.value for point in runs_of(journal).arm("palbert", "rte").points}
    assert points == {"score": 0.7, "mean_layers": 9.5}


def test_a_study_shows_the_median_of_each_complete_arm(journal: HandMadeJournal) -> None:
    journal.start("9" * 16, arm="pabee/rte")
    points = {point.name: point.value for point in runs_of(journal).study(files={}, note="").points}
    assert points == {"palbert/rte": 0.7}


def test_the_password_of_a_uri_is_masked() -> None:
    assert masked("no route to http://anna:secret@host:5000/x") == "no route to http://anna:***@host:5000/x"
    assert masked("sqlite:////home/a:b/mlflow.db") == "sqlite:////home/a:b/mlflow.db"


# Into a store on sqlite


def test_every_run_parameter_and_point_is_there_once(journal: HandMadeJournal, uri: str) -> None:
    journal.end()
    mirror(journal.folder, uri)
    runs = stored_runs(uri)
    assert set(runs) == {"study", "palbert/rte", *(letter * 16 for letter in "abcdf")}
    trial = runs["a" * 16]
    assert trial.info.status == "FINISHED"
    assert trial.data.params == {
        "learning_rate": "2e-05",
        "batch_size": "32",
        "exit": "q",
        "epochs": "3",
        "seed": "42",
    }
    assert [(step, value) for step, value, _ in curves(uri, trial)["epoch/score"]] == [(1, 0.5), (2, 0.7), (3, 0.6)]
    assert [(step, value) for step, value, _ in curves(uri, trial)["score"]] == [(2, 0.7)]
    parents = {key: run.data.tags.get("mlflow.parentRunId") for key, run in runs.items()}
    assert parents["a" * 16] == runs["palbert/rte"].info.run_id
    assert parents["palbert/rte"] == runs["study"].info.run_id
    assert runs["b" * 16].info.status == "KILLED" and runs["f" * 16].info.status == "FAILED"


def test_mirroring_again_changes_nothing(journal: HandMadeJournal, uri: str) -> None:
    journal.end()
    mirror(journal.folder, uri)
    before = content(uri)
    mirror(journal.folder, uri)
    assert content(uri) == before


def test_what_a_lost_writer_left_half_done_is_completed_without_doubles(journal: HandMadeJournal, uri: str) -> None:
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


def test_a_continued_trial_goes_on_in_its_own_run(journal: HandMadeJournal, uri: str) -> None:
    key = "e" * 16
    journal.start(key, trial=3)
    journal.epoch(key, 1, 0.5)
    journal.end(status="interrupted")
    mirror(journal.folder, uri)
    first = stored_runs(uri)[key]
    assert first.info.status == "SCHEDULED"
    journal.begin(launch=2)
    journal.start(key, trial=3, launch=2)
    journal.epoch(key, 2, 0.6)
    journal.finish(key, score=0.6, epoch=2)
    journal.end(launch=2)
    mirror(journal.folder, uri)
    second = stored_runs(uri)[key]
    assert (second.info.run_id, second.info.status) == (first.info.run_id, "FINISHED")
    assert [(step, value) for step, value, _ in curves(uri, second)["epoch/score"]] == [(1, 0.5), (2, 0.6)]


def test_a_torn_last_line_is_left_for_later(journal: HandMadeJournal, uri: str) -> None:
    journal.end()
    whole = journal.path.read_bytes()
    cut = whole.rstrip(b"\n").rfind(b"\n") + 20
    journal.path.write_bytes(whole[:cut])
    mirror(journal.folder, uri)
    assert journal.path.read_bytes() == whole[:cut]
    journal.path.write_bytes(whole)
    mirror(journal.folder, uri)
    assert stored_runs(uri)["study"].info.status == "FINISHED"


def test_tables_are_artifacts_and_the_description_of_the_study(journal: HandMadeJournal, uri: str) -> None:
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


def test_two_studies_of_one_name_stay_apart_in_one_store(tmp_path: Path, uri: str) -> None:
    from mlflow.tracking import MlflowClient

    for seconds, owner in enumerate(("anna", "bert")):
        journal = HandMadeJournal(tmp_path / owner / "mine")
        journal.seconds = seconds
        journal.begin()
        journal.whole_trial("a" * 16, [0.5])
        journal.end()
    for owner in ("anna", "bert"):
        mirror(tmp_path / owner / "mine", uri)
    client = MlflowClient(tracking_uri=uri)
    assert len(client.search_runs(["1"], "tags.level = 'study'")) == 2


# On the command line


def test_a_broken_line_in_the_middle_is_named(journal: HandMadeJournal, capsys: pytest.CaptureFixture[str]) -> None:
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join([*lines[:2], b'{"event": \n', *lines[2:]]))
    assert main([str(journal.folder)]) == 1
    assert "events.jsonl:3: not a JSON object" in capsys.readouterr().err


def test_the_default_store_lies_in_the_study_folder(journal: HandMadeJournal) -> None:
    journal.end()
    assert main([str(journal.folder)]) == 0
    assert set(stored_runs(default_uri(journal.folder))) >= {"study"}


def test_a_folder_without_a_study_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no events.jsonl" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_no_one_knows_is_refused_in_one_line(
    journal: HandMadeJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(journal.folder), "--tracking-uri", "carrier-pigeon://anna:secret@loft"]) == 1
    message = capsys.readouterr().err
    assert "refuses" in message and "secret" not in message and message.count("\n") == 1


def test_without_a_server_it_says_how_to_mirror_later(
    journal: HandMadeJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.end()
    uri = f"http://127.0.0.1:{free_port()}"
    assert main([str(journal.folder), "--follow", "--tracking-uri", uri, "--patience", "0"]) == 1
    assert f"python -m study.mirror {journal.folder} --tracking-uri {uri}" in capsys.readouterr().err


# With a real server that comes and goes


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A real `mlflow server` on loopback that can be killed and started again on the same store."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port)]
        store = ["--backend-store-uri", f"sqlite:///{self._folder / 'server.db'}", "--workers", "1"]
        artifacts = ["--artifacts-destination", str(self._folder / "artifacts")]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command + store + artifacts, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, seconds=90)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.uri}/health", timeout=2).status == 200
        except OSError:
            return False


def wait_until(condition: Callable[[], bool], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.kill()


@pytest.mark.slow
def test_an_outage_of_the_server_delays_the_mirror_and_loses_nothing(tmp_path: Path, server: Server) -> None:
    server.start()
    journal = HandMadeJournal(tmp_path / "mine")
    journal.begin()
    journal.whole_trial("a" * 16, [0.5, 0.6])
    command = [sys.executable, "-m", "study.mirror", str(journal.folder), "--tracking-uri", server.uri, "--follow"]
    follower = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: is_mirrored(server.uri, "a" * 16), seconds=60)
    server.kill()
    journal.start("b" * 16, trial=1)
    for epoch in (1, 2, 3):
        journal.epoch("b" * 16, epoch, 0.1 * epoch)
        time.sleep(0.7)
    server.start()
    wait_until(lambda: is_mirrored(server.uri, "b" * 16), seconds=60)
    journal.finish("b" * 16, score=0.3, epoch=3)
    journal.whole_trial("c" * 16, [0.7, 0.5], phase="confirm")
    journal.whole_trial("d" * 16, [0.7, 0.5], phase="confirm", trial=1)
    journal.end()
    output, _ = follower.communicate(timeout=90)
    assert follower.returncode == 0 and "mirrored 4 trials" in output
    runs = stored_runs(server.uri)
    assert {key: run.info.status for key, run in runs.items()} == dict.fromkeys(
        ["study", "palbert/rte", *(letter * 16 for letter in "abcd")], "FINISHED"
    )
    assert [step for step, _, _ in curves(server.uri, runs["b" * 16])["epoch/score"]] == [1, 2, 3]
    assert all(len(points) == 2 for name, points in curves(server.uri, runs["c" * 16]).items() if "/" in name)
    before = content(server.uri)
    assert main([str(journal.folder), "--tracking-uri", server.uri]) == 0
    assert content(server.uri) == before


def is_mirrored(uri: str, key: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        return key in stored_runs(uri)
    except (AssertionError, MlflowException):
        return False
