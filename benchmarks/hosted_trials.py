"""Many trials in few processes: for clusters of more slots than a machine has memory for.

Ray Tune starts an actor for every trial that runs. Within `hosted` it is given a handle instead that looks like one:
the trial lives in a thread of a host, one actor for each node. All else is Ray's own: placement groups, one call for
each epoch, the wait for whichever of them is ready.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import ray
from ray import tune
from ray.air.execution._internal import actor_manager
from ray.air.execution.resources.request import AcquiredResources


class TrialHost:
    """An actor that holds trials by number; each call is a thread of its own."""

    def __init__(self) -> None:
        self._trials: dict[int, tune.Trainable] = {}

    def begin(self, number: int, trainable: type[tune.Trainable], arguments: dict[str, Any]) -> bool:
        self._trials[number] = trainable(**arguments)
        return True

    def call(self, number: int, method: str, *arguments: Any, **named: Any) -> Any:
        return getattr(self._trials[number], method)(*arguments, **named)

    def end(self, number: int) -> None:
        self._trials.pop(number, None)


class HostedTrial:
    """What Ray Tune takes for the handle of a trial's actor."""

    def __init__(self, host: Any, number: int, begun: ray.ObjectRef):
        self._host, self._number, self._begun = host, number, begun

    def __getattr__(self, method: str) -> _Method:
        if method == "__ray_ready__":
            return _Method(lambda: self._begun)
        if method == "__ray_terminate__":
            return _Method(self.end)
        return _Method(lambda *values, **named: self._host.call.remote(self._number, method, *values, **named))

    def end(self) -> ray.ObjectRef:
        return self._host.end.remote(self._number)


class _Method:
    def __init__(self, remote: Callable[..., ray.ObjectRef]):
        self.remote = remote


class _HostedClass:
    """What Ray Tune takes for the class of a trial's actor: it places each trial on the host whose turn it is."""

    def __init__(self, trainable: type[tune.Trainable], places: Iterator[tuple[int, Any]]):
        self._trainable, self._places = trainable, places

    def remote(self, **arguments: Any) -> HostedTrial:
        number, host = next(self._places)
        return HostedTrial(host, number, host.begin.remote(number, self._trainable, arguments))


@contextmanager
def hosted(trainable: type[tune.Trainable], *, hosts: int, slots: int) -> Iterator[None]:
    """Within it, Ray Tune's trials run in `hosts` processes, `slots` of them at most; Ray is connected before."""
    threads = slots // hosts + 8  # of trials that end while others begin
    actors = [
        ray.remote(TrialHost).options(num_cpus=0, max_concurrency=threads, scheduling_strategy="SPREAD").remote()
        for _ in range(hosts)
    ]
    ray.get([actor.end.remote(-1) for actor in actors])  # they have started
    places = zip(itertools.count(), itertools.cycle(actors))
    hosted_class = _HostedClass(trainable, places)

    def end(actor: Any, **named: Any) -> None:
        actor.end() if isinstance(actor, HostedTrial) else kill(actor, **named)

    kill = ray.kill
    with (
        patch.object(AcquiredResources, "annotate_remote_entities", lambda self, entities: [hosted_class]),
        patch.object(actor_manager.ray, "kill", end),
    ):
        yield
