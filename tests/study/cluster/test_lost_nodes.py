"""Machines that are taken away are nobody's failure: pytest tests/study/cluster/test_lost_nodes.py"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.launches import Launches
from helpers.places import PATIENCE_SECONDS
from ray.cluster_utils import Cluster

from study.facts.events import NodeLeftOut, StudyPaused, TrialRetried, TrialStarted, read_events
from study.facts.study_facts import read_facts

pytestmark = [pytest.mark.slow, pytest.mark.long]

SMALL = ["--method", "albert", "--task", "rte", "--samples", "1", "--seeds", "2", "--profile", "mini"]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def wait_for_actor(node: Any) -> None:
    """Waits until Ray has begun to start an actor that trains on the node, long before it can report."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any("ResourceTrainable" in child.name() for child in raylet.children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_trial(folder: Path) -> None:
    """Waits until a trial was started."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(isinstance(event, TrialStarted) for event in read_events(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_no_trial_has_failed_where_nodes_were_lost(tmp_path, cluster):
    """Cuts while an actor starts there for a step before all trials, whose loss counts nowhere, after a trial was
    started, and after one has reported. Ray hears of the process seconds before the node.
    `make cluster-test` has more cuts than a trial may have failures."""
    launches = Launches(tmp_path / "study", [*SMALL, "--epochs", "6", "--max-failures", "0"], random.Random(0))
    node = cluster.add_node(num_cpus=1)
    launcher = launches.launch("--address", cluster.address)
    for moment in ("before", "started", "reported"):
        wait_for_actor(node)
        if moment == "started":
            wait_for_trial(tmp_path / "study")
        if moment == "reported":
            assert launches.wait_for(0, launcher), launches.printed()
        cluster.remove_node(node, allow_graceful=False)
        node = cluster.add_node(num_cpus=1)
    launches.finish(launcher)
    events = read_events(tmp_path / "study")
    failures = [event.failure for event in events if isinstance(event, TrialRetried)]
    assert [failure.cause for failure in failures] == ["preemption"] * 2, failures
    assert "is lost; its trial continues on another node" in launches.printed()
    assert not [event for event in events if isinstance(event, NodeLeftOut | StudyPaused)]
    records = read_facts(tmp_path / "study").records
    assert [record.status for record in records] == ["completed"] * 3


def test_launch_ends_although_a_node_is_frozen(tmp_path, cluster):
    """A node that answers nobody any more, and that nobody takes away: its trial goes on where others run."""
    launches = Launches(tmp_path / "study", [*SMALL, "--epochs", "12"], random.Random(0))
    frozen = cluster.add_node(num_cpus=1)
    launcher = launches.launch("--address", cluster.address)
    assert launches.wait_for(1, launcher), launches.printed()
    raylet = psutil.Process(frozen.all_processes["raylet"][0].process.pid)
    processes = [raylet, *raylet.children(recursive=True)]
    for process in processes:
        process.suspend()
    cluster.add_node(num_cpus=1)
    try:
        launches.finish(launcher)
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()
    retried = [event.failure for event in read_events(tmp_path / "study") if isinstance(event, TrialRetried)]
    assert [failure.cause for failure in retried] == ["preemption"], retried
    assert [record.status for record in read_facts(tmp_path / "study").records] == ["completed"] * 3
