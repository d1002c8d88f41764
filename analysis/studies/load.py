"""Read study folders into plans and records; all other modules of `analysis` read studies through this one."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from study.decisions.progress import compute_progress
from study.facts.events import FILE as JOURNAL
from study.facts.record import Record
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import JournalDigest, compute_journal_digest
from study.facts.winner import choose_winner
from study.plans.plan import Plan
from study.plans.plan_file import FILE, PlanFile, list_changes, require_plan
from study.plans.resolved_plan import Arm, Protocol, list_confirm_seeds
from trainables.data.metrics import score
from trainables.data.tasks import TASKS, find_task
from trainables.schema import to_plain

RUNS = Path(__file__).parents[2] / "runs"
TOLERANCE = 1e-6  # largest allowed difference from recomputed scores and layers; tables show 0.1 point


@dataclass(frozen=True)
class Study:
    """Content of a study folder: the plan, facts from the journal, and the newest record of each ended trial."""

    folder: Path
    file: PlanFile
    facts: StudyFacts
    records: list[Record]
    retried: list[Record]  # failed trials that ran again: they count as cost only

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.file.name

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods, in the order of the plan."""
        return self.file.plan.asked.methods

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks, in the order of the plan."""
        return self.file.plan.asked.tasks

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the final runs that the plan asks for."""
        return list_confirm_seeds(self.file.plan.asked.seeds)

    @cached_property
    def looks(self) -> list[Plan]:
        """Plans whose results the user may have seen: the plan of each launch that ran to its end, and the latest plan.

        Tables that a user prints at other times are not recorded, so they do not count.
        """
        seen = [
            launch.began.plan.asked
            for launch in self.facts.launches.values()
            if launch.ended is not None and launch.ended.status in ("complete", "partial")
        ]
        return [*seen, self.file.plan.asked]

    @property
    def protocol(self) -> Protocol:
        """Evaluation rules that apply to all numbers of the study."""
        return self.file.plan.protocol

    @property
    def protocol_hash(self) -> str:
        """Hash of the protocol, which every record stores too."""
        return self.file.protocol_hash

    @cached_property
    def journal(self) -> JournalDigest:
        """Digest of the journal. Tables print this digest to identify the journal from which they were made."""
        return compute_journal_digest(self.folder)

    @property
    def is_mini(self) -> bool:
        """Whether the data are generated (mini-GLUE). If so, scores are not comparable with published numbers."""
        return self.file.plan.asked.is_generated

    def arm(self, method: str, task: str) -> Arm:
        """Return the arm of a method on a task from the plan."""
        return self.file.plan.arm(f"{method}/{task}")

    @cached_property
    def records_by_arm(self) -> dict[str, list[Record]]:
        """Records of each arm, by the arm's name."""
        arms: dict[str, list[Record]] = {}
        for record in self.records:
            arms.setdefault(record.arm, []).append(record)
        return arms

    @cached_property
    def missing(self) -> Mapping[str, str]:
        """Name of each incomplete arm -> what it lacks, as `study.status` prints it; empty before the first launch."""
        return compute_progress(self.file.plan, self.facts).missing if self.facts.launches else {}

    @cached_property
    def records_by_key(self) -> dict[str, Record]:
        """Record of each ended trial, by its key."""
        return {record.key: record for record in self.records}


def confirm_trials(arm: Arm, records: Sequence[Record]) -> list[Record]:
    """List the records of final runs of the arm's winning configuration, including failed runs, sorted by seed."""
    winner = choose_winner(arm, records)
    return winner.confirm_trials(records) if winner else []


def load_study(folder: Path | str, *, facts: StudyFacts | None = None) -> Study:
    """Read the study in `folder`. If its journal has been read already, pass the result as `facts`.

    Raises:
        ValueError: if the folder is not a study, its plan names an unknown task, a line of its journal is damaged, a
            record has impossible numbers, or a record has another protocol, data or backbone than the plan.
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
                f"{folder}: record {record.key!r} has protocol {record.protocol_hash}, but plan.json has "
                f"{file.protocol_hash}; records of two protocols cannot be mixed"
            )
    study = Study(folder, file, facts, records, retried)
    for arm in file.plan.arms:
        _check_content(study, arm)
    strangers = sorted(study.records_by_arm.keys() - {arm.name for arm in file.plan.arms})
    if strangers:
        names = ", ".join(strangers)
        warnings.warn(f"{folder}: records of arms that are not in the plan are left out: {names}", stacklevel=2)
    return study


def check_record(record: Record) -> list[str]:
    """List the defects of the record's scores and metrics, one line each.

    A completed trial must have every metric of its task, and its score must be the mean of these metrics. All of these
    numbers must lie in [-1, 1]: 0.725, not 72.5. A stopped trial must have a valid selection score. The numbers of a
    failed trial are not checked.
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
        lines.append(f"score is {record.score}, but the mean of {', '.join(found)} is {mean:.6f}")
    return lines + _layers(record)


