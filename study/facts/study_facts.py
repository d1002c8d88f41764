"""The state of a study, computed from the events in its journal."""

from __future__ import annotations

import gc
import socket
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from study.facts.events import (
    AshaDecided,
    ConfirmClosed,
    EpochReported,
    Event,
    Failure,
    LaunchBegan,
    LaunchEnded,
    NodeLeftOut,
    NodeTakenBack,
    PlanRegistered,
    Process,
    ScoredOnTest,
    SearchClosed,
    SmokeStepFailed,
    StartChosen,
    StudyPaused,
    TimesMeasured,
    TrialDropped,
    TrialEnded,
    TrialReopened,
    TrialRestarted,
    TrialRetried,
    TrialStarted,
    read_lines,
)
from study.facts.journal_copy import check_not_lost
from study.facts.lock import is_running
from study.facts.provenance import join_code
from study.facts.record import Phase, Record
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.configuration import AtLeastOne, Count
from trainables.configuration.schema import Configuration, Typed, Value

Became = Literal["tried again", "failed", "launch refused"]  # outcome of a failed attempt
Notice = NodeLeftOut | NodeTakenBack | StudyPaused | TrialRestarted | TrialReopened
_OF_RUNNING_TRIALS = (TrialStarted, EpochReported, TrialRetried)  # events that only a running launch writes
_OF_TABLES = (TrialDropped, ScoredOnTest, TimesMeasured)  # events of other commands that change tables


def read_facts(folder: Path) -> StudyFacts:
    """Compute the state of a study from the journal in its folder; nothing is written.

    Raises:
        ValueError: the journal was deleted, emptied or cut, or a line is invalid (the message names file, line and
            field).
    """
    check_not_lost(folder)
    facts, is_collected = StudyFacts(), gc.isenabled()
    gc.disable()  # reading leaves no garbage, and collection would take a fifth of the time
    try:
        for where, event in read_lines(folder):
            apply_line(facts, event, where=where)
    finally:
        if is_collected:
            gc.enable()
    return facts


def apply_line(facts: StudyFacts, event: Event, *, where: str) -> None:
    """Apply an event to the state; error messages begin with `where`, the event's file and line number."""
    try:
        facts.apply(event)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


class FailedAttempt(Typed, frozen=True, kw_only=True):
    """A failed attempt at a trial or at a smoke step (one training step before any trial)."""

    time: str
    launch: Count
    arm: str
    trial: str  # phase and number, or "smoke step"
    key: str | None  # None for a smoke step
    attempt: AtLeastOne  # counted since the trial was started or reopened
    config: Configuration
    became: Became
    failure: Failure


@dataclass
class LaunchFacts:
    """The start and end of a run of `study.launch`."""

    began: LaunchBegan
    ended: LaunchEnded | None = None  # None while the launch runs, or if it was killed
    last: str = ""  # time of the last start, report or interruption of a trial; "" before the first
    has_later_changes: bool = False  # another command changed the tables after the launch's end

    def measure_seconds(self) -> float:
        """Return the seconds from the launch's start to its end; if it has no end, to the last event of its trials."""
        last = self.ended.time if self.ended else self.last or self.began.time
        return (datetime.fromisoformat(last) - datetime.fromisoformat(self.began.time)).total_seconds()

    def is_over(self) -> bool:
        """Check if the launch has ended. A launch on this machine has also ended if its process no longer exists."""
        is_here = self.began.host == socket.gethostname()
        return self.ended is not None or (is_here and not is_running(self.began.pid))


