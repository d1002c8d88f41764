"""What a trial keeps under a URI and in a folder: pytest tests/study/storage/test_trial_places.py"""

from __future__ import annotations

import fcntl
import filecmp
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from helpers.bit_flips import flip_bit
from helpers.made_studies import arm, record, write_study
from helpers.places import ROOT
from helpers.storages import files_under, send
from helpers.trials import expected_of, spec_of
from msgspec.structs import replace

from study.drivers.messages import AssignedTrial, Assignment
from study.drivers.worker import Worker
from study.facts.events import Report
from study.facts.record import Record
from study.storage.models import DamagedModel, local_model, model_exists
from study.storage.trial_places import STATE_NAME, NotShared, TrialObjects, open_place, trial_address
from trainables.files.sources import hash_folder
from trainables.runs.trial import TrialSpec


@pytest.fixture
def trial(tmp_path: Path) -> TrialObjects:
    place = open_place(trial_address(f"file://{tmp_path}/bucket", "key"))
    assert isinstance(place, TrialObjects)
    return place


def ended(**values: str) -> Record:
    return replace(record("albert", "rte", 0.5), **values)


@pytest.mark.parametrize("storage", ["", "file://"])
@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "tokenizer.json"])
def test_a_model_with_one_flipped_bit_is_not_read(tmp_path, storage, name):
    model = tmp_path / "model-epoch-2"
    model.mkdir()
    for file in ("model.safetensors", "model.json", "tokenizer.json"):
        (model / file).write_bytes(file.encode())
    digest, address = hash_folder(model), f"{storage}{model}"
    with local_model(address, digest) as folder:
        assert hash_folder(folder) == digest
    flip_bit(model / name, random.Random(3))
    with local_model(address, None):  # an older version stored no digest
        pass
    with pytest.raises(DamagedModel) as refused, local_model(address, digest):
        pass
    expected = (
        f"{address} was damaged: its files do not match the digest in the journal; restore the folder from a copy"
    )
    assert str(refused.value) == expected


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


@pytest.mark.parametrize("locks", [True, False])
def test_frozen_process_loses_its_trial_and_writes_no_more(tmp_path, monkeypatch, locks):
    """Both places stand for processes: a lock is of whoever has opened the file."""
    monkeypatch.setattr("study.storage.trial_places.HELD_SECONDS", 0.2)
    if not locks:  # as on NFS that is mounted without them
        monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    frozen, other = (open_place(trial_address(str(tmp_path), "key")) for _ in range(2))
    (tmp_path / "trials").mkdir()
    with frozen.work() as folder:
        frozen.check_held(folder)
        with other.work() as same:
            assert same == folder
            other.check_held(folder)
            with pytest.raises(
                NotShared, match="is in use by another process, which assumed that this process had ended"
            ):
                frozen.check_held(folder)
        other.prune(ended(phase="confirm", status="completed"))
        with pytest.raises(NotShared):  # so it cannot replace the model of the trial, which has ended
            frozen.check_held(folder)


def test_trial_is_waited_for_while_its_process_leaves(tmp_path, monkeypatch):
    (tmp_path / "trials").mkdir()
    leaving, other = (open_place(trial_address(str(tmp_path), "key")) for _ in range(2))
    leaves = leaving.work()
    folder = leaves.__enter__()

    def leave(_):
        leaving.check_held(folder)  # nobody has taken it over
        leaves.__exit__(None, None, None)

    monkeypatch.setattr("study.storage.trial_places.time.sleep", leave)
    with other.work():
        other.check_held(folder)


def test_node_folder_is_removed_after_release(trial):
    with trial.work() as folder:
        assert list(folder.iterdir()) == []
    assert not folder.parent.exists()


def test_flipped_bit_in_state_is_repaired_or_refused(trial, tmp_path):
    send(trial, epoch=2)
    (archive,) = tmp_path.rglob("state-2-*.zip")
    with trial.work() as folder:
        whole = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    content, draw = archive.read_bytes(), random.Random(4)
    for _ in range(200):
        archive.write_bytes(content)
        bit = flip_bit(archive, draw)
        with trial.work() as folder:
            found = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            assert found in ({}, whole), bit


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


def test_restarted_trial_replaces_later_states(trial, tmp_path):
    send(trial, epoch=5)
    with trial.work() as folder:  # in which the trial starts again
        for epoch in (1, 2):
            (folder / "state.pt").write_text(f"restarted, {epoch}")
            trial.send_state(folder, epoch=epoch)
    with trial.work() as folder:
        assert (folder / "state.pt").read_text() == "restarted, 2"
    assert len([*tmp_path.rglob("state-*.zip")]) == 1


def test_stale_process_keeps_the_states_of_its_successor(trial, tmp_path):
    stale = open_place(trial_address(f"file://{tmp_path}/bucket", "key"))
    send(trial, epoch=5)
    with stale.work() as folder:  # starts again, but is slow
        send(trial, epoch=6)
        (folder / "state.pt").write_text("restarted")
        stale.send_state(folder, epoch=1)
    with trial.work() as folder:
        assert (folder / "state.pt").read_text() == "6 " * 1000


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


def assignment(place: str, spec: TrialSpec, *, predictions: str | None) -> Assignment:
    where = {"place": place, "predictions": predictions}
    trial = AssignedTrial(key="key", spec=spec, expected=expected_of(spec), epochs=0, **where)
    return Assignment(trial=trial, device="cpu", cpus=1, gpus=0, threads=1)


