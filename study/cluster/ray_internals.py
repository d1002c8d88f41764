"""Every use of Ray's private parts, so that a new version of Ray breaks this file alone.

Ray has no public way to listen on loopback alone, to print nothing of what goes wrong on a node, to find the head of
`auto` and ask it for nothing but an answer, or to read the limits of KubeRay's autoscaler.
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
    """Have a Ray that starts within listen on 127.0.0.1: it runs any code that it is sent, without a token.

    Ray takes 127.0.0.1 for the address of a node only on macOS and Windows, where it has no clusters; given by hand it
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
    """Keep Ray from printing many lines on standard output for each fault of a node; the journal has one."""
    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda data, ignore_prefix: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def find_head(address: str) -> str | None:
    """Find the host and port of a cluster's head; None if none is known for `auto`."""
    return services.canonicalize_bootstrap_address("auto") if address == "auto" else address


def ask_head(head: str) -> None:
    """Check that the head answers to this process. `ray.init` would print warnings and try for half a minute.

    Raises:
        AuthenticationError: it asks for another token.
        RpcError: nobody answers.
    """
    with _no_standard_error():
        GcsClient(address=head)


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Silence standard error, also for code that is not Python."""
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
    """Read the RayCluster of this name, as Ray's own autoscaler does; None if this pod may not read it.

    KubeRay lets the head do so if the cluster has `enableInTreeAutoscaling`.
    """
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler._private.kuberay.node_provider import KubernetesHttpApiClient

    logging.getLogger("ray.autoscaler").setLevel(logging.ERROR)  # it tells of every look at its token
    try:
        cluster = KubernetesHttpApiClient(namespace).get(f"rayclusters/{name}")
    except OSError:  # the errors of `requests` derive from it
        return None
    if not cluster["spec"].get("enableInTreeAutoscaling"):
        return None
    return _derive_autoscaling_config_from_ray_cr(cluster)
