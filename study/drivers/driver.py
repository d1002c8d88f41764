"""The loop that all drivers share: it hands trials to workers and processes the messages of the workers.

A driver keeps no state after the launch, because the journal records everything. The trial of a worker that died is
handed out again. Each subclass starts workers in its own way.
"""

from __future__ import annotations

import math
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from study.cluster.resources import Resources
from study.decisions.scheduler import Scheduler, specify_trial
from study.drivers.causes import lost_process
from study.drivers.messages import (
    SILENCE_SECONDS,
    AssignedTrial,
    Assignment,
    Message,
    Steps,
    remove_steps,
    write_steps,
)
from study.drivers.smoke_steps import SmokeSteps
from study.drivers.workers_log import shorten_log
from study.facts.events import Failure
from study.facts.study_facts import TrialFacts
from study.facts.study_folder import WORKERS_LOG, compute_predictions_digest, predictions_file
from study.storage.addresses import is_uri, local_path
from study.storage.launch_marks import check_marks, launch_marks
from study.storage.models import OutcomeGone, check_model, check_undamaged, find_model_address
from study.storage.trial_places import PREDICTIONS, open_place, trial_address
from study.terminal.signals import handle_signals
from study.terminal.text import clock, counted, masked
from trainables.files.atomic_files import DiskFull, read_full_place
from trainables.files.method_files import included
from trainables.runs.trial import TrialSpec

LOOK_SECONDS = 5.0  # between two checks of the nodes
SPEAK_SECONDS = 600.0  # without progress before the first warning; later warnings come at growing intervals
NO_NODE_SECONDS = 10.0  # without a live node; nodes that start later would form another cluster
NO_ROOM_SECONDS = 3600.0  # without a node that can hold a trial; an autoscaler may take that long to add one
IDLE_HOURS = 24.0  # without progress for any reason; no step takes this long
GRACE_SECONDS = 60.0  # after the time limit; a worker that is then still busy is ended


