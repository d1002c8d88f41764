"""Studies on a Ray cluster that they did not start: pytest tests/study/cluster/test_shared_cluster.py"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.started_processes import kill_all
from ray.cluster_utils import Cluster

from study.facts.study_facts import read_facts

pytestmark = pytest.mark.slow

SMALL = ["--method", "albert", "--task", "rte", "--samples", "1", "--seeds", "2", "--epochs", "3", "--profile", "mini"]


@pytest.fixture
def cluster():
    """Slots for two studies of two trials at a time, whatever the machine has."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def launch(folder: Path, cluster: Cluster) -> subprocess.Popen:
    where = ["--out", str(folder.parent), "--name", folder.name, "--address", cluster.address, "--tracking-uri", "none"]
    return subprocess.Popen(
        [sys.executable, "-m", "study.launch", *SMALL, *where],
        cwd=ROOT,
        env={**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"},  # Ray waits for a minute
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_two_studies_run_at_the_same_time_on_one_cluster(tmp_path, cluster):
    folders = [tmp_path / "first", tmp_path / "second"]
    launches = [launch(folder, cluster) for folder in folders]
    for process in launches:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, errors
    first, second = ({record.key: record for record in read_facts(f).records} for f in folders)
    assert len(first) == len(second) == 3
    assert {key: (row.score, row.epoch) for key, row in first.items()} == {
        key: (row.score, row.epoch) for key, row in second.items()
    }


@pytest.mark.long
def test_study_continues_on_another_cluster(tmp_path, cluster):
    process = launch(tmp_path / "study", cluster)
    for line in process.stderr:
        if line.startswith("[1/"):
            break
    cluster.remove_node(cluster.head_node, allow_graceful=False)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1, errors
    assert "GCS may have been killed" in errors and "Traceback" not in errors  # Ray itself ends the process
    another = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        process = launch(tmp_path / "study", another)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, errors
    finally:
        another.shutdown()
    keys = [record.key for record in read_facts(tmp_path / "study").records]
    assert len(keys) == len(set(keys)) == 3


TOKEN_HEAD = """
import signal
from ray._private.node import Node
from ray._private.parameter import RayParams
from study.cluster.ray_internals import loopback_only
with loopback_only():
    memory = {"object_store_memory": 100 * 2**20}
    print(Node(RayParams(num_cpus=1, include_dashboard=False, **memory), head=True).gcs_address, flush=True)
    signal.pause()
"""


@pytest.fixture
def token_cluster():
    """The address of a cluster that asks for a token."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "c" * 32, "PYTHONPATH": str(ROOT)}
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    head = subprocess.Popen([sys.executable, "-c", TOKEN_HEAD], env=os.environ | own, **said)
    yield head.stdout.readline().strip()
    kill_all(head)


def ask(command: str, *options: str, own: dict[str, str]) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", command, *options]
    return subprocess.run(run, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "own",
    [
        {"RAY_AUTH_MODE": "disabled"},
        pytest.param({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "f" * 32}, marks=pytest.mark.long),
    ],
)
def test_a_stranger_without_the_token_is_refused_in_one_line(tmp_path, token_cluster, own):
    refusal = f"--address {token_cluster}: the Ray cluster there requires another token; put its token into"
    launched = ask("study.launch", *SMALL, "--out", str(tmp_path), "--address", token_cluster, own=own)
    assert launched.returncode == 2 and launched.stdout == ""
    assert launched.stderr.startswith(f"study.launch: {refusal}") and launched.stderr.count("\n") == 1
    examined = ask("study.doctor", "--address", token_cluster, own=own)
    assert examined.returncode == 1 and examined.stderr == ""
    assert [line.startswith(f"FAULT Ray: {refusal}") for line in examined.stdout.splitlines()] == [False, True, False]
    assert list(tmp_path.iterdir()) == []