@dataclass
class TrialFacts:
    """A started trial and its progress. Only the trial's last report and its best report are kept."""

    started: TrialStarted
    arm: Arm  # as in the plan under which the trial started
    launch: int  # last launch with an event of this trial
    trained_in: list[int] = field(default_factory=list)  # numbers of the launches that ran an epoch of the trial
    scores: dict[int, float] = field(default_factory=dict)  # epoch -> selection score
    last: EpochReported | None = None  # the last epoch reported
    best: EpochReported | None = None  # the best epoch so far, as the trial reports it
    seconds: tuple[float, float] = (0.0, 0.0)  # wall-clock and GPU seconds, also of discarded reports and lost epochs
    gpu_seconds: float = 0.0  # of the epochs reported
    decision: AshaDecided | None = None  # ASHA's last decision
    process: Process | None = None  # last process that trained the trial
    restarts: int = 0  # how often the trial started again from its beginning
    attempts: int = 0  # failed attempts since the trial was started or reopened
    retries: list[TrialRetried] = field(default_factory=list)  # in all launches
    is_broken_off: bool = False  # True from a machine fault until the next epoch
    ended: TrialEnded | None = None
    record: Record | None = None  # None until the trial has ended

    def __post_init__(self) -> None:
        """Set frequently used attributes from `started` and `arm`."""
        started = self.started
        self.key, self.phase, self.seed, self.start = started.key, started.phase, started.seed, started.start
        self.config: Configuration = {**self.arm.fixed, **started.config}
        self.max_length = self.config.get("max_length")  # maximum tokens per row, on which the tokenised data depend

    def forget_reports(self) -> None:
        """Discard the trial's reports, because the trial starts again from its beginning; its clock goes on."""
        self.scores, self.last, self.best, self.trained_in = {}, None, None, []
        self.gpu_seconds = 0.0
        self.restarts += 1

    @property
    def epochs(self) -> int:
        """The number of epochs reported so far."""
        return self.last.row.epoch if self.last else 0

    @property
    def stopped_at(self) -> int | None:
        """The epoch at which ASHA stopped the trial; None if ASHA did not stop it."""
        return self.decision.rung if self.decision and self.decision.decision == "stop" else None


@dataclass
class ArmFacts:
    """The state of one arm (a method on a task): its trials, in order of start, and totals over all its trials."""

    search: list[TrialFacts] = field(default_factory=list)
    confirm: list[TrialFacts] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)  # in order of ending; a reopened trial may have several
    under_way: dict[str, TrialFacts] = field(default_factory=dict)  # trials started and not ended, running now or not
    epochs: int = 0  # sum over all reports of trials, as are the seconds
    gpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    lost_gpu_seconds: float = 0.0  # of failed attempts, since their last reports
    dearest: float | None = None  # most GPU seconds of a completed trial's epochs; None before the first
    # epochs -> trial key -> score at ASHA's decision; a failed trial, which cannot win, is not compared with others
    rungs: dict[int, dict[str, float]] = field(default_factory=dict)
    start: StartChosen | None = None
    closed: list[SearchClosed] = field(default_factory=list)
    confirm_closed: list[ConfirmClosed] = field(default_factory=list)
    tokens_digests: dict[Value, str | None] = field(default_factory=dict)  # max_length -> digest first attested
    backbone_digest: str | None = None  # as first attested
    dropped: str = ""  # time at which a trial was last dropped or taken back; "" before

    @property
    def trials(self) -> list[TrialFacts]:
        """All trials; search trials come first."""
        return [*self.search, *self.confirm]

    def phase(self, phase: Phase) -> list[TrialFacts]:
        """Return the search or the confirm trials."""
        return self.search if phase == "search" else self.confirm

    @property
    def searched(self) -> list[Record]:
        """The records of the search trials in order, up to the first trial without a record."""
        return [trial.record for trial in takewhile(lambda trial: trial.record, self.search) if trial.record]

    @property
    def start_key(self) -> str | None:
        """The key of the trial that trained the arm's starting model; None if no model is chosen."""
        return self.start.key if self.start else None


