"""A whole study on Ray, with MLflow on sqlite: pytest tests/study/test_whole_study.py"""

import csv
import json
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from statistics import median

import pytest
from helpers.launches import ONE_AT_A_TIME, WITHOUT_RAY
from helpers.places import PATIENCE_SECONDS, ROOT, free_port

from analysis import explain
from analysis.verify import verify
from study.facts.events import LaunchBegan, read_events
from study.facts.record import Record
from study.facts.study_facts import read_facts
from trainables.models.devices import device_name

pytestmark = pytest.mark.slow

SMALLEST = ["--method", "albert,palbert", "--task", "rte", "--seeds", "2", "--epochs", "2"]
SMALL = [*SMALLEST, "--samples", "2"]
# On a busy machine the launch takes more than a minute, and would measure times for another one.
RUN = """
import math, sys
from study import launch
from study.launching import child_processes
child_processes.TIMING_SECONDS = math.inf
sys.exit(launch.main())
"""


def command(folder: Path, *arguments: str, start: tuple[str, str] = ("-m", "study.launch")) -> list[str]:
    where = ["--out", str(folder.parent), "--name", folder.name]
    return [sys.executable, *start, *arguments, *where]


def launch(folder: Path, *arguments: str, **how: tuple[str, str]) -> subprocess.CompletedProcess:
    run = command(folder, *arguments, **how)
    return subprocess.run(run, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    done = launch(folder, *SMALL, start=("-c", RUN))
    assert done.returncode == 0, done.stderr
    assert "palbert" in done.stdout and "mlflow ui" in done.stdout
    return folder


def test_records_have_every_field_of_the_contract(study):
    rows = [json.loads(line) for line in (study / "records.jsonl").read_text().splitlines()]
    assert {tuple(row) for row in rows} == {Record.__struct_fields__}
    phases = Counter((row["method"], row["phase"]) for row in rows)
    assert phases == {(m, p): n for m in ("albert", "palbert") for p, n in (("search", 2), ("confirm", 2))}


def test_records_name_the_processor_and_the_threads_that_trained(study):
    devices = {record.device for record in read_facts(study).records}
    assert devices == {f"{device_name('cpu')}, 1 thread"}


def test_the_cell_is_the_median_of_the_confirm_scores(study):
    scores = {}
    for record in read_facts(study).records:
        if record.phase == "confirm":
            scores.setdefault(record.method, []).append(record.score)
    with (study / "tables" / "dev.csv").open() as file:
        cells = {row["method"]: row["rte"] for row in csv.DictReader(file) if row["source"] == "ours"}
    assert {method: float(cell) for method, cell in cells.items()} == {
        method: pytest.approx(100 * median(values), abs=0.051) for method, values in scores.items()
    }


def test_confirm_trials_keep_model_and_predictions_and_search_trials_nothing(study):
    for record in read_facts(study).records:
        predictions = study / "predictions" / f"{record.key}.npz"
        assert predictions.exists() == bool(record.text_flops) == (record.phase == "confirm")
        if record.phase == "confirm":
            assert (Path(record.model) / "model.safetensors").exists()
        else:
            assert not (study / "trials" / record.key).exists()


def test_what_the_launch_wrote_verifies_and_every_cell_is_explained(study, capsys):
    assert verify(study) == []
    for method in ("albert", "palbert"):
        assert explain.main([str(study), f"{method}/rte"]) == 0
    text = capsys.readouterr().out
    assert all(record.key in text for record in read_facts(study).records if record.phase == "confirm")


def test_every_trial_is_in_mlflow(study):
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{study / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    keys = [run.data.tags.get("key") for run in client.search_runs(experiments, max_results=1000)]
    recorded = {record.key for record in read_facts(study).records}
    assert recorded <= set(keys) and max(Counter(filter(None, keys)).values()) == 1


def test_every_search_trial_is_in_optunas_journal_as_what_it_is(study):
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(study / "optuna.journal")))
    states = {"completed": "COMPLETE", "stopped": "PRUNED", "failed": "FAIL"}
    for method in ("albert", "palbert"):
        trials = optuna.load_study(study_name=f"{method}/rte", storage=storage).trials
        records = [r for r in read_facts(study).records if (r.method, r.phase) == (method, "search")]
        found = {trial.user_attrs["key"]: (trial.state.name, len(trial.intermediate_values)) for trial in trials}
        assert found == {record.key: (states[record.status], record.epochs) for record in records}
        numbers = {record.key: record.trial for record in records}
        assert [trial.number for trial in trials] == [numbers[trial.user_attrs["key"]] for trial in trials]


