"""The part that all drivers share: they hand out the scheduler's trials, and take in messages of workers.

All that is known is in the journal, so a driver keeps no state of its own: a trial whose worker died is handed out
again. Each driver has its own way to start workers.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from study.cluster.resources import Resources
from study.decisions.scheduler import Scheduler
from study.decisions.specs import expected_attestation, trial_spec
from study.drivers.causes import lost_process
from study.drivers.messages import AssignedTrial, Assignment, Message, News, Steps
from study.drivers.smoke_steps import SmokeSteps
from study.drivers.steps_file import remove_steps, write_steps
from study.drivers.watchdog import Watchdog
from study.facts.events import Failure
from study.facts.plain_words import clock
from study.facts.record import Record
from study.facts.study_facts import TrialFacts
from study.facts.study_folder import predictions_digest, predictions_file
from study.storage.addresses import is_uri, masked
from study.storage.trial_places import (
    PREDICTIONS,
    OutcomeGone,
    check_marks,
    find_model_address,
    launch_marks,
    open_place,
    trial_address,
)
from trainables.method_files import included

LOOK_SECONDS = 5.0  # between two looks at the nodes


class Driver(ABC):
    """One launch of a study, from its facts to the end of its work.

    An assignment that was handed out is known by a work id, which the driver chooses.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        folder: Path,
        storage: str,
        resources: Resources,
        on_progress: Callable[[Driver], None],
        watchdog: Watchdog,
        smoke: SmokeSteps | None = None,
        until: float = math.inf,
    ):
        """`until`: the reading of the monotonic clock at which the launch ends, in the middle of an epoch too."""
        self.scheduler = scheduler
        self.on_progress = on_progress
        self._watchdog = watchdog
        self._smoke = smoke
        self._until, self._is_time_over, self._next_look = until, False, 0.0
        self._folder = folder
        self._storage = storage
        self._resources = resources
        self._marks: tuple[str, ...] = ()  # of the launch in its storage, while the launch runs
        self._keys: dict[str, str | None] = {}  # work id -> key of its trial; None: it has none, or the trial is over
        self._training: set[str] = set()  # work ids that have a worker
        self.steps: dict[str, Steps] = {}  # key -> how far the epoch under way is, if the worker has reported that
        self._written: dict[str, Steps] | None = None  # the steps that `study.status` reads
        self._node_of: dict[str, str | None] = {}  # work id -> node that it was last heard of from

    def run(self) -> None:
        """Run until nothing is left, until an interrupt has saved the running trials, or until the time is over."""
        with (
            launch_marks(self._storage, self._folder) as self._marks,
            drain_on_interrupt(self.scheduler),
        ):
            self.on_progress(self)
            try:
                self._run()
            finally:
                remove_steps(self._folder)

    # ---- what each driver defines

    @abstractmethod
    def _run(self) -> None:
        """Bring assignments to workers and take in their messages, until `has_ended` or `drained`."""

    @abstractmethod
    def _state(self) -> str:
        """Describe what is waited for while nothing moves."""

    # ---- what they share

    def next_assignment(self, work_id: str) -> Assignment | None:
        """Choose a worker's next assignment; None for "not now".

        Smoke steps come first, if there are any: no trial starts before all arms have taken theirs.
        """
        if self._smoke and not self._smoke.are_over:
            part = None if self.scheduler.draining else self._smoke.next_part(work_id)
            if part is not None:
                self._keys[work_id] = None
            return part
        trial = self.scheduler.next_trial()
        if trial is None:
            return None
        self._keys[work_id] = trial.key
        return self._assignment(trial)

    @property
    def has_ended(self) -> bool:
        """True if nothing is left that this launch could hand out."""
        return self.scheduler.progress.is_done or self.scheduler.has_given_up

    @property
    def drained(self) -> bool:
        """True if Ctrl-C was pressed, or the time is over, and every trial has left its worker."""
        return self.scheduler.draining and not self._training

    @property
    def at_work(self) -> set[str]:
        """Keys of the trials that have a worker; all others under way wait for one."""
        return {key for work_id in self._training if (key := self._keys[work_id])}

    @property
    def awaited(self) -> str:
        """The state before the first trial, for a screen; empty afterwards."""
        if self._smoke is None or self._smoke.are_over:
            return ""
        if self._training and self._smoke.specs:
            return "workers get ready: one step of each arm is tried"
        return "workers are starting"

    def take_in(self, work_id: str, message: Message) -> bool:
        """Take in the message of a worker, and return True if its work is over.

        Raises:
            SmokeStepsFailed: a method cannot take a step.
        """
        self._node_of[work_id] = message.node
        if message.news or message.smoke or message.steps:
            self._watchdog.moved()
        self._look_at_clock()
        if message.steps:
            self.steps[message.steps.key] = message.steps
            return self._is_time_over
        if message.news:
            self.steps.pop(message.news.key, None)
        if self._smoke and message.smoke:
            self._smoke.taken(work_id, message.smoke)
        if message.news and self._is_over(message.news, message.node):
            self._keys[work_id] = None
        return self._keys[work_id] is None or self.scheduler.draining  # when draining, its epoch is saved

    def failed(self, work_id: str, error: str, *, preempted: bool) -> None:
        """Take back the trial of a lost worker, process or node, to be handed out again."""
        self._watchdog.moved()
        self._training.discard(work_id)
        if self._smoke:
            self._smoke.lost(work_id)
        node, lost_nodes = self._node_of.get(work_id), self._resources.nodes.lost()
        failure = lost_process(error, is_preempted=preempted, node=node, lost_nodes=lost_nodes)
        if failure.host:
            self._watchdog.say(f"node {failure.host} is lost; its trial goes on elsewhere ({failure.error})")
        if key := self._keys[work_id]:
            self.steps.pop(key, None)
            self.scheduler.retry(key, failure)

    def watch(self) -> None:
        """Check the time and, once in a while, ask the watchdog.

        Raises:
            Stalled: nothing has moved for too long.
        """
        self._look_at_clock()
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        if self._written != self.steps:
            self._written = dict(self.steps)
            write_steps(self._folder, self.steps.values())
        nodes = self._resources.nodes
        self.scheduler.faults.forget(nodes.lost())
        self._watchdog.look(nodes=len(nodes.alive()), has_room=self._resources.slots() > 0, state=self._state())

    # ---- inside

    def _look_at_clock(self) -> None:
        """Hand out nothing more once the time is over."""
        if time.monotonic() < self._until or self._is_time_over:
            return
        self.scheduler.draining = self._is_time_over = True
        self._watchdog.say(
            "the time is over (--max-minutes): stopping; trials go on from the last epoch that they have saved"
            + self._longest_epoch()
        )

    def _longest_epoch(self) -> str:
        """Estimate the longest epoch under way from its steps: a limit below that is of no use."""
        seconds = {key: steps.seconds / steps.done * steps.of for key, steps in self.steps.items() if steps.done}
        if not seconds:
            return ""
        key = max(seconds, key=lambda key: seconds[key])
        return f"; an epoch of {self.scheduler.facts.trials[key].started.arm} would take about {clock(seconds[key])}"

    def _assignment(self, trial: TrialFacts) -> Assignment:
        """Make the assignment of a trial: its spec, its place, and the files that it leaves."""
        cpus, gpus = self._resources.cpus, self._resources.gpus
        spec = trial_spec(self.scheduler.plan, self.scheduler.facts, trial)
        if spec.start is not None and trial.start is not None:
            spec = replace(spec, start=find_model_address(spec.start, folder=self._folder, key=trial.start))
        predictions = PREDICTIONS if is_uri(self._storage) else str(predictions_file(self._folder, trial.key))
        assigned = AssignedTrial(
            key=trial.key,
            epochs=trial.epochs,
            spec=spec,
            expected=expected_attestation(self.scheduler.progress, trial, by=self.scheduler.provenance),
            place=trial_address(self._storage, trial.key),
            predictions=predictions if trial.phase == "confirm" else None,
            marks=self._marks,
        )
        return Assignment(
            trial=assigned,
            device="cuda" if gpus else "cpu",
            cpus=cpus,
            gpus=gpus,
            threads=max(1, int(cpus)),
            avoid=self._avoided_by(trial),
            included=included(),
        )

    def _avoided_by(self, trial: TrialFacts) -> tuple[str, ...]:
        """List the nodes on which the trial is better not placed; none if no other can hold it."""
        avoided = self.scheduler.faults.avoided_by(trial.key)
        others = avoided and self._resources.find_nodes_with_room() - avoided
        return tuple(sorted(avoided)) if others else ()

    def _is_over(self, news: News, node: str | None) -> bool:
        """Take in the news of one trial, end it if it is over, and return True if its work here is."""
        if news.restarted is not None:
            self.scheduler.restart(news.key, news.restarted)
        if news.refused is not None:
            others = self._has_others_than(node)
            self.scheduler.refuse(news.key, news.refused, host=news.host, node=node, others=others)
            return True
        if news.failure is not None:
            self._break_off(news.key, self._blame(news.failure))
            return True
        assert news.report is not None
        decision = self.scheduler.report(news.key, news.report, node=node)
        if news.report.row.finished or decision == "stop":
            self._end(news, node=node)
            return True
        return False

    def _has_others_than(self, node: str | None) -> bool:
        """Check if any other node may do better than this one."""
        return bool(self._resources.find_nodes_with_room() - self.scheduler.faults.differing - {node})

    def _blame(self, failure: Failure) -> Failure:
        """Blame a node that does not see the storage only if the launcher does; refuse if no other is there."""
        if failure.cause != "node":
            return failure
        try:
            check_marks(self._marks)
        except OSError:
            return replace(failure, cause="machine")
        if not self._has_others_than(failure.node):
            raise ValueError(
                f"{failure.host}: {failure.error}; no other node is available; fix this and rerun the same command"
            )
        return failure

    def _break_off(self, key: str, failure: Failure) -> None:
        if not self.scheduler.faults.is_final(key, failure):
            self.scheduler.retry(key, failure)
            return
        trial = self.scheduler.facts.trials[key]
        end_trial(self.scheduler, trial, storage=self._storage, folder=self._folder, failure=failure)

    def _end(self, news: News, *, node: str | None) -> None:
        """End a trial that has reported its last epoch; hand it out again if its outcome cannot be found."""
        trial = self.scheduler.facts.trials[news.key]
        try:
            end_trial(self.scheduler, trial, storage=self._storage, folder=self._folder)
        except OutcomeGone as gone:
            self.scheduler.restart(news.key, str(gone))
            failure = Failure(cause="node", error=masked(str(gone)), host=news.host, node=node)
            self._break_off(news.key, self._blame(failure))


