"""The end of a trial whose launcher died: pytest tests/study/drivers/test_trial_end.py"""

from __future__ import annotations

import random
from hashlib import sha256

import pytest
from helpers.bit_flips import flip_bit
from helpers.journals import MadeJournal
from helpers.simulation import report, scheduler_of
from msgspec.structs import replace

from study.drivers.driver import end_unsettled
from study.facts.events import TrialEnded
from study.facts.study_facts import read_facts
from study.plans import profiles
from study.plans.resolution import resolve
from trainables.files.sources import hash_folder

KEY = "KEY"
FILES = (f"predictions/{KEY}.npz", f"trials/{KEY}/{KEY}/model.json")  # of an ended trial


@pytest.fixture
def scheduler(tmp_path):
    """Of a study whose one confirm trial has told all its epochs and has not ended."""
    plan = replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=1, seeds=1, epochs=1)
    scheduler = scheduler_of(resolve(plan), MadeJournal(tmp_path / "study"))
    scheduler.begin_launch(command="", host="", pid=1, storage=None)
    for _ in range(2):
        trial = scheduler.next_trial()
        scheduler.report(trial.key, report(trial, 1))
        if trial.phase == "search":
            scheduler.end(trial.key)
    return scheduler


def leave(place, *names):
    """Files that a worker has left there."""
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"left")


@pytest.mark.parametrize("storage", ["", "file://"])
def test_one_whose_predictions_are_gone_begins_anew(scheduler, tmp_path, storage):
    (trial,) = scheduler.progress.unsettled
    end_unsettled(scheduler, storage=f"{storage}{tmp_path}/storage", folder=tmp_path / "study")
    assert trial.epochs == 0 and trial.ended is None and scheduler.progress.unsettled == []
    assert "predictions" in scheduler.facts.notices[-1].reason


@pytest.mark.parametrize("is_uri", [False, True])
def test_one_whose_model_is_gone_begins_anew(scheduler, tmp_path, is_uri):
    (trial,) = scheduler.progress.unsettled
    leave(tmp_path / "study" / "predictions", f"{trial.key}.npz")
    leave(tmp_path / "storage" / "trials" / trial.key, "predictions.npz")
    end_unsettled(scheduler, storage=f"file://{tmp_path}/storage" if is_uri else "/storage", folder=tmp_path / "study")
    assert trial.epochs == 0 and trial.ended is None
    assert scheduler.facts.notices[-1].reason == f"the model is not in /models/{trial.key}"


def tell_digests(scheduler, trial, **digests):
    """The worker has told the digests of what it left."""
    told = replace(trial.last.outcome, **digests)
    trial.last = replace(trial.last, outcome=told)


@pytest.mark.parametrize("damaged", [f"predictions/{KEY}.npz", f"trials/{KEY}/{KEY}/model.json"])
def test_one_whose_predictions_or_model_were_damaged_begins_anew(scheduler, tmp_path, damaged, capsys):
    (trial,) = scheduler.progress.unsettled
    study, names = tmp_path / "study", [name.replace(KEY, trial.key) for name in FILES]
    leave(study, *names)
    digest = hash_folder((study / names[1]).parent)
    tell_digests(scheduler, trial, model_digest=digest, predictions_digest=sha256(b"left").hexdigest())
    flip_bit(study / damaged.replace(KEY, trial.key), random.Random(1))
    end_unsettled(scheduler, storage=str(study), folder=study)
    assert trial.epochs == 0 and trial.ended is None
    reason = scheduler.facts.notices[-1].reason
    assert " damaged" in reason
    assert capsys.readouterr().err == f"trial {trial.key} starts again: {reason}\n"


def test_the_record_has_the_digests_of_predictions_and_model(scheduler, tmp_path):
    (trial,) = scheduler.progress.unsettled
    names = [name.replace(KEY, trial.key) for name in FILES]
    leave(tmp_path / "study", *names)
    digest = hash_folder((tmp_path / "study" / names[1]).parent)
    tell_digests(scheduler, trial, model_digest=digest)
    end_unsettled(scheduler, storage=str(tmp_path / "study"), folder=tmp_path / "study")
    record = read_facts(tmp_path / "study").records[-1]
    assert (record.model_digest, record.predictions_digest) == (digest, sha256(b"left").hexdigest())


def test_one_whose_predictions_and_model_are_there_has_its_record(scheduler, tmp_path):
    (trial,) = scheduler.progress.unsettled
    leave(tmp_path / "study", f"predictions/{trial.key}.npz", f"trials/{trial.key}/{trial.key}/model.json")  # beside it
    end_unsettled(scheduler, storage=str(tmp_path / "study"), folder=tmp_path / "study")
    assert isinstance(trial.ended, TrialEnded) and trial.record.predictions_digest
