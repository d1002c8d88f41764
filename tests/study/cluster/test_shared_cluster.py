"""Studies on a Ray cluster that they did not start: pytest tests/study/cluster/test_shared_cluster.py"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import PATIENCE_SECONDS, ROOT
from ray.cluster_utils import Cluster

from study.facts.record import read_records

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


def test_two_studies_run_at_the_same_time_on_one_cluster(tmp_path, cluster):
    folders = [tmp_path / "first", tmp_path / "second"]
    launches = [launch(folder, cluster) for folder in folders]
    for process in launches:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, errors
    first, second = ({record.key: record for record in read_records(f / "records.jsonl")} for f in folders)
    assert len(first) == len(second) == 3
    assert {key: (row.score, row.epoch) for key, row in first.items()} == {
        key: (row.score, row.epoch) for key, row in second.items()
    }


def test_a_study_whose_cluster_is_gone_ends_and_goes_on_with_another(tmp_path, cluster):
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
    keys = [record.key for record in read_records(tmp_path / "study" / "records.jsonl")]
    assert len(keys) == len(set(keys)) == 3
