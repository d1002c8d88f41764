"""The command that measures times: pytest tests/study/test_time.py"""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from contextlib import closing
from datetime import datetime, timedelta

import pytest
import torch
from helpers.journals import MadeJournal
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import arm, write_study
from helpers.messages import says
from helpers.trials import run_to_the_end, spec_of
from msgspec.structs import replace

from study import time as command
from study.facts.events import FILE, TimesMeasured
from study.facts.journal import Journal
from study.facts.study_facts import read_facts
from study.launching import child_processes
from study.launching.options import LaunchOptions
from study.stored_models import time_models
from study.time import Options, read_batch_sizes
from trainables.runs.timing import TooLittleTime

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """A study of ALBERT and PABEE on RTE, with trained models of two seeds each."""
    folder = tmp_path_factory.mktemp("timed") / "study"
    launched_study(folder, mini_plan(methods=("albert", "pabee"), tasks=("rte",)))
    return folder


@pytest.fixture(scope="module")
def timed(launched, tmp_path_factory):
    """The same study with models that can be loaded, after one measurement."""
    folder = tmp_path_factory.mktemp("timed") / "study"
    shutil.copytree(launched, folder)
    text = (folder / FILE).read_text()
    for record in read_facts(launched).records:
        if record.phase != "confirm":
            continue
        run = run_to_the_end(spec_of(record.method, "rte", seed=record.seed, config={"epochs": 1}), folder / "cache")
        place = folder / "trials" / record.key
        shutil.rmtree(place)
        run.save(place)
        model = run.outcome().model
        text = text.replace(record.model, model).replace(record.model_digest, run.outcome().model_digest)
    lines = [line.rpartition(',"crc32"')[0] + "}" for line in text.splitlines()]
    (folder / FILE).write_text("\n".join(lines) + "\n")
    (folder / "events.copy.jsonl").unlink(missing_ok=True)
    assert command.main([str(folder), "--minutes", "0.2", "--batch-sizes", "4"]) == 0
    return folder


def test_measurement_is_one_event_and_a_table(timed):
    (event,) = read_facts(timed).times
    assert {model.batch_size for model in event.models if model.exit == "own"} == {4}
    confirmed = {record.key for record in read_facts(timed).records if record.phase == "confirm"}
    assert {model.key for model in event.models} == confirmed and not event.missing
    assert event.threads == 1 and event.torch and event.processors > 0 and event.time
    table = (timed / "tables" / "times.md").read_text()
    assert "| pabee/rte, 4 " in table and event.device in table


