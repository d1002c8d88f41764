"""The driver on Ray, which runs one `tune.Tuner`.

Its Ray Tune searcher and scheduler are only adapters: the study's own scheduler makes all decisions.

Ray places trials on nodes and reuses actors. Ray's own state is not kept, and `Tuner.restore` is not used.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from study.cluster.ray_internals import compute_loss_seconds, no_callback_telemetry, no_signal_handlers
from study.decisions.scheduler import Scheduler
from study.drivers.causes import is_unavailable
from study.drivers.driver import LOOK_SECONDS, Driver
from study.drivers.messages import ASSIGNMENTS, MESSAGES, Message
from study.drivers.trial_actor import MESSAGE, TrialActor
from study.facts.study_folder import WORKERS_LOG

START_SECONDS = 10.0  # shortest wait of the first actor for other actors, which may never start
EXPLAIN_SECONDS = 0.5  # between two checks for the nodes of unreachable actors


@dataclass(frozen=True, kw_only=True)
class _UnexplainedLoss:
    """An actor that Ray cannot reach, perhaps because its node is lost."""

    error: str
    nodes: Collection[str]  # its node; every node if it is unknown
    until: float  # when Ray would know that the node is lost


class TuneDriver(Driver):
    """The driver on Ray. A work id is the id of a Ray trial."""

    actor: type[tune.Trainable] = TrialActor  # benchmarks replace it

    def __init__(self, scheduler: Scheduler, **arguments: Any):
        """Take the arguments of `Driver`."""
        super().__init__(scheduler, **arguments)
        self._waiting: dict[str, frozenset[str]] = {}  # Ray's ids of trials without an actor yet -> nodes they avoid
        self._next_placing = 0.0
        self._unexplained: dict[str, _UnexplainedLoss] = {}  # by Ray's id of the trial
        self._next_explaining = 0.0
        self._began, self._start_over = time.monotonic(), math.inf  # when first actors stop waiting for other actors
        self._to_come = self._resources.count_slots_to_come()
        self._known_slots, self._slots_asked = 0, -math.inf

    def _run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="study-ray-") as ray_storage:
            tuner = tune.Tuner(
                tune.with_resources(self.actor, choose_placement),
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
                with no_signal_handlers(), no_callback_telemetry():
                    tuner.fit()
            except tune.TuneError as error:
                raise _find_first_cause(error) from None

    # ---- called by Ray's searcher, scheduler and callbacks

    def suggest(self, ray_id: str) -> dict[str, Any] | str | None:
        """Return the next trial as a Ray configuration, or None if there is none at present.

        Every free slot gets a trial, including slots that an autoscaler would add. If all slots are busy, one trial
        waits for the next free slot.
        """
        self.explain_losses()  # while no trial has an actor, Ray calls nothing else
        if len(self._waiting) >= max(1, self._count_slots() - len(self._training)):
            return None
        assignment = self.next_assignment(ray_id)
        if assignment is None:
            return Searcher.FINISHED if self.has_ended or self.drained else None
        self._waiting[ray_id] = frozenset(assignment.avoid)
        assignment = replace(assignment, log=str(self._folder / WORKERS_LOG))
        return {MESSAGE: msgspec.json.encode(assignment).decode()}

    def reported(self, ray_id: str, message: Message) -> str:
        """Process an actor's message, and return `TrialScheduler.CONTINUE` or `TrialScheduler.STOP`.

        Raises:
            SmokeStepsFailed: if a method failed in its smoke step.
        """
        now = time.monotonic()
        self._start_over = min(self._start_over, now + max(START_SECONDS, 2 * (now - self._began)))
        is_over = self.process_message(ray_id, message)
        if not is_over or self._waits_for_others:
            return TrialScheduler.CONTINUE
        self._training.discard(ray_id)
        return TrialScheduler.STOP

    @property
    def _waits_for_others(self) -> bool:
        """True if an actor must wait for the smoke steps of other actors.

        Without the wait, Ray would discard the actor.
        """
        is_under_way = not self._smoke.are_over and not self._smoke.parts
        return is_under_way and time.monotonic() < self._start_over and not self.scheduler.draining

    def begun(self, ray_id: str) -> None:
        """Record that a trial has an actor. If the launch is stopping, it does not wait for this trial."""
        self._watchdog.moved()
        self._waiting.pop(ray_id, None)
        if not self.scheduler.draining:
            self._training.add(ray_id)

    def return_unplaceable(self) -> list[str]:
        """Give unplaceable trials back to the study's scheduler, and list their Ray ids.

        A waiting trial is unplaceable if it must avoid every node with room. The caller must remove these trials from
        Ray. Nodes are checked every `LOOK_SECONDS`.
        """
        if time.monotonic() < self._next_placing or not any(self._waiting.values()):
            return []
        self._next_placing, nodes = time.monotonic() + LOOK_SECONDS, self._resources.find_nodes_with_room()
        unplaceable = [ray_id for ray_id, avoided in self._waiting.items() if nodes and nodes <= avoided]
        for ray_id in unplaceable:
            self.failed(ray_id, "the node that the trial waited for is gone", preempted=True)
        return unplaceable

    def failed(self, ray_id: str, error: str, *, preempted: bool, is_crash: bool = False) -> None:
        """Give the trial of a lost actor or process back to the scheduler, so that a worker can continue the trial.

        If Ray cannot reach the actor, this happens when Ray knows whether the actor's node is lost: see
        `explain_losses`. Meanwhile the trial counts as training, and other trials go on.
        """
        self._waiting.pop(ray_id, None)
        if not is_unavailable(error):
            super().failed(ray_id, error, preempted=preempted, is_crash=is_crash)
            return
        node = self._node_of.get(ray_id)
        self._unexplained[ray_id] = _UnexplainedLoss(
            error=error,
            nodes=[node] if node else list(self._resources.nodes.alive()),
            until=time.monotonic() + compute_loss_seconds(),
        )

    def explain_losses(self) -> None:
        """Give the trials of unreachable actors back to the scheduler if their node is lost, or if it turns out alive.

        A launch that is stopping does not wait for this; the next launch continues the trials. Nodes are checked every
        `EXPLAIN_SECONDS`.
        """
        if self.scheduler.draining:
            self._training -= self._unexplained.keys()
            self._unexplained.clear()
        now = time.monotonic()
        if now < self._next_explaining or not self._unexplained:
            return
        self._next_explaining, lost = now + EXPLAIN_SECONDS, self._resources.nodes.lost()
        for ray_id, loss in list(self._unexplained.items()):
            node = next((node for node in loss.nodes if node in lost), None)
            if node or now >= loss.until:
                del self._unexplained[ray_id]
                self._node_of[ray_id] = node or self._node_of.get(ray_id)
                super().failed(ray_id, loss.error, preempted=False)

    # ---- inside

    def _format_state(self) -> str:
        training, waiting = len(self._training), len(self._waiting)
        if training or not waiting:
            return f"{training} trials are training, and {waiting} wait for a slot; to see the cluster, run: ray status"
        return f"{waiting} trials wait for a slot; {self._resources.describe_room()}"

    def _count_slots(self) -> int:
        """Count the trials that can run at once on the cluster; Ray is asked at most once a second."""
        if time.monotonic() >= self._slots_asked + 1:
            slots = self._resources.slots(without=self.scheduler.facts.left_out)
            self._known_slots, self._slots_asked = max(slots, self._to_come), time.monotonic()
        return self._known_slots


def choose_placement(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """Choose the resources and nodes that Ray reserves for an assignment."""
    assignment = ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment")
    bundles: list[dict[str, int | float]] = [{"CPU": assignment.cpus, "GPU": assignment.gpus}]
    if not any(bundles[0].values()):
        bundles = [{"memory": 1}]  # Ray refuses an empty request, so ask for one byte
    if not assignment.avoid:
        return tune.PlacementGroupFactory(bundles)
    elsewhere = {"ray.io/node-id": f"!in({','.join(assignment.avoid)})"}
    return tune.PlacementGroupFactory(bundles, bundle_label_selector=[elsewhere])


def _find_first_cause(error: BaseException) -> BaseException:
    """Unwrap the original error from Ray's errors."""
    while isinstance(error, tune.TuneError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return error


class _NotPickled:
    """A base class for objects that Ray must neither pickle nor copy, because they refer to the driver."""

    def __init__(self, driver: TuneDriver):
        super().__init__()
        self._driver = driver

    def __deepcopy__(self, memo: dict[int, Any]) -> _NotPickled:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (object, ())


class _Searcher(_NotPickled, Searcher):
    def suggest(self, trial_id: str) -> Any:
        return self._driver.suggest(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: `_Scheduler` and `_Progress` inform the driver about the end of a trial."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the journal holds the state."""


class _Scheduler(_NotPickled, FIFOScheduler):
    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        if unplaceable := self._driver.return_unplaceable():
            for trial in [trial for trial in tune_controller.get_trials() if trial.trial_id in unplaceable]:
                tune_controller.stop_trial(trial)
        return super().choose_trial_to_run(tune_controller)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        message = MESSAGES.read(result[MESSAGE].encode(), where="a message of an actor")
        return self._driver.reported(trial.trial_id, message)


class _StopWhenDrained(_NotPickled, tune.Stopper):
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._driver.drained


class _Progress(_NotPickled, tune.Callback):
    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._driver.begun(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = Path(trial.error_file).read_text() if trial.error_file else "unknown error"
        self._driver.failed(trial.trial_id, error, preempted=trial.num_failures == 0)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._driver.explain_losses()
        self._driver.on_progress(self._driver)
        self._driver.watch()