@contextmanager
def drain_on_interrupt(scheduler: Scheduler) -> Iterator[None]:
    """Let running trials save their epoch at the first Ctrl-C, and stop at once at the second."""

    def interrupted(signal_number: int, frame: FrameType | None) -> None:
        if scheduler.draining:
            raise KeyboardInterrupt
        scheduler.draining = True
        print("saving the epochs under way, then stopping; Ctrl-C again stops at once", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_trial(
    scheduler: Scheduler, trial: TrialFacts, *, storage: str, folder: Path, failure: Failure | None = None
) -> Record:
    """End a trial, and return its record; every driver does it in this order.

    Its predictions come to the study's folder before the record is written, and its state is deleted after that.

    Raises:
        OutcomeGone: predictions or model are missing; nothing is noted.
    """
    place = open_place(trial_address(storage, trial.key))
    digest = None
    if trial.phase == "confirm" and failure is None:
        place.fetch_predictions(predictions_file(folder, trial.key))
        digest = predictions_digest(folder, trial.key)
        outcome = trial.last.outcome if trial.last else None
        if outcome and (model := outcome.model):
            place.check_model(model if is_uri(model) else find_model_address(model, folder=folder, key=trial.key))
    record = scheduler.end(trial.key, failure=failure, predictions_digest=digest)
    place.prune(record)
    return record


def end_unsettled(scheduler: Scheduler, *, storage: str, folder: Path) -> None:
    """End trials that reported their last epoch to a launcher that died; restart one whose outcome is gone."""
    for trial in scheduler.progress.unsettled:
        try:
            end_trial(scheduler, trial, storage=storage, folder=folder)
        except OutcomeGone as gone:
            scheduler.restart(trial.key, str(gone))
