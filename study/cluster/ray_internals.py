"""All uses of Ray's private API, so that a new version of Ray can break only this file.

Ray's public API has no equivalent of these functions.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from ray._private import ray_constants, services, worker
from ray._raylet import GcsClient  # type: ignore[attr-defined]


def loopback_only() -> AbstractContextManager[object]:
    """Make Ray listen only on 127.0.0.1 if Ray is started in this block.

    On a network address, anyone could run code without a token. The block turns off Ray's support for clusters, which
    would replace 127.0.0.1 with a network address.
    """
    return mock.patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False)


def nothing_printed() -> AbstractContextManager[object]:
    """Suppress the many lines that Ray prints for a node failure; the journal has one line per failure."""
    return mock.patch.object(worker, "print_to_stdstream", lambda data, ignore_prefix: None)


def find_head(address: str) -> str | None:
    """Return the host and port of a cluster's head node, or None if `address` is `auto` and no cluster is found."""
    return services.canonicalize_bootstrap_address("auto") if address == "auto" else address


def ask_head(head: str) -> None:
    """Check that the head node answers. Without this check, `ray.init` would retry with warnings for half a minute.

    Raises:
        AuthenticationError: the head node requires another token.
        RpcError: the head node does not answer.
    """
    with _no_standard_error():
        GcsClient(address=head)


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Discard what is written to standard error, also by native code."""
    sys.stderr.flush()
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def read_kuberay_configuration(name: str, *, namespace: str) -> Mapping[str, Any] | None:
    """Read the autoscaler configuration of a RayCluster.

    Return None if the RayCluster cannot be read or does not use `enableInTreeAutoscaling`.
    """
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler._private.kuberay.node_provider import KubernetesHttpApiClient

    logging.getLogger("ray.autoscaler").setLevel(logging.ERROR)  # Ray logs every read of the service account's token
    try:
        cluster = KubernetesHttpApiClient(namespace).get(f"rayclusters/{name}")
    except OSError:  # the errors of `requests` derive from it
        return None
    if not cluster["spec"].get("enableInTreeAutoscaling"):
        return None
    return _derive_autoscaling_config_from_ray_cr(cluster)
