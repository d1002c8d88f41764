"""Which host's power is cut: python -m pytest tests/cluster/test_power_cuts.py"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from cluster.cluster_on_hosts import ClusterOnHosts
from cluster.study_on_hosts import StudyOnHosts


@pytest.mark.parametrize("seed", range(5))
def test_host_without_a_trial_is_never_cut(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Between two trials no host has one, and this may be just when the drawn pause is over."""
    states = iter([[], [2], [], [], [3], [3]])
    hosts = SimpleNamespace(off=lambda host: None, name=lambda host: f"host{host}", state=Path())
    study = StudyOnHosts(ClusterOnHosts(hosts, random.Random(seed)), "study")
    monkeypatch.setattr(study, "busy", lambda: next(states))
    monkeypatch.setattr(study, "events", list)
    monkeypatch.setattr(study, "_reports", lambda: 8)
    monkeypatch.setattr("cluster.study_on_hosts.time.sleep", lambda seconds: None)
    host = study.wait_for_a_moment(range(1, 8))
    assert host == 3 and study.cut_power(host) == {"host3"}
