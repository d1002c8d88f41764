"""The connection to Ray (on a cluster or on this machine), Ray's nodes, and the wait for workers."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import ray
from ray.exceptions import AuthenticationError, RpcError

from study.cluster.ray_internals import ask_head, find_head, loopback_only, nothing_printed, own_token
from study.cluster.resources import Autoscaler, WorkerKind, count_cores
from study.storage.addresses import named
from study.terminal.output import show_waiting
from study.terminal.signals import handle_signals
from trainables.configuration.error_text import take_first_line

# Read by Ray when its modules and workers start.
RAY_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal holds the results
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # our handler drains the trials
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # seconds; Ray's state is never saved
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the record holds the error
    "TUNE_MAX_PENDING_TRIALS_PG": "1000000",  # `TuneDriver.suggest` limits pending trials
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000000",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_prestart_worker_first_driver": "0",  # start no idle workers: Tune's actors could not use them
    "RAY_worker_niceness": "5",  # on busy CPUs, the driver has priority over workers, and workers over the mirror
    "RAY_USAGE_STATS_ENABLED": "0",
}
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
LOOK_SECONDS = 2.0
SPEAK_SECONDS = 60.0
ANY = WorkerKind(name="any", resources={}, most=1)


@contextmanager
def ray_cluster(address: str | None) -> Iterator[None]:
    """Connect to the Ray cluster at `address`. If `address` is None, start Ray on this machine (loopback only).

    Raises:
        ValueError: no cluster answers at the address.
        OSError: Ray cannot start on this machine; for example, memory or disk space is short.
    """
    os.environ.update(RAY_SETTINGS)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # each trial's record holds its error
    with nullcontext() if address else own_token():
        try:
            with interrupts_held("Ray is starting"):
                _join(address) if address else _start()
            with nothing_printed():
                yield
        finally:
            shown = nullcontext() if address else show_waiting("Ray to stop", output=sys.stderr)
            with shown, interrupts_held("Ray is stopping"):
                ray.shutdown()


def _start() -> None:
    cores = count_cores()  # Ray would also count cores outside this process's affinity
    try:
        with loopback_only():
            ray.init(address="local", num_cpus=cores, include_dashboard=False, **_QUIET)
    except Exception as error:  # noqa: BLE001  # Ray raises a bare Exception if its processes do not start
        reason = take_first_line(error)
        advice = "; set RAY_TMPDIR=/tmp to shorten the paths of its sockets" * ("107 bytes" in reason)
        raise OSError(f"Ray does not start on this machine ({reason}){advice}") from None


def _join(address: str) -> None:
    """Connect to the Ray cluster, but first check the address: `ray.init` alone would retry for a minute."""
    try:
        if address.startswith("ray://"):
            _connect(address.removeprefix("ray://"))
        elif head := find_head(address):
            _connect(head)
            ask_head(head)
        ray.init(address=address, **_QUIET)
    except AuthenticationError:
        advice = "put its token into ~/.ray/auth_token, and set RAY_AUTH_MODE=token"
        raise ValueError(f"{named(address)}: the Ray cluster there requires another token; {advice}") from None
    except (OSError, RpcError, RuntimeError) as error:
        raise ValueError(f"{named(address)}: no Ray cluster answers there ({take_first_line(error)})") from None


def describe_readable_token() -> str | None:
    """Describe the token file of this machine and the remedy if other users may open the file; else return None."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token"))  # noqa: PTH111  # keeps ~ without a home
    try:
        is_private = not path.stat().st_mode & 0o077
    except OSError:
        return None
    fault = f"other users may open {path}, and its token lets them run code on the Ray cluster: chmod 600 {path}"
    return None if is_private else fault


def _connect(host_and_port: str) -> None:
    """Open and close a TCP connection to check that something listens at the address."""
    host, _, port = host_and_port.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()


@contextmanager
def interrupts_held(activity: str) -> Iterator[None]:
    """Delay `STOP_SIGNALS` until the block ends; a second signal ends the process at once, without cleanup.

    Python may crash if Ray is interrupted while Ray starts or stops.
    """
    held = False

    def interrupted(signal_number: int, frame: FrameType | None) -> None:
        nonlocal held
        if held:
            os._exit(1)
        held = True
        print(
            f"{activity}; the interrupt takes effect afterwards; press Ctrl-C again to stop at once",
            file=sys.stderr,
            flush=True,
        )

    with handle_signals(interrupted):
        yield
    if held:
        raise KeyboardInterrupt


class RayNodes:
    """The nodes of the cluster, queried from Ray on each call."""

    def alive(self) -> dict[str, Mapping[str, float]]:
        """Map the Ray ID of every living node to its resources."""
        return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}

    def lost(self) -> dict[str, str]:
        """Map the Ray ID of every dead node to its host."""
        return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if not node["Alive"]}


# ---- starting one worker of every kind, to check them before a study needs them


def _find_absent_kinds() -> list[WorkerKind]:
    """List the worker kinds without a living node.

    Return [ANY] if no kinds are known and no node has a CPU or GPU."""
    autoscaler = Autoscaler.read()
    kinds = [kind for kind in autoscaler.kinds if kind.most] if autoscaler else []
    nodes = RayNodes().alive().values()
    return [kind for kind in kinds or [ANY] if not any(map(kind.is_one, nodes))]


def await_workers(*, minutes: float, say: Callable[[str], None]) -> list[WorkerKind]:
    """Wait up to `minutes` for a worker of each kind, and return the kinds that are still absent.

    During the wait, pending tasks request one worker of each absent kind from the autoscaler.
    """
    begun, spoken = time.monotonic(), -SPEAK_SECONDS
    absent = _find_absent_kinds()
    with _request_nodes(absent):
        while absent and (waited := time.monotonic() - begun) < 60 * minutes:
            if waited - spoken >= SPEAK_SECONDS:
                names = ", ".join(kind.name for kind in absent)
                say(f"waiting for a worker ({names}): {waited / 60:.0f} of {minutes:g} minutes")
                spoken = waited
            time.sleep(LOOK_SECONDS)
            absent = _find_absent_kinds()
    return absent


@contextmanager
def _request_nodes(kinds: Sequence[WorkerKind]) -> Iterator[None]:
    """Make the autoscaler add a node of each kind, by tasks that need a whole node.

    If this process is killed, the tasks end, while a request by Ray's `request_resources` would stay in force.
    """
    tasks = []
    for kind in kinds:
        cpus, gpus = kind.resources.get("CPU", 0), kind.resources.get("GPU", 0)
        whole_node = {"num_cpus": cpus if cpus or gpus else 1, "num_gpus": gpus}  # one CPU if the kind lists neither
        tasks.append(ray.remote(max_retries=0)(_do_nothing).options(**whole_node).remote())
    try:
        yield
    finally:
        for task in tasks:
            ray.cancel(task, force=True)


def _do_nothing() -> None:
    """Do nothing: only the task's resource request matters."""
