"""What a driver says of its workers while a study runs: pytest tests/study/drivers/test_workers_at_work.py"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.driven_cluster import Cluster
from helpers.journals import failure_of

from study.drivers.messages import Message, SmokeReport, read_steps
from study.drivers.smoke_steps import SmokeSteps
from study.facts.events import EpochReported, TrialRetried


def test_trial_is_running_while_it_has_an_actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, monkeypatch, "node-a", "node-b")
    first, second = cluster.hand_out()
    keys = [cluster.trial_of(ray_id).key for ray_id in (first, second)]
    assert {*cluster.scheduler.facts.under_way} == {*keys} and cluster.driver.at_work == set()
    cluster.driver.begun(first)
    cluster.driver.begun(second)
    assert cluster.driver.at_work == {*keys} and cluster.driver.awaited == ""
    cluster.driver.failed(first, "the actor died", preempted=False)
    assert cluster.driver.at_work == {keys[1]}


def test_steps_feed_watchdog_until_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, monkeypatch, "node-a", "node-b")
    first, second = cluster.hand_out()
    for ray_id in (first, second):
        cluster.driver.begun(ray_id)
    moved: list[int] = []
    monkeypatch.setattr(cluster.driver._watchdog, "moved", lambda: moved.append(1))
    for done in (1, 2):
        cluster.steps(first, done=done)
        cluster.steps(second, done=done)
    assert len(moved) == 4 and len(cluster.events(EpochReported)) == 0
    assert {key: steps.done for key, steps in cluster.driver.steps.items()} == dict.fromkeys(cluster.driver.at_work, 2)
    cluster.driver.watch()
    assert read_steps(tmp_path) == cluster.driver.steps
    cluster.driver.failed(first, "the actor died", preempted=False)
    assert set(cluster.driver.steps) == cluster.driver.at_work
    cluster.end(second, node="node-b")
    assert not cluster.driver.steps


def test_lost_process_costs_the_steps_of_its_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, monkeypatch, "node-a")
    (first, *_) = cluster.hand_out()
    cluster.driver._resources = replace(cluster.driver._resources, gpus=0.5)
    cluster.driver.begun(first)
    cluster.steps(first, done=8)
    cluster.driver.failed(first, "the actor died", preempted=False)
    (retried,) = cluster.events(TrialRetried)
    assert (retried.wall_seconds, retried.gpu_seconds) == cluster.trial_of(first).seconds == (8, 4)


def test_before_the_first_trial_workers_start_and_then_take_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path, monkeypatch, "node-a")
    cluster.driver._smoke = SmokeSteps(cluster.scheduler, slots=1)
    (first,) = cluster.hand_out()
    assert cluster.driver.awaited == "workers are starting"
    cluster.driver.begun(first)
    assert (
        cluster.driver.awaited == "workers are trying one training step of each arm" and cluster.driver.at_work == set()
    )
    taken = SmokeReport(failures={}, code_digest="", versions={})
    cluster.driver.reported(first, Message(smoke=taken, node="node-a"))
    assert cluster.driver.awaited == ""


def test_crash_fails_a_trial_only_while_no_other_method_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, monkeypatch, "node-a", "node-b")
    crash = failure_of("crash")
    keys = [cluster.trial_of(ray_id).key for ray_id in cluster.hand_out()]
    scheduler = cluster.scheduler
    monkeypatch.setattr(scheduler.faults, "is_final", lambda key, failure: True)
    methods = dict(zip(keys, ("albert", "pabee"), strict=True))
    monkeypatch.setattr(scheduler, "_method_of", methods.__getitem__)
    for key, is_final in zip(keys, (True, False), strict=True):
        assert scheduler.is_final(key, crash) == is_final
        scheduler.retry(key, crash)
    assert scheduler.is_final(keys[0], failure_of("method"))
