"""Methods that end, fork or block their process: pytest tests/study/drivers/test_faulty_processes.py"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from helpers.driven_cluster import Cluster
from helpers.launches import ONE_AT_A_TIME
from helpers.messages import says
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.started_processes import is_alive
from helpers.trials import expected_of, spec_of

import trainables
from study.drivers import driver, workers_log
from study.drivers.local_driver import LocalDriver
from study.drivers.messages import AssignedTrial, Assignment, Loss, Message
from study.drivers.trial_process import PR_SET_CHILD_SUBREAPER, ProcessLost, TrialProcess
from study.drivers.workers_log import shorten_log
from study.facts.events import LaunchEnded, SmokeStepFailed, TrialEnded, TrialRetried, read_events
from study.facts.study_facts import read_facts
from trainables.files import method_files

METHOD = '''
"""PABEE, with a fault in one training step."""

import os, signal, sys, threading, time
from pathlib import Path

from trainables.models.classifiers import ClassifierPerLayer
from trainables.pabee import DEPARTURES, Config, build as build_pabee

HERE = Path({folder!r})


def fault(step):
    {fault}


def build(config, encoder, task):
    model, count = build_pabee(config, encoder, task), [0]
    loss = model.loss

    def faulty(batch):
        count[0] += 1
        fault(count[0])
        return loss(batch)

    model.loss = faulty
    return model
'''
SPACE = "from search_spaces.pabee import *\n"
STUDY = ["--task", "rte", "--profile", "mini", "--samples", "1", "--seeds", "1", "--sampler", "random"]
STUDY += ["--early-stopping", "none", "--tracking-uri", "none", "--name", "study"]
DRIVERS = ["ray", "local"]
LATER = "if step == 3: "  # the smoke step is the first of its process
FORK = "os.fork() or ((HERE / 'child').write_text(str(os.getpid())), time.sleep(3600))"


def write_method(folder: Path, fault: str) -> Path:
    """A folder with the method `faulty`, which does this with the number of each training step of its process."""
    methods = folder / "methods"
    methods.mkdir()
    (methods / "faulty.py").write_text(METHOD.format(folder=str(folder), fault=fault))
    (methods / "faulty_space.py").write_text(SPACE)
    return methods


def launch(folder: Path, fault: str, *more: str, change: str = "") -> subprocess.CompletedProcess:
    """A launch of the method; `change` is run in its process before."""
    methods = folder / "methods"
    if not methods.exists():
        write_method(folder, fault)
    run = (
        f"import sys\nimport study.drivers.driver as driver\n{change}\nfrom study.launch import main\nsys.exit(main())"
    )
    command = [
        sys.executable,
        "-c",
        run,
        "--include",
        str(methods),
        *STUDY,
        "--epochs",
        "2",
        "--out",
        str(folder),
        *more,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def log_of(folder: Path) -> str:
    return (folder / "study" / "workers.log").read_text()


# ---- a method that ends its process


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV; see workers.log"),
        ("os._exit(3)", "exit status 3; see workers.log"),
        ("sys.exit(0)", "sys.exit(0) (methods/faulty.py, line 14)"),
    ],
)
def test_arm_whose_smoke_step_ends_the_process_is_refused(tmp_path: Path, driver: str, fault: str, said: str) -> None:
    done = launch(tmp_path, fault, "--method", "albert,faulty", "--driver", driver, *ONE_AT_A_TIME)
    assert done.returncode == 2, done.stderr
    assert says(done.stderr, "study.launch: faulty/rte: its ", said, "first training step, before any trial)")
    (failed,) = [event for event in read_events(tmp_path / "study") if isinstance(event, SmokeStepFailed)]
    assert failed.arm == "faulty/rte" and failed.failure.cause == "method"
    assert log_of(tmp_path).count(" faulty/rte: its first training step\n") == (1 if "sys.exit" in fault else 2)
    assert ("Fatal Python error: Segmentation fault" in log_of(tmp_path)) == ("SIGSEGV" in fault)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
def test_trial_that_crashes_again_at_one_step_has_failed(tmp_path: Path, driver: str) -> None:
    fault = f"{LATER}os.kill(os.getpid(), signal.SIGSEGV)"
    more = ["--driver", driver, "--max-failures", "1", *ONE_AT_A_TIME]
    done = launch(tmp_path, fault, "--method", "albert,faulty", *more)
    assert done.returncode == 1, done.stderr
    facts = read_facts(tmp_path / "study")
    (failed,) = [record for record in facts.records if record.status == "failed"]
    assert says(failed.error, "SIGSEGV in step 3 of epoch 1; ", "workers.log")
    events = read_events(tmp_path / "study")
    assert [event.failure.cause for event in events if isinstance(event, TrialRetried)] == ["crash"]
    assert [event.failure.cause for event in events if isinstance(event, TrialEnded) and event.failure] == ["method"]
    assert sum(record.status == "completed" for record in facts.records) == 2  # both trials of albert
    assert log_of(tmp_path).count(f" faulty/rte, seed {failed.seed}: trial {failed.key}\n") == 2


@pytest.mark.long
@pytest.mark.slow
def test_lone_trial_that_crashes_slowly_has_failed(tmp_path: Path) -> None:
    fault = f"{LATER}time.sleep(1.5); os.kill(os.getpid(), signal.SIGSEGV)"
    change = "import study.decisions.machine_faults as faults; faults.PATIENCE_SECONDS = 1.0"
    more = ["--driver", "local", "--max-failures", "2", *ONE_AT_A_TIME]
    done = launch(tmp_path, fault, "--method", "faulty", *more, change=change)
    assert done.returncode == 1, done.stderr
    failed = read_facts(tmp_path / "study").records
    errors = [record.error for record in failed if record.status == "failed"]
    assert errors and all(says(error, "SIGSEGV in step 3 of epoch 1; ", "workers.log") for error in errors)
    assert "no trial completed an epoch" not in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_first_crash_of_a_trial_is_retried(tmp_path: Path) -> None:
    fault = f"{LATER}(HERE / 'once').exists() or ((HERE / 'once').touch(), os._exit(0))"
    done = launch(tmp_path, fault, "--method", "faulty", "--driver", "local", *ONE_AT_A_TIME)
    assert done.returncode == 0, done.stderr
    (retried,) = [event for event in read_events(tmp_path / "study") if isinstance(event, TrialRetried)]
    assert says(retried.failure.error, "exit status 0 in step 3 of epoch 1; ", "workers.log")


# ---- one process, whose method blocks or forks


def process_with(folder: Path, fault: str) -> TrialProcess:
    """A process that has begun a trial of the method, and has answered once or more."""
    trainables.include(write_method(folder, fault))
    try:
        spec = spec_of("faulty", "rte", config={"epochs": 2})
        place = {"place": str(folder / "key"), "predictions": None}
        trial = AssignedTrial(key="key", spec=spec, expected=expected_of(spec), epochs=0, **place)
        included = method_files.included()
    finally:
        method_files.include(None)
    process = TrialProcess(gpus="", threads=1, log=folder / "workers.log")
    process.send(Assignment(trial=trial, device="cpu", cpus=1, gpus=0, threads=1, included=included))
    assert process.receive() is None
    return process


def answer(process: TrialProcess) -> Message:
    """The next answer, or `ProcessLost`."""
    while True:
        process.check_silence()
        if (message := process.receive()) is not None:
            return message


@pytest.mark.long
@pytest.mark.slow
def test_hanging_process_is_ended_with_traces_in_log(tmp_path: Path) -> None:
    process = process_with(tmp_path, "if step == 3: (HERE / 'hangs').touch(); time.sleep(3600)")
    wait_until((tmp_path / "hangs").exists)
    process._allowed_seconds = 1.0
    with pytest.raises(ProcessLost, match=r"hung in step 3 of epoch 1; .*workers.log$") as lost:
        wait_until(process.check_silence)
    assert lost.value.loss.is_crash
    assert "in fault\n" in (tmp_path / "workers.log").read_text()


@pytest.mark.slow
def test_time_in_which_the_launch_itself_is_stopped_is_no_silence(tmp_path: Path) -> None:
    process = TrialProcess(gpus="", threads=1, log=tmp_path / "workers.log")
    try:
        process.is_busy, process._allowed_seconds = True, 600.0
        process._looked = time.monotonic() - 1e6
        process.check_silence()
    finally:
        process.end()
        process.wait()


@pytest.mark.long
@pytest.mark.slow
def test_killed_process_is_noticed_and_child_ended(tmp_path: Path) -> None:
    process = process_with(tmp_path, f"if step == 3: {FORK}; time.sleep(3600)")
    wait_until((tmp_path / "child").exists)
    wait_until((tmp_path / "child").read_text)
    child = psutil.Process(int((tmp_path / "child").read_text()))
    os.kill(process._process.pid, signal.SIGKILL)
    with pytest.raises(ProcessLost, match=r"killed by SIGKILL in step 3 of .*workers.log$"):
        answer(process)
    wait_until(lambda: not is_alive(child))


@pytest.mark.long
@pytest.mark.slow
def test_child_of_a_method_ends_with_a_launch_that_is_killed(tmp_path: Path) -> None:
    methods = write_method(tmp_path, f"{LATER}{FORK}")
    command = [sys.executable, "-m", "study.launch", "--include", str(methods), "--method", "faulty", *STUDY]
    command += ["--epochs", "1000", "--driver", "local", "--out", str(tmp_path), *ONE_AT_A_TIME]
    with (tmp_path / "launch.log").open("w") as output:
        launcher = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    wait_until((tmp_path / "child").exists)
    wait_until((tmp_path / "child").read_text)
    started = psutil.Process(launcher.pid).children(recursive=True)
    assert int((tmp_path / "child").read_text()) in [process.pid for process in started]
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not any(map(is_alive, started)))


WITHOUT_INIT = f"""
import ctypes, subprocess, sys
import psutil