class Driver(ABC):
    """The driver of one launch: it runs trials until the study has no trials left.

    Each assignment (the trial or the smoke steps that a worker gets) has a work id.
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
        until: float = math.inf,
    ):
        """Prepare a launch that stops when `time.monotonic()` reaches `until`; the current epochs are then lost."""
        self.scheduler = scheduler
        self.on_progress = on_progress
        self._watchdog = watchdog
        self._smoke = SmokeSteps(scheduler, slots=resources.slots())
        self._until, self._is_time_over, self._is_grace_over, self._next_look = until, False, False, 0.0
        self._folder = folder
        self._storage = storage
        self._resources = resources
        self._marks: tuple[str, ...] = ()  # files that workers must see in the storage during the launch
        self._keys: dict[str, str | None] = {}  # work id -> trial key; None for smoke steps or an ended trial
        self._training: set[str] = set()  # work ids that have a worker
        self.steps: dict[str, Steps] = {}  # trial key -> steps of its current epoch, if reported
        self._written: dict[str, Steps] = {}  # the steps last written for `study.status`
        self._node_of: dict[str, str | None] = {}  # work id -> node of its last message
        self._full: str | None = None  # folder of this launch whose disk is full

    def run(self) -> None:
        """Run trials until none is left or the time is over. After Ctrl-C, stop when the running trials are saved.

        Raises:
            DiskFull: if the launch stopped because the disk of the study or of its storage is full.
        """
        with launch_marks(self._storage, self._folder) as self._marks, handle_signals(self._drain):
            self.on_progress(self)
            try:
                self._run()
            finally:
                with suppress(ValueError):  # the file is another launch's, which has taken the study over
                    self.scheduler.check_untouched()
                    remove_steps(self._folder)
        if self._full:
            raise DiskFull(self._full)

    # ---- defined by each driver

    @abstractmethod
    def _run(self) -> None:
        """Send assignments to workers and process their messages, until `has_ended` or `drained` is true."""

    @abstractmethod
    def _format_state(self) -> str:
        """Describe what the launch is waiting for; the watchdog's warning includes this description."""

    # ---- shared by all drivers

    def next_assignment(self, work_id: str) -> Assignment | None:
        """Return the next assignment for a worker, or None if there is none at present.

        Smoke steps (one training step per arm) come first. No trial starts before all smoke steps are done.
        """
        if not self._smoke.are_over:
            specs = None if self.scheduler.draining else self._smoke.next_part(work_id)
            if specs is None:
                return None
            self._keys[work_id] = None
            return self._build_assignment(None, smoke=specs)
        trial = self.scheduler.next_trial()
        if trial is None:
            return None
        self._keys[work_id] = trial.key
        return self._build_assignment(trial, smoke={})

    @property
    def has_ended(self) -> bool:
        """True if no trial is left, or if machine faults prevent this launch from running any trial."""
        return self.scheduler.progress.is_done or self.scheduler.has_given_up

    @property
    def drained(self) -> bool:
        """True if Ctrl-C or the time limit is stopping the launch, and no worker has a trial any more.

        After the time limit, the launch waits only `GRACE_SECONDS` for its workers.
        """
        return self.scheduler.draining and (not self._training or self._is_grace_over)

    @property
    def at_work(self) -> set[str]:
        """The keys of the trials that have a worker; all other unfinished trials wait for a worker."""
        return {key for work_id in self._training if (key := self._keys[work_id])}

    @property
    def awaited(self) -> str:
        """A description of what workers do before the first trial starts; empty afterwards."""
        if self._smoke.are_over:
            return ""
        if self._training and self._smoke.specs:
            return "workers are trying one training step of each arm"
        return "workers are starting"

    def process_message(self, work_id: str, message: Message) -> bool:
        """Process a worker's message, and return True if the worker's assignment is over.

        Raises:
            SmokeStepsFailed: if a method failed in its smoke step.
        """
        if message.lost:
            self._node_of[work_id] = message.node or self._node_of.get(work_id)
            self.failed(work_id, message.lost.error, preempted=False, is_crash=message.lost.is_crash)
            return True
        self._node_of[work_id] = message.node
        if message.key or message.smoke or message.steps:
            self._watchdog.moved()
        self._look_at_clock()
        if message.steps:
            self.steps[message.steps.key] = message.steps
            return self._is_time_over
        if message.key:
            self.steps.pop(message.key, None)
        if message.smoke:
            self._smoke.process_report(work_id, message.smoke)
        if message.key and self._process_trial(message.key, message):
            self._keys[work_id] = None
        return self._keys[work_id] is None or self.scheduler.draining  # when draining, the trial's epoch is saved

    def failed(self, work_id: str, error: str, *, preempted: bool, is_crash: bool = False) -> None:
        """Give the trial of a lost worker back to the scheduler, so that a worker can continue the trial.

        `is_crash` is true if the worker's process ended itself, crashed or hung. A trial that crashes again and again
        at the same step fails.

        Raises:
            SmokeStepsFailed: if the smoke step of an arm crashed again.
        """
        self._watchdog.moved()
        self._training.discard(work_id)
        node, lost_nodes = self._node_of.get(work_id), self._resources.nodes.lost()
        failure = lost_process(error, is_preempted=preempted, node=node, lost_nodes=lost_nodes, is_crash=is_crash)
        self._smoke.lose_part(work_id, failure)
        if failure.host:
            self._watchdog.say(f"node {failure.host} is lost; its trial continues on another node ({failure.error})")
        if key := self._keys[work_id]:
            self._break_off(key, failure, seconds=self._estimate_seconds(key))

    def watch(self) -> None:
        """Check the time limit and the size of the workers' log.

        Every `LOOK_SECONDS`, also write the steps file, and check nodes and progress.

        Raises:
            Stalled: if there was no progress for too long.
            ValueError: if another launch runs the study now.
        """
        self._look_at_clock()
        shorten_log(self._folder / WORKERS_LOG)
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        self.scheduler.check_untouched()
        if self._written != self.steps:
            self._written = dict(self.steps)
            write_steps(self._folder, self.steps.values())
        nodes = self._resources.nodes
        self.scheduler.faults.forget(nodes.lost())
        self._watchdog.look(nodes=len(nodes.alive()), has_room=self._resources.slots() > 0, state=self._format_state())

    # ---- inside

    def _drain(self, signal_number: int, frame: FrameType | None) -> None:
        """Let running trials save their epoch on one of `STOP_SIGNALS`; on the second, raise KeyboardInterrupt."""
        if self.scheduler.draining:
            raise KeyboardInterrupt
        self.scheduler.draining = True
        print(
            "the launch stops when the current epochs are saved; press Ctrl-C again to stop at once",
            file=sys.stderr,
            flush=True,
        )

    def _look_at_clock(self) -> None:
        """Begin to stop the launch if the time limit is reached, and stop waiting when `GRACE_SECONDS` are over."""
        now = time.monotonic()
        if now < self._until:
            return
        if self._is_time_over:
            if self._training and not self._is_grace_over and now >= self._until + GRACE_SECONDS:
                self._is_grace_over = True
                self._watchdog.say(
                    f"{counted(len(self._training), 'worker')} did not answer within {GRACE_SECONDS:g} seconds after "
                    "the time limit, and will be ended"
                )
            return
        self.scheduler.draining = self._is_time_over = True
        self._watchdog.say(
            "the time limit (--max-minutes) is reached, so the launch stops; "
            "trials will resume from their last saved epoch" + self._describe_longest_epoch()
        )

    def _describe_longest_epoch(self) -> str:
        """Name the arm with the longest current epoch, and estimate the length of this epoch."""
        seconds = {key: steps.seconds / steps.done * steps.of for key, steps in self.steps.items() if steps.done}
        if not seconds:
            return ""
        key = max(seconds, key=lambda key: seconds[key])
        return f"; an epoch of {self.scheduler.facts.trials[key].started.arm} would take about {clock(seconds[key])}"

    def _build_assignment(self, trial: TrialFacts | None, *, smoke: Mapping[str, TrialSpec]) -> Assignment:
        """Build the assignment of a trial or of smoke steps."""
        cpus, gpus = self._resources.cpus, self._resources.gpus
        return Assignment(
            trial=self._assign_trial(trial) if trial else None,
            smoke=smoke,
            device="cuda" if gpus else "cpu",
            cpus=cpus,
            gpus=gpus,
            threads=self._resources.threads,
            avoid=self._list_avoided_nodes(trial) if trial else (),
            included=included(),
            silence_seconds=self._compute_silence_limit(trial, number=max(1, len(smoke))),
        )

    def _compute_silence_limit(self, trial: TrialFacts | None, *, number: int) -> float:
        """Compute how long a worker may need for a step, which may have several smoke steps.

        The limit doubles each time the trial has hung, so that a slow step succeeds in the end.
        """
        return number * SILENCE_SECONDS * 2.0 ** (self.scheduler.faults.count_crashes(trial.key) if trial else 0)

    def _assign_trial(self, trial: TrialFacts) -> AssignedTrial:
        """Make the message that assigns a trial to a worker."""
        spec = specify_trial(self.scheduler.plan, self.scheduler.facts, trial)
        if spec.start is not None and trial.start is not None:
            spec = replace(spec, start=find_model_address(spec.start, folder=self._folder, key=trial.start))
        predictions = PREDICTIONS if is_uri(self._storage) else str(predictions_file(self._folder, trial.key))
        return AssignedTrial(
            key=trial.key,
            epochs=trial.epochs,
            seconds=trial.seconds,
            spec=spec,
            expected=self.scheduler.make_expected_attestation(trial),
            place=trial_address(self._storage, trial.key),
            start_digest=self._find_start_digest(trial),
            predictions=predictions if trial.phase == "confirm" else None,
            marks=self._marks,
        )

    def _find_start_digest(self, trial: TrialFacts) -> str | None:
        """Find the digest of the model that the trial starts from; None without such a model or digest."""
        source = self.scheduler.facts.trials.get(trial.start or "")
        return source.record.model_digest if source and source.record else None

    def _list_avoided_nodes(self, trial: TrialFacts) -> tuple[str, ...]:
        """List the nodes that the trial should avoid. Return () if no other node has room for the trial."""
        avoided = self.scheduler.faults.list_avoided_nodes(trial.key)
        others = avoided and self._resources.find_nodes_with_room() - avoided
        return tuple(sorted(avoided)) if others else ()

    def _process_trial(self, key: str, message: Message) -> bool:
        """Process a message about a trial, and return True if the worker is done with the trial."""
        if message.restarted is not None:
            self.scheduler.restart(key, message.restarted)
        if message.refused is not None:
            others = self._has_other_nodes(message.node)
            self.scheduler.refuse(key, message.refused, host=message.host, node=message.node, others=others)
            return True
        if message.failure is not None:
            self._break_off(key, self._blame(message.failure), seconds=message.seconds)
            self._look_at_disk(message.failure)
            return True
        assert message.report is not None
        decision = self.scheduler.report(key, message.report, node=message.node)
        if message.report.row.finished or decision == "stop":
            self._end(key, host=message.host, node=message.node)
            return True
        return False

    def _look_at_disk(self, failure: Failure) -> None:
        """Begin to stop the launch if a trial found a disk of the launch full.

        This is the disk of the study, of its storage, or, if all trials run on this machine, any disk.
        """
        storage = str(local_path(self._storage) or self._storage)
        place = next((place for place in (str(self._folder), storage) if place in failure.error), None)
        if failure.host == socket.gethostname() and len(self._resources.nodes.alive()) == 1:
            place = place or read_full_place(failure.error)
        if failure.cause == "disk" and place and not self._full:
            self._full, self.scheduler.draining = place, True
            self._watchdog.say(f"{failure.error}; the launch stops when the current epochs have ended")

    def _has_other_nodes(self, node: str | None) -> bool:
        """Check whether a node other than `node` has room for a trial, and has the code and data of the launch."""
        return bool(self._resources.find_nodes_with_room() - self.scheduler.faults.differing - {node})

    def _blame(self, failure: Failure) -> Failure:
        """Replace the cause "node" by "machine" if the launch itself cannot see the storage.

        Raises:
            ValueError: if the node is at fault, and no other node is available.
        """
        if failure.cause != "node":
            return failure
        try:
            check_marks(self._marks)
        except OSError:
            return replace(failure, cause="machine")
        if not self._has_other_nodes(failure.node):
            raise ValueError(
                f"{failure.host}: {failure.error}; no other node is available; fix this node, then repeat the command"
            )
        return failure

    def _estimate_seconds(self, key: str) -> tuple[float, float]:
        """Estimate the wall-clock and GPU seconds of a trial whose process is lost, from its last message."""
        steps = self.steps.pop(key, None)
        seconds = steps.seconds if steps else 0.0  # since its last report
        wall_seconds, gpu_seconds = self.scheduler.facts.trials[key].seconds
        return wall_seconds + seconds, gpu_seconds + seconds * self._resources.gpus

    def _break_off(self, key: str, failure: Failure, *, seconds: tuple[float, float] = (0.0, 0.0)) -> None:
        if not self.scheduler.is_final(key, failure):
            self.scheduler.retry(key, failure, seconds=seconds)
            return
        if failure.cause == "crash":
            failure = replace(failure, cause="method")
        trial = self.scheduler.facts.trials[key]
        end_trial(self.scheduler, trial, storage=self._storage, folder=self._folder, failure=failure, seconds=seconds)

    def _end(self, key: str, *, host: str, node: str | None) -> None:
        """End a trial after its last epoch, or hand it out again if its model or predictions are missing."""
        trial = self.scheduler.facts.trials[key]
        try:
            end_trial(self.scheduler, trial, storage=self._storage, folder=self._folder)
        except OutcomeGone as gone:
            self.scheduler.restart(key, str(gone))
            failure = Failure(cause="node", error=masked(str(gone)), host=host, node=node)
            self._break_off(key, self._blame(failure))


