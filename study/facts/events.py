"""The events of a study: all that ever happens to it, one line of `events.jsonl` each. Read and checked here alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from study.facts import formats
from study.facts.attestation import Attestation
from study.facts.json_lines import read_lines
from study.facts.record import Phase, Status
from study.plans.resolved_plan import ResolvedPlan
from trainables.configuration import AtLeastOne, Count, NotNegative
from trainables.runs.trial import EpochRow, Outcome, Score
from trainables.schema import Configuration, Reader, Typed

FILE = "events.jsonl"

LaunchStatus = Literal["complete", "partial", "drained", "interrupted", "paused"]
Reopening = Literal["asked", "code", "versions"]

# Whose fault it is that a trial broke off. Of the machine (disk, network, a lost process): tried again, never a result.
# Of the node, which has other code or data than the launch: tried again elsewhere, and the node is left out.
# Of memory: of the machine, until it did not suffice as often as `--max-failures` allows. Of the method: a result.
Cause = Literal["machine", "node", "preemption", "memory", "method"]
TRACEBACK_CHARACTERS = 4_000
_LAUNCH = b'{"event":"launch_began"'  # how its line begins


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class BaseEvent(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="event", tag=_snake_case):
    """What all events have; the field `event` names their kind."""

    time: str  # UTC, ISO 8601 with microseconds


class LaunchBegan(BaseEvent, frozen=True, kw_only=True):
    """A `study.launch` runs the study from here on."""

    format: Count  # of its lines, see study/facts/formats.py
    launch: AtLeastOne  # its number
    command: str
    host: str
    pid: Count
    versions: Mapping[str, str]
    git_commit: str | None
    code_digest: str  # of the sources of what trains
    max_gpu_hours: NotNegative | None = None  # None: no limit
    storage: str | None = None  # where trials keep states and models; None: the study's folder
    plan: ResolvedPlan  # with all that launches before were asked for
    included: Mapping[str, str] | UnsetType = UNSET  # method of an included folder -> digest of its files


class LaunchEnded(BaseEvent, frozen=True, kw_only=True):
    """It ended: by itself, with the whole study or (`partial`) the arms that it was asked for; drained by one Ctrl-C;
    interrupted by two, or since nothing moved; or paused, since the machine's faults went on.

    One that was killed has no such event.
    """

    launch: AtLeastOne
    status: LaunchStatus
    note: str | None = None  # in a line: what interrupted it, beside Ctrl-C, or which output it went on without


class PlanRegistered(BaseEvent, frozen=True, kw_only=True):
    """Somebody else holds the digest of the plan of the launch under way; counts only before the first trial."""

    digest: str
    place: str  # a git tag, or the address of an MLflow


class StartChosen(BaseEvent, frozen=True, kw_only=True):
    """The model that all trials of an arm begin from, for good."""

    arm: str
    key: str  # of the trial that left the model
    model: str  # where it lies, a path or a URI


class TrialStarted(BaseEvent, frozen=True, kw_only=True):
    """A trial was handed out for the first time."""

    key: str
    arm: str  # its name in the plan of the launch
    phase: Phase
    trial: Count  # number within the arm and phase, from 0
    seed: int
    config: Configuration  # as far as it is not what the arm fixes
    start: str | None = None  # key of the trial whose model it begins from


class Report(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of a trial after an epoch. Seconds are totals of the trial so far."""

    row: EpochRow
    outcome: Outcome | None = None  # with the last epoch; its model is an address that everybody sees
    wall_seconds: NotNegative
    gpu_seconds: NotNegative
    host: str
    device: str
    attested: Attestation | None = None  # with the first epoch that a process trains


class Failure(Typed, frozen=True, kw_only=True):
    """Why a trial broke off, and where."""

    cause: Cause
    error: str  # one line
    traceback: str | None = None  # its last `TRACEBACK_CHARACTERS`; None where the process is gone
    host: str | None = None  # None where it is not known
    node: str | None = None  # Ray's number of it


