"""A Ray node in a mount namespace of its own, where other files may lie at the same paths."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.started_processes import kill_all
from ray.cluster_utils import Cluster

NAMESPACE = ["unshare", "--mount", "--uts", "--propagation", "private"]
MAY_MOUNT = subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


@contextmanager
def node_apart(head: Cluster, prepare: str, **environment: str) -> Iterator[None]:
    """A node called `alone` with two CPUs, once the shell has run `prepare` in its namespace."""
    start = shlex.join([sys.executable, "-m", "helpers.joined_node", head.address])
    process = subprocess.Popen(
        [*NAMESPACE, "sh", "-c", f"hostname alone && {prepare} && exec {start}"],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"} | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for_two_nodes(head, process)
        yield
    finally:
        kill_all(process)


def _wait_for_two_nodes(head: Cluster, process: subprocess.Popen) -> None:
    join = f"import ray; ray.init('{head.address}', logging_level='ERROR', log_to_driver=False)"
    count = [sys.executable, "-c", f"{join}\nprint(sum(node['Alive'] for node in ray.nodes()))"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while subprocess.run(count, capture_output=True, text=True).stdout.strip() != "2":
        assert process.poll() is None and time.monotonic() < deadline
