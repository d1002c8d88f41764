"""The facts of a study: what its events add up to. The one fold of the journal; whoever wants to know asks here."""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import get_args

from study.facts.attestation import Attestation
from study.facts.events import (
    FILE,
    READER,
    AshaDecided,
    ConfirmClosed,
    EpochReported,
    Event,
    LaunchBegan,
    LaunchEnded,
    NodeLeftOut,
    NodeTakenBack,
    SearchClosed,
    SmokeStepFailed,
    StartChosen,
    StudyPaused,
    TrialEnded,
    TrialReopened,
    TrialRestarted,
    TrialRetried,
    TrialStarted,
)
from study.facts.json_lines import read_lines
from study.facts.record import Phase, Record, Status
from study.facts.totals import Totals
from trainables.schema import Configuration, Value

Notice = NodeLeftOut | NodeTakenBack | StudyPaused | TrialRestarted | TrialReopened


def read_facts(folder: Path) -> StudyFacts:
    """The facts of a study folder, as its journal has them now; nothing is written.

    Raises:
        ValueError: a line of the journal is broken; file, line and field are named.
    """
    facts, name = StudyFacts(), str(folder / FILE)
    for number, event in read_lines(folder / FILE, READER):
        apply_line(facts, event, where=f"{name}:{number}")
    return facts


def read_records(folder: Path) -> list[Record]:
    """The records of a study folder's ended trials, in the order in which these ended.

    Raises:
        ValueError: as `read_facts`.
    """
    return read_facts(folder).records


def apply_line(facts: StudyFacts, event: Event, *, where: str) -> None:
    """Takes an event in that stands at `where`, which its errors name."""
    try:
        facts.apply(event)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


@dataclass
class LaunchFacts:
    """One `python -m study.launch` and what became of it."""

    began: LaunchBegan
    ended: LaunchEnded | None = None  # None while it runs, and for ever where it was killed

    def is_over(self) -> bool:
        """True once it ended, or when its process is gone from this machine."""
        return self.ended is not None or self._was_killed()

    def _was_killed(self) -> bool:
        if self.began.host != socket.gethostname():
            return False
        try:
            os.kill(self.began.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


@dataclass
class TrialFacts:
    """A trial that was started, and how far it came. Of its reports the last and the best are kept."""

    started: TrialStarted
    launch: int  # the last one that heard of it
    trained_in: list[int] = field(default_factory=list)  # numbers of the launches that ran an epoch of it
    scores: dict[int, float] = field(default_factory=dict)  # epoch -> selection score
    last: EpochReported | None = None  # the last epoch reported
    best: EpochReported | None = None  # the best epoch so far, by the trial's own rule
    decision: AshaDecided | None = None  # ASHA's last
    attested: Attestation | None = None  # by the last process that trained it
    retries: list[TrialRetried] = field(default_factory=list)  # in all launches
    is_broken_off: bool = False  # the last that was heard of it is a fault of the machine
    ended: TrialEnded | None = None

    @property
    def key(self) -> str:
        return self.started.key

    @property
    def phase(self) -> Phase:
        return self.started.phase

    @property
    def seed(self) -> int:
        return self.started.seed

    @property
    def config(self) -> Configuration:
        return self.started.config

    @property
    def start(self) -> str | None:
        return self.started.start

    @property
    def max_length(self) -> Value:
        """Tokens of a row at most, which decide how its data are tokenised."""
        return self.config.get("max_length")

    def forget_reports(self) -> None:
        """What it had reported counts no more: it is trained from its beginning."""
        self.scores, self.last, self.best, self.trained_in = {}, None, None, []

    @property
    def epochs(self) -> int:
        """How many it has reported."""
        return self.last.report.row.epoch if self.last else 0

    @property
    def gpu_seconds(self) -> float:
        """Used so far."""
        return self.last.report.gpu_seconds if self.last else 0.0

    @property
    def stopped_at(self) -> int | None:
        """The epoch at which ASHA stopped it."""
        return self.decision.rung if self.decision and self.decision.decision == "stop" else None

    @property
    def record(self) -> Record | None:
        """Its record, once it has ended."""
        return self.ended.record if self.ended else None


@dataclass
class ArmFacts:
    """The trials of one arm, in the order they were started."""

    search: list[TrialFacts] = field(default_factory=list)
    confirm: list[TrialFacts] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)  # in the order they ended; of a reopened trial all
    under_way: dict[str, TrialFacts] = field(default_factory=dict)  # those that have not ended, running now or not
    reported: defaultdict[Phase, Totals] = field(default_factory=lambda: defaultdict(Totals))
    ended: dict[tuple[Phase, Status], Totals] = field(default_factory=dict)
    rungs: dict[int, dict[str, float]] = field(default_factory=dict)  # epochs -> trial key -> score, as ASHA saw them
    start: StartChosen | None = None
    closed: list[SearchClosed] = field(default_factory=list)
    confirm_closed: list[ConfirmClosed] = field(default_factory=list)
    tokens_digests: dict[Value, str | None] = field(default_factory=dict)  # by max_length, as first attested
    backbone_digest: str | None = None  # as first attested

    @property
    def trials(self) -> list[TrialFacts]:
        return [trial for phase in get_args(Phase) for trial in self.phase(phase)]

    def phase(self, phase: Phase) -> list[TrialFacts]:
        own: list[TrialFacts] = getattr(self, phase)
        return own

    @property
    def searched(self) -> list[Record]:
        """The last record of each search trial, by the trials' numbers, up to the first that has not ended."""
        return [trial.record for trial in takewhile(lambda trial: trial.record, self.search) if trial.record]

    def ended_by(self, *, phases: Sequence[Phase] = get_args(Phase), statuses: Sequence[Status]) -> Totals:
        """The totals of the ended trials of these phases and statuses."""
        return Totals.of(own for (phase, status), own in self.ended.items() if phase in phases and status in statuses)

    @property
    def start_key(self) -> str | None:
        return self.start.key if self.start else None


