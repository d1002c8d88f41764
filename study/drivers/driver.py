"""What every driver of a study does: hands out what the study's scheduler asks for, and takes in what workers say.

What runs, what stops and what is known is in the journal, so no state of a driver's own is kept: a trial whose worker
died is handed out again. How workers come about is a matter of each driver.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from study.cluster.resources import Resources
from study.decisions.scheduler import Scheduler
from study.decisions.specs import refusal
from study.drivers.assignments import Assignments
from study.drivers.causes import lost_outcome, lost_process
from study.drivers.interrupts import drain_on_interrupt
from study.drivers.messages import Assignment, Message, News
from study.drivers.smoke_steps import SmokeSteps
from study.drivers.trial_end import end_trial
from study.drivers.watchdog import Watchdog
from study.facts.attestation import Attestation
from study.facts.events import Failure
from study.storage.launch_marks import check_marks, launch_marks
from study.storage.trial_places import OutcomeGone

LOOK_SECONDS = 5.0  # between two questions whether there are nodes


class Driver(ABC):
    """One launch of a study: from its facts to the end of what there is to do.

    An assignment that was handed out is known by a work id, which is the driver's to choose.
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
        """`until`: the reading of the monotonic clock from which on it drains, as after Ctrl-C."""
        self.scheduler = scheduler
        self.on_progress = on_progress
        self._watchdog = watchdog
        self._smoke = smoke
        self._until, self._next_look = until, 0.0
        self._folder = folder
        self._storage = storage
        self._resources = resources
        self._keys: dict[str, list[str]] = {}  # work id -> keys of its trials that are not over
        self._training: set[str] = set()  # work ids of those that have a worker
        self._node_of: dict[str, str | None] = {}  # work id -> node that it was last heard of from
        self._assignments = Assignments(scheduler, folder=folder, storage=storage, resources=resources)

    def run(self) -> None:
        """Runs until nothing is left to hand out, or until it is interrupted, or its time over, and the running trials
        are saved."""
        with (
            launch_marks(self._storage, self._folder) as self._assignments.marks,
            drain_on_interrupt(self.scheduler),
        ):
            self.on_progress(self)
            self._run()

    # ---- what each driver has its own way for

    @abstractmethod
    def _run(self) -> None:
        """Brings assignments to workers and takes in what they say, until `has_ended` or `drained`."""

    @abstractmethod
    def _state(self) -> str:
        """What is waited for, where nothing moves."""

    # ---- what they share

    def next_assignment(self, work_id: str) -> Assignment | None:
        """What a worker is to do now; None for "not now".

        The first step of some methods, where these are to be tried out: no trial before all have taken theirs.
        """
        if self._smoke and not self._smoke.are_over:
            part = None if self.scheduler.draining else self._smoke.next_part(work_id)
            if part is not None:
                self._keys[work_id] = []
            return part
        trial = self.scheduler.next_trial()
        if trial is None:
            return None
        self._keys[work_id] = [trial.key]
        return self._assignments.of([trial])

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left that this launch could hand out."""
        return self.scheduler.progress.is_done or self.scheduler.has_given_up

    @property
    def drained(self) -> bool:
        """Whether Ctrl-C was pressed, or the time is over, and every trial has saved the epoch that it was in."""
        return self.scheduler.draining and not self._training

    @property
    def at_work(self) -> set[str]:
        """Keys of the trials that have a worker; all others under way wait for one."""
        return {key for work_id in self._training for key in self._keys[work_id]}

    @property
    def awaited(self) -> str:
        """What there is before the first trial; nothing once that is over."""
        if self._smoke is None or self._smoke.are_over:
            return ""
        return (
            "workers get ready: one step of each arm is tried"
            if self._training and self._smoke.have_steps
            else "workers are starting"
        )

    def take_in(self, work_id: str, message: Message) -> bool:
        """Takes in what a worker says, and tells whether its work is over.

        Raises:
            SmokeStepsFailed: a method cannot take a step.
        """
        self._node_of[work_id] = message.node
        if message.news or message.smoke:
            self._watchdog.moved()
        if self._smoke and message.smoke:
            self._smoke.taken(work_id, message.smoke)
        for news in message.news:
            if self._is_over(news, message.node):
                self._keys[work_id].remove(news.key)
        return not self._keys[work_id] or self.scheduler.draining  # when draining, its epochs are saved

    def failed(self, work_id: str, error: str, *, preempted: bool) -> None:
        """A worker, its process or its node is gone: its trials are handed out again."""
        self._watchdog.moved()
        self._training.discard(work_id)
        if self._smoke:
            self._smoke.lost(work_id)
        node, lost_nodes = self._node_of.get(work_id), self._resources.nodes.lost()
        failure = lost_process(error, is_preempted=preempted, node=node, lost_nodes=lost_nodes)
        if failure.host:
            self._watchdog.say(f"node {failure.host} is lost; its trial goes on elsewhere ({failure.error})")
        for key in self._keys[work_id]:
            self.scheduler.retry(key, failure)

    def watch(self) -> None:
        """Looks whether the time is over and, once in a while, asks the watchdog.

        Raises:
            Stalled: nothing has moved for too long.
        """
        now = time.monotonic()
        if now >= self._until and not self.scheduler.draining:
            self.scheduler.draining = True
            self._watchdog.say("the time is over (--max-minutes): saving the epochs under way, then stopping")
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        nodes = self._resources.nodes
        self.scheduler.faults.forget(nodes.lost())
        self._watchdog.look(nodes=len(nodes.alive()), has_room=self._resources.slots() > 0, state=self._state())

    # ---- inside

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
        return bool(self._resources.nodes_with_room() - self.scheduler.faults.differing - {node})

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
        end_trial(self.scheduler, trial, storage=self._storage, folder=self._folder, failure=failure)

    def _end(self, news: News, *, node: str | None) -> None:
        """Ends a trial that has told its last epoch; one whose outcome cannot be found is handed out again."""
        trial = self.scheduler.facts.trials[news.key]
        try:
            end_trial(self.scheduler, trial, storage=self._storage, folder=self._folder)
        except OutcomeGone as gone:
            self.scheduler.restart(news.key, str(gone))
            self._break_off(news.key, self._judged(lost_outcome(gone, host=news.host, node=node)))
