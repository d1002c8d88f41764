"""Read study folders into plans and records; all other modules of `analysis` read studies through this one."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from study.decisions.progress import ArmProgress, compute_progress
from study.facts.events import FILE as JOURNAL
from study.facts.plan_file import FILE, PlanFile, list_changes, require_plan
from study.facts.record import Record
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import RUNS, JournalDigest, compute_journal_digest
from study.plans.plan import Plan
from study.plans.resolved_plan import Arm, Protocol, ResolvedPlan, list_confirm_seeds
from study.terminal.text import python
from trainables.configuration.schema import to_plain
from trainables.data.metrics import list_scored_metrics, score
from trainables.data.tasks import TASKS, find_task

CONTENT = ("data_fingerprint", "backbone_fingerprint", "tokenizer_fingerprint")  # fields of records and of arms
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
    def plan(self) -> ResolvedPlan:
        """The plan in `plan.json`."""
        return self.file.plan

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods, in the order of the plan."""
        return self.plan.request.methods

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks, in the order of the plan."""
        return self.plan.request.tasks

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the final runs that the plan asks for."""
        return list_confirm_seeds(self.plan.request.seeds)

    @cached_property
    def reported_plans(self) -> list[Plan]:
        """Plans of all launches that ran to their end: the user has seen their results."""
        return [
            launch.began.plan.request
            for launch in self.facts.launches.values()
            if launch.ended is not None and launch.ended.status in ("complete", "partial")
        ]

    @property
    def analysed_plans(self) -> list[Plan]:
        """The reported plans and the latest plan, whose results the user may have seen.

        Tables that a user prints at other times are not recorded.
        """
        return [*self.reported_plans, self.plan.request]

    @property
    def protocol(self) -> Protocol:
        """Evaluation rules that apply to all numbers of the study."""
        return self.plan.protocol

    @property
    def protocol_hash(self) -> str:
        """Hash of the protocol. Every record stores this hash, too."""
        return self.file.protocol_hash

    @cached_property
    def journal(self) -> JournalDigest:
        """Digest of the journal. Tables print this digest to identify the journal from which they were made."""
        return compute_journal_digest(self.folder)

    @property
    def is_mini(self) -> bool:
        """Whether the data are generated (mini-GLUE). If so, scores are not comparable with published numbers."""
        return self.plan.request.is_generated

    def arm(self, method: str, task: str) -> Arm:
        """Return the arm of a method on a task from the plan."""
        return self.plan.arm(f"{method}/{task}")

    @cached_property
    def records_by_arm(self) -> dict[str, list[Record]]:
        """Records of each arm, by the arm's name."""
        arms: dict[str, list[Record]] = {}
        for record in self.records:
            arms.setdefault(record.arm, []).append(record)
        return arms

    @cached_property
    def progress(self) -> dict[str, ArmProgress]:
        """Progress of each arm, by the arm's name; empty before the first launch."""
        arms = compute_progress(self.plan, self.facts).arms if self.facts.launches else []
        return {arm.name: arm for arm in arms}

    @cached_property
    def records_by_key(self) -> dict[str, Record]:
        """Record of each ended trial, by its key."""
        return {record.key: record for record in self.records}


def load_study(folder: Path | str, *, facts: StudyFacts | None = None) -> Study:
    """Read the study in `folder`. If its journal has been read already, pass the result as `facts`.

    Raises:
        ValueError: if the folder is not a study, its plan names an unknown task, a line of its journal is damaged, or
            a record has impossible numbers or does not match the plan.
    """
    folder = Path(folder)
    file = require_plan(folder)
    _check_tasks(folder / FILE, file)
    facts = facts or read_facts(folder)
    newest = {record.key: record for record in facts.records}
    records = [record for record in facts.records if record is newest[record.key]]
    retried = [record for record in facts.records if record is not newest[record.key]]
    study = Study(folder, file, facts, records, retried)
    for arm in file.plan.arms:
        planned = {"protocol_hash": file.protocol_hash} | {name: getattr(arm, name) for name in CONTENT}
        for record in study.records_by_arm.get(arm.name, []):
            if wrong := check_record(record, planned):
                raise ValueError(f"{folder / JOURNAL}: record {record.key!r} of {record.arm}: {wrong}")
    strangers = sorted(study.records_by_arm.keys() - {arm.name for arm in file.plan.arms})
    if strangers:
        names = ", ".join(strangers)
        warnings.warn(f"{folder}: records of arms that are not in the plan are left out: {names}", stacklevel=2)
    return study


