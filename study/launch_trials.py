"""The stage of a launch that runs trials, with the driver that it has. Ray is imported where that is Ray's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from study.cluster.resources import Nodes, Resources, ThisMachine, check_room
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Driver
from study.drivers.smoke_steps import SmokeSteps
from study.drivers.watchdog import Watchdog
from study.launch_options import LaunchOptions
from study.screen.live_view import LiveView
from study.screen.terminal import waiting_for


@contextmanager
def connected(options: LaunchOptions) -> Iterator[None]:
    """The cluster at `--address`.

    Raises:
        ValueError: none answers there; or no trial fits on a node, and none can come.
    """
    from study.cluster.ray_cluster import ray_cluster

    with ray_cluster(options.address):
        resources_for(options)
        yield


def resources_for(options: LaunchOptions) -> Resources:
    """What a trial holds on the connected cluster, or on this machine.

    Raises:
        ValueError: no trial fits on a node, and none can come.
    """
    resources = Resources.of(
        _nodes(options),
        cpus=options.cpus_per_trial,
        gpus=options.gpus_per_trial,
        address=options.address,
    )
    check_room(resources, address=options.address)
    return resources


def run_trials(
    scheduler: Scheduler,
    folder: Path,
    storage: str,
    options: LaunchOptions,
    *,
    until: float,
    on_start: Callable[[], None],
) -> None:
    """Until there is nothing left to do or to be done: on the cluster that is connected, else on this machine.

    `until` is as in `Driver`; `on_start` is called before the first line about trials.

    Raises:
        SmokeStepsFailed: a method cannot take a step; no trial was started.
        Stalled: nothing moves any more.
    """
    with _machines(options):
        resources = resources_for(options)
        driver = _driver(options)  # takes seconds to import
        on_start()
        with LiveView(scheduler, slots=resources.slots, output=sys.stderr) as view:
            if waiting := check_room(resources, address=options.address):
                view.say(waiting)
            driver(
                scheduler,
                folder=folder.resolve(),
                storage=storage,
                resources=resources,
                on_progress=view.update,
                watchdog=Watchdog(max_idle_hours=options.max_idle_hours, say=view.say),
                smoke=SmokeSteps(scheduler, resources),
                until=until,
            ).run()


@contextmanager
def _machines(options: LaunchOptions) -> Iterator[None]:
    """The cluster that is connected, else this machine: with a Ray of its own, if that is the driver."""
    with ExitStack() as stack:
        if options.address is None and options.driver == "ray":
            stack.enter_context(_ray_here())
        yield


@contextmanager
def _ray_here() -> Iterator[None]:
    """A Ray of the launch's own; a terminal is shown how long it takes to stop."""
    from study.cluster.ray_cluster import ray_cluster

    with ExitStack() as stack:
        stack.enter_context(ray_cluster(None))
        try:
            yield
        finally:
            with waiting_for("Ray to stop", output=sys.stderr):
                stack.close()


def _nodes(options: LaunchOptions) -> Nodes:
    if options.driver == "local":
        return ThisMachine()
    from study.cluster.ray_cluster import RayNodes

    return RayNodes()


def _driver(options: LaunchOptions) -> type[Driver]:
    if options.driver == "local":
        from study.drivers.local_driver import LocalDriver

        return LocalDriver
    from study.drivers.tune_driver import TuneDriver

    return TuneDriver