def test_deleted_models_are_named(tmp_path, capfd):
    folder = launched_study(tmp_path / "study", mini_plan(methods=("albert", "pabee"), tasks=("rte",)))
    shutil.rmtree(folder / "trials")
    before = (folder / FILE).read_bytes()
    assert command.main([str(folder)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert says(line, f"study.time: {folder}: ", "4 of 4 final runs no longer exist: ")
    assert "(albert/rte, seed 42)" in line and line.endswith("only stored models can be timed")
    assert (folder / FILE).read_bytes() == before


def test_models_that_are_there_are_timed_without_the_missing_ones(timed, capfd):
    record = next(record for record in read_facts(timed).records if record.phase == "confirm")
    folder = timed / "trials" / record.key
    folder.rename(timed / "moved")
    try:
        stored, missing = time_models._find_models(timed)
    finally:
        (timed / "moved").rename(folder)
    assert missing == [record.key] and len(stored["rte"]) == 3 and record not in stored["rte"]
    assert says(capfd.readouterr().err, "1 of 4 final runs no longer exist: ", record.key)


def test_model_of_a_dropped_run_is_timed(tmp_path, monkeypatch):
    *others, last = arm("albert", "rte", [0.6, 0.7])
    folder = write_study(tmp_path / "s", [*others, replace(last, status="dropped")], seeds=2)
    monkeypatch.setattr(time_models, "model_exists", lambda model: True)
    stored, missing = time_models._find_models(folder)
    assert [record.seed for record in stored["rte"]] == [42, 43] and not missing


def test_too_little_memory_is_one_line(timed, monkeypatch):
    def load(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 90.00 MiB.")

    monkeypatch.setattr(time_models, "_load", load)
    stored, _ = time_models._find_models(timed)
    with pytest.raises(ValueError, match=r"^the memory of c\w+ cannot hold 4 models on RTE, .* more memory$"):
        time_models._measure(stored, Options(study=str(timed)))


def test_too_few_minutes_are_refused(timed):
    stored, _ = time_models._find_models(timed)
    with pytest.raises(ValueError, match=r"^0.001 minutes .* 4 models on rte; .*at least --minutes \d$"):
        time_models._measure(stored, Options(study=str(timed), minutes=0.001))


def test_batches_have_at_most_the_rows_of_dev(timed, monkeypatch, capsys):
    asked = []

    def stop(contestants, sizes, **options):
        asked.append(sizes)
        raise TooLittleTime(60.0)

    monkeypatch.setattr("trainables.runs.timing.measure", stop)
    stored, _ = time_models._find_models(timed)
    with pytest.raises(ValueError, match="minutes are too few"):
        time_models._measure(stored, Options(study=str(timed), batch_sizes="1,4000,5000"))
    ((first, rows),) = asked
    assert first == 1 and f"rte has {rows} dev texts, so its batches have at most {rows}" in capsys.readouterr().err


def test_killed_measurement_is_said_and_changes_nothing(timed, monkeypatch, capfd):
    before = (timed / FILE).read_bytes()
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **named: real(["sh", "-c", "kill -9 $$"], **named))
    assert command.main([str(timed)]) == 1
    assert capfd.readouterr().err == "study.time: the measurement was killed by SIGKILL; nothing was written\n"
    assert (timed / FILE).read_bytes() == before


def test_unknown_device_is_refused_with_the_menu():
    with pytest.raises(ValueError, match=r"^--device tpu: .*; allowed: cpu"):
        time_models._choose_device("tpu")


@pytest.mark.parametrize("text", ["1,x", "0", "1,1", ""])
def test_batch_sizes_are_different_whole_numbers(text):
    with pytest.raises(ValueError, match="different numbers from 1 on, "):
        read_batch_sizes(text)


def finished(folder, seconds: float) -> Journal:
    """The journal of a launch that began so many seconds ago."""
    launched_study(folder, mini_plan(methods=("albert",), tasks=("rte",)))
    journal = Journal(folder)
    (own,) = journal.facts.launches.values()
    began = datetime.fromisoformat(journal.now()) - timedelta(seconds=seconds)
    own.began, own.ended = replace(own.began, time=began.isoformat()), None
    return journal


@pytest.mark.parametrize(("seconds", "minutes"), [(90.0, 1.0), (1800.0, 3.0), (90_000.0, 10.0)])
def test_launch_measures_for_a_tenth_of_its_time(seconds, minutes, tmp_path, monkeypatch):
    facts = {"host": "h", "device": "d", "threads": 1, "torch": "2", "clock": "cpu", "processors": 2, "seconds": 1.0}
    event = TimesMeasured(time="", **facts, models=[], layers=[])
    asked = []
    monkeypatch.setattr(child_processes, "measure_times", lambda options: asked.append(options) or event)
    with closing(finished(tmp_path / "s", seconds)) as journal:
        child_processes.measure_models(journal, tmp_path / "s", LaunchOptions(), until=math.inf)
        assert len(journal.facts.times) == 1 and journal.facts.times[0].time
    assert asked[0].minutes == pytest.approx(minutes, rel=0.05) and asked[0].study == str(tmp_path / "s")


@pytest.mark.parametrize(
    ("seconds", "address", "left"), [(20.0, None, math.inf), (1800.0, "auto", math.inf), (1800.0, None, 1.0)]
)
def test_launch_names_the_command_if_it_does_not_measure(seconds, address, left, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(child_processes, "measure_times", lambda options: pytest.fail("measured"))
    with closing(finished(tmp_path / "s", seconds)) as journal:
        options, until = LaunchOptions(address=address), time.monotonic() + left
        child_processes.measure_models(journal, tmp_path / "s", options, until=until)
        assert not journal.facts.times
    assert f"-m study.time {tmp_path / 's'}" in capsys.readouterr().err


def test_days_after_a_killed_launch_allow_no_measurement(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(child_processes, "measure_times", lambda options: pytest.fail("measured"))
    journal = MadeJournal()
    journal.begin()
    journal.start("a")
    journal.epoch("a", 1, 0.5)
    journal.clock += 24 * 3600
    journal.finish("a")  # by the next launch, before it begins
    journal.begin(launch=2)
    journal.start("b", trial=1)
    journal.epoch("b", 1, 0.5)
    assert [launch.measure_seconds() for launch in journal.facts.launches.values()] == [2, 2]
    child_processes.measure_models(journal, tmp_path, LaunchOptions(), until=math.inf)
    assert f"-m study.time {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("outcome", [subprocess.CalledProcessError(1, "time_models"), KeyboardInterrupt()])
def test_launch_goes_on_without_a_measurement(outcome, tmp_path, monkeypatch, capsys):
    def measure(options):
        raise outcome

    monkeypatch.setattr(child_processes, "measure_times", measure)
    with closing(finished(tmp_path / "s", 90.0)) as journal:
        child_processes.measure_models(journal, tmp_path / "s", LaunchOptions(), until=math.inf)
        assert not journal.facts.times
    assert "no times were measured; " in capsys.readouterr().err
