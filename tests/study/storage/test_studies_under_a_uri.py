"""Whole studies whose trials are kept under a URI: pytest tests/study/storage/test_studies_under_a_uri.py"""

from __future__ import annotations

import filecmp
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.edited_studies import read_event_lines, write_events
from helpers.launches import ONE_AT_A_TIME, WITHOUT_RAY
from helpers.made_studies import record
from helpers.places import PATIENCE_SECONDS, ROOT, free_port
from helpers.storages import address_of, files_under, s3_server, send

from study.facts.events import EpochReported, TrialEnded, read_events
from study.facts.study_facts import read_facts
from study.storage.addresses import exists, join, make_writable, resolve_storage_address
from study.storage.models import local_model, model_exists
from study.storage.trial_places import TrialObjects, open_place, trial_address

SMALL = ["--method", "albert", "--task", "rte", "--samples", "1", "--seeds", "2", "--epochs", "3", "--profile", "mini"]
SMALL += ["--tracking-uri", "none"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def command(folder: Path, *arguments: str) -> list[str]:
    where = ["--out", str(folder.parent), "--name", folder.name]
    return [sys.executable, "-m", "study.launch", *SMALL, *where, *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments), capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_SECONDS
    )


def results(folder: Path) -> dict[str, tuple]:
    """What a study found, by the trial's arm, phase and number."""
    names = ("status", "config", "seed", "score", "selection_score", "metrics", "epoch", "epochs", "mean_layers")
    return {
        f"{row.arm} {row.phase} {row.trial}": tuple(getattr(row, name) for name in names)
        for row in read_facts(folder).records
    }


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory) -> Path:
    """What the others are held against."""
    folder = tmp_path_factory.mktemp("runs") / "in-folder"
    done = run(folder, *WITHOUT_RAY)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def under_uri(tmp_path_factory) -> Path:
    """The same study on Ray, with its storage in `bucket` beside it."""
    folder = tmp_path_factory.mktemp("runs") / "under-uri"
    done = run(folder, "--storage", f"file://{folder.parent}/bucket", *ONE_AT_A_TIME)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
@pytest.mark.slow
def test_study_under_uri_equals_study_in_folder(in_folder, under_uri):
    assert results(under_uri) == results(in_folder) and len(results(under_uri)) == 3
    assert not (under_uri / "trials").exists()
    confirmed = [row for row in read_facts(under_uri).records if row.phase == "confirm"]
    assert files_under(under_uri / "predictions") == sorted(f"{row.key}.npz" for row in confirmed)
    assert all(row.model and row.model.startswith("file://") and model_exists(row.model) for row in confirmed)
    models = {str(Path(name).parent) for name in files_under(area_of(under_uri))}
    assert models == {f"trials/{row.key}/model-epoch-{row.epoch}" for row in confirmed}


def cut_before_the_end_of_the_last_trial(under_uri: Path, folder: Path) -> str:
    """A copy of the study whose launcher died when a confirm trial had told all its epochs; the key of that trial."""
    shutil.copytree(under_uri.parent, folder.parent, dirs_exist_ok=True)
    moved = str(under_uri.parent).encode(), str(folder.parent).encode()
    lines = [line.replace(*moved) for line in read_event_lines(folder)]
    last = max(number for number, event in enumerate(read_events(folder)) if isinstance(event, TrialEnded))
    key = read_events(folder)[last].key
    write_events(folder, lines[:last])
    (folder / "predictions" / f"{key}.npz").rename(area_of(folder) / "trials" / key / "predictions.npz")
    return key


def area_of(folder: Path) -> Path:
    """The folder in `bucket` with the study's trials."""
    return Path(address_of(folder).removeprefix("file://"))


@pytest.mark.long
@pytest.mark.slow
def test_unfetched_predictions_come_at_next_launch(under_uri, tmp_path):
    folder = tmp_path / under_uri.name
    key = cut_before_the_end_of_the_last_trial(under_uri, folder)
    elsewhere = run(folder, "--storage", f"file://{tmp_path}/elsewhere")
    assert elsewhere.returncode == 2 and elsewhere.stderr.count("\n") == 1
    assert f"allowed: --storage file://{tmp_path}/bucket" in elsewhere.stderr
    assert len(results(folder)) == 2

    done = run(folder, *WITHOUT_RAY)
    assert done.returncode == 0 and f"--storage is file://{tmp_path}/bucket" in done.stderr
    assert results(folder) == results(under_uri)
    files = f"predictions/{key}.npz"
    assert (folder / files).read_bytes() == (under_uri / files).read_bytes()
    assert files_under(tmp_path / "bucket") == files_under(under_uri.parent / "bucket")


