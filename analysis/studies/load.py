"""Study folders in, records out. Everything that analysis knows of a study on disk is read here."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from study.decisions.progress import last_progress
from study.facts.events import FILE as JOURNAL
from study.facts.record import Record
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import JournalDigest, journal_digest
from study.facts.winner import winner_of
from study.plans.plan import Plan
from study.plans.plan_file import FILE, PlanFile, changes, require_plan
from study.plans.resolved_plan import Arm, Protocol, list_confirm_seeds
from trainables.data.metrics import score
from trainables.data.tasks import TASKS, find_task
from trainables.schema import to_plain

RUNS = Path(__file__).parents[2] / "runs"
TOLERANCE = 1e-6  # of scores and layers that are recomputed: far below the 0.1 point that tables show


@dataclass(frozen=True)
class Study:
    """A study folder: its plan, its facts, and the newest record of every ended trial in the order of the journal."""

    folder: Path
    file: PlanFile
    facts: StudyFacts
    records: list[Record]
    retried: list[Record]  # of failed trials that were run again: in no number, but paid for

    @property
    def name(self) -> str:
        """The study's name."""
        return self.file.name

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order of the plan."""
        return self.file.plan.asked.methods

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order of the plan."""
        return self.file.plan.asked.tasks

    @property
    def seeds(self) -> tuple[int, ...]:
        """The confirm seeds that the study asks for."""
        return list_confirm_seeds(self.file.plan.asked.seeds)

    @cached_property
    def looks(self) -> list[Plan]:
        """The plans whose tables were seen: as each whole launch ended, and now.

        Tables that a person makes in between leave no trace.
        """
        seen = [
            launch.began.plan.asked
            for launch in self.facts.launches.values()
            if launch.ended is not None and launch.ended.status in ("complete", "partial")
        ]
        return [*seen, self.file.plan.asked]

    @property
    def protocol(self) -> Protocol:
        """The rules that its numbers share."""
        return self.file.plan.protocol

    @property
    def protocol_hash(self) -> str:
        """The hash of the protocol that every record has."""
        return self.file.protocol_hash

    @cached_property
    def journal(self) -> JournalDigest:
        """The digest of the journal: tables that carry another one are not made from it."""
        return journal_digest(self.folder)

    @property
    def is_mini(self) -> bool:
        """Whether the numbers come from the generated tasks, which no published number can be held against."""
        return self.file.plan.asked.is_generated

    def arm(self, method: str, task: str) -> Arm:
        """Find the arm of a method on a task."""
        return self.file.plan.arm(f"{method}/{task}")

    @cached_property
    def by_arm(self) -> dict[str, list[Record]]:
        """The records of every arm."""
        arms: dict[str, list[Record]] = {}
        for record in self.records:
            arms.setdefault(record.arm, []).append(record)
        return arms

    @cached_property
    def missing(self) -> Mapping[str, str]:
        """The steps that the cells of arms wait for, in the words of `study.status`; nothing before any launch."""
        return last_progress(self.file.plan, self.facts).missing if self.facts.launches else {}

    @cached_property
    def by_key(self) -> dict[str, Record]:
        """The record of every ended trial."""
        return {record.key: record for record in self.records}


def confirm_trials(arm: Arm, records: Sequence[Record]) -> list[Record]:
    """Those of the arm's records that repeat its winner, by seed, the failed ones too."""
    winner = winner_of(arm, records)
    return winner.confirm_trials(records) if winner else []


def load_study(folder: Path | str, *, facts: StudyFacts | None = None) -> Study:
    """Read the study in `folder`, whose `facts` are not read again if they are given.

    Raises:
        ValueError: it is no study folder; its plan has a task that is unknown here; a line of its journal is broken
            (file and line are named); the numbers of a record cannot be; a record belongs to another protocol than the
            plan's, or was made of other data or another backbone.
    """
    folder = Path(folder)
    file = require_plan(folder)
    _check_tasks(folder / FILE, file)
    facts = facts or read_facts(folder)
    records, retried = _newest(facts.records)
    for record in records:
        for wrong in check_record(record):
            raise ValueError(f"{folder / JOURNAL}: record {record.key!r} of {record.arm}: {wrong}")
        if record.protocol_hash != file.protocol_hash:
            raise ValueError(
                f"{folder}: record {record.key!r} has protocol {record.protocol_hash}, plan.json has "
                f"{file.protocol_hash}; records of two protocols are never mixed"
            )
    study = Study(folder, file, facts, records, retried)
    for arm in file.plan.arms:
        _check_content(study, arm)
    strangers = sorted(study.by_arm.keys() - {arm.name for arm in file.plan.arms})
    if strangers:
        names = ", ".join(strangers)
        warnings.warn(f"{folder}: records of arms that the plan does not have are left out: {names}", stacklevel=2)
    return study


