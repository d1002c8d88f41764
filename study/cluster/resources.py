"""What a trial holds while it runs, and how many trials a cluster can run at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ray
import yaml

AUTOSCALER_CONFIG = Path("~/ray_bootstrap_config.yaml").expanduser()  # where `ray up` puts it on the head


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one trial holds while it runs. `gpus` may be a fraction; None packs by measured memory."""

    cpus: float
    gpus: float | None
    autoscaler: Path | None = None  # the configuration of the cluster's autoscaler, where there is one

    @classmethod
    def of_cluster(cls, *, cpus: float, gpus: float | Literal["auto"] | None, address: str | None) -> Resources:
        """Of the connected cluster: a whole GPU for a trial where there are any, unless it is said otherwise."""
        there_are_gpus = bool(ray.cluster_resources().get("GPU"))
        if gpus is None or (gpus == "auto" and not there_are_gpus):
            gpus = float(there_are_gpus)
        autoscaler = AUTOSCALER_CONFIG if address and AUTOSCALER_CONFIG.exists() else None
        return cls(cpus=cpus, gpus=None if gpus == "auto" else gpus, autoscaler=autoscaler)

    def slots(self) -> int:
        """Trials that the cluster can run at a time, as it is now."""
        return self._fit_in(ray.cluster_resources())

    def nodes(self) -> frozenset[str]:
        """Ray's numbers of the nodes, alive now, that can hold a trial."""
        nodes = [node for node in ray.nodes() if node["Alive"] and self._fit_in(node["Resources"])]
        return frozenset(node["NodeID"] for node in nodes)

    def slots_to_come(self) -> int:
        """Trials at a time once the autoscaler has added every node that it may; 0 where there is no autoscaler."""
        if self.autoscaler is None:
            return 0
        cluster = yaml.safe_load(self.autoscaler.read_text())
        most = cluster["max_workers"]
        types = [kind for name, kind in cluster["available_node_types"].items() if name != cluster["head_node_type"]]
        slots = [
            self._fit_in(kind.get("resources", {})) for kind in types for _ in range(kind.get("max_workers", most))
        ]
        return sum(sorted(slots, reverse=True)[:most])

    def _fit_in(self, resources: Mapping[str, float]) -> int:
        wanted = {"CPU": self.cpus, "GPU": 1.0 if self.gpus is None else self.gpus}
        return int(min(resources.get(name, 0) / amount for name, amount in wanted.items() if amount))