def end_trial(
    scheduler: Scheduler,
    trial: TrialFacts,
    *,
    storage: str,
    folder: Path,
    failure: Failure | None = None,
    seconds: tuple[float, float] = (0.0, 0.0),
) -> None:
    """End a trial: fetch its predictions, write its record, and delete its state.

    A crash between these steps loses nothing. `failure` and `seconds` are those of `Scheduler.end`.

    Raises:
        OutcomeGone: if predictions or model are missing; in this case, no record is written.
    """
    place = open_place(trial_address(storage, trial.key))
    digests = {}
    if trial.phase == "confirm" and failure is None:
        target, outcome = predictions_file(folder, trial.key), trial.last.outcome if trial.last else None
        place.fetch_predictions(target)
        digests["predictions_digest"] = compute_predictions_digest(folder, trial.key)
        if outcome and outcome.predictions_digest not in (None, digests["predictions_digest"]):
            raise OutcomeGone(f"the predictions in {target} were damaged")
        if outcome and outcome.model:
            check_model(_find_model(outcome.model, trial, folder))
            digests["model_digest"] = outcome.model_digest
    place.prune(scheduler.end(trial.key, failure=failure, seconds=seconds, **digests))


def _find_model(model: str, trial: TrialFacts, folder: Path) -> str:
    """Return the current path or URI of an ended trial's model."""
    return model if is_uri(model) else find_model_address(model, folder=folder, key=trial.key)


