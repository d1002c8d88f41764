"""The nodes of a launch, the CPUs and GPUs per trial, and the number of concurrent trials; Ray is not needed."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, Protocol

# GPUs are counted by the first pattern that matches any file: a sandbox may have devices but no folder of the driver.
GPUS = ("/proc/driver/nvidia/gpus/*", "/dev/nvidia[0-9]*")
CONTROL_GROUPS = Path("/sys/fs/cgroup")
CPU_LIMITS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # quota and period, version 2 and 1
CONFIG = Path(os.path.expanduser("~/ray_bootstrap_config.yaml"))  # noqa: PTH111  # of `ray up`; keeps ~ without a home
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # service account of a pod


# ---- the nodes


class Nodes(Protocol):
    """The current nodes of a launch."""

    def alive(self) -> Mapping[str, Mapping[str, float]]:
        """Map the ID of every living node to its numbers of CPUs (`CPU`) and GPUs (`GPU`)."""
        ...

    def lost(self) -> Mapping[str, str]:
        """Map the ID of every dead node to its host name."""
        ...


class ThisMachine:
    """This machine as the only node of a launch without Ray; its ID is the host name."""

    def alive(self) -> dict[str, dict[str, float]]:
        """Map the ID of this machine to the numbers of CPU cores and GPUs available to this process."""
        cores = count_cores()
        return {socket.gethostname(): {"CPU": float(cores), "GPU": float(count_local_gpus())}}

    def lost(self) -> dict[str, str]:
        """Return {}: a launch without Ray cannot outlive its machine."""
        return {}


def count_cores() -> int:
    """Count the CPU cores that this process may use: those of its affinity, or fewer if its container has a limit."""
    return max(1, min([len(os.sched_getaffinity(0)), *_read_cpu_limits()]))


def _read_cpu_limits() -> list[int]:
    """Read the CPU limits of this container's control group, of version 2 or 1, in whole cores; [] without a limit."""
    limits = []
    for files in CPU_LIMITS:
        try:
            quota, period = " ".join((CONTROL_GROUPS / name).read_text() for name in files).split()
            if int(quota) > 0:
                limits.append(int(quota) // int(period))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return limits


def list_visible_gpus() -> tuple[str, ...]:
    """List the NVIDIA GPUs of this machine that CUDA_VISIBLE_DEVICES allows, without loading CUDA."""
    present = next((number for pattern in GPUS if (number := len(glob(pattern)))), 0)  # noqa: PTH207  # absolute pattern
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(present)) if visible is None else (name.strip() for name in visible.split(","))
    return tuple(name for name in names if name not in ("", "-1"))[:present]


def count_local_gpus() -> int:
    """Count the NVIDIA GPUs of this machine that CUDA_VISIBLE_DEVICES allows."""
    return len(list_visible_gpus())


# ---- limits of a cluster's autoscaler, from the file that `ray up` leaves on the head or from KubeRay's RayCluster


@dataclass(frozen=True, kw_only=True)
class WorkerKind:
    """A kind of worker node that an autoscaler can add."""

    name: str
    resources: Mapping[str, float]
    most: int  # maximum number of these nodes

    def is_one(self, resources: Mapping[str, float]) -> bool:
        """Check if a node has the listed CPUs and GPUs; if none are listed, any CPU or GPU is enough."""
        wanted = {name: self.resources[name] for name in ("CPU", "GPU") if self.resources.get(name)}
        if not wanted:
            return bool(resources.get("CPU") or resources.get("GPU"))
        return all(resources.get(name, 0) >= amount for name, amount in wanted.items())


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """The number and kinds of worker nodes that an autoscaler may add."""

    most: int  # maximum number of worker nodes
    kinds: tuple[WorkerKind, ...]

    @classmethod
    def from_configuration(cls, config: Mapping[str, Any]) -> Autoscaler:
        """Read the limits from a configuration of Ray's autoscaler."""
        most = config["max_workers"]
        kinds = tuple(
            WorkerKind(name=name, resources=kind.get("resources", {}), most=kind.get("max_workers", most))
            for name, kind in config["available_node_types"].items()
            if name != config["head_node_type"]
        )
        return cls(most=most, kinds=kinds)

    @classmethod
    def read(cls) -> Autoscaler | None:
        """Read the autoscaler's limits if this machine is the head node of a cluster.

        Return None if no limits are known."""
        if CONFIG.exists():
            import yaml

            return cls.from_configuration(yaml.safe_load(CONFIG.read_text()))
        name, namespace = os.environ.get("RAY_CLUSTER_NAME"), ACCOUNT / "namespace"
        if not name or not namespace.exists():
            return None
        from study.cluster.ray_internals import read_kuberay_configuration

        config = read_kuberay_configuration(name, namespace=namespace.read_text().strip())
        return None if config is None else cls.from_configuration(config)