ctypes.CDLL(None).prctl({PR_SET_CHILD_SUBREAPER}, 1)  # orphans come to this process, which collects none of them
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
print([child.status() for child in psutil.Process().children()])
"""
WORKER = """
from study.drivers.trial_process import TrialProcess

process = TrialProcess(gpus="", threads=1, log=None)
assert process.receive() is None
process.end()
assert process.wait()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="orphans go to init alone")
def test_worker_leaves_no_zombie_where_nobody_collects_orphans() -> None:
    command = [sys.executable, "-c", WITHOUT_INIT, WORKER]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads the environment of a process")
def test_worker_has_threads_of_its_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = psutil.Process().children()
    process = TrialProcess(gpus="", threads=2, log=None)
    try:
        (child,) = (child for child in psutil.Process().children() if child not in before)
        assert child.environ()["OMP_NUM_THREADS"] == "2"
    finally:
        process.receive()
        process.end()
        process.wait()


# ---- a launch whose worker does not answer, or does not end


def test_driver_ends_a_worker_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        handles: tuple = ()

        def check_silence(self) -> None:
            raise ProcessLost(Loss(error="its process hung", is_crash=True))

    failed: list[tuple] = []
    made = Cluster(tmp_path, monkeypatch, "a").driver
    local = LocalDriver.__new__(LocalDriver)
    local.__dict__.update(made.__dict__, _processes={"0": Hanging()}, _training={"0"})
    monkeypatch.setattr(LocalDriver, "failed", lambda self, slot, error, **why: failed.append((slot, error, why)))
    local._receive()
    assert failed == [("0", "its process hung", {"preempted": False, "is_crash": True})] and not local._processes


