"""Where the states and models of trials are kept: pytest tests/test_storage.py"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from hand_made import record
from trials import spec_of

from study import doctor, launch
from study.record import Record, read_events, read_records
from study.storage import (
    STATE_NAME,
    TrialObjects,
    exists,
    join,
    local_model,
    make_writable,
    model_exists,
    place_at,
    storage_address,
    trial_address,
)
from study.trainable import MESSAGE, StudyTrainable
from trainables.runs.training import TrialSpec

ROOT = Path(__file__).parents[1]
SMALL = ["--method", "albert", "--task", "rte", "--samples", "1", "--seeds", "2", "--epochs", "3", "--profile", "mini"]
SMALL += ["--tracking-uri", "none"]


@pytest.fixture
def trial(tmp_path: Path) -> TrialObjects:
    place = place_at(trial_address(f"file://{tmp_path}/bucket", "key"))
    assert isinstance(place, TrialObjects)
    return place


def send(trial: TrialObjects, *, epoch: int) -> None:
    """A made-up state, told apart by its epoch."""
    with trial.work() as folder:
        for name in ("state.pt", "clock.json", f"model-epoch-{epoch}/model.json"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{epoch} " * 1000)
        (folder / "predictions.npz").write_text("answers")
        trial.send_state(folder, epoch=epoch)
        trial.send_outcome(folder / f"model-epoch-{epoch}")


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def ended(**values: str) -> Record:
    return Record.from_json(record("albert", "rte", 0.5) | values)


# ---- one trial


def test_the_newest_state_comes_back_whole_and_replaces_the_one_before(trial, tmp_path):
    for epoch in (1, 2, 10):
        send(trial, epoch=epoch)
    with trial.work() as folder:
        assert (
            (folder / "state.pt").read_text() == (folder / "model-epoch-10" / "model.json").read_text() == "10 " * 1000
        )
    states = [name for name in files_under(tmp_path / "bucket/trials/key") if STATE_NAME.fullmatch(name)]
    assert len(states) == 1 and states[0].startswith("state-10-")


def test_a_folder_of_the_node_is_gone_when_the_trial_is_let_go(trial):
    with trial.work() as folder:
        assert list(folder.iterdir()) == []
    assert not folder.parent.exists()


@pytest.mark.parametrize("part", [0, 0.5, 0.999])
def test_an_upload_that_breaks_off_leaves_the_state_before(trial, tmp_path, part):
    send(trial, epoch=2)
    (whole,) = tmp_path.rglob("state-2-*.zip")
    before = whole.read_bytes()
    send(trial, epoch=3)
    (torn,) = tmp_path.rglob("state-3-*.zip")
    torn.write_bytes(torn.read_bytes()[: int(part * torn.stat().st_size)])
    whole.write_bytes(before)  # the upload breaks off before the state before is deleted
    with trial.work() as folder:
        assert (folder / "state.pt").read_text() == "2 " * 1000
    send(trial, epoch=4)
    assert not torn.exists() and not whole.exists()


def test_a_completed_confirm_trial_keeps_its_model_and_nothing_else(trial, tmp_path):
    send(trial, epoch=2)
    trial.prune(ended(phase="confirm", status="completed"))
    assert files_under(tmp_path / "bucket") == ["trials/key/model-epoch-2/model.json"]


@pytest.mark.parametrize(
    "values", [{"phase": "search", "status": "completed"}, {"phase": "confirm", "status": "failed"}]
)
def test_of_any_other_trial_nothing_stays(trial, tmp_path, values):
    send(trial, epoch=2)
    trial.prune(ended(**values))
    trial.prune(ended(**values))  # again, after a launch that was killed here
    assert list((tmp_path / "bucket" / "trials").iterdir()) == []


def test_predictions_come_whole_into_the_studys_folder(trial, tmp_path):
    send(trial, epoch=1)
    (tmp_path / "predictions").mkdir()
    trial.fetch_predictions(tmp_path / "predictions" / "key.npz")
    assert [(path.name, path.read_text()) for path in (tmp_path / "predictions").iterdir()] == [("key.npz", "answers")]


def test_parameters_stay_at_the_end_of_an_address():
    address = trial_address("s3://bucket/runs/?scheme=http&endpoint_override=127.0.0.1:9000", "key")
    assert address == "s3://bucket/runs/trials/key?scheme=http&endpoint_override=127.0.0.1:9000"
    assert trial_address("/shared/runs", "key") == "/shared/runs/trials/key"


# ---- one trial, trained


def assignment(folder: str, spec: TrialSpec, *, predictions: str | None) -> dict[str, str]:
    where = {"folder": folder, "predictions": predictions}
    return {MESSAGE: json.dumps({"spec": asdict(spec), **where, "device": "cpu", "cpus": 1, "gpus": 0, "threads": 1})}


def rows_of(config: dict[str, str]) -> list[dict]:
    """What an actor reports of the trial, to its end."""
    actor, rows = StudyTrainable(config), []
    while not rows or not (rows[-1].get("finished") or "error" in rows[-1]):
        rows.append(json.loads(actor.step()[MESSAGE]))
    actor.cleanup()
    return rows


def without_times(row: dict) -> dict:
    if "outcome" in row:
        row = row | {"outcome": without_times(row["outcome"])}
    return {name: value for name, value in row.items() if not name.endswith("_seconds") and name != "model"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


# Trains one epoch, and is gone as a killed process is.
ONE_EPOCH = "import json, os, sys; from study.trainable import StudyTrainable as Trial\n"
ONE_EPOCH += "Trial(json.loads(sys.argv[1])).step(); os._exit(9)"


def test_a_trial_goes_on_in_another_process_from_the_uri_alone(tmp_path):
    spec = spec_of("palbert", "rte", config={"epochs": 3})
    whole = rows_of(assignment(str(tmp_path / "shared"), spec, predictions=str(tmp_path / "whole.npz")))
    address = f"file://{tmp_path}/bucket/trials/key"
    config = assignment(address, spec, predictions="predictions.npz")
    killed = subprocess.run(
        [sys.executable, "-c", ONE_EPOCH, json.dumps(config)], cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert killed.returncode == 9 and [path.name[:8] for path in tmp_path.rglob("state-*.zip")] == ["state-1-"]
    for leftover in tmp_path.glob("glue-exit-study-*"):
        shutil.rmtree(leftover)  # another node does not have it

    resumed = rows_of(config)
    assert [without_times(row) for row in resumed] == [without_times(row) for row in whole]
    place_at(address).fetch_predictions(tmp_path / "fetched.npz")
    assert filecmp.cmp(tmp_path / "fetched.npz", tmp_path / "whole.npz", shallow=False)
    with local_model(resumed[-1]["outcome"]["model"]) as model:
        match, differ, missing = filecmp.cmpfiles(
            model, whole[-1]["outcome"]["model"], ["model.safetensors", "model.json"], shallow=False
        )
    assert (match, differ, missing) == (["model.safetensors", "model.json"], [], [])


def test_a_trial_starts_from_a_model_under_a_uri_as_from_one_in_a_folder(tmp_path):
    spec = spec_of("albert", "rte", config={"epochs": 1})
    (source,) = rows_of(assignment(f"file://{tmp_path}/bucket/trials/a", spec, predictions="predictions.npz"))
    model = source["outcome"]["model"]
    assert model.startswith("file://") and model_exists(model)
    outcomes = []
    for name, place in (("uri", model), ("folder", model.removeprefix("file://"))):
        started = spec_of("albert", "mrpc", config={"epochs": 1}, start_from=place)
        (row,) = rows_of(assignment(str(tmp_path / name), started, predictions=str(tmp_path / "p.npz")))
        description = json.loads((Path(row["outcome"]["model"]) / "model.json").read_text())
        assert description["spec"]["start_from"] == place
        outcomes.append(without_times(row))
    assert outcomes[0] == outcomes[1]


def test_a_submission_from_models_under_a_uri_is_that_from_folders(tmp_path):
    from study.submit import main

    spec = spec_of("albert", "rte", config={"epochs": 1})
    (row,) = rows_of(assignment(f"file://{tmp_path}/bucket/trials/a", spec, predictions="predictions.npz"))
    for name, model in (("uri", row["outcome"]["model"]), ("folder", row["outcome"]["model"][7:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text('{"data": "mini"}')
        (tmp_path / name / "records.jsonl").write_text(json.dumps(record("albert", "rte", 0.7, model=model)) + "\n")
        assert main([str(tmp_path / name)]) == 0
    assert filecmp.cmp(tmp_path / "uri" / "submission.zip", tmp_path / "folder" / "submission.zip", shallow=False)


def test_a_model_that_is_gone_from_its_uri_is_one_line(tmp_path, capsys):
    from study.submit import main

    (tmp_path / "plan.json").write_text('{"data": "mini"}')
    gone = f"file://{tmp_path}/bucket/trials/a/model-epoch-1"
    (tmp_path / "records.jsonl").write_text(json.dumps(record("albert", "rte", 0.7, model=gone)) + "\n")
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith(f"(rte) is gone: {gone}\n")


# ---- what is refused


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("ftp://host/path", "--storage is a ftp address; allowed: a folder, file:///PATH, gs://BUCKET, s3://BUCKET"),
        ("s3://AKIA:SECRET@bucket/path", "--storage holds a user, a password or a port; allowed: s3://BUCKET/PATH"),
        ("s3://AKIA:SEC/RET@bucket/path", "--storage holds a user, a password or a port; allowed: s3://BUCKET/PATH"),
        ("s3://bucket/path?endpoint_override=a:SECRET@host", "--storage holds a user, a password or a port"),
        ("s3://bucket/path?access_key=A&secret_key=SECRET", "--storage has the parameter 'access_key'; allowed:"),
        ("s3://bucket?scheme=http&secret_key=SECRET", "'secret_key'; allowed: endpoint_override, region, scheme; cred"),
        ("file:///path?x=1", "--storage has the parameter 'x'; allowed: none"),
        ("file://runs/here", "--storage is file://runs/here; allowed: file:///PATH, from the root"),
        ("s3:///path", "--storage is s3:///path; allowed: s3://BUCKET/PATH"),
        ("file:///proc/nowhere", "file:///proc/nowhere/trials cannot be written: "),
    ],
)
def test_storage_that_cannot_be_is_refused_in_one_line_and_nothing_is_made(tmp_path, capsys, storage, message):
    out = tmp_path / "runs"
    assert launch.main(["--task", "rte", "--storage", storage, "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert "SECRET" not in printed.err and "RET@" not in printed.err and not out.exists()


def test_the_doctor_refuses_the_same_in_one_line(capsys):
    assert doctor.main(["--storage", "s3://AKIA:SECRET@bucket"]) == 2
    error = capsys.readouterr().err
    assert "--storage holds a user" in error and error.count("\n") == 1 and "SECRET" not in error


def test_the_doctor_writes_under_the_uri_and_looks_for_the_marker_of_the_driver(tmp_path):
    uri = f"file://{tmp_path}/bucket"
    (seen,) = doctor.check_objects(uri, None)
    assert not seen.is_fault and files_under(tmp_path) == []
    with doctor._marker(uri) as marker:
        assert marker and not doctor.check_objects(uri, marker)[0].is_fault
    (unseen,) = doctor.check_objects(uri, marker)
    assert unseen.is_fault and "not what the other nodes see" in unseen.text
    (refused,) = doctor.check_objects("file:///proc/nowhere", None)
    assert refused.is_fault and "cannot be written" in refused.text


# ---- whole studies


def command(folder: Path, *arguments: str) -> list[str]:
    where = ["--out", str(folder.parent), "--name", folder.name]
    return [sys.executable, "-m", "study.launch", *SMALL, *where, *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, *arguments), capture_output=True, text=True, cwd=ROOT, timeout=300)


def results(folder: Path) -> dict[str, tuple]:
    """What a study found, by the trial's arm, phase and number."""
    names = ("status", "config", "seed", "score", "selection_score", "metrics", "epoch", "epochs", "mean_layers")
    return {
        f"{row.method}/{row.task} {row.phase} {row.trial}": tuple(getattr(row, name) for name in names)
        for row in read_records(folder / "records.jsonl")
    }


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "in-folder"
    done = run(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def under_uri(tmp_path_factory) -> Path:
    """The same study, with its storage in `bucket` beside it."""
    folder = tmp_path_factory.mktemp("runs") / "under-uri"
    done = run(folder, "--storage", f"file://{folder.parent}/bucket")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_a_study_under_a_uri_finds_what_one_in_a_folder_finds(in_folder, under_uri):
    assert results(under_uri) == results(in_folder) and len(results(under_uri)) == 3
    assert not (under_uri / "trials").exists()
    confirmed = [row for row in read_records(under_uri / "records.jsonl") if row.phase == "confirm"]
    assert files_under(under_uri / "predictions") == sorted(f"{row.key}.npz" for row in confirmed)
    assert all(row.model and row.model.startswith("file://") and model_exists(row.model) for row in confirmed)
    models = {str(Path(name).parent) for name in files_under(under_uri.parent / "bucket")}
    assert models == {f"trials/{row.key}/model-epoch-{row.epoch}" for row in confirmed}


def cut_before_the_end_of_the_last_trial(under_uri: Path, folder: Path) -> str:
    """A copy of the study whose launcher died when a confirm trial had told all its epochs; the key of that trial."""
    shutil.copytree(under_uri.parent, folder.parent, dirs_exist_ok=True)
    events = read_events(folder)
    last = max(number for number, event in enumerate(events) if event["event"] == "trial_ended")
    key = events[last]["key"]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events[:last]))
    (folder / "records.jsonl").write_text(
        "".join(line for line in (folder / "records.jsonl").open() if json.loads(line)["key"] != key)
    )
    (folder / "predictions" / f"{key}.npz").rename(folder.parent / "bucket" / "trials" / key / "predictions.npz")
    return key


