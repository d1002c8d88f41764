"""A pretraining in two processes on two nodes of a Ray cluster: pytest tests/study/test_pretraining_processes.py"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from helpers.places import PATIENCE_SECONDS, ROOT
from ray.cluster_utils import Cluster

from analysis.verify import verify
from study.decisions.specs import pretraining_spec
from study.facts.events import TrialRetried, read_events
from study.facts.study_facts import read_facts, read_records
from study.plans.plan_file import require_plan
from trainables.runs.pretraining_run import PretrainingRun

pytestmark = pytest.mark.slow

SMALL = ["--profile", "mini", "--method", "albert", "--task", "rte", "--samples", "1", "--seeds", "1", "--epochs", "1"]
SETTINGS = ("steps=60", "steps_per_epoch=50", "warmup_steps=5")
PRETRAINING = ["--pretrain", "mlm", *(word for text in SETTINGS for word in ("--pretrain-set", text))]
PRETRAINING += ["--pretrain-set", "hidden_dropout=0.0", "--pretrain-processes", "2"]


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Iterator[Cluster]:
    """A head, and two nodes with a CPU each: exactly what two processes ask for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        cluster.shutdown()


def processes_of_groups(cluster: Cluster) -> list[psutil.Process]:
    """Those of this cluster that pretrain now."""
    raylets = [psutil.Process(node.all_processes["raylet"][0].process.pid) for node in cluster.worker_nodes]
    return [child for raylet in raylets for child in raylet.children() if "RayTrainWorker" in child.name()]


def has_tokens(process: psutil.Process, cache: Path) -> bool:
    """Whether it has mapped the tokenised corpus into memory, so that its first step is near."""
    with suppress(psutil.Error):
        return any(file.path.startswith(str(cache)) for file in process.memory_maps())
    return False


def kill_one_process(cluster: Cluster, launcher: subprocess.Popen, cache: Path) -> None:
    """Once both are about to train. Ray Train by itself starts a group again that was not whole yet."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(processes := [one for one in processes_of_groups(cluster) if has_tokens(one, cache)]) < 2:
        assert launcher.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    assert len({process.ppid() for process in processes}) == 2, "on a node each"
    processes[1].kill()


@pytest.mark.long
def test_two_processes_of_which_one_is_killed_end_as_one_process(cluster, tmp_path):
    folder = tmp_path / "runs" / "two"
    where = ["--out", str(folder.parent), "--name", folder.name, "--tracking-uri", "none", "--address", cluster.address]
    command = [sys.executable, "-m", "study.launch", *SMALL, *PRETRAINING, *where]
    with (tmp_path / "launch.log").open("w") as log:
        launcher = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
    try:
        kill_one_process(cluster, launcher, tmp_path / "cache")
        assert launcher.wait(timeout=PATIENCE_SECONDS) == 0, (tmp_path / "launch.log").read_text()
    finally:
        launcher.kill()
    (retried,) = [event for event in read_events(folder) if isinstance(event, TrialRetried)]
    assert retried.failure.cause == "machine" and "is lost" in retried.failure.error
    scores, found = scores_of_one_process(folder, tmp_path / "one"), read_records(folder)[0].metrics
    assert {name: found[name] for name in scores} == pytest.approx(scores, abs=1e-3)  # an answer of a thousand may flip
    assert verify(folder) == []


def scores_of_one_process(folder: Path, cache: Path) -> dict[str, float]:
    """Held-out scores of the study's pretraining by one process, without Ray."""
    plan, threads = require_plan(folder).plan, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = PretrainingRun(pretraining_spec(plan, read_facts(folder).trials[plan.pretraining_key]), cache=cache)
        while not run.finished:
            run.run_epoch()
        return run.outcome().scores
    finally:
        torch.set_num_threads(threads)
