"""A study without Ray: pytest tests/study/drivers/test_local_driver.py; kills and faults: tests/study/test_kills.py"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from helpers import absent_packages
from helpers.driven_cluster import Cluster
from helpers.launches import ONE_AT_A_TIME, WITHOUT_RAY, Launches
from helpers.messages import says
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.power_cuts import differences_of
from helpers.started_processes import is_alive

from study import launch
from study.cluster import resources
from study.cluster.resources import Resources, ThisMachine
from study.drivers.local_driver import assign_gpus
from study.drivers.trial_process import RELEASE, ProcessLost, TrialProcess
from study.facts.events import EpochReported, LaunchEnded, read_events
from study.launching.options import default_driver

ABSENT = ("ray", "mlflow", "datasets", "pyarrow", "pandas", "sklearn")
PLAN = ["--method", "albert", "--task", "rte", "--profile", "mini", "--sampler", "grid", "--early-stopping", "none"]
PLAN += ["--seeds", "1", "--name", "study"]
STUDY = [*PLAN, "--samples", "2", "--epochs", "3"]


def launched(out: Path, *more: str, **environment: str) -> str:
    """What a launch of the study says that comes to its end."""
    command = [sys.executable, "-m", "study.launch", *STUDY, "--out", str(out), *more]
    own = {"cwd": ROOT, "env": os.environ | environment, "timeout": PATIENCE_SECONDS}
    done = subprocess.run(command, capture_output=True, text=True, **own)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the study on Ray, to which nothing happens."""
    out = tmp_path_factory.mktemp("ray")
    launched(out, "--driver", "ray", "--tracking-uri", "none", *ONE_AT_A_TIME)
    return out / "study"


@pytest.mark.long
@pytest.mark.slow
def test_study_runs_in_a_locale_without_utf8_and_with_closed_input(tmp_path: Path) -> None:
    out = tmp_path / "größe"
    command = [sys.executable, "-m", "study.launch", *PLAN, "--samples", "1", "--epochs", "1", "--out", str(out)]
    command += ["--driver", "local", "--tracking-uri", "none", *ONE_AT_A_TIME]
    own = {"cwd": ROOT, "env": os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}, "preexec_fn": lambda: os.close(0)}
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, **own)
    assert done.returncode == 0, done.stderr.decode()
    assert f"study {out}/study (" in done.stderr.decode()
    assert f"report:      {out}/study/report.html\n" in done.stdout.decode()


@pytest.mark.long
@pytest.mark.slow
def test_study_without_ray_and_mlflow_equals_ray_study(tmp_path: Path, on_ray: Path) -> None:
    (tmp_path / "python").mkdir()
    shutil.copy(absent_packages.__file__, tmp_path / "python" / "sitecustomize.py")
    own = {"PYTHONPATH": f"{tmp_path / 'python'}:{ROOT}", absent_packages.ABSENT: ",".join(ABSENT)}
    said = launched(tmp_path, **own)
    assert says(said, "MLflow is not installed, ", "--tracking-uri none\n")
    assert differences_of(tmp_path / "study", on_ray) == []
    assert (tmp_path / "study" / "report.html").exists()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("driver", ["ray", "local"])