class StudyFacts:
    """The state of a study after all events applied so far."""

    def __init__(self) -> None:
        """Create the state before the first event."""
        self.launches: dict[int, LaunchFacts] = {}
        self.plan: ResolvedPlan | None = None  # of the last launch
        self.registered: list[PlanRegistered] = []  # registrations made before the first trial
        self.arms: defaultdict[str, ArmFacts] = defaultdict(ArmFacts)  # an arm is empty before its first event
        self.trials: dict[str, TrialFacts] = {}
        self.under_way: dict[str, TrialFacts] = {}  # trials started and not ended
        self.records: list[Record] = []  # in the order the trials ended; a reopened trial may have several
        self.left_out: dict[str, NodeLeftOut] = {}  # nodes that get no trials now
        self.failed: list[FailedAttempt] = []  # attempts at all trials, including trials that ran again later
        self.smoke_failed: dict[str, SmokeStepFailed] = {}  # by arm, in the last launch
        self.scored_on_test: list[ScoredOnTest] = []
        self.times: list[TimesMeasured] = []  # of all machines, in order
        self.notices: list[Notice] = []  # of the launch under way
        self.launch_number = 0  # of the launch under way, or of the last one; 0 before any
        self.time = ""  # of the latest event
        self._planned: dict[str, Arm] = {}  # arms in the plan of the last launch, by name
        self._shared: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}  # see `_collect_shared_facts`

    @property
    def last_launch(self) -> LaunchFacts | None:
        """The most recent launch, whether it is running or has ended; None before the first launch."""
        return self.launches.get(self.launch_number)

    def apply(self, event: Event) -> None:  # noqa: C901  # one case per event
        """Update the state by one event.

        Raises:
            ValueError: the event contradicts earlier events; for example, its trial never started.
        """
        if event.time > self.time:
            self.time = event.time
        if isinstance(event, Notice):
            self.notices.append(event)
        if isinstance(event, _OF_RUNNING_TRIALS) and self.last_launch:
            self.last_launch.last = event.time
        if isinstance(event, _OF_TABLES) and self.last_launch and self.last_launch.ended:
            self.last_launch.has_later_changes = True
        match event:
            case EpochReported():
                self._report(event)
            case TrialStarted():
                self._start(event)
            case TrialEnded():
                self._end(event)
            case AshaDecided():
                self._decide(event)
            case LaunchBegan():
                self._begin(event)
            case LaunchEnded():
                if event.launch not in self.launches:
                    raise ValueError(f"launch {event.launch} never began")
                self.launches[event.launch].ended = event
            case PlanRegistered():
                self.registered += [event] * (not self.trials)
            case StartChosen():
                self.arms[event.arm].start = event
            case TrialRetried():
                trial = self._touch(event.key)
                trial.retries.append(event)
                trial.is_broken_off = True
                self._add_lost_seconds(trial, event)
                self._note(event, event.failure, "tried again")
            case TrialRestarted():
                self._touch(event.key).forget_reports()  # ASHA's decisions stay: the seed gives the same scores again
            case TrialReopened():
                self._reopen(event)
            case TrialDropped():
                self._drop(event)
            case NodeLeftOut():
                self.left_out[event.node] = event
            case NodeTakenBack():
                self.left_out.pop(event.node, None)
            case SearchClosed():
                for name in event.arms:
                    self.arms[name].closed.append(event)
            case ConfirmClosed():
                for name in event.arms:
                    self.arms[name].confirm_closed.append(event)
            case ScoredOnTest():
                self.scored_on_test.append(event)
            case TimesMeasured():
                self.times.append(event)
            case SmokeStepFailed():
                self.smoke_failed[event.arm] = event
                self._note(event, event.failure, "launch refused")

    def check_unscored(self) -> None:
        """Raise ValueError if a task was scored on test labels. The study may then no longer change."""
        if self.scored_on_test:
            seen = f"{self.scored_on_test[0].task} was scored on test labels at {self.scored_on_test[0].time}"
            raise ValueError(f"{seen}, so this study can no longer change; allowed: a new study with another --name")

    def _begin(self, event: LaunchBegan) -> None:
        self.launches[event.launch] = LaunchFacts(event)
        self.launch_number = max(self.launch_number, event.launch)
        self.plan, self._planned = event.plan, {arm.name: arm for arm in event.plan.arms}
        self.left_out, self.notices, self.smoke_failed = {}, [], {}  # each launch judges its nodes anew

    def _touch(self, key: str) -> TrialFacts:
        if key not in self.trials:
            raise ValueError(f"trial {key!r} was never started")
        trial = self.trials[key]
        trial.launch = self.launch_number
        return trial

    def _start(self, event: TrialStarted) -> None:
        if event.key in self.trials:
            if self.trials[event.key].started != event:  # otherwise the line is a duplicate
                raise ValueError(f"trial {event.key!r} has already been started")
            return
        if event.arm not in self._planned:
            raise ValueError(f"the plan of launch {self.launch_number} has no arm named {event.arm!r}")
        arm = self.arms[event.arm]
        trial = TrialFacts(event, self._planned[event.arm], self.launch_number)
        self.trials[event.key] = self.under_way[event.key] = arm.under_way[event.key] = trial
        arm.phase(event.phase).append(trial)

    def _report(self, event: EpochReported) -> None:
        trial, row = self._touch(event.key), event.row
        if row.epoch <= trial.epochs:
            return  # reported again after a crash
        arm = self.arms[trial.started.arm]
        arm.epochs += row.epoch - trial.epochs
        wall_seconds, gpu_seconds = trial.seconds
        arm.wall_seconds += event.wall_seconds - wall_seconds
        arm.gpu_seconds += event.gpu_seconds - gpu_seconds
        trial.gpu_seconds += event.gpu_seconds - gpu_seconds
        trial.seconds = event.wall_seconds, event.gpu_seconds
        trial.last, trial.is_broken_off = event, False
        trial.scores[row.epoch] = row.selection_score
        if event.process is not None:
            trial.process = event.process
            arm.tokens_digests.setdefault(trial.max_length, event.process.tokens_digest)
            arm.backbone_digest = arm.backbone_digest or event.process.backbone_digest
        if self.launch_number not in trial.trained_in:
            trial.trained_in.append(self.launch_number)
        if trial.best is None or row.best_epoch == row.epoch:
            trial.best = event

    def _decide(self, event: AshaDecided) -> None:
        trial = self._touch(event.key)
        if event.rung not in trial.scores:
            raise ValueError(f"ASHA decided at epoch {event.rung}, which trial {event.key!r} has not reported")
        trial.decision = event
        self.arms[trial.started.arm].rungs.setdefault(event.rung, {})[event.key] = trial.scores[event.rung]

    def _end(self, event: TrialEnded) -> None:
        trial = self._touch(event.key)
        if trial.ended is not None:
            if trial.ended != event:  # otherwise the line is a duplicate
                raise ValueError(f"trial {event.key!r} has already ended")
            return
        self._add_lost_seconds(trial, event)
        record, arm = self._make_record(trial, event), self.arms[trial.started.arm]
        trial.ended, trial.record = event, record
        self.under_way.pop(event.key, None)
        arm.under_way.pop(event.key, None)
        if record.status == "completed":
            arm.dearest = max(arm.dearest or 0.0, trial.gpu_seconds)
        if record.status == "failed":
            for scores in arm.rungs.values():
                scores.pop(event.key, None)
        arm.records.append(record)
        self.records.append(record)
        if event.failure is not None:
            self._note(event, event.failure, "failed")

    def _add_lost_seconds(self, trial: TrialFacts, event: TrialRetried | TrialEnded) -> None:
        """Count the seconds of a failed attempt since its last report; totals of later reports include them."""
        wall_seconds, gpu_seconds = trial.seconds
        trial.seconds = max(wall_seconds, event.wall_seconds), max(gpu_seconds, event.gpu_seconds)
        self.arms[trial.started.arm].lost_gpu_seconds += trial.seconds[1] - gpu_seconds

    def _make_record(self, trial: TrialFacts, event: TrialEnded) -> Record:
        """Make the record of a trial that ends with this event.

        The scores come from the trial's best epoch. A trial that ASHA stopped has a score only if the study selects on
        dev. A failed trial has no scores.
        """
        last = trial.last
        config = trial.config if trial.best is None else {**trial.config, **trial.best.row.exit_setting}
        shared = self._collect_shared_facts(trial, is_failed=event.status == "failed")
        facts = shared | _copy_fields(trial.started, "key", "phase", "trial", "seed", "start")
        facts |= _copy_fields(trial.process, "host", "device", "tokens_digest", "backbone_digest")
        if last is not None:
            facts |= _copy_fields(last.row, "num_layers", "train_examples", "train_seconds", "eval_seconds")
        if last is not None and trial.best is not None and event.status != "failed":
            row, outcome = trial.best.row, last.outcome
            reported = (outcome.reported if outcome else None) or row.reported
            has_score = outcome is not None or (self.plan is not None and self.plan.protocol.selection == "dev")
            facts |= _copy_fields(outcome, "num_parameters", "data_differences", "model", "text_flops")
            if outcome is not None and outcome.latency is not None:  # in an older journal
                facts["text_flops"] = outcome.latency.texts
            facts["score"] = reported.score if has_score else None
            facts |= _copy_fields(reported, "metrics", "mean_layers") | _copy_fields(row, "epoch", "selection_score")
        return Record(
            **facts,
            config=config,
            wall_seconds=trial.seconds[0],
            gpu_seconds=trial.seconds[1],
            status=event.status,
            error=event.failure.error if event.failure else None,
            epochs=trial.epochs,
            predictions_digest=event.predictions_digest,
            model_digest=event.model_digest,
            started=trial.started.time,
            ended=event.time,
        )

    def _collect_shared_facts(self, trial: TrialFacts, *, is_failed: bool) -> dict[str, Any]:
        """Collect the fields of a record that depend only on the trial's arm and launches.

        A trial that failed or has no epoch also counts as trained in the current launch.
        """
        numbers = (*trial.trained_in, *[self.launch_number] * (is_failed or not trial.trained_in))
        if (trial.started.arm, numbers) not in self._shared:
            assert self.plan is not None, "no trial starts before a launch"
            code = join_code(trial.arm.method, [self.launches[number].began.code for number in numbers])
            pinned = ("backbone_fingerprint", "tokenizer_fingerprint", "data_fingerprint")
            facts = _copy_fields(trial.arm, "method", "task", "repeat", *pinned)
            facts |= _copy_fields(code, "versions", "git_commit", "code_digest")
            facts |= {"protocol_hash": self.plan.protocol_hash}
            self._shared[trial.started.arm, numbers] = facts
        return self._shared[trial.started.arm, numbers]

    def _note(self, event: TrialRetried | TrialEnded | SmokeStepFailed, failure: Failure, became: Became) -> None:
        """Add a failed attempt at a trial, or a failed smoke step, to the list `failed`."""
        if isinstance(event, SmokeStepFailed):
            names: dict[str, Any] = {"arm": event.arm, "trial": "smoke step", "key": None, "attempt": 1}
            names["config"] = event.config
        else:
            trial = self.trials[event.key]
            trial.attempts += 1
            title = f"{trial.phase} {trial.started.trial}"
            names = {"arm": trial.started.arm, "trial": title, "key": trial.key, "attempt": trial.attempts}
            names["config"] = trial.config
        attempt = FailedAttempt(time=event.time, launch=self.launch_number, became=became, failure=failure, **names)
        self.failed.append(attempt)

    def _reopen(self, event: TrialReopened) -> None:
        """Reset a failed trial to its start."""
        trial = self._touch(event.key)
        trial.forget_reports()
        trial.seconds = 0.0, 0.0  # its folder is gone, and with it its clock
        trial.decision = trial.ended = trial.record = None
        trial.attempts = 0
        arm = self.arms[trial.started.arm]
        self.under_way[event.key] = arm.under_way[event.key] = trial

    def _drop(self, event: TrialDropped) -> None:
        """Mark a trial's record as dropped. An event without a reason removes the mark.

        ASHA still compares other trials with the scores of a dropped trial.
        """
        trial = self._touch(event.key)
        if trial.record is None or trial.ended is None:
            raise ValueError(f"trial {event.key!r} has not ended, so it cannot be dropped")
        before, after = trial.record, self._make_record(trial, trial.ended)
        if event.because is not None:
            after = replace(after, status="dropped", error=event.because)
        trial.record = after
        self.arms[trial.started.arm].dropped = event.time
        for records in (self.records, self.arms[trial.started.arm].records):
            records[records.index(before)] = after


def _copy_fields(source: object | None, *names: str) -> dict[str, Any]:
    """Return the attributes `names` of `source` as a dict; {} if `source` is None."""
    return {} if source is None else {name: getattr(source, name) for name in names}
