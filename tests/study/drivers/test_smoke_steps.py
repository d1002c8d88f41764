"""A mistake in a method's code ends the launch before any trial: pytest tests/study/drivers/test_smoke_steps.py"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.journals import failure_of
from helpers.launches import ONE_AT_A_TIME, WITHOUT_RAY
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.simulation import NO_PROVENANCE, Simulation, scheduler_of
from msgspec.structs import replace

from study.cluster.resources import count_cores
from study.drivers.smoke_steps import SmokeSteps, SmokeStepsFailed, find_untried_arms, specify_smoke_step
from study.drivers.worker import run_smoke_steps
from study.facts.events import EpochReported, LaunchEnded, SmokeStepFailed, TrialStarted, read_events
from study.plans import profiles
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.runs.training import TrainingRun

LAUNCH = ["--method", "albert,broken", "--task", "rte", "--samples", "2", "--seeds", "1", "--epochs", "1"]
WHERE = ["--out", "runs", "--name", "s1", "--tracking-uri", "none"]


def mini(*methods: str) -> ResolvedPlan:
    return resolve(replace(profiles.load_profile("mini"), methods=methods, tasks=("rte", "stsb")))


@pytest.mark.slow
def test_every_method_there_is_takes_its_step() -> None:
    plan = mini("albert", "palbert", "pabee", "pondernet", "electra-small")
    report = run_smoke_steps({arm.name: specify_smoke_step(plan, arm) for arm in plan.arms}, device="cpu", node=None)
    assert report.failures == {}


def test_only_faults_of_the_method_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = mini("albert")
    spec = specify_smoke_step(plan, plan.arms[0])
    away = replace(spec, backbone=str(tmp_path / "away"))
    assert run_smoke_steps({"albert/rte": away}, device="cpu", node=None).failures == {}
    monkeypatch.setattr("trainables.albert.build", lambda config, encoder, task: {}["threshold"])
    (tmp_path / "spiece.model").write_text("no model")
    unusable = replace(spec, tokenizer=str(tmp_path))
    (failure,) = run_smoke_steps({"albert/rte": unusable}, device="cpu", node=None).failures.values()
    assert failure.error.startswith(f"tokenizer '{tmp_path}' cannot be loaded: ")
    (failure,) = run_smoke_steps({"albert/rte": spec}, device="cpu", node="node-a").failures.values()
    assert failure.error.startswith("KeyError: 'threshold' (drivers/test_smoke_steps.py, line ")
    assert failure.cause == "method" and failure.node == "node-a"
    assert failure.traceback is not None and '{}["threshold"]' in failure.traceback


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the packages with a method more, whose `build` has a mistake."""
    for package in ("analysis", "search_spaces", "study", "trainables"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(tmp_path / "search_spaces" / "albert.py", tmp_path / "search_spaces" / "broken.py")
    method = (tmp_path / "trainables" / "albert.py").read_text()
    mistake = '    heads = {"classifier": encoder}["head"]\n    return LastLayerModel('
    (tmp_path / "trainables" / "broken.py").write_text(method.replace("    return LastLayerModel(", mistake))
    return tmp_path


def python(checkout: Path, *arguments: str) -> subprocess.CompletedProcess:
    command, environment = [sys.executable, "-m", *arguments], os.environ | {"PYTHONPATH": str(checkout)}
    options = {"cwd": checkout, "env": environment, "timeout": PATIENCE_SECONDS}
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.mark.long
@pytest.mark.slow
def test_mistake_in_build_is_one_line_and_resumable(checkout: Path) -> None:
    method, study = checkout / "trainables" / "broken.py", checkout / "runs" / "s1"
    line = method.read_text().splitlines().index('    heads = {"classifier": encoder}["head"]') + 1
    done = python(checkout, "study.launch", *LAUNCH, *WHERE, *ONE_AT_A_TIME)
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 2
    assert said.startswith(
        f"study.launch: broken/rte: KeyError: 'head' (trainables/broken.py, line {line}) (in the first"
    )
    assert said.endswith("python -m study.status runs/s1 --failures") and "Traceback" not in done.stderr
    events = read_events(study)
    assert [event.arm for event in events if isinstance(event, SmokeStepFailed)] == ["broken/rte"]
    assert not any(isinstance(event, TrialStarted) for event in events) and isinstance(events[-1], LaunchEnded)

    told = python(checkout, "study.status", "runs/s1", "--failures").stdout
    assert told.startswith("broken/rte smoke step, launch refused: KeyError: 'head'")
    assert '    heads = {"classifier": encoder}["head"]' in told and "Traceback (most recent call last)" in told
    facts = json.loads(python(checkout, "study.status", "runs/s1", "--failures", "--json").stdout)
    (failure,) = facts["failures"]
    assert failure["arm"] == "broken/rte" and "batch_size" in failure["config"]

    method.write_text(method.read_text().replace('["head"]', '["classifier"]'))
    done = python(checkout, "study.launch", *LAUNCH, *WHERE, *WITHOUT_RAY)
    assert done.returncode == 0, done.stderr
    assert any(isinstance(event, EpochReported) for event in read_events(study))


@pytest.mark.long
@pytest.mark.slow
def test_actor_without_step_takes_trials(checkout: Path) -> None:
    method = checkout / "trainables" / "broken.py"
    once = f"""    try:
        open({str(checkout / "slept")!r}, "x").close()
        __import__("time").sleep(4)
    except FileExistsError:
        pass"""
    method.write_text(method.read_text().replace('    heads = {"classifier": encoder}["head"]', once))
    arms = ["--method", "broken", "--task", "rte", "--samples", "3", "--seeds", "1", "--epochs", "6"]
    done = python(checkout, "study.launch", *arms, *WHERE, "--cpus-per-trial", str(count_cores() / 2))
    assert done.returncode == 0, done.stderr
    keys = [event.key for event in read_events(checkout / "runs" / "s1") if isinstance(event, EpochReported)]
    turns = sum(1 for one, other in pairwise(keys) if one != other)
    assert turns >= len(set(keys))  # one by one they would be one less


@pytest.mark.parametrize(("samples", "workers"), [(1, 2), (9, 4)])
def test_workers_start_before_any_trial(samples: int, workers: int) -> None:
    """Of one arm with one seed: one of them takes its step."""
    asked = replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=samples, seeds=1)
    simulation = Simulation(resolve(asked))
    scheduler = scheduler_of(simulation.resolved, simulation.journal)
    steps = SmokeSteps(scheduler, slots=4)
    parts = [steps.next_part(str(number)) for number in range(workers)]
    assert [len(part) for part in parts if part is not None] == [0] * (workers - 1) + [1]
    assert steps.next_part("more") is None and not steps.parts
    for number in range(workers):
        assert not steps.are_over
        steps.process_report(str(number), run_smoke_steps(parts[number], device="cpu", node=None))
    assert steps.are_over