def test_time_limited_launches_equal_uninterrupted_one(
    tmp_path: Path, on_ray: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], driver: str
) -> None:
    """The clock of the driver is the journal: hours pass with its epochs."""
    study, limit = tmp_path / "study", 0
    arguments = [*STUDY, "--out", str(tmp_path), "--driver", driver, "--tracking-uri", "none", *ONE_AT_A_TIME]

    def epochs() -> int:
        found = read_events(study) if (study / "events.jsonl").exists() else []
        return sum(isinstance(event, EpochReported) for event in found)

    clock = SimpleNamespace(monotonic=lambda: 1e9 if epochs() >= limit else 0.0)
    monkeypatch.setattr("study.drivers.driver.time", clock)
    monkeypatch.setattr("study.launch.time", clock)
    monkeypatch.setattr("study.launching.child_processes.time", clock)
    for limit, status in ((1, 1), (4, 1), (1000, 0)):  # each within a trial
        before = epochs()
        assert launch.main([*arguments, "--max-minutes", "60"]) == status
        printed = capsys.readouterr()
        assert ("the time limit (--max-minutes) is reached" in printed.err) == bool(status)
        assert ("interrupted; to continue:" in printed.out) == bool(status)
        assert before < epochs() <= limit + 1  # with the one that was under way
    assert [event.status for event in read_events(study) if isinstance(event, LaunchEnded)][-1] == "complete"
    assert differences_of(study, on_ray) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["SIGINT", *(pytest.param(name, marks=pytest.mark.long) for name in ("SIGUSR1", "SIGUSR2", "SIGXCPU"))]
)
def test_signal_to_stop_saves_and_leaves_no_process(tmp_path: Path, name: str) -> None:
    more = ["--samples", "2", "--epochs", "50", *WITHOUT_RAY]
    study = Launches(tmp_path / "study", [*PLAN, *more], random.Random(0))
    launcher = study.launch()
    assert study.wait_for(1, launcher), study.printed()
    started = psutil.Process(launcher.pid).children(recursive=True)
    for process in [*started, psutil.Process(launcher.pid)]:  # a scheduler signals all processes of a job
        process.send_signal(signal.Signals[name])
    assert launcher.wait(timeout=PATIENCE_SECONDS) == 1, study.printed()
    assert started and not any(map(is_alive, started))
    told = read_events(study.folder)
    assert isinstance(told[-1], LaunchEnded) and told[-1].status == "drained"
    assert "interrupted; to continue:" in study.printed()


@pytest.mark.long
@pytest.mark.slow
def test_sigusr1_lets_trials_on_ray_save_their_epoch(tmp_path: Path) -> None:
    more = ["--samples", "2", "--epochs", "50", "--driver", "ray", "--tracking-uri", "none", *ONE_AT_A_TIME]
    study = Launches(tmp_path / "study", [*PLAN, *more], random.Random(0))
    launcher = study.launch()
    assert study.wait_for(1, launcher), study.printed()
    launcher.send_signal(signal.SIGUSR1)
    assert launcher.wait(timeout=PATIENCE_SECONDS) == 1, study.printed()
    assert "stops when the current epochs are saved" in study.printed()
    assert read_events(study.folder)[-1].status == "drained"


LOCAL = ("--driver", "local")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--driver", "slurm"], "--driver is 'slurm'; allowed: local, ray"),
        ([*LOCAL, "--address", "auto"], "--address auto is a Ray cluster, "),
        (["--gpus-per-trial", "1.5"], "--gpus-per-trial is 1.5; allowed: at most 1, "),
        (
            ["--gpus-per-trial", "2"],
            "--gpus-per-trial is 2; allowed: at most 1, ",
        ),
        (
            ["--gpus-per-trial", "2", "--driver", "ray", "--address", "auto"],
            "one GPU; a fraction such as 0.25",
        ),
        (["--max-minutes", "0"], "--max-minutes is 0; allowed: a number > 0"),
    ],
)
def test_what_a_driver_cannot_do_is_refused_in_one_line(tmp_path, monkeypatch, capsys, arguments, said) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert launch.main([*arguments, "--out", str(tmp_path / "runs")]) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1 and not (tmp_path / "runs").exists()


