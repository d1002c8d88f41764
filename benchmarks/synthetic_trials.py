"""Studies whose trials only wait: what the benchmarks of the study engine run, and how they report.

A trial's configuration says all about it: `epochs`, `epoch_seconds` (0 is an empty trial) and `score_spread` (0 gives
every trial the same scores, so that ASHA stops none).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import psutil
import ray
from msgspec.structs import replace
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.search.optuna import OptunaSearch

from study.cluster.ray_cluster import RAY_SETTINGS, RayNodes
from study.cluster.resources import Resources
from study.decisions.proposals import make_distributions
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Driver, Watchdog
from study.drivers.messages import ASSIGNMENTS, Message, SmokeReport
from study.drivers.trial_actor import MESSAGE, WAIT_SECONDS
from study.drivers.tune_driver import TuneDriver
from study.facts.events import Report
from study.facts.journal import Journal
from study.facts.plan_file import write_plan
from study.facts.provenance import read_provenance
from study.launching.child_processes import start_mirror
from study.launching.live_view import LiveView
from study.launching.planned_study import command_line, plan_file
from study.plans import profiles
from study.plans.resolution import resolve
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.configuration.schema import Value
from trainables.runs.trial import EpochRow, Outcome

SLOTS = 4
# Ray Tune as it comes; but workers are not nice, as the engine's are not, so that a busy machine slows all alike.
PLAIN_RAY = {"RAY_AIR_NEW_OUTPUT": "0", "RAY_worker_niceness": "0"}
STARTED = Message(smoke=SmokeReport(failures={}, code_digest="", versions={}))
WARM_UP = 20  # trials before the driver's memory is measured first: imports, caches


def resolved_plan(tasks: tuple[str, ...], *, samples: int, seeds: int, epochs: int) -> ResolvedPlan:
    """One ALBERT arm per task, of the mini profile; its trials are empty."""
    plan = replace(
        profiles.load_profile("mini"), methods=("albert",), tasks=tasks, samples=samples, seeds=seeds, epochs=epochs
    )
    resolved = resolve(plan)
    arms = tuple(with_fixed(arm, epoch_seconds=0.0, score_spread=0.0) for arm in resolved.arms)
    return replace(resolved, arms=arms)


def with_fixed(arm: Arm, **values: Value) -> Arm:
    return replace(arm, fixed={**arm.fixed, **values})


def unit(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:8], 16) / 2**32


def score(config: Mapping[str, Any], epoch: int) -> float:
    """Rises with the epochs to a plateau that the tuned fields decide."""
    plateau = 0.5 + config["score_spread"] * unit(config["learning_rate"], config["batch_size"])
    return plateau * (1 - 0.5**epoch)


def wait_an_epoch(config: Mapping[str, Any]) -> dict[str, float]:
    """Sleeps as long as an epoch of the configuration takes, 20 % more or less; when it began and ended."""
    began = time.time()
    time.sleep(config["epoch_seconds"] * (0.8 + 0.4 * unit(config["learning_rate"])))
    return {"began": began, "until": time.time()}


class StudyTrial(tune.Trainable):
    """Speaks with the driver as `study.drivers.trial_actor.TrialActor` does, with rows as wide as those of training.

    When it slept stands in `KEY.spans` beside the trial's place.
    """

    def setup(self, config: dict[str, Any]) -> None:
        self._trial = ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment").trial
        self._epoch = 0

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        self._epoch += 1
        if self._trial is None:  # it is only to start, before all trials
            time.sleep(WAIT_SECONDS)
            return {MESSAGE: msgspec.json.encode(STARTED).decode()}
        times = wait_an_epoch(self._trial.spec.config)
        with Path(f"{self._trial.place}.spans").open("a") as file:
            file.write(json.dumps([times["began"], times["until"]]) + "\n")
        said = report(self._trial.spec.config, self._epoch, times["until"] - times["began"])
        if said.outcome and self._trial.predictions:
            Path(self._trial.predictions).write_bytes(b"")  # a launch ends no trial that left none
        message = Message(key=self._trial.key, host=said.host, report=said)
        return {MESSAGE: msgspec.json.encode(message).decode()}


def report(config: Mapping[str, Any], epoch: int, seconds: float) -> Report:
    """What a trial says after an epoch."""
    value, finished = score(config, epoch), epoch == config["epochs"]
    row = EpochRow(
        epoch=epoch,
        selection_score=value,
        metrics={"accuracy": value},
        mean_layers=6.0,
        num_layers=12,
        train_loss=1 - value,
        train_examples=1000 * epoch,
        train_seconds=seconds,
        eval_seconds=seconds,
        best_epoch=epoch,
        finished=finished,
    )
    outcome = Outcome(reported=row.reported, num_parameters=1)
    return Report(
        row=row,
        outcome=outcome if finished else None,
        wall_seconds=seconds,
        gpu_seconds=0.0,
        host=platform.node(),
        device="cpu",
    )


class PlainTrial(tune.Trainable):
    """The same trial for plain Ray Tune."""

    def setup(self, config: dict[str, Any]) -> None:
        self._epoch = 0

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.config = new_config
        self._epoch = 0
        return True

    def step(self) -> dict[str, Any]:
        self._epoch += 1
        times = wait_an_epoch(self.config)
        return {"score": score(self.config, self._epoch), "done": self._epoch == self.config["epochs"], **times}


class Memory:
    """The resident memory of this process, in MB, as trials end."""

    def __init__(self) -> None:
        self.megabytes: list[float] = []  # one for each trial

    def trials_ended(self, number: int) -> None:
        while len(self.megabytes) < number:
            self.megabytes.append(psutil.Process().memory_info().rss / 2**20)

    @property
    def growth(self) -> float:
        """From the end of trial `WARM_UP`, or of the first of fewer, to the last."""
        return self.megabytes[-1] - self.megabytes[WARM_UP if len(self.megabytes) > WARM_UP else 0]


class MemoryCallback(tune.Callback):
    """Tells `memory` of the trials of plain Ray Tune that have ended."""

    def __init__(self, memory: Memory):
        self._memory = memory
        self._ended = 0

    def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        self._ended += 1
        self._memory.trials_ended(self._ended)


@contextmanager
def cluster(settings: dict[str, str]) -> Iterator[None]:
    """A Ray cluster of this process alone, with four slots; `settings` are environment variables that Ray reads."""
    with patch.dict(os.environ, settings):
        ray.init("local", num_cpus=SLOTS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            yield
        finally:
            ray.shutdown()


def search_with_tune(
    arm: Arm, samples: int, folder: Path, *, callbacks: list[tune.Callback], reuse_actors: bool = True
) -> tune.ResultGrid:
    """The search of an arm as plain Ray Tune does it, TPE and ASHA."""
    how = tune.TuneConfig(
        search_alg=OptunaSearch(space=make_distributions(arm), metric="score", mode="max"),
        scheduler=AsyncHyperBandScheduler(metric="score", mode="max", max_t=arm.epochs, reduction_factor=3),
        num_samples=samples,
        reuse_actors=reuse_actors,
    )
    return fit_with_tune(dict(arm.fixed), how, folder, callbacks)


def fit_with_tune(
    space: dict[str, Any], how: tune.TuneConfig, folder: Path, callbacks: list[tune.Callback]
) -> tune.ResultGrid:
    tuner = tune.Tuner(
        tune.with_resources(PlainTrial, {"cpu": 1}),
        param_space=space,
        tune_config=how,
        run_config=tune.RunConfig(
            storage_path=str(folder),
            verbose=0,
            callbacks=callbacks,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # a trial that waits has nothing to save
        ),
    )
    return tuner.fit()


class TimedDriver(TuneDriver):
    """The driver of a launch, with the seconds that each report took it."""

    actor = StudyTrial

    def __init__(self, scheduler: Scheduler, **arguments: Any):
        super().__init__(scheduler, **arguments)
        self.report_seconds: list[float] = []

    def reported(self, ray_id: str, message: Message) -> str:
        began = time.perf_counter()
        decision = super().reported(ray_id, message)
        if message.key:
            self.report_seconds.append(time.perf_counter() - began)
        return decision


@dataclass(frozen=True)
class StudyRun:
    """What a launch left behind; its folder has the rest."""

    scheduler: Scheduler
    seconds: float  # from opening the study to the mirror's end
    driver_seconds: float  # without the wait for the mirror
    report_seconds: list[float]  # of the driver, one for each report


def run_study(
    plan: ResolvedPlan, folder: Path, *, mirrored: bool, on_progress: Callable[[Scheduler], None] | None = None
) -> StudyRun:
    """One launch as `study.launch` does it, tables and report left out, on a Ray cluster of its own."""
    code = read_provenance()
    write_plan(folder, plan_file(folder, plan, code))
    for name in ("trials", "predictions"):
        (folder / name).mkdir()
    with cluster(RAY_SETTINGS), closing(Journal(folder)) as journal:
        began = time.perf_counter()
        scheduler = Scheduler(plan, journal, code)
        scheduler.begin_launch(command=command_line(), host=socket.gethostname(), pid=os.getpid())
        mirror = start_mirror(folder, None if mirrored else "none")
        driver = run_driver(scheduler, folder, on_progress)
        scheduler.end_launch("complete")
        driver_seconds = time.perf_counter() - began
        assert not mirror or mirror.wait() == 0, (folder / "mirror.log").read_text()
        seconds = time.perf_counter() - began
    assert scheduler.progress.is_finished and not scheduler.progress.failures
    return StudyRun(scheduler, seconds, driver_seconds, driver.report_seconds)


def run_driver(scheduler: Scheduler, folder: Path, on_progress: Callable[[Scheduler], None] | None) -> TimedDriver:
    resources = Resources(nodes=RayNodes(), cpus=1, gpus=0)
    with Path(os.devnull).open("w") as nowhere, LiveView(scheduler, slots=resources.slots, output=nowhere) as view:

        def progress(driver: Driver) -> None:
            view.update(driver)
            if on_progress:
                on_progress(scheduler)

        driver = TimedDriver(
            scheduler,
            folder=folder,
            storage=str(folder),
            resources=resources,
            on_progress=progress,
            watchdog=Watchdog(say=view.say),
        )
        driver.run()
    return driver