# ---- the share of a trial


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The CPUs and GPUs that each trial gets (fractions are allowed), and the nodes that provide them."""

    nodes: Nodes
    cpus: float
    gpus: float
    autoscaler: Autoscaler | None = None  # of the cluster; None if it has no autoscaler

    @classmethod
    def measure(cls, nodes: Nodes, *, cpus: float, gpus: float | None, address: str | None = None) -> Resources:
        """Set the CPUs and GPUs per trial. If `gpus` is None, it is set to 1, or to 0 if no node has a GPU.

        `address` is the address of the Ray cluster; None means this machine.
        """
        if gpus is None:
            gpus = float(any(node.get("GPU") for node in nodes.alive().values()))
        return cls(nodes=nodes, cpus=cpus, gpus=gpus, autoscaler=Autoscaler.read() if address else None)

    @property
    def threads(self) -> int:
        """The number of CPU threads of each trial."""
        return max(1, int(self.cpus))

    def slots(self, without: Collection[str] = ()) -> int:
        """Count the trials that can run at once on the living nodes; `without` lists the IDs of nodes to exclude."""
        return sum(fit for node, fit in self._list_node_sizes().items() if node not in without)

    def find_nodes_with_room(self) -> frozenset[str]:
        """Return the IDs of the living nodes that are large enough for a trial."""
        return frozenset(node for node, fit in self._list_node_sizes().items() if fit)

    def _list_node_sizes(self) -> dict[str, int]:
        """Map the ID of every living node to the number of trials that can run there at once."""
        return {number: self._count_places(node) for number, node in self.nodes.alive().items()}

    def count_slots_to_come(self) -> int:
        """Count the trials that can run at once on all workers that the autoscaler may add.

        Return 0 without an autoscaler."""
        if self.autoscaler is None:
            return 0
        slots = [self._count_places(kind.resources) for kind in self.autoscaler.kinds for _ in range(kind.most)]
        return sum(sorted(slots, reverse=True)[: self.autoscaler.most])

    def describe_room(self) -> str:
        """Describe the CPUs and GPUs that a trial needs, and those that the living nodes have."""
        kinds = sorted({_format_amounts(node) for node in self.nodes.alive().values()})
        nodes = f"there are nodes with {', '.join(kinds)}" if kinds else "there are no nodes"
        return f"a trial needs {_format_amounts(self._wanted)} on one node; {nodes}"

    @property
    def _wanted(self) -> dict[str, float]:
        return {"CPU": self.cpus, "GPU": self.gpus}

    def _count_places(self, node: Mapping[str, float]) -> int:
        """Count the trials that can run at once on a node. A fraction of a GPU stays on one GPU."""
        fit = {name: int(node.get(name, 0) / amount) for name, amount in self._wanted.items() if amount}
        if 0 < (part := self._wanted["GPU"]) < 1:
            fit["GPU"] = int(node.get("GPU", 0)) * int(1 / part)
        return min(fit.values())


def _format_amounts(amounts: Mapping[str, float]) -> str:
    return f"{amounts.get('CPU', 0):g} CPUs and {amounts.get('GPU', 0):g} GPUs"


def check_room(resources: Resources, *, address: str | None) -> str | None:
    """Return None if a node is large enough for a trial, or a message if an autoscaler may add such a node.

    Raises:
        ValueError: no node is large enough for a trial, and no such node can be added.
    """
    if resources.slots():
        return None
    may_grow = resources.count_slots_to_come() > 0 if resources.autoscaler else address is not None
    if not may_grow:
        raise ValueError(
            f"{resources.describe_room()}; lower --cpus-per-trial or --gpus-per-trial, or add a larger node"
        )
    return f"{resources.describe_room()}; waiting for an autoscaler to add a suitable node"