def _layers(record: Record) -> list[str]:
    """Return an error line if the record's mean number of layers is below 1 or above the model's depth."""
    run, depth = record.mean_layers, record.num_layers
    if run is None or depth is None or 1 - TOLERANCE <= run <= depth + TOLERANCE:
        return []
    return [f"mean_layers is {run}; allowed: 1 to {depth}, which is the model's num_layers"]


def _not_a_share(name: str, value: float | None) -> list[str]:
    if value is None:
        return [f"{name} is null; allowed: a number in [-1, 1]"]
    if math.isfinite(value) and -1 <= value <= 1:
        return []
    percent = f"; {value:g} percent is {value / 100:g}" if 1 < abs(value) <= 100 else ""
    return [f"{name} is {value}; allowed: a number in [-1, 1]{percent}"]


def _check_content(study: Study, arm: Arm) -> None:
    """Reject records whose data, backbone or tokenizer differ from those of the arm in the plan."""
    for record in study.records_by_arm.get(arm.name, []):
        for field in ("data_fingerprint", "backbone_fingerprint", "tokenizer_fingerprint"):
            found, planned = getattr(record, field), getattr(arm, field)
            if found != planned:
                raise ValueError(
                    f"{study.folder}: record {record.key!r} of {arm.name} has {field} {found}, "
                    f"but the plan has {planned}; "
                    "a cell cannot mix data sets, backbones or tokenizers"
                )


def load_studies(folders: list[Path]) -> list[Study]:
    """Read the studies in `folders`.

    Raises:
        ValueError: if two folders are the same study, or two studies have different protocols.
    """
    first = dict[str, Path]()
    for folder in folders:
        if (path := os.path.realpath(folder)) in first:
            raise ValueError(f"{first[path]} and {folder} are the same study; pass each study only once")
        first[path] = folder
    studies = [load_study(folder) for folder in folders]
    for other in studies[1:]:
        _check_same_protocol(studies[0], other)
    return studies


def _check_same_protocol(first: Study, other: Study) -> None:
    if first.protocol_hash == other.protocol_hash:
        return
    differing = list_changes("", to_plain(first.protocol), to_plain(other.protocol))
    raise ValueError(
        f"a table cannot mix two protocols: {first.folder} has {first.protocol_hash}, but {other.folder} has "
        f"{other.protocol_hash} ({';'.join(differing).strip()})"
    )


def newest_study(root: Path | str = RUNS) -> Path:
    """Return the study folder under `root` whose plan was written last.

    Raises:
        ValueError: if no folder under `root` is a study.
    """
    plans = sorted(Path(root).glob("*/plan.json"), key=lambda path: path.stat().st_mtime)
    if not plans:
        raise ValueError(f"no study under {root}: no folder there has a plan.json")
    return plans[-1].parent


def _check_tasks(path: Path, file: PlanFile) -> None:
    try:
        for name in file.plan.asked.tasks:
            find_task(name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name, task in (file.plan.own_tasks or {}).items():
        if task.definition != TASKS[name].definition:
            fault = "has other columns, labels or metrics than in the study that was read before"
            raise ValueError(f"{path}: task {name} {fault}; allowed: studies with the same definition of the task")


def _newest(records: list[Record]) -> tuple[list[Record], list[Record]]:
    """Split the records into the newest record of each trial, and records of failed trials that later ran again."""
    newest: dict[str, Record] = {}
    replaced: list[Record] = []
    for record in records:
        if record.key in newest:
            replaced.append(newest.pop(record.key))
        newest[record.key] = record
    return list(newest.values()), replaced
