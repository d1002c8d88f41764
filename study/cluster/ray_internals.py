"""Every use of Ray's private API, so that a new version of Ray can break only this file.

Ray has no public way to listen on loopback only, to suppress its printed node errors, to find the head for `auto`,
to check only that a head answers, or to read the limits of KubeRay's autoscaler.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ray._private import ray_constants, services, worker
from ray._raylet import GcsClient  # type: ignore[attr-defined]


@contextmanager
def loopback_only() -> Iterator[None]:
    """Make a Ray that starts in the block listen only on 127.0.0.1: without a token, it runs code from anyone.

    Ray uses 127.0.0.1 as a node's address only if its support for clusters is off, as on macOS and Windows; the block
    turns it off. Otherwise, Ray replaces even an explicit 127.0.0.1 with a network address.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Stop Ray from printing many lines per node failure on standard output; the journal has one line per failure."""
    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda data, ignore_prefix: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def find_head(address: str) -> str | None:
    """Find the host and port of a cluster's head; None if `auto` finds no cluster."""
    return services.canonicalize_bootstrap_address("auto") if address == "auto" else address


def ask_head(head: str) -> None:
    """Check that the head answers; `ray.init` would print warnings and retry for half a minute if it did not.

    Raises:
        AuthenticationError: the head requires another token.
        RpcError: the head does not answer.
    """
    with _no_standard_error():
        GcsClient(address=head)


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Silence standard error, including output of native code."""
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
    """Read the RayCluster of this name as Ray's autoscaler does; None if it is unreadable or not autoscaled.

    KubeRay lets the head read the RayCluster if the cluster has `enableInTreeAutoscaling`.
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
