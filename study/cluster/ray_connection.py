"""A connection to a Ray cluster, or to one that is started on this machine for as long as it is needed."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray

# Read by Ray when its modules and workers start.
RAY_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal holds the results
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours drains
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # nothing of Ray's state is kept
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the record holds the error
    "TUNE_MAX_PENDING_TRIALS_PG": "1000000",  # `TuneDriver.suggest` says how many
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000000",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextmanager
def ray_cluster(address: str | None) -> Iterator[None]:
    """A connection to the Ray cluster at `address`, or to one started here on loopback.

    Raises:
        ValueError: no cluster answers there.
    """
    os.environ.update(RAY_SETTINGS)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a trial's error is in its record
    if address:
        check_reachable(address)
    try:
        ray.init(
            address=address or "local",
            num_cpus=None if address else len(os.sched_getaffinity(0)),  # Ray counts cores that are not ours
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError) as error:
        reason = f"{str(error).splitlines()[0]}; one that asks for a token needs RAY_AUTH_MODE=token here too"
        raise ValueError(f"--address {address}: no Ray cluster answers there ({reason})") from None
    try:
        yield
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Passes if something listens at `address`. Ray itself waits for a minute and logs while it does.

    Raises:
        ValueError: nothing does.
    """
    host, _, port = address.rpartition("://")[-1].rpartition(":")
    if host and port.isdigit():  # "auto" has none, and answers at once
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise ValueError(f"--address {address}: no Ray cluster answers there ({error})") from None


def cluster_gpus(address: str) -> int:
    """GPUs of the Ray cluster at `address`."""
    with ray_cluster(address):
        return int(ray.cluster_resources().get("GPU", 0))