def test_rays_own_variable_is_refused_by_its_name(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert launch.main([*LOCAL, "--out", str(tmp_path / "runs")]) == 2
    assert says(capsys.readouterr().err, "RAY_ADDRESS 10.0.0.1:6379 ", "--driver is local")


@pytest.mark.parametrize("package", ["ray", "mlflow"])
def test_what_is_not_installed_is_not_offered(tmp_path, monkeypatch, capsys, package) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    given = {"ray": ["--driver", "ray"], "mlflow": ["--tracking-uri", "http://localhost:5000"]}
    assert launch.main([*given[package], "--out", str(tmp_path / "runs")]) == 2
    assert "not installed; " in capsys.readouterr().err
    assert default_driver() == ("local" if package == "ray" else "ray")


# ---- one process


def process_in(folder: Path) -> TrialProcess:
    return TrialProcess(gpus="", threads=1, log=folder / "workers.log")


def test_a_process_that_was_killed_is_lost_in_one_line(tmp_path: Path) -> None:
    process = process_in(tmp_path)
    os.kill(process._process.pid, signal.SIGKILL)
    with pytest.raises(ProcessLost, match=r"killed by SIGKILL; see workers.log$"):
        process.receive()


def test_exception_ending_process_is_told_and_logged(tmp_path: Path) -> None:
    process = process_in(tmp_path)
    process.send(b"no assignment")
    assert process.receive() is None  # it has started
    with pytest.raises(ProcessLost, match=r"^ValueError: an assignment: [^\n]*$"):
        process.receive()
    assert "Traceback (most recent call last)" in (tmp_path / "workers.log").read_text()


def test_an_idle_process_ends_by_itself(tmp_path: Path) -> None:
    process = process_in(tmp_path)
    process.send(RELEASE)
    process.end()
    assert process.wait()


# ---- slots


@pytest.mark.parametrize(
    ("visible", "cpus", "gpus", "slots"),
    [
        (None, 1, 1.0, ["0", "1"]),
        (None, 1, 2.0, ["0,1"]),
        (None, 1, 0.5, ["0", "1", "0", "1"]),
        (None, 1, 0.4, ["0", "1", "0", "1"]),  # a trial does not hold parts of two
        (None, 2, 0.25, ["0", "1", "0", "1"]),  # of eight, for which there are no CPUs
        ("3,GPU-5f", 1, 0.5, ["3", "GPU-5f", "3", "GPU-5f"]),
        ("1", 4, 1.0, ["1"]),
        (None, 4, 0.0, ["", ""]),
    ],
)
def test_every_slot_has_its_gpus(monkeypatch, tmp_path, visible, cpus, gpus, slots) -> None:
    """A machine of eight cores and two GPUs."""
    monkeypatch.setattr(resources, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(resources, "glob", lambda pattern: ["a", "b"])
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda process: range(8))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    held = Resources.measure(ThisMachine(), cpus=cpus, gpus=gpus)
    assert assign_gpus(held) == slots and held.slots() == len(slots)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "350000 100000\n"}, 3),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_cores_are_those_that_the_container_may_use(monkeypatch, tmp_path, files, cores) -> None:
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda process: range(8))
    monkeypatch.setattr(resources, "CONTROL_GROUPS", tmp_path)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert ThisMachine().alive().popitem()[1]["CPU"] == cores


# ---- the time of a launch


def test_launch_past_its_time_only_waits(tmp_path, monkeypatch) -> None:
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    first, *_ = cluster.hand_out()
    cluster.driver.begun(first)
    cluster.driver.watch()
    assert not cluster.scheduler.draining
    cluster.driver._until = 0.0
    cluster.driver.watch()
    assert cluster.scheduler.draining and not cluster.driver.drained and cluster.hand_out() == []
    cluster.end(first, node="a")
    assert cluster.driver.drained


def test_running_epoch_is_abandoned_at_time_limit(tmp_path, monkeypatch, capsys) -> None:
    """And not after Ctrl-C."""
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    first, second = cluster.hand_out()
    for ray_id in (first, second):
        cluster.driver.begun(ray_id)
    assert cluster.steps(first, done=1) == "CONTINUE"
    cluster.scheduler.draining = True  # Ctrl-C
    assert cluster.steps(first, done=2) == "CONTINUE" and not cluster.driver.drained
    cluster.driver._until = 0.0
    assert [cluster.steps(ray_id, done=3) for ray_id in (first, second)] == ["STOP", "STOP"]
    assert cluster.driver.drained
    cluster.driver.watch()
    assert says(capsys.readouterr().out, "their last saved epoch; ", "albert/rte ", "about 0:10\n")
    assert len(cluster.scheduler.facts.under_way) == 2 and not cluster.scheduler.facts.records


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("driver", ["ray", "local"])
def test_a_limit_within_an_epoch_is_kept(tmp_path: Path, driver: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Epochs of thousands of steps, which would take minutes."""
    study = ["--method", "albert", "--task", "rte", "--profile", "mini", "--samples", "1", "--seeds", "1"]
    study += ["--set", "batch_size=1", "--epochs", "1000", "--driver", driver, "--tracking-uri", "none", *ONE_AT_A_TIME]
    arguments = [*study, "--out", str(tmp_path), "--name", "study"]
    assert launch.main([*arguments, "--max-minutes", "0.15"]) == 1
    printed = capsys.readouterr()
    assert "the time limit (--max-minutes) is reached" in printed.err
    assert "interrupted; to continue:" in printed.out
    assert [event.status for event in read_events(tmp_path / "study") if isinstance(event, LaunchEnded)] == ["drained"]
