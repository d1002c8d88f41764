"""Brings up a worker of every kind that a cluster may have, so that it can be looked at before a study needs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from study.cluster.autoscaler import Autoscaler, WorkerKind
from study.cluster.ray_nodes import RayNodes

LOOK_SECONDS = 2.0
SPEAK_SECONDS = 60.0
ANY = WorkerKind(name="any", resources={}, most=1)


def absent_kinds() -> list[WorkerKind]:
    """The kinds of worker of which no node is alive; where no kinds are known, whether there is any node for trials."""
    autoscaler = Autoscaler.here()
    kinds = [kind for kind in autoscaler.kinds if kind.most] if autoscaler else []
    nodes = RayNodes().alive().values()
    return [kind for kind in kinds or [ANY] if not any(map(kind.is_one, nodes))]


def await_workers(*, minutes: float, say: Callable[[str], None]) -> list[WorkerKind]:
    """The kinds of which none has come after so many minutes; their autoscaler is asked for one of each meanwhile."""
    begun, spoken = time.monotonic(), -SPEAK_SECONDS
    absent = absent_kinds()
    with _asked_for(absent):
        while absent and (waited := time.monotonic() - begun) < 60 * minutes:
            if waited - spoken >= SPEAK_SECONDS:
                say(f"waiting for a worker ({names(absent)}): {waited / 60:.0f} of {minutes:g} minutes")
                spoken = waited
            time.sleep(LOOK_SECONDS)
            absent = absent_kinds()
    return absent


def names(kinds: Sequence[WorkerKind]) -> str:
    return ", ".join(kind.name for kind in kinds)


@contextmanager
def _asked_for(kinds: Sequence[WorkerKind]) -> Iterator[None]:
    """Tasks that need a whole node each wait meanwhile: that is what an autoscaler adds nodes for.

    Ray's `request_resources` would go on asking where this process is killed.
    """
    tasks = [ray.remote(max_retries=0)(_nothing).options(**_whole(kind.resources)).remote() for kind in kinds]
    try:
        yield
    finally:
        for task in tasks:
            ray.cancel(task, force=True)


def _nothing() -> None:
    """Its place is all that is wanted."""


def _whole(resources: Mapping[str, float]) -> dict[str, Any]:
    """What a task asks for that fills such a node; where that is not known, what a trial would."""
    cpus, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
    return {"num_cpus": cpus if cpus or gpus else 1, "num_gpus": gpus}
