"""The events of a study: all that ever happens to it, one line of `events.jsonl` each. Read and checked here alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from study.facts.json_lines import read_lines
from study.facts.record import Phase, Record
from trainables.configuration import AtLeastOne, Count, NotNegative
from trainables.runs.trial import EpochRow, Outcome, Score
from trainables.schema import Configuration, Reader, Typed

FILE = "events.jsonl"

LaunchStatus = Literal["complete", "drained", "interrupted"]


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class BaseEvent(Typed, frozen=True, kw_only=True, tag_field="event", tag=_snake_case):
    """What all events have; the field `event` names their kind."""

    time: str  # UTC, ISO 8601 with microseconds


class LaunchBegan(BaseEvent, frozen=True, kw_only=True):
    """A `study.launch` runs the study from here on."""

    launch: AtLeastOne  # its number
    command: str
    host: str
    pid: Count
    versions: Mapping[str, str]
    git_commit: str | None
    max_gpu_hours: NotNegative | None  # None: no limit


class LaunchEnded(BaseEvent, frozen=True, kw_only=True):
    """It ended: by itself, drained by one Ctrl-C, or interrupted by two. One that was killed has no such event."""

    launch: AtLeastOne
    status: LaunchStatus


class StartChosen(BaseEvent, frozen=True, kw_only=True):
    """The model that all trials of an arm begin from, for good."""

    arm: str
    key: str  # of the trial that left the model
    model: str  # where it lies, a path or a URI


class TrialStarted(BaseEvent, frozen=True, kw_only=True):
    """A trial was handed out for the first time."""

    key: str
    method: str
    task: str
    phase: Phase
    trial: Count  # number within the arm and phase, from 0
    seed: int
    config: Configuration
    start: str | None  # key of the trial whose model it begins from
    launch: AtLeastOne

    @property
    def arm(self) -> str:
        """The name of the arm it belongs to."""
        return f"{self.method}/{self.task}"


class Report(Typed, frozen=True, kw_only=True):
    """What an actor says of a trial after an epoch. Seconds are totals of the trial so far."""

    row: EpochRow
    outcome: Outcome | None  # with the last epoch; its model is an address that everybody sees
    wall_seconds: NotNegative
    gpu_seconds: NotNegative
    host: str
    device: str
    gpu_share: NotNegative | None  # largest part of the GPU's memory held; None on a CPU


class EpochReported(BaseEvent, frozen=True, kw_only=True):
    """A trial ran an epoch."""

    key: str
    report: Report


class AshaDecided(BaseEvent, frozen=True, kw_only=True):
    """A search trial reached a rung."""

    key: str
    rung: AtLeastOne  # epochs
    score: Score
    cutoff: Score | None  # None where the rung was empty
    recorded: Count  # scores at the rung before this one
    decision: Literal["continue", "stop"]


class TrialRetried(BaseEvent, frozen=True, kw_only=True):
    """The process of a trial is gone; the trial is handed out again."""

    key: str
    error: str
    failures: Count  # so far, those that count


class TrialEnded(BaseEvent, frozen=True, kw_only=True):
    """A trial is over."""

    key: str
    record: Record


class SearchClosed(BaseEvent, frozen=True, kw_only=True):
    """Searches ended early: their share of the GPU time is used, or every configuration was drawn."""

    arms: list[str]
    max_gpu_hours: NotNegative | None  # the limit that was kept; None: every configuration was drawn


class ConfirmClosed(BaseEvent, frozen=True, kw_only=True):
    """No GPU time is left for the confirm trials of these arms that are missing."""

    arms: list[str]
    max_gpu_hours: NotNegative  # the limit that was kept


Event = (
    LaunchBegan
    | LaunchEnded
    | StartChosen
    | TrialStarted
    | EpochReported
    | AshaDecided
    | TrialRetried
    | TrialEnded
    | SearchClosed
    | ConfirmClosed
)

READER = Reader(Event)


def read_events(folder: Path) -> list[Event]:
    """The events of a study folder, in order; none where there are none yet.

    Raises:
        ValueError: a line is no event; file, line and field are named.
    """
    return [event for _, event in read_lines(folder / FILE, READER)]


def utc_now() -> str:
    """The time, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
