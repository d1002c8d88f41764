"""A cluster on hosts of this machine, for all tests of this room: python -m pytest tests/cluster --cuts 7"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.cluster_on_hosts import ClusterOnHosts
from cluster.hosts import Hosts, missing
from filelock import FileLock, Timeout
from helpers.places import ROOT


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cuts", type=int, help="seed of the moments of power cuts (default: another one in every run)")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.cuts is None:
        config.option.cuts = random.SystemRandom().randrange(10_000)


def pytest_report_header(config: pytest.Config) -> str:
    return f"power is cut at moments of its own in every run; these again: --cuts {config.option.cuts}"


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterOnHosts]:
    """An operator, a head and two workers, after the first `ray up`."""
    environment, extra = (ROOT / ".venv").resolve(), ROOT / "build" / "cluster"
    if reason := missing() or (None if extra.exists() else f"{extra} is not there: make cluster-test builds it"):
        pytest.skip(reason)
    hosts = Hosts(layers=(extra, environment), seen=(Path(sys.base_prefix),))
    try:
        with FileLock(f"{hosts.state}.lock", timeout=0):
            hosts.down()  # what a run that was killed has left
            try:
                cluster = ClusterOnHosts(hosts, random.Random(request.config.option.cuts))
                hosts.up(2 + len(cluster.workers))
                cluster.prepare()
                cluster.up()
                yield cluster
            finally:
                hosts.down()
    except Timeout:
        pytest.skip(f"another run has its hosts in {hosts.state}")