class StudyFacts:
    """All that the events so far say."""

    def __init__(self) -> None:
        self.launches: dict[int, LaunchFacts] = {}
        self.arms: dict[str, ArmFacts] = {}
        self.trials: dict[str, TrialFacts] = {}
        self.under_way: dict[str, TrialFacts] = {}  # trials that were started and have not ended
        self.records: list[Record] = []  # in the order they ended; a trial that was reopened may have several
        self.left_out: dict[str, NodeLeftOut] = {}  # nodes that get no trials now
        self.smoke_failed: dict[str, SmokeStepFailed] = {}  # by arm, in the last launch
        self.notices: list[Notice] = []  # what the launch under way has to tell
        self.launch_number = 0  # of the launch under way, or of the last one; 0 before any
        self.time = ""  # of the latest event

    def arm(self, name: str) -> ArmFacts:
        """The facts of an arm; empty ones before its first event."""
        if name not in self.arms:
            self.arms[name] = ArmFacts()
        return self.arms[name]

    @property
    def last_launch(self) -> LaunchFacts | None:
        return self.launches.get(self.launch_number)

    def apply(self, event: Event) -> None:
        """Takes one event in.

        Raises:
            ValueError: it is about a trial or a launch that never began, or about a trial that began or ended before.
        """
        self.time = max(self.time, event.time)
        match event:
            case LaunchBegan():
                self.launches[event.launch] = LaunchFacts(event)
                self.launch_number = max(self.launch_number, event.launch)
                self.left_out, self.notices = {}, []  # a launch looks at its nodes afresh
                self.smoke_failed = {}
            case LaunchEnded():
                if event.launch not in self.launches:
                    raise ValueError(f"launch {event.launch} never began")
                self.launches[event.launch].ended = event
            case StartChosen():
                self.arm(event.arm).start = event
            case TrialStarted():
                self._start(event)
            case EpochReported():
                self._report(event)
            case AshaDecided():
                trial = self._heard_of(event.key)
                trial.decision = event
                self.arm(trial.started.arm).rungs.setdefault(event.rung, {})[event.key] = event.score
            case TrialRetried():
                trial = self._heard_of(event.key)
                trial.retries.append(event)
                trial.is_broken_off = True
            case TrialRestarted():
                trial = self._heard_of(event.key)
                trial.forget_reports()  # what ASHA has decided stays decided
                self.notices.append(event)
            case TrialEnded():
                self._end(event)
            case TrialReopened():
                self._reopen(event)
            case NodeLeftOut() | NodeTakenBack() | StudyPaused():
                self._notice(event)
            case SearchClosed():
                for name in event.arms:
                    self.arm(name).closed.append(event)
            case ConfirmClosed():
                for name in event.arms:
                    self.arm(name).confirm_closed.append(event)
            case SmokeStepFailed():
                self.smoke_failed[event.arm] = event

    def _heard_of(self, key: str) -> TrialFacts:
        if key not in self.trials:
            raise ValueError(f"trial {key!r} was never started")
        trial = self.trials[key]
        trial.launch = self.launch_number
        return trial

    def _start(self, event: TrialStarted) -> None:
        if event.key in self.trials:
            return _refuse_unlike(self.trials[event.key].started, event, f"trial {event.key!r} was started before")
        trial = TrialFacts(event, event.launch)
        self.trials[event.key] = self.under_way[event.key] = trial
        arm = self.arm(event.arm)
        arm.under_way[event.key] = trial
        arm.phase(event.phase).append(trial)

    def _report(self, event: EpochReported) -> None:
        trial, row = self._heard_of(event.key), event.report.row
        if row.epoch <= trial.epochs:
            return  # reported again after a crash
        before = trial.last.report if trial.last else None
        self.arm(trial.started.arm).reported[trial.phase].add(Totals.between(before, event.report))
        trial.last, trial.is_broken_off = event, False
        trial.scores[row.epoch] = row.selection_score
        if event.report.attested is not None:
            self._attest(trial, event.report.attested)
        if self.launches and self.launch_number not in trial.trained_in:
            trial.trained_in.append(self.launch_number)
        if trial.best is None or row.best_epoch == row.epoch:
            trial.best = event

    def _attest(self, trial: TrialFacts, attested: Attestation) -> None:
        trial.attested, arm = attested, self.arm(trial.started.arm)
        arm.tokens_digests.setdefault(trial.max_length, attested.tokens_digest)
        arm.backbone_digest = arm.backbone_digest or attested.backbone_digest

    def _end(self, event: TrialEnded) -> None:
        trial = self._heard_of(event.key)
        if trial.ended is not None:
            return _refuse_unlike(trial.ended, event, f"trial {event.key!r} has ended before")
        trial.ended = event
        self.under_way.pop(event.key, None)
        record, arm = event.record, self.arm(event.record.arm)
        arm.under_way.pop(event.key, None)
        arm.ended.setdefault((record.phase, record.status), Totals()).add(Totals.of_record(record))
        arm.records.append(record)
        self.records.append(record)

    def _reopen(self, event: TrialReopened) -> None:
        """The trial as it was when it was started; other code may score otherwise, so ASHA decides anew too."""
        trial = self._heard_of(event.key)
        trial.forget_reports()
        trial.decision = trial.ended = None
        arm = self.arm(trial.started.arm)
        self.under_way[event.key] = arm.under_way[event.key] = trial
        for scores in arm.rungs.values():
            scores.pop(event.key, None)
        self.notices.append(event)

    def _notice(self, event: NodeLeftOut | NodeTakenBack | StudyPaused) -> None:
        if isinstance(event, NodeLeftOut):
            self.left_out[event.node] = event
        elif isinstance(event, NodeTakenBack):
            self.left_out.pop(event.node, None)
        self.notices.append(event)


def _refuse_unlike(before: Event, event: Event, fault: str) -> None:
    """A line that stands twice is one event; two that differ are a fault."""
    if event != before:
        raise ValueError(fault)