def check_record(record: Record) -> list[str]:
    """Name the defects of the record's scores and metrics, one line each; empty if there is none.

    A trial that ended with a score has every metric of its task, its score is their mean, and all of them are shares:
    0.725, not 72.5. Nothing is asked of the numbers of a failed trial; of a stopped one, only what selected it.
    """
    if record.task not in TASKS:
        return [f"task is {record.task!r}; allowed: {', '.join(TASKS)}"]
    if record.status == "failed":
        return []
    lines = _not_a_share("selection_score", record.selection_score)
    if record.status != "completed" and record.score is None:
        return lines
    lines += _not_a_share("score", record.score)
    missing = [name for name in TASKS[record.task].metrics if name not in record.metrics]
    if missing:
        return [*lines, f"metrics lack {', '.join(missing)}; {record.task} has {', '.join(TASKS[record.task].metrics)}"]
    found = {name: record.metrics[name] for name in TASKS[record.task].metrics}
    lines += [line for name, value in found.items() for line in _not_a_share(f"metrics.{name}", value)]
    mean = score(TASKS[record.task], found)
    if not lines and record.score is not None and abs(mean - record.score) > TOLERANCE:
        lines.append(f"score is {record.score}; the mean of {', '.join(found)} is {mean:.6f}")
    return lines + _layers(record)


def _layers(record: Record) -> list[str]:
    """Name a mean number of layers below one, or above what the model has."""
    run, depth = record.mean_layers, record.num_layers
    if run is None or depth is None or 1 - TOLERANCE <= run <= depth + TOLERANCE:
        return []
    return [f"mean_layers is {run}; allowed: 1 to {depth}, the model's num_layers"]


def _not_a_share(name: str, value: float | None) -> list[str]:
    if value is None:
        return [f"{name} is null; allowed: a number in [-1, 1]"]
    if math.isfinite(value) and -1 <= value <= 1:
        return []
    percent = f"; {value:g} percent is {value / 100:g}" if 1 < abs(value) <= 100 else ""
    return [f"{name} is {value}; allowed: a number in [-1, 1]{percent}"]


def _check_content(study: Study, arm: Arm) -> None:
    """Refuse records of other data, another backbone or another tokenizer than the arm's."""
    for record in study.by_arm.get(arm.name, []):
        for field in ("data_fingerprint", "backbone_fingerprint", "tokenizer_fingerprint"):
            found, planned = getattr(record, field), getattr(arm, field)
            if found != planned:
                raise ValueError(
                    f"{study.folder}: record {record.key!r} of {arm.name} has {field} {found}, the plan {planned}; "
                    "numbers of different content never share a cell"
                )


def load_studies(folders: list[Path]) -> list[Study]:
    """Read the studies in `folders`.

    Raises:
        ValueError: if two folders are the same study, or two studies have different protocols.
    """
    first = dict[str, Path]()
    for folder in folders:
        if (path := os.path.realpath(folder)) in first:
            raise ValueError(f"{first[path]} and {folder} are the same study; allowed: each study once")
        first[path] = folder
    studies = [load_study(folder) for folder in folders]
    for other in studies[1:]:
        _check_same_protocol(studies[0], other)
    return studies


def _check_same_protocol(first: Study, other: Study) -> None:
    if first.protocol_hash == other.protocol_hash:
        return
    differing = changes("", to_plain(first.protocol), to_plain(other.protocol))
    raise ValueError(
        f"two protocols never share a table: {first.folder} has {first.protocol_hash}, {other.folder} has "
        f"{other.protocol_hash} ({';'.join(differing).strip()})"
    )


def newest_study(root: Path | str = RUNS) -> Path:
    """Find the study folder under `root` whose plan was written last.

    Raises:
        ValueError: there is none.
    """
    plans = sorted(Path(root).glob("*/plan.json"), key=lambda path: path.stat().st_mtime)
    if not plans:
        raise ValueError(f"no study under {root}: no folder there holds a plan.json")
    return plans[-1].parent


def _check_tasks(path: Path, file: PlanFile) -> None:
    try:
        for name in file.plan.asked.tasks:
            find_task(name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name, task in (file.plan.own_tasks or {}).items():
        if task.definition != TASKS[name].definition:
            fault = "is another one than in the study that was read before: columns, labels or metrics differ"
            raise ValueError(f"{path}: task {name} {fault}; allowed: studies of one task under this name")


def _newest(records: list[Record]) -> tuple[list[Record], list[Record]]:
    """Split off the records that a later one of their key replaces: a failed trial may have been run again."""
    newest: dict[str, Record] = {}
    replaced: list[Record] = []
    for record in records:
        if record.key in newest:
            replaced.append(newest.pop(record.key))
        newest[record.key] = record
    return list(newest.values()), replaced