def test_arms_of_lost_process_retry_alone_once() -> None:
    simulation = Simulation(mini("albert", "palbert"))
    steps = SmokeSteps(scheduler_of(simulation.resolved, simulation.journal), slots=1)
    part = steps.next_part("a")
    assert part is not None and len(part) > 2
    steps.lose_part("a", failure_of("crash", error="ended by SIGSEGV"))
    alone = [steps.next_part(name) for name in ("b", "c")]
    assert [len(each) for each in alone] == [1, 1] and not steps.are_over
    steps.lose_part("b", failure_of("machine"))  # killed from outside: nobody's fault
    with pytest.raises(SmokeStepsFailed, match=rf"^{next(iter(alone[1]))}: ended by SIGSEGV \(in the first") as failed:
        steps.lose_part("c", failure_of("crash", error="ended by SIGSEGV"))
    assert [failure.cause for failure in failed.value.failures.values()] == ["method"]
    left = [steps.next_part(str(number)) for number in range(len(steps.parts))]
    assert sorted(arm for each in left for arm in each) == sorted(part.keys() - alone[0].keys() - alone[1].keys())


def test_arm_trained_with_this_code_takes_no_smoke_step() -> None:
    simulation = Simulation(mini("albert", "palbert"))
    before = scheduler_of(simulation.resolved, simulation.journal).progress
    every = [arm.name for arm in simulation.resolved.arms]
    assert [arm.name for arm in find_untried_arms(before, NO_PROVENANCE)] == every
    simulation.launch(kill_at=10)
    trained = {simulation.journal.facts.trials[event.key].started.arm for event in simulation.journal.of(EpochReported)}
    now = scheduler_of(simulation.resolved, simulation.journal).progress
    left = [arm.name for arm in find_untried_arms(now, NO_PROVENANCE)]
    assert trained and left == [name for name in every if name not in trained]
    other = replace(NO_PROVENANCE, code_digest="another")
    assert [arm.name for arm in find_untried_arms(now, other)] == every


def test_arm_that_breaks_the_gpu_is_the_only_one_that_is_blamed(monkeypatch):
    def break_gpu(self):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(TrainingRun, "try_out", break_gpu)
    plan = mini("albert", "pabee")
    specs = {arm.name: specify_smoke_step(plan, arm) for arm in plan.arms}
    assert list(run_smoke_steps(specs, device="cpu", node=None).failures) == [plan.arms[0].name] != list(specs)
