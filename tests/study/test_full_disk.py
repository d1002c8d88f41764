"""Launches on a disk that becomes full: pytest tests/study/test_full_disk.py"""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.corpora import word_tokenizer
from helpers.journals import MadeJournal
from helpers.launched_studies import mini_plan
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.plan_files import with_lines
from helpers.small_disks import enlarge, small_disk
from msgspec.structs import replace

from study import launch
from study.decisions.progress import compute_progress
from study.facts.study_facts import StudyFacts, read_facts
from study.launching import forecast
from study.launching.forecast import MeasuredCost, Space, estimate_space, forecast_plan
from study.storage.study_storage import StudyStorage

STUDY = [
    *("--method", "albert", "--task", "rte", "--profile", "mini", "--samples", "1", "--seeds", "2", "--epochs", "3"),
    *("--early-stopping", "none", "--sampler", "random", "--tracking-uri", "none", "--name", "s"),
]


def run(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "study.launch", *STUDY, "--out", str(out), *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def results(folder: Path) -> list[tuple]:
    records = [trial.record for trial in read_facts(folder).trials.values()]
    return sorted((one.key, one.status, one.score, one.epoch, one.predictions_digest) for one in records)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("driver", ["local", "ray"])
@pytest.mark.parametrize("storage", ["folder", "uri"])
def test_full_disk_is_named_and_the_study_continues_with_more_room(tmp_path, storage, driver):
    undisturbed = run(tmp_path / "whole", "--driver", "local")
    assert undisturbed.returncode == 0, undisturbed.stderr
    with small_disk(tmp_path / "disk", kilobytes=300) as disk:
        where = ["--driver", driver] + (["--storage", f"file://{disk}/storage"] if storage == "uri" else [])
        out = tmp_path / "runs" if storage == "uri" else disk
        for kilobytes in (300, 600, 750):
            enlarge(disk, kilobytes=kilobytes)
            done = run(out, *where)
            last = done.stderr.splitlines()[-1]
            assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
            assert last.startswith(f"study.launch: the disk of {disk}") and " is full" in last, done.stderr
            assert last.endswith("free some space first; all files are complete; to continue, run the same command")
            assert "the study pauses" not in done.stderr
            assert "; the study still needs about " in last
        enlarge(disk, kilobytes=3000)
        done = run(out, *where)
        assert done.returncode == 0, done.stderr
        assert results(out / "s") == results(tmp_path / "whole" / "s")


@pytest.mark.long
@pytest.mark.slow
def test_disk_that_is_full_at_the_start_is_named_with_what_is_needed(tmp_path):
    with small_disk(tmp_path / "disk", kilobytes=64) as disk:
        with (disk / "other").open("wb") as file, suppress(OSError):
            file.write(bytes(100_000))
        done = run(disk / "runs", "--driver", "local")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"study.launch: the disk of {disk}/runs/s is full; the study still needs about 5.0 MB for")


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", pytest.param("TMPDIR", marks=pytest.mark.long)])
def test_full_disk_of_another_folder_stops_the_launch(tmp_path, monkeypatch, variable):
    with small_disk(tmp_path / "disk", kilobytes=64) as disk:
        monkeypatch.setenv(variable, str(disk))
        done = run(tmp_path / "runs", "--driver", "local", "--storage", f"file://{tmp_path}/storage")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "the study pauses" not in done.stderr
    assert re.match(rf"study\.launch: the disk of {disk}/glue-exit-study\S* is full; free some space first; ", last)


@pytest.mark.long
@pytest.mark.slow
def test_disk_without_inodes_is_named(tmp_path):
    with small_disk(tmp_path / "disk", kilobytes=5000, inodes=12) as disk:
        done = run(disk, "--driver", "local")
        last = done.stderr.splitlines()[-1]
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr
        assert (
            last.startswith("study.launch: the disk of ")
            and "(it has free space, but no inodes for more files)" in done.stderr
        )


def sized(monkeypatch, *, free: int) -> Space:
    monkeypatch.setattr(forecast.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free}))
    plan = mini_plan(tasks=("rte",))
    measured = {arm.name: MeasuredCost(1.0, 1_000_000, "probe") for arm in plan.arms}
    space = estimate_space(compute_progress(plan, StudyFacts()), StudyStorage("/storage"), slots=2, measured=measured)
    assert space is not None
    return space