@pytest.mark.long
@pytest.mark.slow
def test_model_under_uri_is_registered_like_a_folder(under_uri, tmp_path):
    from study.mlflow_mirror.tracking import save_model

    row = next(row for row in read_facts(under_uri).records if row.phase == "confirm")
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


@pytest.mark.long
@pytest.mark.slow
def test_killed_study_on_s3_continues_with_same_results(s3, in_folder, tmp_path):
    folder, storage = tmp_path / "on-s3", s3.format("studies/mine")
    stored = ["--storage", storage, *WITHOUT_RAY]
    first = subprocess.Popen(command(folder, *stored), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        wait_for_epochs(folder, 2, first)
        first.send_signal(signal.SIGKILL)
    finally:
        first.kill()
        first.wait()
    under_way = {event.key for event in read_events(folder) if isinstance(event, EpochReported)}
    assert all(exists(trial_address(address_of(folder), key)) for key in under_way)
    done = run(folder, *stored)
    assert done.returncode == 0, done.stderr
    assert results(folder) == results(in_folder)
    confirmed = [row for row in read_facts(folder).records if row.phase == "confirm"]
    assert files_under(folder / "predictions") == sorted(f"{row.key}.npz" for row in confirmed)
    for row in confirmed:
        assert row.model == join(address_of(folder), f"trials/{row.key}/model-epoch-{row.epoch}")
        assert model_exists(row.model) and not exists(join(address_of(folder), f"trials/{row.key}/predictions.npz"))


def wait_for_epochs(folder: Path, count: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(isinstance(event, EpochReported) for event in read_events(folder)) < count:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_a_trial_on_s3_keeps_what_one_in_a_folder_keeps(s3, tmp_path):
    place = open_place(trial_address(s3.format("one"), "key"))
    assert isinstance(place, TrialObjects)
    for epoch in (1, 2):
        send(place, epoch=epoch)
    with place.work() as folder:
        assert (folder / "state.pt").read_text() == "2 " * 1000
    with local_model(join(s3.format("one"), "trials/key/model-epoch-2"), None) as model:
        assert files_under(model) == ["model.json"]
    place.prune(record("albert", "rte", 0.5))
    assert [info.base_name for info in place._list_contents()] == ["model-epoch-1", "model-epoch-2"]
    place.prune(record("albert", "rte", 0.5, phase="search"))
    assert place._list_contents() == []


@pytest.mark.long
@pytest.mark.slow
def test_unreachable_bucket_delays_trial_without_loss(s3, tmp_path):
    away, port = free_port(), s3.rpartition(":")[2]
    place = open_place(trial_address(s3.format("away").replace(port, str(away)), "key"))
    assert isinstance(place, TrialObjects)
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send, place, epoch=1)
        time.sleep(8)  # longer than pyarrow tries by itself
        assert not sending.done()
        with s3_server(away):
            sending.result(timeout=PATIENCE_SECONDS)
            with place.work() as folder:
                assert (folder / "state.pt").read_text() == "1 " * 1000


@pytest.mark.slow
def test_missing_or_silent_bucket_is_one_line(s3):
    make_writable(resolve_storage_address(s3.format("")))
    with pytest.raises(ValueError, match=r"^s3://nobody/x.* cannot be written: .*NO_SUCH_BUCKET[^\n]*$"):
        make_writable(s3.format("x").replace("s3://bucket", "s3://nobody"))
    with pytest.raises(ValueError, match=r"cannot be written: .*NETWORK_CONNECTION[^\n]*$"):
        make_writable("s3://bucket/x?scheme=http&endpoint_override=127.0.0.1:1")
    with pytest.raises(ValueError, match=r"^gs://bucket/x.* cannot be written: [^\n]*$"):
        make_writable("gs://bucket/x?scheme=http&endpoint_override=127.0.0.1:1&retry_limit_seconds=1")