def end_unsettled(scheduler: Scheduler, *, storage: str, folder: Path) -> None:
    """End the trials that reported their last epoch before a launch died.

    A trial restarts if its model or predictions are missing or damaged.
    """
    for trial in scheduler.progress.unsettled:
        outcome = trial.last.outcome if trial.last else None
        try:
            if outcome and outcome.model and outcome.model_digest:
                check_undamaged(_find_model(outcome.model, trial, folder), outcome.model_digest)
            end_trial(scheduler, trial, storage=storage, folder=folder)
        except OutcomeGone as gone:
            scheduler.restart(trial.key, str(gone))
            print(f"trial {trial.key} starts again: {gone}", file=sys.stderr, flush=True)


# ---- the end of a launch that makes no progress; the launch can then be continued


class Stalled(Exception):
    """The error that ends a launch without progress."""


class Watchdog:
    """Ends a launch if no trial makes progress for too long."""

    def __init__(
        self,
        *,
        max_idle_hours: float = IDLE_HOURS,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        """Start the timer; `say` prints a line, and `clock` returns seconds."""
        self._limit = 3600 * max_idle_hours
        self.say = say
        self._clock = clock
        self.moved()

    def moved(self) -> None:
        """Restart the timer, because a trial has begun, reported, ended or failed."""
        self._moved = self._clock()
        self._nodes_gone = math.inf  # when the last node was lost; infinite while a node is alive
        self._next_word = self._moved + SPEAK_SECONDS

    def look(self, *, nodes: int, has_room: bool, state: str) -> None:
        """Print a warning if no trial has made progress for a long time.

        `nodes` is the number of live nodes; `has_room` is True if any live node can hold a trial. The warning includes
        `state`, which describes what the launch is waiting for.

        Raises:
            Stalled: if there was no progress for too long.
        """
        now = self._clock()
        self._nodes_gone = math.inf if nodes else min(self._nodes_gone, now)
        idle = f"no trial has made progress for {_format_minutes(now - self._moved)}: {state}"
        if now - self._nodes_gone >= NO_NODE_SECONDS:
            raise Stalled(f"the Ray cluster no longer has a live node; {idle}")
        if now - self._moved >= (self._limit if has_room else min(self._limit, NO_ROOM_SECONDS)):
            raise Stalled(idle)
        if now >= self._next_word:
            self.say(idle)
            self._next_word = now + 2 * (now - self._moved)


def _format_minutes(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} minutes"