def test_needed_space_is_that_of_models_and_of_running_trials(monkeypatch):
    plain = "about 20.0 MB for 4 more models and the files of 2 running trials"
    space = sized(monkeypatch, free=30_000_000)
    assert space.describe() == f"the study needs {plain}; the disk of /storage has 30.0 MB free"
    space = sized(monkeypatch, free=5_000_000)
    assert space.describe() == f"warning: the disk of /storage has only 5.0 MB free, but the study needs {plain}"


def test_dry_run_compares_space_with_backbone_size(tmp_path, capsys):
    word_tokenizer(["ships wait ."]).backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    backbone = ["--backbone", "albert-base", *with_lines(tmp_path, f'tokenizer = "{tmp_path}"')]
    asked = [*STUDY, *backbone, "--driver", "local", "--out", str(tmp_path), "--dry-run"]
    assert launch.main(asked) == 0
    needed = re.search(r"the study needs about (\d+)\.\d MB for 2 more models and", capsys.readouterr().out)
    assert needed is not None and int(needed[1]) >= 10 * 46  # of 11.7 million weights


def test_no_more_trials_take_space_than_are_left(tmp_path):
    plan = mini_plan(methods=("albert",), tasks=("rte",), samples=1, seeds=2)
    progress = compute_progress(plan, StudyFacts())
    measured = {"albert/rte": MeasuredCost(1.0, 1_000_000, "probe")}
    space = estimate_space(progress, StudyStorage(str(tmp_path)), slots=1000, measured=measured)
    assert space is not None and "2 more models and the files of 3 running trials" in space.describe()
    assert space == estimate_space(progress, StudyStorage(str(tmp_path)), slots=3, measured=measured)


def test_nothing_is_estimated_of_a_storage_under_a_uri():
    plan = mini_plan(tasks=("rte",))
    measured = {arm.name: MeasuredCost(1.0, 1_000_000, "probe") for arm in plan.arms}
    progress = compute_progress(plan, StudyFacts())
    assert estimate_space(progress, StudyStorage("s3://bucket/x"), slots=2, measured=measured) is None
    unchecked = replace(plan, arms=tuple(replace(arm, backbone_fingerprint="unknown") for arm in plan.arms))
    progress = compute_progress(unchecked, StudyFacts())
    assert estimate_space(progress, StudyStorage("/storage"), slots=2, measured={}) is None  # sizes are unknown


def test_dry_run_looks_for_space_in_the_storage(tmp_path, capsys, monkeypatch):
    word_tokenizer(["ships wait ."]).backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "big").mkdir()
    free = {tmp_path / "big": 7_000_000_000}
    monkeypatch.setattr(forecast.shutil, "disk_usage", lambda place: type("Usage", (), {"free": free.get(place, 0)}))
    backbone = ["--backbone", "albert-base", *with_lines(tmp_path, f'tokenizer = "{tmp_path}"')]
    asked = [*STUDY, *backbone, "--driver", "local", "--out", str(tmp_path / "runs"), "--dry-run"]
    assert launch.main([*asked, "--storage", str(tmp_path / "big" / "states")]) == 0
    assert f"the disk of {tmp_path / 'big' / 'states'} has 7.0 GB free" in capsys.readouterr().out


def test_dry_run_measures_the_states_in_the_area_of_a_study(tmp_path):
    plan = mini_plan(methods=("albert",), tasks=("rte",))
    journal = MadeJournal(tmp_path / "study")
    journal.begin(plan=plan, storage=str(tmp_path / "states"), area="study-1a")
    journal.start("k", arm="albert/rte", config={"learning_rate": 1e-3})
    state = tmp_path / "states" / "study-1a" / "trials" / "k" / "state.pt"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"state" * 600)
    lines = forecast_plan(compute_progress(plan, journal.facts), tmp_path / "study").lines
    assert [line for line in lines if f"the disk of {tmp_path / 'states'} has" in line]
    assert f"--storage is {tmp_path / 'states'}, as in the last launch" in lines