def check_record(record: Record, planned: Mapping[str, str | None]) -> str:
    """Describe the first defect of a record; return an empty text if the record has none.

    The record must have the values in `planned`. A completed trial must have every metric of its task, and its score
    must be the mean of these metrics. A search trial on a slice of MNLI's train has a single accuracy.
    """
    for name, value in planned.items():
        if (found := getattr(record, name)) != value:
            return (
                f"{name} is {found}, but the plan has {value}; "
                "a table cannot mix protocols, data sets, backbones or tokenizers"
            )
    task, run, depth = TASKS[record.task], record.mean_layers, record.num_layers
    if record.score is not None:
        names = list_scored_metrics(task, record.metrics) if record.phase == "search" else task.metrics
        if missing := [name for name in names if name not in record.metrics]:
            return f"metrics lack {', '.join(missing)}; {task.name} has {', '.join(task.metrics)}"
        mean = score(task, {name: record.metrics[name] for name in names})
        if not abs(mean - record.score) <= TOLERANCE:  # also if the mean is NaN
            return f"score is {record.score}, but the mean of {', '.join(names)} is {mean:.6f}"
    if run is not None and depth is not None and not 1 - TOLERANCE <= run <= depth + TOLERANCE:
        return f"mean_layers is {run}; allowed: 1 to {depth}, which is the model's num_layers"
    return ""


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
    groups = dict[str, list[Study]]()
    for study in studies:
        groups.setdefault(study.protocol_hash, []).append(study)
    if len(groups) > 1:
        raise ValueError("\n".join(_describe_groups([*groups.values()])))
    return studies


def _describe_groups(groups: Sequence[Sequence[Study]]) -> Iterator[str]:
    """Describe studies with different protocols, in groups with the same one; a line for each, with its command."""
    number = sum(map(len, groups))
    yield f"a table cannot mix two protocols, and these {number} studies have {len(groups)}; make a table for each:"
    first = to_plain(groups[0][0].protocol)
    for place, group in enumerate(groups, start=1):
        folders = [str(study.folder) for study in group]
        out = ["--out", f"tables-{place}"] * (len(group) > 1)
        command = f"{python()} -m analysis.tables {shlex.join([*folders, *out])}"
        differing = "; ".join(map(str.strip, list_changes("", first, to_plain(group[0].protocol))))
        yield f"  {group[0].protocol_hash}{f' ({differing})' if differing else ''}: {command}"


def newest_study() -> Path:
    """Return the study folder that has the newest plan, from `runs/` here or in the nearest folder above.

    Raises:
        ValueError: if no folder there is a study.
    """
    here = Path.cwd()  # may be a notebook's own folder
    root = next((folder / RUNS for folder in (here, *here.parents) if (folder / RUNS).is_dir()), here / RUNS)
    plans = sorted(root.glob("*/plan.json"), key=lambda path: path.stat().st_mtime)
    if not plans:
        raise ValueError(f"no study under {root}: no folder there has a plan.json")
    return plans[-1].parent


def _check_tasks(path: Path, file: PlanFile) -> None:
    try:
        for name in file.plan.request.tasks:
            find_task(name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name, task in (file.plan.own_tasks or {}).items():
        if task.definition != TASKS[name].definition:
            fault = "has other columns, labels or metrics than in another study"
            raise ValueError(f"{path}: task {name} {fault}; allowed: studies with the same definition of the task")
