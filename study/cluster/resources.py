"""What a trial holds while it runs, and how many trials a cluster can run at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from study.cluster.autoscaler import Autoscaler
from study.cluster.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one trial holds of one of the nodes. `gpus` may be a fraction."""

    nodes: Nodes
    cpus: float
    gpus: float
    autoscaler: Autoscaler | None = None  # of the cluster, where there is one
    processes: int = 1  # of a pretraining

    @classmethod
    def of(
        cls,
        nodes: Nodes,
        *,
        cpus: float,
        gpus: float | None,
        address: str | None = None,
        processes: int = 1,
    ) -> Resources:
        """A whole GPU for a trial where there are any, unless it is said otherwise. `address`: of their cluster, if it
        is not this machine."""
        if gpus is None:
            gpus = float(any(node.get("GPU") for node in nodes.alive().values()))
        return cls(
            nodes=nodes,
            cpus=cpus,
            gpus=gpus,
            autoscaler=Autoscaler.here() if address else None,
            processes=processes,
        )

    def of_process(self) -> Resources:
        """What each process of a pretraining holds: a whole GPU where trials hold any of one."""
        return replace(self, gpus=0.0 if self.gpus == 0 else 1.0)

    def slots(self, *, without: Collection[str] = ()) -> int:
        """Trials that the cluster can run at a time, as it is now, `without` the nodes of these numbers."""
        return sum(fit for node, fit in self._rooms().items() if node not in without)

    def nodes_with_room(self) -> frozenset[str]:
        """Numbers of the nodes, alive now, that can hold a trial."""
        return frozenset(node for node, fit in self._rooms().items() if fit)

    def _rooms(self) -> dict[str, int]:
        """Number of every node that is alive -> trials that fit on it."""
        return {number: self._fit_in(node) for number, node in self.nodes.alive().items()}

    def slots_to_come(self) -> int:
        """Trials at a time once the autoscaler has added every node that it may; 0 where there is no autoscaler."""
        if self.autoscaler is None:
            return 0
        slots = [self._fit_in(kind.resources) for kind in self.autoscaler.kinds for _ in range(kind.most)]
        return sum(sorted(slots, reverse=True)[: self.autoscaler.most])

    def room_in_words(self) -> str:
        """What a trial asks for, and what there is."""
        return f"a trial asks for {self._wanted_in_words()} of one node; {self._nodes_in_words()}"

    def group_in_words(self) -> str:
        """What a pretraining asks for, and what there is."""
        each = self.of_process()._wanted_in_words()
        return f"a pretraining asks for {self.processes} times {each}; {self._nodes_in_words()}"

    def _wanted_in_words(self) -> str:
        return f"{self._wanted['CPU']:g} CPUs and {self._wanted['GPU']:g} GPUs"

    @property
    def _wanted(self) -> dict[str, float]:
        return {"CPU": self.cpus, "GPU": self.gpus}

    def _nodes_in_words(self) -> str:
        """Which kinds of node are alive."""
        alive = self.nodes.alive().values()
        kinds = {f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in alive}
        return f"there are nodes with {', '.join(sorted(kinds))}" if kinds else "there is no node"

    def _fit_in(self, node: Mapping[str, float]) -> int:
        """Trials at a time; one that holds a part of a GPU holds that of a single one."""
        fit = {name: int(node.get(name, 0) / amount) for name, amount in self._wanted.items() if amount}
        if 0 < (part := self._wanted["GPU"]) < 1:
            fit["GPU"] = int(node.get("GPU", 0)) * int(1 / part)
        return min(fit.values())


def check_room(resources: Resources, *, address: str | None) -> str | None:
    """None where a trial fits on a node, and a pretraining on the cluster; else what is waited for, in words.

    Raises:
        ValueError: one of them does not fit, and no node can come.
    """
    each, asked = resources, 1
    lacking, options = resources.room_in_words, "--cpus-per-trial or --gpus-per-trial"
    if resources.slots():
        each, asked = resources.of_process(), resources.processes
        lacking, options = resources.group_in_words, "--pretrain-processes"
        if each.slots() >= asked:
            return None
    may_grow = each.slots_to_come() >= asked if resources.autoscaler else address is not None
    if not may_grow:
        raise ValueError(f"{lacking()}; lower {options}, or add such a node")
    return f"{lacking()}; waiting for an autoscaler to add one"
