"""Stored models with a flipped bit, and all that reads them: pytest tests/study/test_damaged_models.py"""

from __future__ import annotations

import random
import shutil
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest
from helpers.bit_flips import flip_bit
from helpers.edited_studies import edit_events
from helpers.trials import expected_of, spec_of

from analysis.verify import verify
from study.decisions.machine_faults import LASTING_PAUSES, Faults
from study.drivers.messages import AssignedTrial
from study.drivers.worker import run_trial
from study.facts.events import TrialEnded
from study.facts.study_facts import read_facts
from study.storage.models import DamagedModel, locate_model
from trainables.files.sources import hash_folder

pytestmark = pytest.mark.slow

COMMANDS = {  # name -> arguments; STUDY, KEY and NEW stand for folders and the trial's key
    "predict": "STUDY NEW/input.tsv --to NEW/answers.tsv",
    "export": "STUDY --to NEW/exported",
    "stored_models.predict_dev": "STUDY KEY --to NEW",
    "submit": "STUDY --out NEW/submission.zip",
}


@pytest.fixture
def study(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "study"))


def damage(study: Path, name: str) -> Path:
    """Flips a bit of the one model; its folder."""
    (file,) = study.glob(f"trials/*/model-epoch-*/{name}")
    flip_bit(file, random.Random(2))
    return file.parent


def line_of(model: Path) -> str:
    return f"{model} was damaged: its files do not match the digest in the journal; restore the folder from a copy"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_uses_a_damaged_model(study, tmp_path, capsys, command):
    (new := tmp_path / "new").mkdir()
    (new / "input.tsv").write_text("sentence1\tsentence2\nthe dog sleeps\tan animal sleeps\n")
    model = damage(study, "model.safetensors")
    values = {"STUDY": str(study), "KEY": model.parent.name, "NEW": str(new)}
    arguments = COMMANDS[command]
    for name, value in values.items():
        arguments = arguments.replace(name, value)
    assert import_module(f"study.{command}").main(arguments.split()) == 2
    assert capsys.readouterr().err == f"study.{command}: {line_of(model)}\n"
    assert [path.name for path in new.iterdir()] == ["input.tsv"]


def test_a_damaged_model_is_not_registered(study, tmp_path):
    from study.mlflow_mirror.tracking import save_model

    model = damage(study, "model.safetensors")
    with pytest.raises(DamagedModel, match=line_of(model)):
        save_model(locate_model(read_facts(study).records[-1], study), tmp_path / "registered")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_verify_names_a_damaged_model(study, name):
    model = damage(study, name)
    assert line_of(model) in verify(study)


def test_nothing_is_checked_where_an_older_version_stored_no_digest(study):
    damage(study, "model.safetensors")
    edit_events(study, TrialEnded, lambda event: event.pop("model_digest"), number=-1)
    assert not [line for line in verify(study) if "was damaged" in line]


def test_start_from_damaged_model_is_lasting_fault(study, tmp_path):
    (model,) = study.glob("trials/*/model-epoch-*")
    digest = hash_folder(model)
    damage(study, "model.safetensors")
    spec = spec_of("albert", "rte", start=str(model))
    where = {"place": str(tmp_path / "key"), "predictions": None, "start_digest": digest}
    trial = AssignedTrial(key="key", spec=spec, expected=expected_of(spec), epochs=0, **where)
    (news,) = run_trial(trial, device="cpu", gpus=0)
    assert news.failure is not None
    assert (news.failure.cause, news.failure.error) == ("machine", line_of(model))
    clock = count(step=100)  # seconds
    faults = Faults(clock=lambda: next(clock))
    for _ in range(LASTING_PAUSES):
        assert faults.give_up_reason is None
        faults.add("key", news.failure, running=0, time="")
    assert faults.give_up_reason is not None