@pytest.mark.long
def test_optuna_dashboard_opens_the_journal(study):
    port = free_port()
    command = [Path(sys.executable).with_name("optuna-dashboard"), study / "optuna.journal", "--port", str(port)]
    server = subprocess.Popen([*map(str, command), "--host", "127.0.0.1"], stderr=subprocess.DEVNULL)
    try:
        answer = json.loads(fetch(f"http://127.0.0.1:{port}/api/studies", server))
    finally:
        server.terminate()
        server.wait()
    assert {summary["study_name"] for summary in answer["study_summaries"]} == {"albert/rte", "palbert/rte"}


def fetch(url: str, server: subprocess.Popen) -> bytes:
    """What the server answers, once it does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            return urllib.request.urlopen(url, timeout=5).read()
        except OSError:
            assert server.poll() is None
            time.sleep(0.1)
    raise TimeoutError(url)


@pytest.mark.long
def test_same_command_runs_nothing_more_samples_run_rest(study):
    events = (study / "events.jsonl").read_text()
    again = launch(study, *SMALL)
    assert again.returncode == 0 and "nothing is left to do" in again.stderr
    assert (study / "events.jsonl").read_text() == events
    before = {record.key for record in read_facts(study).records}
    assert launch(study, *SMALLEST, "--samples", "3").returncode == 0
    records = read_facts(study).records
    assert len({record.key for record in records}) == len(records) and before < {record.key for record in records}
    search = Counter(record.method for record in records if record.phase == "search")
    assert search == {"albert": 3, "palbert": 3}


@pytest.mark.long
def test_an_interrupted_study_is_continued_by_the_same_command(tmp_path):
    folder = tmp_path / "interrupted"
    one_method = ["--method", "albert", *SMALL[2:], "--tracking-uri", "none", *ONE_AT_A_TIME]
    first = subprocess.Popen(
        command(folder, *one_method), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        wait_for_event(folder, "epoch_reported", first)
        first.send_signal(signal.SIGINT)
        printed, errors = first.communicate(timeout=PATIENCE_SECONDS)
    finally:
        first.kill()
    assert first.returncode == 1 and "continue:" in printed, errors
    assert json.loads((folder / "events.jsonl").read_text().splitlines()[-1])["status"] == "drained"
    done = launch(folder, *one_method)
    assert done.returncode == 0, done.stderr
    keys = [record.key for record in read_facts(folder).records]
    assert len(keys) == len(set(keys)) == 4
    assert verify(folder) == []


@pytest.mark.long
def test_full_disk_during_trials_ends_launch_in_one_line(tmp_path):
    """A file size limit on the running launcher stands in for the disk."""
    folder = tmp_path / "full"
    process = subprocess.Popen(
        command(folder, *SMALL, "--tracking-uri", "none", *WITHOUT_RAY), stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        wait_for_event(folder, "epoch_reported", process)
        size = (folder / "events.jsonl").stat().st_size + 50
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 1 and "Traceback" not in errors, errors
    assert "is the disk full?; all files are complete; to continue, run the same command" in errors.splitlines()[-1]
    assert isinstance(read_events(folder)[0], LaunchBegan)


def wait_for_event(folder: Path, name: str, process: subprocess.Popen) -> None:
    events = folder / "events.jsonl"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (events.exists() and f'"event":"{name}"' in events.read_text()):
        assert process.poll() is None and time.monotonic() < deadline, os.strerror(process.returncode or 0)
        time.sleep(0.1)