@pytest.mark.parametrize(("crashes", "factor"), [(0, 1), (1, 2), (3, 8)])
def test_silence_limit_of_a_trial_doubles_with_each_crash(tmp_path, monkeypatch, crashes: int, factor: int) -> None:
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    first, *_ = cluster.hand_out()
    trial = cluster.trial_of(first)
    monkeypatch.setattr(cluster.scheduler.faults, "count_crashes", lambda key: crashes * (key == trial.key))
    given = cluster.driver._build_assignment(trial, smoke={})
    assert given.silence_seconds == factor * driver.SILENCE_SECONDS
    smoke = dict.fromkeys("abc", given.trial.spec)
    assert cluster.driver._build_assignment(None, smoke=smoke).silence_seconds == 3 * driver.SILENCE_SECONDS


def test_launch_waits_for_workers_during_grace_only(tmp_path, monkeypatch, capsys) -> None:
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    first, *_ = cluster.hand_out()
    cluster.driver.begun(first)
    now = time.monotonic()
    cluster.driver._until = now - driver.GRACE_SECONDS + 30
    cluster.driver.watch()
    cluster.driver.watch()
    assert cluster.scheduler.draining and not cluster.driver.drained
    cluster.driver._until = now - driver.GRACE_SECONDS
    cluster.driver.watch()
    assert cluster.driver.drained and cluster.trial_of(first).key in cluster.scheduler.facts.under_way
    assert says(capsys.readouterr().out, "1 worker did not answer ", "60 seconds ", "will be ended\n")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
