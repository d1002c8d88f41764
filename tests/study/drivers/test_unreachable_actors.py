"""Actors that Ray cannot reach, without Ray: pytest tests/study/drivers/test_unreachable_actors.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.driven_cluster import Cluster

from study.cluster.ray_internals import compute_loss_seconds
from study.facts.events import TrialRetried

# As Ray Tune writes it. Ray says so when a connection breaks, long before it knows whether the node is lost.
UNREACHABLE = (
    "ray.exceptions.ActorUnavailableError: The actor d2a1 is unavailable: The actor is temporarily unavailable: "
    "RpcError: RPC error: Socket closed rpc_code: 14. The task may or may not have been executed on the actor."
)


class Clock:
    """A clock for the driver, in seconds; it stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("study.drivers.tune_driver.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Cluster:
    return Cluster(tmp_path, monkeypatch, "a", "b")


def causes(cluster: Cluster) -> list[tuple[str, str | None]]:
    """Cause and node of each retry in the journal."""
    return [(event.failure.cause, event.failure.node) for event in cluster.events(TrialRetried)]


@pytest.mark.parametrize("has_reported", [True, False])
def test_unreachable_actor_waits_for_the_loss_of_its_node(cluster: Cluster, clock: Clock, has_reported: bool) -> None:
    first, second = cluster.hand_out()
    keys = [cluster.trial_of(ray_id).key for ray_id in (first, second)]
    for ray_id in (first, second):
        cluster.driver.begun(ray_id)
    if has_reported:
        cluster.steps(first, done=1, node="b")
    cluster.driver.failed(first, UNREACHABLE, preempted=False)
    clock.now += 40
    cluster.driver.explain_losses()
    assert cluster.driver.at_work == {*keys} and causes(cluster) == []
    cluster.end(second, node="a")  # other trials go on meanwhile
    cluster.lose("b")
    clock.now += 1
    cluster.driver.explain_losses()
    assert causes(cluster) == [("preemption", "b")] and cluster.driver.at_work == set()


def test_unreachable_actor_of_a_living_node_is_a_fault(cluster: Cluster, clock: Clock) -> None:
    first, _ = cluster.hand_out()
    cluster.driver.begun(first)
    cluster.steps(first, done=1, node="b")
    cluster.driver.failed(first, UNREACHABLE, preempted=False)
    cluster.lose("a")
    clock.now += compute_loss_seconds() - 1
    cluster.driver.explain_losses()
    assert causes(cluster) == []
    clock.now += 1
    cluster.driver.explain_losses()
    assert causes(cluster) == [("machine", "b")]
    cluster.driver.explain_losses()
    assert len(causes(cluster)) == 1


def test_stopping_launch_does_not_wait_for_unreachable_actors(cluster: Cluster) -> None:
    first, _ = cluster.hand_out()
    cluster.driver.begun(first)
    cluster.driver.failed(first, UNREACHABLE, preempted=False)
    cluster.scheduler.draining = True
    assert not cluster.driver.drained
    assert cluster.driver.suggest("ray-2") == "FINISHED"
    assert cluster.driver.drained and causes(cluster) == []


def test_wait_covers_all_health_checks_of_ray() -> None:
    assert compute_loss_seconds() == 5 + 5 * (3 + 10)
