"""What the autoscaler of a cluster may add: what `ray up` leaves on the head, or what KubeRay has as a RayCluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CONFIG = Path("~/ray_bootstrap_config.yaml").expanduser()  # where `ray up` puts it on the head
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # of a pod


@dataclass(frozen=True, kw_only=True)
class WorkerKind:
    """A kind of node beside the head."""

    name: str
    resources: Mapping[str, float]
    most: int  # that there may be

    def is_one(self, resources: Mapping[str, float]) -> bool:
        """Whether a node with these resources can do what one of the kind can, and anything at all."""
        wanted = {name: self.resources[name] for name in ("CPU", "GPU") if self.resources.get(name)}
        if not wanted:
            return bool(resources.get("CPU") or resources.get("GPU"))
        return all(resources.get(name, 0) >= amount for name, amount in wanted.items())


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """The limits of one."""

    most: int  # nodes beside the head
    kinds: tuple[WorkerKind, ...]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Autoscaler:
        """The one that Ray runs by this configuration."""
        most = config["max_workers"]
        kinds = tuple(
            WorkerKind(name=name, resources=kind.get("resources", {}), most=kind.get("max_workers", most))
            for name, kind in config["available_node_types"].items()
            if name != config["head_node_type"]
        )
        return cls(most=most, kinds=kinds)

    @classmethod
    def here(cls) -> Autoscaler | None:
        """That of the cluster whose head this is; None where there is none, or nobody says."""
        if CONFIG.exists():
            return cls.of(yaml.safe_load(CONFIG.read_text()))
        name, namespace = os.environ.get("RAY_CLUSTER_NAME"), ACCOUNT / "namespace"
        if not name or not namespace.exists():
            return None
        return _of_kuberay(name, namespace=namespace.read_text().strip())


def _of_kuberay(name: str, *, namespace: str) -> Autoscaler | None:
    """By the RayCluster of this name, as Ray's own autoscaler reads it; None where this pod may not read it.

    KubeRay lets the head do so where the cluster has `enableInTreeAutoscaling`.
    """
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler._private.kuberay.node_provider import KubernetesHttpApiClient

    logging.getLogger("ray.autoscaler").setLevel(logging.ERROR)  # it tells of every look at its token
    try:
        cluster = KubernetesHttpApiClient(namespace).get(f"rayclusters/{name}")
    except OSError:  # of `requests`
        return None
    if not cluster["spec"].get("enableInTreeAutoscaling"):
        return None
    return Autoscaler.of(_derive_autoscaling_config_from_ray_cr(cluster))
