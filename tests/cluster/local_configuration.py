"""`cluster.yaml` for machines that one has, by Ray's local provider, as docs/cluster.md says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FOR_MACHINES_TO_RENT = ("head_node_type", "available_node_types", "upscaling_speed")


def local_configuration(cluster: dict[str, Any], *, head: str, workers: Sequence[str]) -> dict[str, Any]:
    """The configuration for these machines, where `root` logs in with ~/.ssh/key, which reach no package index.

    Raises:
        ValueError: a field or a command that is replaced is not there.
    """
    local = dict(cluster)
    for name in FOR_MACHINES_TO_RENT:
        _taken(local, name)
    for name in ("provider", "auth", "max_workers"):
        _taken(local, name)
    local["provider"] = {"type": "local", "head_ip": head, "worker_ips": list(workers)}
    local["auth"] = {"ssh_user": "root", "ssh_private_key": "~/.ssh/key"}
    local["max_workers"] = len(workers)
    # Ray's newer autoscaler adds no machine of this provider.
    local["head_start_ray_commands"] = _replaced(
        local, "head_start_ray_commands", "ray start --head", "RAY_enable_autoscaler_v2=0 ray start --head"
    )
    local["setup_commands"] = _replaced(
        local, "setup_commands", "pip install -c", "pip install --no-index --no-build-isolation -c"
    )
    return local


def _taken(configuration: dict[str, Any], name: str) -> Any:
    if name not in configuration:
        raise ValueError(f"cluster.yaml has no {name}; it has {', '.join(configuration)}")
    return configuration.pop(name)


def _replaced(configuration: dict[str, Any], name: str, old: str, new: str) -> list[str]:
    """The commands of a field with `old` replaced, which stands there once."""
    commands = _taken(configuration, name)
    if (found := sum(command.count(old) for command in commands)) != 1:
        raise ValueError(f"{name} of cluster.yaml has {old!r} {found} times, wanted once")
    return [command.replace(old, new) for command in commands]
