"""A second node for the Ray that a launch has started: python -m helpers.joined_node 127.0.0.1:PORT

`ray start` takes the address of a network for its node's, where a Ray on loopback cannot be reached.
"""

from __future__ import annotations

import signal
import sys

from ray._private.node import Node
from ray._private.parameter import RayParams

from study.cluster.ray_internals import loopback_only


def main() -> None:
    memory = 100 * 2**20  # bytes
    ports = {"min_worker_port": 0, "max_worker_port": 0}
    with loopback_only():
        Node(RayParams(gcs_address=sys.argv[1], num_cpus=2, object_store_memory=memory, **ports), head=False)
        signal.pause()


if __name__ == "__main__":
    main()
