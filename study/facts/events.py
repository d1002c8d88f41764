"""The events of a study, one line of `events.jsonl` each. Read and checked here alone."""

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
_LAUNCH = b'{"event":"launch_began"'  # the beginning of its line


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class BaseEvent(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="event", tag=_snake_case):
    """The fields of all events; the field `event` names their kind."""

    time: str  # UTC, ISO 8601 with microseconds


class LaunchBegan(BaseEvent, frozen=True, kw_only=True):
    """The start of a `study.launch`."""

    format: Count  # of its lines, see study/facts/formats.py
    launch: AtLeastOne  # its number
    command: str
    host: str
    pid: Count
    versions: Mapping[str, str]
    git_commit: str | None
    code_digest: str  # of the sources of what trains
    max_gpu_hours: NotNegative | None = None  # None: no limit
    storage: str | None = None  # place of the trials' states and models; None: the study's folder
    plan: ResolvedPlan  # with all that launches before were asked for
    included: Mapping[str, str] | UnsetType = UNSET  # method of an included folder -> digest of its files


class LaunchEnded(BaseEvent, frozen=True, kw_only=True):
    """The end of a launch; one that was killed has none.

    `complete` and `partial`: by itself, with the whole study or the arms asked for. `drained`: by one Ctrl-C.
    `interrupted`: by two, or because nothing moved. `paused`: because faults of the machine went on.
    """

    launch: AtLeastOne
    status: LaunchStatus
    note: str | None = None  # one line: what interrupted it, beside Ctrl-C, or the outputs that it lost


class PlanRegistered(BaseEvent, frozen=True, kw_only=True):
    """A digest of the plan held by somebody else; it counts only before the first trial."""

    digest: str
    place: str  # a git tag, or the address of an MLflow


class StartChosen(BaseEvent, frozen=True, kw_only=True):
    """The model that all trials of an arm begin from, for good."""

    arm: str
    key: str  # of the trial that left the model
    model: str  # its address, a path or a URI


class TrialStarted(BaseEvent, frozen=True, kw_only=True):
    """The first time that a trial is handed out."""

    key: str
    arm: str  # its name in the plan of the launch
    phase: Phase
    trial: Count  # number within the arm and phase, from 0
    seed: int
    config: Configuration  # as far as it is not what the arm fixes
    start: str | None = None  # key of the trial whose model it begins from


class Report(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's report of an epoch. Seconds are totals of the trial so far."""

    row: EpochRow
    outcome: Outcome | None = None  # with the last epoch; its model is an address that everybody sees
    wall_seconds: NotNegative
    gpu_seconds: NotNegative
    host: str
    device: str
    attested: Attestation | None = None  # with the first epoch that a process trains


class Failure(Typed, frozen=True, kw_only=True):
    """The reason and the place of a trial's break-off."""

    cause: Cause
    error: str  # one line
    traceback: str | None = None  # its last `TRACEBACK_CHARACTERS`; None if the process is gone
    host: str | None = None  # None if it is unknown
    node: str | None = None  # Ray's number of it


class Process(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The process that trains a trial, and the digests that it found, which no plan can know."""

    host: str
    device: str
    tokens_digest: str | None = None  # of the tokenised rows
    backbone_digest: str | None = None  # of the files that were loaded


class EpochReported(BaseEvent, frozen=True, kw_only=True):
    """An epoch of a trial. Seconds are totals of the trial so far."""

    key: str
    row: EpochRow
    outcome: Outcome | None = None  # with the last epoch
    wall_seconds: NotNegative
    gpu_seconds: NotNegative = 0.0
    process: Process | None = None  # with the first epoch that a process trains


class AshaDecided(BaseEvent, frozen=True, kw_only=True):
    """ASHA's decision on a search trial at a rung."""

    key: str
    rung: AtLeastOne  # epochs; the score is that of the epoch
    cutoff: Score | None = None  # None if the rung was empty
    recorded: Count  # scores at the rung before this one
    decision: Literal["continue", "stop"]


class TrialRetried(BaseEvent, frozen=True, kw_only=True):
    """A fault of the machine that broke a trial off; the trial is handed out again."""

    key: str
    failure: Failure


class TrialRestarted(BaseEvent, frozen=True, kw_only=True):
    """A new beginning of a trial whose saved state cannot be used. Its earlier reports no longer count."""

    key: str
    reason: str


class TrialEnded(BaseEvent, frozen=True, kw_only=True):
    """The end of a trial."""

    key: str
    status: Status
    failure: Failure | None = None  # of a failed one
    predictions_digest: str | None = None  # SHA-256 of its predictions file; None if none is stored


class TrialReopened(BaseEvent, frozen=True, kw_only=True):
    """A new run of a failed trial, from its beginning."""

    key: str
    reason: Reopening  # `--retry-failed`, or other code or versions than those of its record


class TrialDropped(BaseEvent, frozen=True, kw_only=True):
    """An ended trial that a person set aside: it stays, and counts nowhere."""

    key: str
    because: str | None  # in a line; None takes it back


class SmokeStepFailed(BaseEvent, frozen=True, kw_only=True):
    """The failure of an arm's one step before any trial: the launch ended, and nothing ran."""

    arm: str
    config: Configuration
    failure: Failure


class NodeLeftOut(BaseEvent, frozen=True, kw_only=True):
    """A node that gets no trials for a while: it has other code, or trials failed only there."""

    node: str  # Ray's number of it
    host: str
    trials: AtLeastOne  # that broke off there
    seconds: NotNegative
    error: str  # the last one there


class NodeTakenBack(BaseEvent, frozen=True, kw_only=True):
    """The end of that while."""

    node: str
    host: str


class StudyPaused(BaseEvent, frozen=True, kw_only=True):
    """A while in which nothing is handed out: every node was last heard of by a fault."""

    seconds: NotNegative
    faults: AtLeastOne  # since a trial last got on
    error: str  # the last one


class SearchClosed(BaseEvent, frozen=True, kw_only=True):
    """An early end of searches: their share of the GPU time is used, or every configuration was drawn."""

    arms: list[str]
    max_gpu_hours: NotNegative | None  # the limit that was kept; None: every configuration was drawn


class ConfirmClosed(BaseEvent, frozen=True, kw_only=True):
    """The end of GPU time for the missing confirm trials of these arms."""

    arms: list[str]
    max_gpu_hours: NotNegative  # the limit that was kept


class ModelOnTest(Typed, frozen=True, kw_only=True):
    """The scores of a confirm model on a test set, under its own exit."""

    key: str
    score: Score
    metrics: Mapping[str, Score]
    mean_layers: NotNegative  # per example


class ScoredOnTest(BaseEvent, frozen=True, kw_only=True):
    """The scores of the winners' confirm models on test labels. No trial runs after it."""

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
    """The part of a `launch_began` that every format has."""

    format: int = 1


class EventReader(Reader):
    """A reader of the lines of one journal, in order: each launch says the format of those that follow."""

    def __init__(self) -> None:
        """Begin with today's format."""
        super().__init__(Event)
        self._format = formats.FORMAT

    def read(self, line: bytes, *, where: str) -> Event:
        """Read one line, `where` being its place for errors; older formats are migrated."""
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
    """Read the events of a study folder, in order; [] before its first launch.

    Raises:
        ValueError: a line is not an event; it names file, line and field.
    """
    return [event for _, event in read_lines(folder / FILE, EventReader())]


def utc_now() -> str:
    """Format the time of now: UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