@pytest.mark.slow
def test_predictions_that_a_dead_launcher_had_not_fetched_come_at_the_next_launch(under_uri, tmp_path):
    folder = tmp_path / under_uri.name
    key = cut_before_the_end_of_the_last_trial(under_uri, folder)
    elsewhere = run(folder, "--storage", f"file://{tmp_path}/elsewhere")
    assert elsewhere.returncode == 2 and elsewhere.stderr.count("\n") == 1
    assert "--storage must be that of the launch that was interrupted" in elsewhere.stderr
    assert len(results(folder)) == 2

    done = run(folder, "--storage", f"file://{tmp_path}/bucket")
    assert done.returncode == 0 and "nothing is left to do" in done.stderr
    assert results(folder) == results(under_uri)
    files = f"predictions/{key}.npz"
    assert (folder / files).read_bytes() == (under_uri / files).read_bytes()
    assert files_under(tmp_path / "bucket") == files_under(under_uri.parent / "bucket")


@pytest.mark.slow
def test_a_model_under_a_uri_is_registered_as_one_in_a_folder(under_uri, tmp_path):
    from study.registration import save_model

    row = next(row for row in read_records(under_uri / "records.jsonl") if row.phase == "confirm")
    assert row.model
    save_model(row, tmp_path / "model")
    (weights,) = tmp_path.rglob("model.safetensors")
    assert filecmp.cmp(weights, Path(row.model.removeprefix("file://")) / "model.safetensors", shallow=False)


