"""The benchmark of a large cluster, in small: pytest tests/house/test_cluster_benchmark.py"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from benchmarks import cluster
from benchmarks.hosted_trials import HostedTrial


@pytest.mark.long
@pytest.mark.slow
def test_trials_of_many_slots_run_in_few_processes() -> None:
    options = cluster.build_parser().parse_args(["--slots", "6", "--nodes", "2", "--window", "12"])
    # In a process without what other tests have left of their Ray in this one.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        run = alone.submit(cluster.figures_of_run, options, seconds=6.0).result()  # long enough to fill all slots
    assert 0 < run["busy"] <= 1 and run["measured_seconds"] >= 12
    assert run["decisions_per_second"] > run["starts_per_second"] > 0
    assert 0 < run["report_cpu_ms"] < run["all_cpu_ms"]


def test_the_longest_trials_are_held_against_the_bars() -> None:
    good = {"slots": 256.0, "seconds": 30.0, "busy": 0.96, "report_cpu_ms": 1.9}
    saturated = {"slots": 256.0, "seconds": 3.0, "busy": 0.2, "report_cpu_ms": 3.0}
    assert list(dict(cluster.checks_of([saturated, good])).values()) == [True, True]
    assert list(dict(cluster.checks_of([saturated])).values()) == [False, False]


def test_a_window_opens_once_all_slots_are_filled() -> None:
    window = cluster.Window(seconds=0.0)
    window.look(is_full=False, decisions=3)
    assert not window.is_open
    window.look(is_full=True, decisions=5)
    assert window.is_open
    window.look(is_full=False, decisions=9)
    assert not window.is_open and window.decisions == 4


def test_a_hosted_trial_is_ready_once_it_has_begun() -> None:
    begun = object()
    assert HostedTrial(None, 3, begun).__ray_ready__.remote() is begun
