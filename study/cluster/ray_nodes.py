"""The nodes of the Ray cluster that is connected."""

from __future__ import annotations

from collections.abc import Mapping

import ray


class RayNodes:
    """Asked of Ray each time; a node's number is Ray's."""

    def alive(self) -> dict[str, Mapping[str, float]]:
        """Number of every node that is alive -> its resources."""
        return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}

    def lost(self) -> dict[str, str]:
        """Numbers of the nodes that are not alive any more -> their hosts."""
        return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if not node["Alive"]}
