"""A node that has not the folder of one's own methods: pytest tests/study/cluster/test_included_elsewhere.py"""

from __future__ import annotations

import subprocess
import sys
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


def test_a_node_without_the_folder_trains_its_methods(tmp_path: Path) -> None:
    methods = tmp_path / "methods"
    methods.mkdir()
    for package, name in (("trainables", "patient"), ("search_spaces", "patient_space")):
        (methods / f"{name}.py").write_text((ROOT / package / "pabee.py").read_text())
    head = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    command = [sys.executable, "-m", "study.launch", "--include", str(methods), "--address", head.address]
    command += ["--method", "patient", "--task", "rte", "--samples", "1", "--seeds", "1", "--epochs", "1"]
    command += ["--profile", "mini", "--name", "own", "--out", str(tmp_path / "runs"), "--tracking-uri", "none"]
    try:
        with node_apart(head, f"mount -t tmpfs tmpfs {methods} && test ! -e {methods}/patient.py"):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    finally:
        head.shutdown()
    assert done.returncode == 0, done.stderr[-3000:]
    records = read_facts(tmp_path / "runs" / "own").records
    assert [(record.status, record.host) for record in records] == [("completed", "alone")] * 2
