"""What a launch asks of the machines that its trials run on, and what this machine alone answers. No Ray."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from glob import glob
from typing import Protocol

# One for each GPU: of the first pattern that matches. A sandbox may show its devices, and no folder of the driver.
GPUS = ("/proc/driver/nvidia/gpus/*", "/dev/nvidia[0-9]*")


class Nodes(Protocol):
    """The machines of a launch, as they are now."""

    def alive(self) -> Mapping[str, Mapping[str, float]]:
        """Number of every node that is alive -> what it has of `CPU` and `GPU`."""
        ...

    def lost(self) -> Mapping[str, str]:
        """Numbers of the nodes that are not alive any more -> their hosts."""
        ...


class ThisMachine:
    """The one node of a launch whose trials are processes of its own; its number is its host's name."""

    def alive(self) -> dict[str, dict[str, float]]:
        """This one, with the cores and GPUs that are ours."""
        cores = len(os.sched_getaffinity(0))
        return {socket.gethostname(): {"CPU": float(cores), "GPU": float(local_gpus())}}

    def lost(self) -> dict[str, str]:
        """None: a launch ends with its machine."""
        return {}


def visible_gpus() -> tuple[str, ...]:
    """NVIDIA GPUs of this machine that CUDA_VISIBLE_DEVICES leaves, by its names, found without loading a driver."""
    there = next((number for pattern in GPUS if (number := len(glob(pattern)))), 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(there)) if visible is None else (name.strip() for name in visible.split(","))
    return tuple(name for name in names if name not in ("", "-1"))[:there]


def local_gpus() -> int:
    """How many these are."""
    return len(visible_gpus())