def reports_of(assignment: Assignment) -> list[Report]:
    """What a worker reports of the trial, to its end."""
    worker, reports = Worker(), []
    worker.begin(assignment, node=None)
    while not reports or not reports[-1].row.finished:
        message = worker.step()
        if message.key is None:  # progress within a slow epoch
            continue
        assert message.report, message.failure
        reports.append(message.report)
    worker.release()
    return reports


def without_times(report: Report) -> Report:
    """Nor with what a process attests with the first epoch that it trains."""
    nothing = {"train_seconds": 0.0, "eval_seconds": 0.0}
    outcome = report.outcome and replace(report.outcome, model=None)
    row = replace(report.row, **nothing)
    return replace(report, row=row, outcome=outcome, wall_seconds=0.0, gpu_seconds=0.0, attested=None)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


# Trains one epoch, and is gone as a killed process is.
ONE_EPOCH = "import os, sys; from study.drivers import worker; from study.drivers.messages import ASSIGNMENTS\n"
ONE_EPOCH += "worker.PAUSE_SECONDS = 3600.0\n"  # on a busy machine, an epoch would otherwise take several steps
ONE_EPOCH += "mine = worker.Worker(); mine.begin(ASSIGNMENTS.read(sys.argv[1].encode(), where='it'), node=None)\n"
ONE_EPOCH += "mine.step(); os._exit(9)"


@pytest.mark.long
@pytest.mark.slow
def test_a_trial_goes_on_in_another_process_from_the_uri_alone(tmp_path):
    spec = spec_of("palbert", "rte", config={"epochs": 3})
    whole = reports_of(assignment(str(tmp_path / "shared"), spec, predictions=str(tmp_path / "whole.npz")))
    address = f"file://{tmp_path}/bucket/trials/key"
    config = assignment(address, spec, predictions="predictions.npz")
    command = [sys.executable, "-c", ONE_EPOCH, msgspec.json.encode(config).decode()]
    killed = subprocess.run(command, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert killed.returncode == 9 and [path.name[:8] for path in tmp_path.rglob("state-*.zip")] == ["state-1-"]
    for leftover in tmp_path.glob("glue-exit-study-*"):
        shutil.rmtree(leftover)  # another node does not have it

    resumed = reports_of(config)
    assert [without_times(one) for one in resumed] == [without_times(one) for one in whole]
    open_place(address).fetch_predictions(tmp_path / "fetched.npz")
    assert filecmp.cmp(tmp_path / "fetched.npz", tmp_path / "whole.npz", shallow=False)
    with local_model(resumed[-1].outcome.model, whole[-1].outcome.model_digest) as model:
        match, differ, missing = filecmp.cmpfiles(
            model, whole[-1].outcome.model, ["model.safetensors", "model.json"], shallow=False
        )
    assert (match, differ, missing) == (["model.safetensors", "model.json"], [], [])


@pytest.mark.slow
def test_trial_starts_from_uri_as_from_folder(tmp_path):
    spec = spec_of("albert", "rte", config={"epochs": 1})
    (source,) = reports_of(assignment(f"file://{tmp_path}/bucket/trials/a", spec, predictions="predictions.npz"))
    model = source.outcome.model
    assert model.startswith("file://") and model_exists(model)
    outcomes = []
    for name, place in (("uri", model), ("folder", model.removeprefix("file://"))):
        started = spec_of("albert", "mrpc", config={"epochs": 1}, start=place)
        (report,) = reports_of(assignment(str(tmp_path / name), started, predictions=str(tmp_path / "p.npz")))
        description = json.loads((Path(report.outcome.model) / "model.json").read_text())
        assert description["spec"]["start"] == place
        outcomes.append(without_times(replace(report, outcome=replace(report.outcome, model_digest=None))))
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_a_submission_from_models_under_a_uri_is_that_from_folders(tmp_path):
    from study.submit import main

    spec = spec_of("albert", "rte", config={"epochs": 1})
    (report,) = reports_of(assignment(f"file://{tmp_path}/bucket/trials/a", spec, predictions="predictions.npz"))
    model = report.outcome.model
    for name, place in (("uri", model), ("folder", model.removeprefix("file://"))):
        write_study(tmp_path / name, arm("albert", "rte", [0.7], model=place), data="mini")
        assert main([str(tmp_path / name)]) == 0
    assert filecmp.cmp(tmp_path / "uri" / "submission.zip", tmp_path / "folder" / "submission.zip", shallow=False)


def test_a_model_that_is_gone_from_its_uri_is_one_line(tmp_path, capsys):
    from study.submit import main

    gone = f"file://{tmp_path}/bucket/trials/a/model-epoch-1"
    write_study(tmp_path, arm("albert", "rte", [0.7], model=gone), data="mini")
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith(f"(rte) no longer exists: {gone}\n")


def test_model_lost_at_trial_end_is_a_fault(tmp_path):
    place, model = open_place(str(tmp_path)), tmp_path / "model-epoch-1"
    with pytest.raises(FileNotFoundError, match="model-epoch-1 is missing"):
        place.send_outcome(model)
    model.mkdir()
    assert place.send_outcome(model) == str(model)
