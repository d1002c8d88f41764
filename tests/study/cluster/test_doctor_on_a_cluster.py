"""What doctor says of workers: pytest tests/study/cluster/test_doctor_on_a_cluster.py"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import shifted_clock
from helpers.node_apart import MAY_MOUNT, node_apart
from helpers.places import PATIENCE_SECONDS, ROOT
from ray.cluster_utils import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.long]
needs_mount = pytest.mark.skipif(not MAY_MOUNT, reason="needs the privileges of mount and unshare")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, as that of `cluster.yaml`."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    token = Path.home() / ".ray" / "auth_token"  # Ray makes one that other users may open, if there is none
    if token.exists():
        token.chmod(0o600)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def head(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster without a worker, also after the test."""
    yield cluster
    for node in [*cluster.worker_nodes]:
        cluster.remove_node(node)


def examine(head: Cluster, storage: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "study.doctor", "--address", head.address, "--storage", str(storage), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def faults(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.removeprefix("FAULT ") for line in done.stdout.splitlines() if line.startswith("FAULT ")]


def test_a_cluster_without_a_worker_is_not_ready(head, tmp_path):
    done = examine(head, tmp_path, "--wait-minutes", "0.1")
    (fault,) = faults(done)
    assert fault.startswith("workers: no node can run a trial after 0.1 minutes: read the autoscaler's status")
    assert done.returncode == 1 and "waiting for a worker (any): 0 of 0.1 minutes" in done.stderr


def test_a_worker_that_comes_meanwhile_is_waited_for_and_checked(head, tmp_path):
    command = [sys.executable, "-m", "study.doctor", "--address", head.address, "--storage", str(tmp_path)]
    doctor = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert doctor.stderr is not None and doctor.stderr.readline().startswith("waiting for a worker (any): 0 of 15 min")
    head.add_node(num_cpus=1)
    said, _ = doctor.communicate(timeout=PATIENCE_SECONDS)
    assert doctor.returncode == 0 and "2 nodes, 1 CPUs" in said and said.count("storage on") == 2, said


def test_a_node_that_was_lost_is_no_fault(head, tmp_path):
    """Just after it was lost, when Ray still calls it alive."""
    head.add_node(num_cpus=1)
    lost = head.add_node(num_cpus=1)
    head.remove_node(lost, allow_graceful=False)
    done = examine(head, tmp_path)
    assert (done.returncode, faults(done)) == (0, []), done.stdout


@needs_mount
def test_a_worker_with_other_code_is_named(head, tmp_path):
    other = shutil.copytree(ROOT / "study", tmp_path / "study", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "answers.py").open("a") as file:
        file.write("# another version\n")
    with node_apart(head, f"mount --bind {other} {ROOT / 'study'}"):
        done = examine(head, tmp_path)
    (fault,) = faults(done)
    assert (
        fault.startswith("node ")
        and ": study " in fault
        and "copy the code of this machine to the node (ray up)" in fault
    )


@needs_mount
def test_a_worker_whose_clock_is_off_is_named(head, tmp_path):
    (tmp_path / "python").mkdir()
    shutil.copy(shifted_clock.__file__, tmp_path / "python" / "sitecustomize.py")
    (tmp_path / "clock").write_text("-300")
    own = {"PYTHONPATH": f"{tmp_path / 'python'}:{ROOT}:{ROOT / 'tests'}", "SHIFTED_CLOCK": str(tmp_path / "clock")}
    with node_apart(head, "true", **own):
        done = examine(head, tmp_path)
    (fault,) = faults(done)
    assert "the clock is wrong by 5.0 minutes: synchronise it (chrony, ntpd)" in fault