def test_time_limit_ends_a_worker_that_hangs(tmp_path: Path, driver: str) -> None:
    """The method writes down its process, and then blocks; the second launch has nothing against it."""
    fault = "if step == 3: (HERE / 'child').write_text(str(os.getpid())); time.sleep(3600)"
    limit = ["--max-minutes", "0.5", "--driver", driver, *ONE_AT_A_TIME]
    done = launch(tmp_path, fault, "--method", "faulty", *limit, change="driver.GRACE_SECONDS = 2.0")
    assert done.returncode == 1 and "interrupted; to continue:" in done.stdout, done.stderr
    events = read_events(tmp_path / "study")
    assert isinstance(events[-1], LaunchEnded) and events[-1].status == "drained"
    assert not any(isinstance(event, TrialRetried | TrialEnded) for event in events)
    if (tmp_path / "child").exists():  # a busy machine may not come so far
        assert says(done.stderr, "did not answer ", "2 seconds ", "will be ended")
        with contextlib.suppress(psutil.NoSuchProcess):  # Ray ends it at about the same time as the launch
            psutil.Process(int((tmp_path / "child").read_text())).wait(timeout=60)


@pytest.mark.long
@pytest.mark.slow
def test_leftover_thread_is_one_line_without_delay(tmp_path: Path) -> None:
    fault = "if step == 3: threading.Thread(target=time.sleep, args=(3600,)).start()"
    done = launch(tmp_path, fault, "--method", "faulty", "--driver", "local", *ONE_AT_A_TIME)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("a worker did not end within 10 seconds") == 1
    assert "Timeout (0:00:08)!" in log_of(tmp_path)


# ---- the log of the workers


def test_long_log_is_emptied_and_its_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_log, "LOG_BYTES", 10)
    log = tmp_path / "workers.log"
    shorten_log(log)
    with log.open("ab", buffering=0) as worker:
        worker.write(b"0123456789")
        shorten_log(log)
        assert log.read_bytes() == b"0123456789"
        worker.write(b"abc")
        shorten_log(log)
        worker.write(b"more")
    assert log.read_bytes() == b"more" and (tmp_path / "workers.log.1").read_bytes() == b"3456789abc"


def test_driver_keeps_the_log_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_log, "LOG_BYTES", 10)
    cluster = Cluster(tmp_path, monkeypatch, "a")
    (tmp_path / "workers.log").write_bytes(b"0123456789abc")
    cluster.driver.watch()
    assert (tmp_path / "workers.log").read_bytes() == b""
