"""A node where the shared folder is not mounted: pytest tests/study/cluster/test_unmounted_storage.py

Its Ray runs in a mount namespace of its own, where other files lie at the same path.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from helpers.node_apart import MAY_MOUNT, node_apart
from helpers.places import PATIENCE_SECONDS, ROOT
from ray.cluster_utils import Cluster

from study.facts.study_facts import read_facts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not MAY_MOUNT, reason="needs the privileges of mount and unshare"),
]
SMALL = ["--method", "albert", "--task", "rte", "--samples", "1", "--seeds", "2", "--epochs", "2", "--profile", "mini"]


@pytest.fixture
def head() -> Iterator[Cluster]:
    """One without CPUs, as that of `cluster.yaml`."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def node_without(shared: Path, head: Cluster) -> AbstractContextManager[None]:
    """A node that has a folder of its own at `shared`, with what was once copied there."""
    return node_apart(
        head, f"mount -t tmpfs none {shared} && mkdir -p {shared}/study/trials {shared}/study/predictions"
    )


def launch(folder: Path, head: Cluster) -> subprocess.CompletedProcess[str]:
    where = ["--out", str(folder.parent), "--name", folder.name, "--address", head.address, "--tracking-uri", "none"]
    command = [sys.executable, "-m", "study.launch", *SMALL, *where]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_node_without_shared_folder_gets_no_trials(tmp_path, head):
    with node_without(tmp_path, head):
        head.add_node(num_cpus=1)
        done = launch(tmp_path / "study", head)
    assert done.returncode == 0, done.stderr
    assert "node alone (" in done.stderr and f"{tmp_path}/study/trials is not the launch's folder" in done.stderr
    confirmed = {record.key for record in read_facts(tmp_path / "study").records if record.phase == "confirm"}
    assert len(confirmed) == 2
    assert files_in(tmp_path / "study" / "predictions") == {f"{key}.npz" for key in confirmed}
    assert files_in(tmp_path / "study" / "trials") == confirmed


def test_launch_is_refused_without_capable_node(tmp_path, head):
    with node_without(tmp_path, head):
        done = launch(tmp_path / "study", head)
    assert done.returncode == 2, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("study.launch: ")]
    assert told.startswith(f"study.launch: alone: {tmp_path}/study/trials is not the launch's folder; mount ")
    journal = (tmp_path / "study" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in journal] == ["launch_began", "trial_started", "launch_ended"]


def test_doctor_names_it_too(tmp_path, head):
    with node_without(tmp_path, head):
        command = [sys.executable, "-m", "study.doctor", "--address", head.address, "--storage", str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1
    unseen = f"this node does not see the files of the other nodes in {tmp_path}: mount one shared folder"
    assert unseen in done.stdout, done.stdout
