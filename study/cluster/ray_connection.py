"""A connection to a Ray cluster, or to one that is started on this machine for as long as it is needed."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import ray_constants, services, worker
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.exceptions import AuthenticationError, RpcError

from study.cluster.address import named
from study.cluster.held_interrupts import interrupts_held

# Read by Ray when its modules and workers start.
RAY_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal holds the results
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours drains
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # nothing of Ray's state is kept
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the record holds the error
    "TUNE_MAX_PENDING_TRIALS_PG": "1000000",  # `TuneDriver.suggest` says how many
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000000",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_prestart_worker_first_driver": "0",  # a process a core, of which Tune's actors, with an environment, use none
    "RAY_worker_niceness": "5",  # where processors are short the driver goes first, and the mirror last
    "RAY_USAGE_STATS_ENABLED": "0",
}
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@contextmanager
def ray_cluster(address: str | None) -> Iterator[None]:
    """A connection to the Ray cluster at `address`, or to one started here on loopback.

    Raises:
        ValueError: no cluster answers there.
        OSError: none starts here: no memory, a full disk.
    """
    os.environ.update(RAY_SETTINGS)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a trial's error is in its record
    try:
        with interrupts_held("Ray is starting"):
            _join(address) if address else _start()
        with nothing_printed():
            yield
    finally:
        with interrupts_held("Ray is stopping"):
            ray.shutdown()


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Ray prints nothing of what goes wrong on a node: many lines, on standard output. The journal says it in one."""
    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda data, ignore_prefix: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _start() -> None:
    cores = len(os.sched_getaffinity(0))  # Ray counts those that are not ours too
    try:
        with loopback_only():
            ray.init(address="local", num_cpus=cores, include_dashboard=False, **_QUIET)
    except Exception as error:  # Ray raises just that where its processes do not start
        raise OSError(f"Ray does not start on this machine ({str(error).splitlines()[0]})") from None


def _join(address: str) -> None:
    check_reachable(address)
    _check_answers(address)
    try:
        ray.init(address=address, **_QUIET)
    except (ConnectionError, RuntimeError) as error:
        raise ValueError(f"{named(address)}: no Ray cluster answers there ({str(error).splitlines()[0]})") from None


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


def check_reachable(address: str) -> None:
    """Passes if something listens at `address`. Ray itself waits for a minute and logs while it does.

    Raises:
        ValueError: nothing does.
    """
    try:
        _connect(address)
    except OSError as error:
        raise ValueError(f"{named(address)}: no Ray cluster answers there ({error})") from None


def _connect(address: str) -> None:
    host, _, port = address.rpartition("://")[-1].rpartition(":")
    if host and port.isdigit():  # "auto" has none
        socket.create_connection((host, int(port)), timeout=5).close()


def _check_answers(address: str) -> None:
    """Passes if the cluster answers to this process. Ray itself prints a page of warnings and tries for half a minute.

    Raises:
        ValueError: it does not: this process has not its token.
    """
    if address.startswith("ray://"):
        return
    try:
        head = services.canonicalize_bootstrap_address("auto") if address == "auto" else address
        if head is not None:  # where none is known Ray says so at once
            _connect(head)
            with _no_standard_error():
                GcsClient(address=head)
    except AuthenticationError:
        mend = "put its token into ~/.ray/auth_token, and set RAY_AUTH_MODE=token"
        raise ValueError(f"{named(address)}: the Ray cluster there asks for another token; {mend}") from None
    except (OSError, RpcError) as error:
        raise ValueError(f"{named(address)}: no Ray cluster answers there ({str(error).splitlines()[0]})") from None


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


def cluster_gpus(address: str) -> int:
    """GPUs of the Ray cluster at `address`."""
    with ray_cluster(address):
        return int(ray.cluster_resources().get("GPU", 0))
