"""The events of a study, one per line of `events.jsonl`, and the formats of this file.

The format number of a plan is in `plan.json`. In `events.jsonl`, each `launch_began` line gives the format of the lines
of that launch. If a newer version of this package continues a study, the file contains two formats. The first released
format is 2; format 3 writes ranges of tuned fields in another form. A new field with a default value keeps the format
number. If a field is renamed, removed or changes its meaning, increase `FORMAT` and add a `Migration` from the previous
format. tests/study/test_formats.py checks each format.

The last field of a line is a checksum of the other fields, so that a damaged number is noticed. Journals of older
versions have lines without it.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from study.facts.provenance import Attestation, Provenance
from study.facts.record import Phase, Status
from study.plans.resolved_plan import ResolvedPlan
from trainables.configuration import AtLeastOne, Count, NotNegative, Positive, WholeShare
from trainables.configuration.schema import Configuration, Reader, Typed
from trainables.runs.times import LayerTime, TimedModel
from trainables.runs.trial import EpochRow, Outcome, Score

FILE = "events.jsonl"
FIRST_FORMAT = 2  # also the format of a `plan.json` without a format number
FORMAT = 3

LaunchStatus = Literal["complete", "partial", "drained", "interrupted", "paused"]
Reopening = Literal["asked", "code", "versions"]

# The cause of a trial's failure. `machine` (disk, network, a lost process): the trial is retried; never a result.
# `node` (its code or data differ): the trial is retried elsewhere, and the node gets no trials for a while.
# `preemption`: the trial is retried, and no fault is counted. `method`: the failure is a result.
# `memory`: a machine fault, but a result if memory runs out more than `--max-failures` times.
# `crash`: the process ended itself, crashed or hung: a machine fault, but a failure of the method if the trial crashes
# in the same way at the same step more than `--max-failures` times.
Cause = Literal["machine", "disk", "node", "preemption", "memory", "crash", "method"]
TRACEBACK_CHARACTERS = 4_000
_LAUNCH = b'{"event":"launch_began"'  # first bytes of a `launch_began` line
_CHECKSUM = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\s*$')  # the end of a line


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class BaseEvent(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="event", tag=_snake_case):
    """The base class of all events; in JSON, the field `event` names the class."""

    time: str  # UTC, ISO 8601 with microseconds


class Execution(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """How and where a launch runs its trials; `--continue` keeps this."""

    driver: Literal["ray", "local"]
    address: str | None = None  # of the Ray cluster; None: this machine
    tracking_uri: str | None = None  # MLflow store; None: the study's own
    gpus_per_trial: NotNegative | None = None  # None: 1 if there are any
    cpus_per_trial: Positive = 1.0


class LaunchBegan(BaseEvent, frozen=True, kw_only=True):
    """The start of a run of `study.launch`."""

    format: Count  # of this launch's lines, see `FORMAT`
    launch: AtLeastOne  # number of the launch, from 1
    command: str
    host: str
    pid: Count
    versions: Mapping[str, str]
    git_commit: str | None
    code_digest: str  # of the training code
    max_gpu_hours: NotNegative | None = None  # None: no limit
    storage: str | None = None  # place of the trials' states and models; None: the study's folder
    area: str | None = None  # folder of this study alone in `storage`; None: `storage` itself
    folder: str | None = None  # path of the study's folder, from which a copy of the study differs; None: no area
    execution: Execution | None = None  # None: the launch of an older version
    plan: ResolvedPlan  # includes what earlier launches requested
    included: Mapping[str, str] | UnsetType = UNSET  # method of an included folder -> digest of its files

    @property
    def code(self) -> Provenance:
        """The code and package versions of the launch."""
        included = self.included or {}
        return Provenance(
            versions=self.versions, git_commit=self.git_commit, code_digest=self.code_digest, included=included
        )


class LaunchEnded(BaseEvent, frozen=True, kw_only=True):
    """The end of a launch; a killed launch has no such event.

    `complete`: the whole study is done. `partial`: the requested arms are done. `drained`: stopped by one Ctrl-C or the
    time limit. `interrupted`: stopped by a second Ctrl-C, an error or a stall. `paused`: stopped by machine faults.
    """

    launch: AtLeastOne
    status: LaunchStatus
    note: str | None = None  # one line: the cause of an interruption other than Ctrl-C, or the lost outputs


class PlanRegistered(BaseEvent, frozen=True, kw_only=True):
    """The registration of the plan's digest in git or MLflow, before the first trial."""

    digest: str
    place: str  # a git tag, or the address of an MLflow server


