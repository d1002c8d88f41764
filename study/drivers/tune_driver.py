"""The driver on Ray: one `tune.Tuner` whose searcher and scheduler ask the study's scheduler.

Ray places trials and keeps actors warm. Nothing of Ray's own state is kept: there is no `Tuner.restore`.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from study.cluster.resources import Resources
from study.decisions.scheduler import Scheduler
from study.drivers.driver import LOOK_SECONDS, Driver
from study.drivers.messages import ASSIGNMENTS, MESSAGES, Message
from study.drivers.trial_actor import MESSAGE, TrialActor
from study.facts.study_folder import WORKERS_LOG

START_SECONDS = 10.0  # that the first actor of a launch waits for the others at least: they may never come


class TuneDriver(Driver):
    """A launch on Ray; a work id is the id of a Ray trial."""

    def __init__(
        self, scheduler: Scheduler, *, resources: Resources, actor: type[tune.Trainable] = TrialActor, **given: Any
    ):
        """`actor`: the class that runs trials; `given`: as `Driver` takes it."""
        super().__init__(scheduler, resources=resources, **given)
        self._actor = actor
        self._waiting: dict[str, frozenset[str]] = {}  # Ray's ids of trials without an actor yet -> nodes they avoid
        self._next_placing = 0.0
        self._began, self._start_over = time.monotonic(), math.inf  # when actors of the start are waited for no longer
        self._to_come = resources.count_slots_to_come()
        self._known_slots, self._slots_asked = 0, -math.inf

    def _run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="study-ray-") as ray_storage:
            tuner = tune.Tuner(
                tune.with_resources(self._actor, choose_placement),
                tune_config=tune.TuneConfig(
                    search_alg=_Searcher(self),
                    scheduler=_Scheduler(self),
                    num_samples=-1,
                    reuse_actors=True,
                    trial_name_creator=lambda trial: trial.trial_id,
                    trial_dirname_creator=lambda trial: trial.trial_id,
                ),
                run_config=tune.RunConfig(
                    name="study",
                    storage_path=ray_storage,
                    verbose=0,
                    callbacks=[_Progress(self)],
                    stop=_StopWhenDrained(self),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                ),
            )
            try:
                tuner.fit()
            except tune.TuneError as error:
                raise _first_cause(error) from None

    # ---- what Ray's searcher, scheduler and callbacks ask

    def suggest(self, ray_id: str) -> dict[str, Any] | str | None:
        """Return the next trial as a Ray configuration; None for "not now".

        One trial waits while all slots train, so that none stands idle; more only to fill slots, those that an
        autoscaler would add for them too. Ray alone would start one actor at a time and, if trials are shorter than
        that, throw each away for the one that is warm.
        """
        if len(self._waiting) >= max(1, self._slots() - len(self._training)):
            return None
        assignment = self.next_assignment(ray_id)
        if assignment is None:
            return Searcher.FINISHED if self.has_ended else None
        self._waiting[ray_id] = frozenset(assignment.avoid)
        assignment = replace(assignment, log=str(self._folder / WORKERS_LOG))
        return {MESSAGE: msgspec.json.encode(assignment).decode()}

    def reported(self, ray_id: str, message: Message) -> str:
        """Take in the message of an actor, and return Ray's word for going on or stopping.

        Raises:
            SmokeStepsFailed: a method cannot take a step.
        """
        now = time.monotonic()
        self._start_over = min(self._start_over, now + max(START_SECONDS, 2 * (now - self._began)))
        is_over = self.take_in(ray_id, message)
        if not is_over or self._waits_for_others:
            return TrialScheduler.CONTINUE
        self._training.discard(ray_id)
        return TrialScheduler.STOP

    @property
    def _waits_for_others(self) -> bool:
        """True if an actor that has taken its smoke steps waits for those of others.

        Ray drops a warm actor that no trial is pending for, and throws away a starting one if a warm one could do its
        work.
        """
        is_under_way = self._smoke is not None and not self._smoke.are_over and not self._smoke.parts
        return is_under_way and time.monotonic() < self._start_over and not self.scheduler.draining

    def begun(self, ray_id: str) -> None:
        """Note that a trial has its actor now; one that gets it after Ctrl-C is not waited for."""
        self._watchdog.moved()
        self._waiting.pop(ray_id, None)
        if not self.scheduler.draining:
            self._training.add(ray_id)

    def take_back_unplaceable(self) -> list[str]:
        """Take back trials that avoid every node with room, and return Ray's ids of them.

        They are handed out again, and Ray is to drop them; Ray is asked once in a while.
        """
        if time.monotonic() < self._next_placing or not any(self._waiting.values()):
            return []
        self._next_placing, nodes = time.monotonic() + LOOK_SECONDS, self._resources.find_nodes_with_room()
        stuck = [ray_id for ray_id, avoided in self._waiting.items() if nodes and nodes <= avoided]
        for ray_id in stuck:
            self.failed(ray_id, "the node that it waited for is gone", preempted=True)
        return stuck

    def failed(self, ray_id: str, error: str, *, preempted: bool) -> None:
        """Take back the trial of a lost actor, process or node, to be handed out again."""
        self._waiting.pop(ray_id, None)
        super().failed(ray_id, error, preempted=preempted)

    # ---- inside

    def _state(self) -> str:
        training, waiting = len(self._training), len(self._waiting)
        if training or not waiting:
            return f"{training} trials are in an epoch, {waiting} wait for a slot; status of the cluster: ray status"
        return f"{waiting} trials wait for a slot; {self._resources.describe_room()}"

    def _slots(self) -> int:
        """Count the trials that the cluster could run at a time; Ray is asked once a second, for milliseconds."""
        if time.monotonic() >= self._slots_asked + 1:
            slots = self._resources.slots(without=self.scheduler.facts.left_out)
            self._known_slots, self._slots_asked = max(slots, self._to_come), time.monotonic()
        return self._known_slots


def choose_placement(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """Choose the resources and nodes that Ray reserves for an assignment."""
    assignment = ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment")
    bundles: list[dict[str, int | float]] = [{"CPU": assignment.cpus, "GPU": assignment.gpus}]
    if not any(bundles[0].values()):
        bundles = [{"memory": 1}]  # Ray wants to be asked for something: for a byte
    if not assignment.avoid:
        return tune.PlacementGroupFactory(bundles)
    elsewhere = {"ray.io/node-id": f"!in({','.join(assignment.avoid)})"}
    return tune.PlacementGroupFactory(bundles, bundle_label_selector=[elsewhere])


def _first_cause(error: BaseException) -> BaseException:
    """Unwrap what was raised here: Ray wraps errors of searchers, schedulers and callbacks, more than once."""
    while isinstance(error, tune.TuneError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return error


class _StaysHere:
    """An object that Ray does not pickle or copy: the driver's state is in the journal and stays here."""

    def __init__(self, driver: TuneDriver):
        super().__init__()
        self._driver = driver

    def __deepcopy__(self, memo: dict[int, Any]) -> _StaysHere:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (object, ())


class _Searcher(_StaysHere, Searcher):
    def suggest(self, trial_id: str) -> Any:
        return self._driver.suggest(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: the scheduler has ended the trial already, or `_Progress` is about to."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the journal is the state."""

    def restore(self, checkpoint_path: str) -> None:
        raise AssertionError("a study is rebuilt from its journal")


class _Scheduler(_StaysHere, FIFOScheduler):
    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        if stuck := self._driver.take_back_unplaceable():
            for trial in [trial for trial in tune_controller.get_trials() if trial.trial_id in stuck]:
                tune_controller.stop_trial(trial)
        return super().choose_trial_to_run(tune_controller)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        message = MESSAGES.read(result[MESSAGE].encode(), where="a message of an actor")
        return self._driver.reported(trial.trial_id, message)


class _StopWhenDrained(_StaysHere, tune.Stopper):
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._driver.drained


class _Progress(_StaysHere, tune.Callback):
    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._driver.begun(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = Path(trial.error_file).read_text() if trial.error_file else "unknown error"
        self._driver.failed(trial.trial_id, error, preempted=trial.num_failures == 0)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._driver.on_progress(self._driver)
        self._driver.watch()
