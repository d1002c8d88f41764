"""A node that does not see the storage of the launch: pytest tests/study/drivers/test_unseen_storage.py"""

from __future__ import annotations

import pytest
from helpers.driven_cluster import Cluster
from helpers.journals import failure_of

from study.drivers.messages import Message
from study.facts.events import NodeLeftOut, TrialRetried
from study.launching.screen import describe_notice


def says_not_shared(cluster: Cluster, ray_id: str, node: str) -> str:
    """A worker on the node did not find what the launch has left in its storage; what Ray is told."""
    cluster.driver.begun(ray_id)
    key = cluster.driver._keys[ray_id]
    failure = failure_of("node", error="/shared is not the launch's folder", node=node)
    return cluster.driver.reported(ray_id, Message(key=key, host="-", node=node, failure=failure))


def test_study_continues_without_node_lacking_storage(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    first, _ = cluster.hand_out()
    assert says_not_shared(cluster, first, "a") == "STOP"
    (left_out,) = cluster.events(NodeLeftOut)
    assert left_out.node == "a" and "/shared is not the launch's folder" in describe_notice(left_out)


def test_storage_unseen_by_launcher_leaves_no_node_out(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    cluster.driver._marks = (str(tmp_path / "away"),)
    first, _ = cluster.hand_out()
    says_not_shared(cluster, first, "a")
    assert cluster.events(NodeLeftOut) == [] and cluster.events(TrialRetried)[-1].failure.cause == "machine"


def test_storage_unseen_by_only_node_ends_launch(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, monkeypatch, "a")
    (only,) = cluster.hand_out()
    with pytest.raises(ValueError, match=r"^host-of-a: /shared is not the launch's folder; no other node") as error:
        says_not_shared(cluster, only, "a")
    assert "\n" not in str(error.value) and cluster.events(TrialRetried) == []


def test_trial_without_files_at_its_end_is_no_result(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    given = cluster.hand_out()
    while (trial := cluster.trial_of(given[0])).phase == "search":
        cluster.end(given.pop(0), node="b")
        given += cluster.hand_out()
    cluster.end(given[0], node="a")
    assert trial.ended is None and trial.epochs == 0
    (left_out,) = cluster.events(NodeLeftOut)
    assert left_out.host == "host-a" and "the predictions are not in" in left_out.error