class StartChosen(BaseEvent, frozen=True, kw_only=True):
    """The final choice of the trained model from which all trials of an arm begin."""

    arm: str
    key: str  # of the trial that trained the model
    model: str  # its address, a path or a URI


class TrialStarted(BaseEvent, frozen=True, kw_only=True):
    """The start of a trial: its first assignment to a worker."""

    key: str
    arm: str  # name in the launch's plan
    phase: Phase
    trial: Count  # number within the arm and phase, from 0
    seed: int
    config: Configuration  # without the values that the arm fixes
    start: str | None = None  # key of the trial whose model this trial begins from


class Report(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's report of an epoch. `wall_seconds` and `gpu_seconds` are totals of the trial so far."""

    row: EpochRow
    outcome: Outcome | None = None  # only with the last epoch; the model's address works on every machine
    wall_seconds: NotNegative
    gpu_seconds: NotNegative
    host: str
    device: str
    attested: Attestation | None = None  # only with the first epoch that a process trains


class Failure(Typed, frozen=True, kw_only=True):
    """The cause and place of a failed attempt to train."""

    cause: Cause
    error: str  # one line
    traceback: str | None = None  # the last `TRACEBACK_CHARACTERS` characters; None if the process is gone
    host: str | None = None  # None if unknown
    node: str | None = None  # Ray's node ID


class Process(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The process that trains a trial, and the digests that it computed."""

    host: str
    device: str
    tokens_digest: str | None = None  # of the tokenised rows
    backbone_digest: str | None = None  # of the files that were loaded


class EpochReported(BaseEvent, frozen=True, kw_only=True):
    """The end of an epoch of a trial. `wall_seconds` and `gpu_seconds` are totals of the trial so far."""

    key: str
    row: EpochRow
    outcome: Outcome | None = None  # only with the last epoch
    wall_seconds: NotNegative
    gpu_seconds: NotNegative = 0.0
    process: Process | None = None  # only with the first epoch that a process trains


class AshaDecided(BaseEvent, frozen=True, kw_only=True):
    """ASHA's decision to continue or stop a search trial at a rung (an epoch at which trials are compared)."""

    key: str
    rung: AtLeastOne  # epochs; the decision uses the score at this epoch
    cutoff: Score | None = None  # None if the rung was empty
    recorded: Count  # scores at the rung before this one
    decision: Literal["continue", "stop"]


class TrialRetried(BaseEvent, frozen=True, kw_only=True):
    """The interruption of a trial by a machine fault or preemption; the trial will continue."""

    key: str
    failure: Failure
    wall_seconds: NotNegative = 0.0  # totals of the trial so far; 0: unknown
    gpu_seconds: NotNegative = 0.0


class TrialRestarted(BaseEvent, frozen=True, kw_only=True):
    """The restart of a trial from its beginning, because its saved state is unusable. Earlier epochs do not count."""

    key: str
    reason: str


class TrialEnded(BaseEvent, frozen=True, kw_only=True):
    """The end of a trial."""

    key: str
    status: Status
    failure: Failure | None = None  # None unless the trial failed
    predictions_digest: str | None = None  # SHA-256 of its predictions file; None if none is stored
    model_digest: str | None = None  # of its model's folder; None if none is stored, and in older journals
    wall_seconds: NotNegative = 0.0  # totals of a failed trial; 0: those of its last report
    gpu_seconds: NotNegative = 0.0


class TrialReopened(BaseEvent, frozen=True, kw_only=True):
    """The decision to run a failed trial again from its beginning."""

    key: str
    reason: Reopening  # `asked`: by --retry-failed; `code`, `versions`: these differ from the record's


class TrialDropped(BaseEvent, frozen=True, kw_only=True):
    """A user's exclusion of an ended trial from searches and medians; its record is kept."""

    key: str
    because: str | None  # one line; None undoes the drop


class SmokeStepFailed(BaseEvent, frozen=True, kw_only=True):
    """The failure of an arm's smoke step (one training step before any trial). The launch then runs no trial."""

    arm: str
    config: Configuration
    failure: Failure


class NodeLeftOut(BaseEvent, frozen=True, kw_only=True):
    """A node is excluded for a while, because trials fail only there, or its code or data differ from the launch."""

    node: str  # Ray's node ID
    host: str
    trials: AtLeastOne  # number of trials that failed there
    seconds: NotNegative
    error: str  # last error on the node


class NodeTakenBack(BaseEvent, frozen=True, kw_only=True):
    """The end of a node's temporary exclusion."""

    node: str
    host: str


class StudyPaused(BaseEvent, frozen=True, kw_only=True):
    """A pause in which no trial runs, because the last report from every node was a fault."""

    seconds: NotNegative
    faults: AtLeastOne  # number since a trial last trained an epoch
    error: str  # last error


class SearchClosed(BaseEvent, frozen=True, kw_only=True):
    """The early end of searches, because no GPU time is left for them or every configuration was tried."""

    arms: list[str]
    max_gpu_hours: NotNegative | None  # limit of the launch; None: every configuration was tried


class ConfirmClosed(BaseEvent, frozen=True, kw_only=True):
    """The cancellation of the confirm trials that are still missing, because no GPU time is left for them."""

    arms: list[str]
    max_gpu_hours: NotNegative  # limit of the launch


class ModelOnTest(Typed, frozen=True, kw_only=True):
    """The scores of a confirm trial's model on a test set."""

    key: str
    score: Score
    metrics: Mapping[str, Score]
    mean_layers: NotNegative  # per example


class ScoredOnTest(BaseEvent, frozen=True, kw_only=True):
    """The scores of a task's confirm models on labelled test data. No trial runs after this event."""

    task: str
    rows: AtLeastOne
    labels_digest: str  # SHA-256 of the label file
    models: list[ModelOnTest]


class TimesMeasured(BaseEvent, frozen=True, kw_only=True):
    """The inference times of the study's models, measured together on one machine by `study.time`."""

    host: str
    device: str  # name of the GPU, or model of the CPU
    threads: AtLeastOne  # of PyTorch on the CPU
    torch: str  # version
    clock: Literal["cpu", "wall"]  # CPU time of the only thread, or wall-clock time
    processors: AtLeastOne  # that the measurement was allowed to use
    others_before: WholeShare | None = None  # of these processors, used by other work just before; None: unknown
    others_during: WholeShare | None = None
    seconds: NotNegative  # that the measurement took
    models: list[TimedModel]
    layers: list[LayerTime]  # of one model of each arm
    missing: list[str] = []  # keys of confirm trials whose models no longer exist


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
    | TimesMeasured
)


# ---- formats

Plain = dict[str, Any]


@dataclass(frozen=True)
class Migration:
    """The functions that convert a plan and an event to the next format. They do not change their arguments."""

    plan: Callable[[Plain], Plain]  # for a resolved plan, in `plan.json` or `launch_began`
    event: Callable[[Plain], Plain] | None = None  # for a journal line; its plan, if any, is already converted


def _simplify_ranges(plan: Plain) -> Plain:
    """Replace Optuna's JSON of a distribution by choices or an interval, as format 3 has them."""
    arms = [
        {**arm, "space": {name: _simplify_range(**allowed) for name, allowed in arm["space"].items()}}
        for arm in plan["arms"]
    ]
    return {**plan, "arms": arms}


def _simplify_range(name: str, attributes: Plain) -> list[Any] | Plain:
    if "choices" in attributes or attributes["low"] == attributes["high"]:
        choices: list[Any] = attributes.get("choices") or [attributes["low"]]
        return choices
    is_default = attributes.get("step") in (None, 1 if name == "IntDistribution" else None)
    names = ("low", "high", "log") if is_default else ("low", "high", "log", "step")
    return {each: attributes[each] for each in names if each in attributes}


STEPS: Mapping[int, Migration] = {2: Migration(plan=_simplify_ranges)}  # format -> conversion to the next format


def check_format(number: int, *, where: str) -> None:
    """Raise ValueError if format `number` is newer than this version of the package, or was never released."""
    if FIRST_FORMAT <= number <= FORMAT:
        return
    is_newer = number > FORMAT
    newer = f"format {number} was written by a newer version of glue-exit-study"
    fault = newer if is_newer else f"format {number} was never released"
    reads = f"format {FORMAT}" if FIRST_FORMAT == FORMAT else f"formats {FIRST_FORMAT} to {FORMAT}"
    raise ValueError(
        f"{where}: {fault}; this version reads {reads}; use the version that wrote the file, "
        f"or {'a newer version' if is_newer else 'begin a new study'}"
    )


def migrate_plan(plan: Plain, number: int) -> Plain:
    """Convert a resolved plan from format `number` to the current one."""
    for each in range(number, FORMAT):
        plan = STEPS[each].plan(plan)
    return plan


def migrate_event(event: Plain, number: int) -> Plain:
    """Convert a journal line from format `number` to the current one, but keep the format number in the line."""
    for each in range(number, FORMAT):
        step = STEPS[each]
        if "plan" in event:
            event = {**event, "plan": step.plan(event["plan"])}
        event = step.event(event) if step.event else event
    return event


class _Began(msgspec.Struct):
    """The format of a `launch_began` line, which is read before the other fields."""

    format: int = 1


_REPAIR = (
    "restore the file from a copy, or delete this line and all lines after it; the next launch then repeats the lost "
    "trials"
)


def add_checksum(line: bytes) -> bytes:
    """Add the checksum of an event in JSON as its last field."""
    return b'%b,"crc32":"%08x"}' % (line[:-1], zlib.crc32(line))


def remove_checksum(line: bytes, *, where: str) -> bytes:
    """Check and remove the checksum of a line; return a line without a checksum unchanged.

    Raises:
        ValueError: the line does not match its checksum; the message begins with `where`.
    """
    found = _CHECKSUM.search(line)
    if found is None:
        return line
    plain = line[: found.start()] + b"}"
    if zlib.crc32(plain) != int(found[1], 16):
        raise ValueError(f"{where}: the line was damaged or edited, because it does not match its checksum; {_REPAIR}")
    return plain


class EventReader(Reader):
    """A reader of the lines of one journal. The lines must be read in order.

    Each `launch_began` line gives the format of all lines up to the next `launch_began` line.
    """

    def __init__(self) -> None:
        """Expect the current format until the first `launch_began` line."""
        super().__init__(Event)
        self._format = FORMAT

    def read(self, line: bytes, *, where: str) -> Event:
        """Parse a line of any supported format; error messages begin with `where`, the file and line number."""
        line = remove_checksum(line, where=where)
        if line.startswith(_LAUNCH):
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # reported below
                self._format = msgspec.json.decode(line, type=_Began).format
            check_format(self._format, where=where)
        is_changed = line.startswith(_LAUNCH) or any(STEPS[each].event for each in range(self._format, FORMAT))
        if self._format != FORMAT and is_changed:
            with suppress(msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
                line = msgspec.json.encode(migrate_event(msgspec.json.decode(line), self._format))
        try:
            event: Event = super().read(line, where=where)
        except ValueError as error:
            raise ValueError(f"{error}; {_REPAIR}") from None
        return event


def read_lines(folder: Path) -> Iterator[tuple[str, Event]]:
    """Yield the place (`runs/NAME/events.jsonl:3`) and the event of each line; yield nothing if the file is missing.

    An incomplete last line, as after a crash, is skipped with a warning. Blank lines at the end are skipped.

    Raises:
        ValueError: a complete line is invalid (the message names file, line and field), or the file is a folder.
    """
    path, reader = folder / FILE, EventReader()
    if not path.exists():
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder; allowed: the file of a study")
    name, blank = str(path), None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{name}:{number}"
            if not line.strip():
                blank = blank or where
                continue
            if blank:
                raise ValueError(
                    f"{blank}: the line is blank, but events follow it; restore the file, or delete the blank line"
                )
            if not line.endswith(b"\n") and not is_json(line):
                warnings.warn(f"{where}: ignored an incomplete last line of {len(line)} bytes", stacklevel=2)
                return
            yield where, reader.read(line, where=where)


def is_json(line: bytes) -> bool:
    """Check if a line is valid JSON; a truncated line is not."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def read_events(folder: Path) -> list[Event]:
    """Read all events of a study folder. Errors and warnings are those of `read_lines`."""
    return [event for _, event in read_lines(folder)]


def utc_now() -> str:
    """Format the current time: UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
