"""All uses of Ray's private API, so that a new version of Ray can break only this file.

Ray's public API has no equivalent of these functions.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from ray._private import ray_constants, services, worker
from ray._raylet import AuthenticationTokenLoader, Config, GcsClient  # type: ignore[attr-defined]


def loopback_only() -> AbstractContextManager[object]:
    """Make Ray listen only on 127.0.0.1 if Ray is started in this block.

    On a network address, anyone could run code without a token. The block turns off Ray's support for clusters, which
    would replace 127.0.0.1 with a network address.
    """
    return mock.patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False)


@contextmanager
def own_token() -> Iterator[None]:
    """Make Ray require a token that only its own processes know, if Ray is started in this block.

    Ray would otherwise write its token to ~/.ray/auth_token, with the permissions that the umask gives. The environment
    of a process is readable only by its user.
    """
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
    before = {name: os.environ.get(name) for name in names}
    _set_authentication(dict(zip(names, ("token", secrets.token_hex(32)), strict=True)))
    try:
        yield
    finally:
        _set_authentication(before)


def _set_authentication(values: Mapping[str, str | None]) -> None:
    """Set or delete environment variables about tokens, and make Ray read them again."""
    for name, value in values.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def no_signal_handlers() -> AbstractContextManager[object]:
    """Keep Ray Tune from replacing the handlers of SIGINT and SIGUSR1; its own stop the trials without saving them."""
    from ray.tune import tune  # takes a second to import

    return mock.patch.object(tune, "_setup_signal_catching", threading.Event)


def no_callback_telemetry() -> AbstractContextManager[object]:
    """Keep Ray Tune from importing MLflow, which takes seconds, only to count which callbacks its users have."""
    from ray.air._internal import usage

    return mock.patch.object(usage, "tag_callbacks", lambda callbacks: False)


def nothing_printed() -> AbstractContextManager[object]:
    """Suppress the many lines that Ray prints for a node failure; the journal has one line per failure."""
    return mock.patch.object(worker, "print_to_stdstream", lambda data, ignore_prefix: None)


def compute_loss_seconds() -> float:
    """Compute how long Ray may need to find that a node is lost; it learns this only from failed health checks.

    A check of a killed node fails at once; a check of a frozen or disconnected node fails after the timeout. Ray's
    default settings amount to about 15 and at most 70 seconds.
    """
    check = Config.health_check_period_ms() + Config.health_check_timeout_ms()
    return float(Config.health_check_initial_delay_ms() + Config.health_check_failure_threshold() * check) / 1000


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