# ---- the S3 protocol


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket on an S3 server of this machine, over HTTP, as a URI with room for a path."""
    pytest.importorskip("moto", reason="moto, an S3 server in Python, is not installed")
    port = free_port()
    with pytest.MonkeyPatch.context() as environment, s3_server(port):
        environment.setenv("AWS_ACCESS_KEY_ID", "id")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "key")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield f"s3://bucket/{{}}?scheme=http&endpoint_override=127.0.0.1:{port}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def s3_server(port: int) -> Iterator[None]:
    """A server with one empty bucket."""
    where = ["-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-m", "moto.server", *where], **quiet)
    try:
        make_bucket(f"http://127.0.0.1:{port}/bucket", server)
        yield
    finally:
        server.terminate()
        server.wait()


def make_bucket(url: str, server: subprocess.Popen) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5)
            return
        except OSError:
            assert server.poll() is None
            time.sleep(0.1)
    raise TimeoutError(url)


@pytest.mark.slow
def test_a_study_on_s3_that_was_killed_goes_on_and_finds_the_same(s3, in_folder, tmp_path):
    folder, storage = tmp_path / "on-s3", s3.format("studies/mine")
    first = subprocess.Popen(
        command(folder, "--storage", storage), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        wait_for_epochs(folder, 2, first)
        first.send_signal(signal.SIGKILL)
    finally:
        first.kill()
        first.wait()
    under_way = {event["key"] for event in read_events(folder) if event["event"] == "epoch_reported"}
    assert all(exists(trial_address(storage, key)) for key in under_way)
    done = run(folder, "--storage", storage)
    assert done.returncode == 0, done.stderr
    assert results(folder) == results(in_folder)
    confirmed = [row for row in read_records(folder / "records.jsonl") if row.phase == "confirm"]
    assert files_under(folder / "predictions") == sorted(f"{row.key}.npz" for row in confirmed)
    for row in confirmed:
        assert row.model == join(storage, f"trials/{row.key}/model-epoch-{row.epoch}")
        assert model_exists(row.model) and not exists(join(storage, f"trials/{row.key}/predictions.npz"))


def wait_for_epochs(folder: Path, count: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while sum(event["event"] == "epoch_reported" for event in read_events(folder)) < count:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_a_trial_on_s3_keeps_what_one_in_a_folder_keeps(s3, tmp_path):
    place = place_at(trial_address(s3.format("one"), "key"))
    assert isinstance(place, TrialObjects)
    for epoch in (1, 2):
        send(place, epoch=epoch)
    with place.work() as folder:
        assert (folder / "state.pt").read_text() == "2 " * 1000
    with local_model(join(s3.format("one"), "trials/key/model-epoch-2")) as model:
        assert files_under(model) == ["model.json"]
    place.prune(ended(phase="confirm", status="completed"))
    assert [info.base_name for info in place._contents()] == ["model-epoch-1", "model-epoch-2"]
    place.prune(ended(phase="search", status="completed"))
    assert place._contents() == []


@pytest.mark.slow
def test_a_bucket_that_is_away_for_a_while_delays_a_trial_and_loses_nothing(s3, tmp_path):
    away, port = free_port(), s3.rpartition(":")[2]
    place = place_at(trial_address(s3.format("away").replace(port, str(away)), "key"))
    assert isinstance(place, TrialObjects)
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send, place, epoch=1)
        time.sleep(8)  # longer than pyarrow tries by itself
        assert not sending.done()
        with s3_server(away):
            sending.result(timeout=60)
            with place.work() as folder:
                assert (folder / "state.pt").read_text() == "1 " * 1000


@pytest.mark.slow
def test_a_bucket_that_is_not_there_or_does_not_answer_is_one_line(s3):
    make_writable(storage_address(s3.format("")))
    with pytest.raises(ValueError, match="^s3://nobody/x.* cannot be written: .*NO_SUCH_BUCKET[^\n]*$"):
        make_writable(s3.format("x").replace("s3://bucket", "s3://nobody"))
    with pytest.raises(ValueError, match="cannot be written: .*NETWORK_CONNECTION[^\n]*$"):
        make_writable("s3://bucket/x?scheme=http&endpoint_override=127.0.0.1:1")
    with pytest.raises(ValueError, match="^gs://bucket/x.* cannot be written: [^\n]*$"):
        make_writable("gs://bucket/x?scheme=http&endpoint_override=127.0.0.1:1&retry_limit_seconds=1")
