"""Every use of what Ray keeps to itself, so that a new version of Ray breaks this file alone.

Ray has no public way to do these: listen on loopback alone, print nothing of what goes wrong on a node, find the head
of `auto` and ask it for nothing but an answer, and read the limits of KubeRay's autoscaler.
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
    """A Ray that starts within listens on 127.0.0.1: it runs whatever code it is sent, and asks nobody for a token.

    Ray takes 127.0.0.1 for the address of a node only where it has no clusters, macOS and Windows; given by hand it
    replaces it by the address of a network.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Ray prints nothing of what goes wrong on a node: many lines, on standard output. The journal says it in one."""
    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda data, ignore_prefix: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def head_of(address: str) -> str | None:
    """The host and port of a cluster's head; None if none is known for `auto`."""
    return services.canonicalize_bootstrap_address("auto") if address == "auto" else address


def ask_head(head: str) -> None:
    """Passes if the head answers to this process. `ray.init` would print a page of warnings and try for half a minute.

    Raises:
        AuthenticationError: it asks for another token.
        RpcError: nobody answers.
    """
    with _no_standard_error():
        GcsClient(address=head)


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Nothing is printed to standard error, not by what is no Python either."""
    sys.stderr.flush()
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def kuberay_configuration(name: str, *, namespace: str) -> Mapping[str, Any] | None:
    """The RayCluster of this name, as Ray's own autoscaler reads it; None where this pod may not read it.

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
    return _derive_autoscaling_config_from_ray_cr(cluster)