class Process(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The process that trains a trial, and what it has found there that no plan can know."""

    host: str
    device: str
    tokens_digest: str | None = None  # of the tokenised rows
    backbone_digest: str | None = None  # of the files that were loaded


class EpochReported(BaseEvent, frozen=True, kw_only=True):
    """A trial ran an epoch. Seconds are totals of the trial so far."""

    key: str
    row: EpochRow
    outcome: Outcome | None = None  # with the last epoch
    wall_seconds: NotNegative
    gpu_seconds: NotNegative = 0.0
    process: Process | None = None  # with the first epoch that a process trains


class AshaDecided(BaseEvent, frozen=True, kw_only=True):
    """A search trial reached a rung."""

    key: str
    rung: AtLeastOne  # epochs; the score is that of the epoch
    cutoff: Score | None = None  # None where the rung was empty
    recorded: Count  # scores at the rung before this one
    decision: Literal["continue", "stop"]


class TrialRetried(BaseEvent, frozen=True, kw_only=True):
    """A fault of the machine broke a trial off; the trial is handed out again."""

    key: str
    failure: Failure


class TrialRestarted(BaseEvent, frozen=True, kw_only=True):
    """A trial that had been saved begins anew, since its state cannot be used. What it had reported counts no more."""

    key: str
    reason: str


class TrialEnded(BaseEvent, frozen=True, kw_only=True):
    """A trial is over."""

    key: str
    status: Status
    failure: Failure | None = None  # of a failed one
    predictions_digest: str | None = None  # SHA-256 of its predictions file; None where none is stored


class TrialReopened(BaseEvent, frozen=True, kw_only=True):
    """A trial that had failed runs again, from its beginning."""

    key: str
    reason: Reopening  # `--retry-failed`, or other code or versions than those of its record


class TrialDropped(BaseEvent, frozen=True, kw_only=True):
    """A person set an ended trial aside: it stays, and counts nowhere."""

    key: str
    because: str | None  # in a line; None takes it back


class SmokeStepFailed(BaseEvent, frozen=True, kw_only=True):
    """The one step that an arm's method takes before any trial of the arm failed: the launch ended, nothing ran."""

    arm: str
    config: Configuration
    failure: Failure


class NodeLeftOut(BaseEvent, frozen=True, kw_only=True):
    """A node gets no trials for a while: several failed there while others went on elsewhere, or it has other code."""

    node: str  # Ray's number of it
    host: str
    trials: AtLeastOne  # that broke off there
    seconds: NotNegative
    error: str  # the last one there


class NodeTakenBack(BaseEvent, frozen=True, kw_only=True):
    """The while is over."""

    node: str
    host: str


class StudyPaused(BaseEvent, frozen=True, kw_only=True):
    """Nothing is handed out for a while: on every node the last that was heard is a fault."""

    seconds: NotNegative
    faults: AtLeastOne  # since a trial last got on
    error: str  # the last one


class SearchClosed(BaseEvent, frozen=True, kw_only=True):
    """Searches ended early: their share of the GPU time is used, or every configuration was drawn."""

    arms: list[str]
    max_gpu_hours: NotNegative | None  # the limit that was kept; None: every configuration was drawn


class ConfirmClosed(BaseEvent, frozen=True, kw_only=True):
    """No GPU time is left for the confirm trials of these arms that are missing."""

    arms: list[str]
    max_gpu_hours: NotNegative  # the limit that was kept


class ModelOnTest(Typed, frozen=True, kw_only=True):
    """The scores of a confirm model on a test set, under its own exit."""

    key: str
    score: Score
    metrics: Mapping[str, Score]
    mean_layers: NotNegative  # per example


class ScoredOnTest(BaseEvent, frozen=True, kw_only=True):
    """The winners' confirm models answered a test set whose labels were given. No trial runs after it."""

    task: str
    rows: AtLeastOne
    labels_digest: str  # SHA-256 of the file of labels
    models: list[ModelOnTest]


Event = (
    LaunchBegan
    | LaunchEnded
    | PlanRegistered
    | StartChosen
    | TrialStarted
    | EpochReported
    | AshaDecided
    | TrialRetried
    | TrialRestarted
    | TrialEnded
    | TrialReopened
    | TrialDropped
    | SmokeStepFailed
    | NodeLeftOut
    | NodeTakenBack
    | StudyPaused
    | SearchClosed
    | ConfirmClosed
    | ScoredOnTest
)


class _Began(msgspec.Struct):
    """As much of a `launch_began` as every format has."""

    format: int = 1


class EventReader(Reader):
    """Reads the lines of one journal, in their order: each launch says the format of those that follow."""

    def __init__(self) -> None:
        super().__init__(Event)
        self._format = formats.FORMAT

    def read(self, line: bytes, *, where: str) -> Event:
        if line.startswith(_LAUNCH):
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # reported below
                self._format = msgspec.json.decode(line, type=_Began).format
            formats.check_format(self._format, where=where)
        if self._format != formats.FORMAT:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                line = msgspec.json.encode(formats.migrate_event(msgspec.json.decode(line), self._format))
        event: Event = super().read(line, where=where)
        return event


def read_events(folder: Path) -> list[Event]:
    """The events of a study folder, in order; none where there are none yet.

    Raises:
        ValueError: a line is no event; file, line and field are named.
    """
    return [event for _, event in read_lines(folder / FILE, EventReader())]


def utc_now() -> str:
    """The time, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
