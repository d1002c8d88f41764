"""Runs a study on Ray: one `tune.Tuner` whose searcher and scheduler ask the study's scheduler what to do.

Ray places trials and keeps actors warm. What runs, what stops and what is known is in the journal, so nothing of Ray's
own state is kept: there is no `Tuner.restore`, and a trial whose actor or node died is handed out again.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from study.cluster.resources import Resources, lost_nodes, nodes_alive
from study.decisions.optuna_journal import OptunaJournal
from study.decisions.scheduler import Scheduler
from study.decisions.specs import refusal
from study.drivers.assignments import Assignments
from study.drivers.causes import lost_outcome, lost_process
from study.drivers.interrupts import drain_on_interrupt
from study.drivers.messages import ASSIGNMENTS, MESSAGES, Message, News
from study.drivers.smoke_steps import SmokeSteps
from study.drivers.trial_actor import MESSAGE, TrialActor
from study.drivers.trial_end import end_trial
from study.drivers.watchdog import Watchdog
from study.facts.attestation import Attestation
from study.facts.events import Failure
from study.facts.record import Record
from study.storage.launch_marks import check_marks, launch_marks
from study.storage.trial_places import OutcomeGone

LOOK_SECONDS = 5.0  # between two questions to Ray whether there are nodes


class TuneDriver:
    """One launch of a study on Ray: from its facts to the end of what there is to do."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        folder: Path,
        storage: str,
        resources: Resources,
        on_progress: Callable[[], None],
        watchdog: Watchdog,
        smoke: SmokeSteps | None = None,
        actor: type[tune.Trainable] = TrialActor,
    ):
        self.scheduler = scheduler
        self.on_progress = on_progress
        self._watchdog = watchdog
        self._smoke = smoke
        self._next_look = self._next_placing = 0.0
        self._folder = folder
        self._storage = storage
        self._resources = resources
        self._actor = actor
        self._keys: dict[str, list[str]] = {}  # Ray's trial id -> keys of its trials that are not over
        self._waiting: dict[str, frozenset[str]] = {}  # Ray's ids of trials without an actor yet -> nodes they avoid
        self._training: set[str] = set()  # of those that have one
        self._node_of: dict[str, str | None] = {}  # Ray's trial id -> node that it was last heard of from
        self._to_come = resources.slots_to_come()
        self._known_slots, self._slots_asked = 0, -math.inf
        self._assignments = Assignments(scheduler, folder=folder, storage=storage, resources=resources)
        self._optuna = OptunaJournal(folder / "optuna.journal", scheduler.facts)
        for arm in scheduler.plan.arms:
            self._optuna.add_ended(arm)

    def run(self) -> None:
        """Runs until nothing is left to hand out, or until it is interrupted and the running trials are saved."""
        with (
            tempfile.TemporaryDirectory(prefix="study-ray-") as ray_storage,
            launch_marks(self._storage, self._folder) as self._assignments.marks,
            drain_on_interrupt(self.scheduler),
        ):
            tuner = tune.Tuner(
                tune.with_resources(self._actor, placement_of),
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
        """The next trial as a Ray configuration; None for "not now".

        One trial waits while all slots train, so that none stands idle; more only to fill slots, those that an
        autoscaler would add for them too. Ray alone would start one actor at a time and, where trials are shorter than
        that, throw each away for the one that is warm.
        """
        if len(self._waiting) >= max(1, self._slots() - len(self._training)):
            return None
        if self._smoke and not self._smoke.are_over:
            return self._suggest_smoke(ray_id, self._smoke)
        trial = self.scheduler.next_trial()
        if trial is None:
            is_over = self.scheduler.progress.is_done or self.scheduler.has_given_up
            return Searcher.FINISHED if is_over else None
        self._keys[ray_id] = [trial.key]
        assignment = self._assignments.of([trial])
        self._waiting[ray_id] = frozenset(assignment.avoid)
        return {MESSAGE: msgspec.json.encode(assignment).decode()}

    def _suggest_smoke(self, ray_id: str, smoke: SmokeSteps) -> dict[str, Any] | None:
        """The first step of some methods; no trial before all have taken theirs."""
        assignment = None if self.scheduler.draining else smoke.next_part(ray_id)
        if assignment is None:
            return None
        self._keys[ray_id], self._waiting[ray_id] = [], frozenset()
        return {MESSAGE: msgspec.json.encode(assignment).decode()}

    def reported(self, ray_id: str, message: Message) -> str:
        """Takes in what an actor says, and tells whether Ray stops its Ray trial.

        Raises:
            SmokeStepsFailed: a method cannot take a step.
        """
        self._node_of[ray_id] = message.node
        if message.news or message.smoke:
            self._watchdog.moved()
        if self._smoke and message.smoke:
            self._smoke.taken(ray_id, message.smoke)
        for news in message.news:
            if self._is_over(news, message.node):
                self._keys[ray_id].remove(news.key)
        if self._waits_for_others:
            return TrialScheduler.CONTINUE
        if not self._keys[ray_id] or self.scheduler.draining:  # when draining, its epochs are saved
            self._training.discard(ray_id)
            return TrialScheduler.STOP
        return TrialScheduler.CONTINUE

    @property
    def _waits_for_others(self) -> bool:
        """Whether an actor whose smoke steps are taken waits for those of others, which all have their actors: Ray lets
        a warm one go that no trial is pending for."""
        is_under_way = self._smoke is not None and not self._smoke.are_over and not self._smoke.are_left
        return is_under_way and not self._waiting and not self.scheduler.draining

    def begun(self, ray_id: str) -> None:
        """A trial has its actor now; one that gets it after Ctrl-C is not waited for."""
        self._watchdog.moved()
        self._waiting.pop(ray_id, None)
        if not self.scheduler.draining:
            self._training.add(ray_id)

    def take_back_unplaceable(self) -> list[str]:
        """Ray's ids of trials that wait for a node that has gone: every other is one that they avoid. They are handed
        out again, and Ray is to drop them; asked of Ray once in a while."""
        if time.monotonic() < self._next_placing or not any(self._waiting.values()):
            return []
        self._next_placing, nodes = time.monotonic() + LOOK_SECONDS, self._resources.nodes()
        stuck = [ray_id for ray_id, avoided in self._waiting.items() if nodes and nodes <= avoided]
        for ray_id in stuck:
            self.failed(ray_id, "the node that it waited for is gone", preempted=True)
        return stuck

    @property
    def drained(self) -> bool:
        """Whether Ctrl-C was pressed, and every trial has saved the epoch that it was in."""
        return self.scheduler.draining and not self._training

    def failed(self, ray_id: str, error: str, *, preempted: bool) -> None:
        """An actor, its process or its node is gone: its trials are handed out again."""
        self._watchdog.moved()
        self._waiting.pop(ray_id, None)
        self._training.discard(ray_id)
        if self._smoke:
            self._smoke.lost(ray_id)
        node = self._node_of.get(ray_id)
        failure = lost_process(error, is_preempted=preempted, node=node, lost_nodes=lost_nodes())
        if failure.host:
            self._watchdog.say(f"node {failure.host} is lost; its trial goes on elsewhere ({failure.error})")
        for key in self._keys[ray_id]:
            self.scheduler.retry(key, failure)

    def watch(self) -> None:
        """Asks the watchdog, once in a while.

        Raises:
            Stalled: nothing has moved for too long.
        """
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        self.scheduler.faults.forget(lost_nodes())
        self._watchdog.look(nodes=len(nodes_alive()), has_room=self._resources.slots() > 0, state=self._state())

    # ---- inside

    def _state(self) -> str:
        training, waiting = len(self._training), len(self._waiting)
        if training or not waiting:
            return f"{training} trials are in an epoch, {waiting} wait for a slot; status of the cluster: ray status"
        return f"{waiting} trials wait for a slot; {self._resources.room_in_words()}"

    def _is_over(self, news: News, node: str | None) -> bool:
        """Takes in the news of one trial, and ends it if it is over; whether its work here is.

        Raises:
            ValueError: what a worker trains is not what the plan says, and there is no other that may do better.
        """
        if news.restarted is not None:
            self.scheduler.restart(news.key, news.restarted)
        if news.refused is not None:
            self._refuse(news.key, news.refused, host=news.host, node=node)
            return True
        if news.failure is not None:
            self._break_off(news.key, self._judged(news.failure))
            return True
        assert news.report is not None
        decision = self.scheduler.report(news.key, news.report, node=node)
        if news.report.row.finished or decision == "stop":
            self._end(news, node=node)
            return True
        return False

    def _refuse(self, key: str, attested: Attestation, *, host: str, node: str | None) -> None:
        scheduler = self.scheduler
        others, by = self._has_others_than(node), scheduler.provenance
        failure = refusal(scheduler.progress, key, attested, host=host, node=node, others=others, by=by)
        scheduler.retry(key, failure)

    def _has_others_than(self, node: str | None) -> bool:
        """Whether there are nodes that may do better than this one."""
        return bool(self._resources.nodes() - self.scheduler.faults.differing - {node})

    def _judged(self, failure: Failure) -> Failure:
        """A node that does not see the storage of the launch is at fault only where the launcher itself does.

        Raises:
            ValueError: it does, and there is no other node.
        """
        if failure.cause != "node":
            return failure
        try:
            check_marks(self._assignments.marks)
        except OSError:
            return replace(failure, cause="machine")
        if not self._has_others_than(failure.node):
            raise ValueError(
                f"{failure.host}: {failure.error}; there is no other node. Then the same command continues"
            )
        return failure

    def _break_off(self, key: str, failure: Failure) -> None:
        if not self.scheduler.faults.is_final(key, failure):
            self.scheduler.retry(key, failure)
            return
        trial = self.scheduler.facts.trials[key]
        self._add_ended(end_trial(self.scheduler, trial, storage=self._storage, folder=self._folder, failure=failure))

    def _slots(self) -> int:
        """Trials that the cluster can run at a time, or could. Asked of Ray once a second: it takes milliseconds."""
        if time.monotonic() >= self._slots_asked + 1:
            resources = self._resources.packed(self._assignments.gpu_share)
            slots = resources.slots(without=self.scheduler.facts.left_out)
            self._known_slots, self._slots_asked = max(slots, self._to_come), time.monotonic()
        return self._known_slots

    def _end(self, news: News, *, node: str | None) -> None:
        """Ends a trial that has told its last epoch; one whose outcome cannot be found is handed out again."""
        trial = self.scheduler.facts.trials[news.key]
        try:
            self._add_ended(end_trial(self.scheduler, trial, storage=self._storage, folder=self._folder))
        except OutcomeGone as gone:
            self.scheduler.restart(news.key, str(gone))
            self._break_off(news.key, self._judged(lost_outcome(gone, host=news.host, node=node)))

    def _add_ended(self, record: Record) -> None:
        if record.phase == "search":
            self._optuna.add_ended(self.scheduler.plan.arm(record.arm))


def placement_of(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """What Ray sets aside for the trials of an assignment."""
    assignment = ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment")
    bundles: list[dict[str, int | float]] = [{"CPU": assignment.cpus, "GPU": assignment.gpus}]
    if not any(bundles[0].values()):
        bundles = [{"memory": 1}]  # Ray wants to be asked for something: for a byte
    if not assignment.avoid:
        return tune.PlacementGroupFactory(bundles)
    elsewhere = {"ray.io/node-id": f"!in({','.join(assignment.avoid)})"}
    return tune.PlacementGroupFactory(bundles, bundle_label_selector=[elsewhere])


def _first_cause(error: BaseException) -> BaseException:
    """What was raised here: Ray wraps, more than once, whatever comes out of a searcher, a scheduler or a callback."""
    while isinstance(error, tune.TuneError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return error


class _StaysHere:
    """Ray pickles and copies what it is given; the driver's own state is in the journal and stays where it is."""

    def __init__(self, driver: TuneDriver):
        super().__init__()
        self._driver = driver

    def __deepcopy__(self, memo: dict) -> _StaysHere:
        return self

    def __reduce__(self) -> tuple:
        return (object, ())


class _Searcher(_StaysHere, Searcher):
    def suggest(self, trial_id: str) -> Any:
        return self._driver.suggest(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """The scheduler has ended the trial already, or `_Progress` is about to."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal is the state."""

    def restore(self, checkpoint_path: str) -> None:
        raise AssertionError("a study is rebuilt from its journal")


class _Scheduler(_StaysHere, FIFOScheduler):
    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        stuck = self._driver.take_back_unplaceable()
        if stuck:
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
    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        self._driver.begun(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        error = Path(trial.error_file).read_text() if trial.error_file else "unknown error"
        self._driver.failed(trial.trial_id, error, preempted=trial.num_failures == 0)

    def on_step_end(self, iteration: int, trials: list, **info: Any) -> None:
        self._driver.on_progress()
        self._driver.watch()
