"""From records to cells: which trials make a number of the table, and whether they are all there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from analysis.studies.load import Study
from study.facts.record import Record
from study.facts.winner import winner_of
from trainables.schema import Configuration

State = Literal["complete", "missing", "fewer seeds", "more seeds", "other seeds"]


@dataclass(frozen=True)
class Cell:
    """One number of a table: an arm's completed confirm records of its winning configuration, by seed."""

    study: Study
    method: str
    task: str
    records: tuple[Record, ...]
    failed: tuple[Record, ...]  # confirm trials of the same configuration that failed

    @property
    def name(self) -> str:
        return f"{self.method}/{self.task}"

    @property
    def seeds(self) -> list[int]:
        return [record.seed for record in self.records]

    @property
    def seeds_wanted(self) -> tuple[int, ...]:
        """The confirm seeds of the arm."""
        return self.study.arm(self.method, self.task).seeds

    @property
    def scores(self) -> list[float]:
        return [_score(record) for record in self.records]

    @property
    def config(self) -> Configuration | None:
        return self.records[0].config if self.records else None

    @cached_property
    def median(self) -> float:
        """The median over the seeds; nan for a missing cell."""
        return float(np.median(self.scores)) if self.records else math.nan

    @property
    def state(self) -> State:
        wanted, found = self.seeds_wanted, self.seeds
        if not found:
            return "missing"
        if sorted(found) == sorted(wanted):
            return "complete"
        if len(found) == len(wanted):
            return "other seeds"
        return "fewer seeds" if len(found) < len(wanted) else "more seeds"

    def describe(self) -> str:
        """One line that names the cell and how its seeds differ from the protocol's."""
        wanted, found = ", ".join(map(str, self.seeds_wanted)), ", ".join(map(str, self.seeds)) or "none"
        failed = f"; failed: {', '.join(str(record.seed) for record in self.failed)}" if self.failed else ""
        return f"{self.name}: {self.state}: found {found}; the protocol wants {wanted}{failed}"


@dataclass(frozen=True)
class Row:
    """One line of a table: a method's cells in one or more studies."""

    label: str
    method: str
    cells: dict[str, Cell]  # by task

    @property
    def seeds(self) -> tuple[int, ...]:
        """The confirm seeds of the protocol."""
        return next(iter(self.cells.values())).seeds_wanted

    @cached_property
    def backbones(self) -> str:
        """The backbones under the row's cells, lower case, separated by blanks."""
        names = {cell.study.backbone(cell.method, cell.task).lower() for cell in self.cells.values()}
        return " ".join(sorted(names))


def arm_records(cell: Cell) -> list[Record]:
    """All records of the cell's arm, of every phase and status."""
    return cell.study.by_arm.get(cell.name, [])


def cell_of(study: Study, method: str, task: str) -> Cell:
    """The cell of an arm, empty where it has no completed confirm record of its winner yet."""
    arm = study.arm(method, task)
    records = study.by_arm.get(arm.name, [])
    winner = winner_of(arm, records)
    confirm = winner.confirm_trials(records) if winner else []
    return Cell(
        study=study,
        method=method,
        task=task,
        records=tuple(record for record in confirm if record.status == "completed"),
        failed=tuple(record for record in confirm if record.status == "failed"),
    )


def rows_of(studies: list[Study]) -> list[Row]:
    """One row per method, in the plans' order. Studies that share an arm get rows of their own, named by study."""
    planned: dict[str, list[Study]] = {}
    for study in studies:
        for method in study.methods:
            planned.setdefault(method, []).append(study)
    return [row for method, holders in planned.items() for row in _rows_of_method(method, holders)]


def _rows_of_method(method: str, studies: list[Study]) -> list[Row]:
    tasks = [task for study in studies for task in study.tasks]
    if len(tasks) == len(set(tasks)):
        return [Row(method, method, {task: cell_of(study, method, task) for study in studies for task in study.tasks})]
    return [
        Row(f"{method} ({study.name})", method, {task: cell_of(study, method, task) for task in study.tasks})
        for study in studies
    ]


def _score(record: Record) -> float:
    assert record.score is not None  # read_records has checked it for completed trials
    return record.score
