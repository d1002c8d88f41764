"""From records to cells: which trials make a number of the table, and whether they are all there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from analysis.load import Study
from study.record import Record, best_search_record

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
    def scores(self) -> list[float]:
        return [_score(record) for record in self.records]

    @property
    def config(self) -> dict[str, Any] | None:
        return self.records[0].config if self.records else None

    @cached_property
    def median(self) -> float:
        """The median over the seeds; nan for a missing cell."""
        return float(np.median(self.scores)) if self.records else math.nan

    @property
    def state(self) -> State:
        wanted, found = self.study.seeds, self.seeds
        if not found:
            return "missing"
        if sorted(found) == sorted(wanted):
            return "complete"
        if len(found) == len(wanted):
            return "other seeds"
        return "fewer seeds" if len(found) < len(wanted) else "more seeds"

    def describe(self) -> str:
        """One line that names the cell and how its seeds differ from the protocol's."""
        wanted, found = ", ".join(map(str, self.study.seeds)), ", ".join(map(str, self.seeds)) or "none"
        failed = f"; failed: {', '.join(str(record.seed) for record in self.failed)}" if self.failed else ""
        return f"{self.name}: {self.state}: found {found}; the protocol wants {wanted}{failed}"


@dataclass(frozen=True)
class Row:
    """One line of a table: a method's cells in one or more studies."""

    label: str
    method: str
    cells: dict[str, Cell]  # by task

    @property
    def seeds(self) -> list[int]:
        """The confirm seeds of the protocol."""
        return next(iter(self.cells.values())).study.seeds

    @cached_property
    def backbones(self) -> str:
        """The backbones under the row's cells, lower case, separated by blanks."""
        names = {cell.study.backbone(cell.method, cell.task).lower() for cell in self.cells.values()}
        return " ".join(sorted(names))


def arm_records(cell: Cell) -> list[Record]:
    """All records of the cell's arm, of every phase and status."""
    return cell.study.by_arm.get((cell.method, cell.task), [])


def cell_of(study: Study, method: str, task: str) -> Cell:
    """The cell of an arm, empty where it has no completed confirm record yet."""
    records = study.by_arm.get((method, task), [])
    config = winning_config(records)
    confirm = [record for record in records if record.phase == "confirm" and record.config == config]
    confirm.sort(key=lambda record: record.seed)
    return Cell(
        study=study,
        method=method,
        task=task,
        records=tuple(record for record in confirm if record.status == "completed"),
        failed=tuple(record for record in confirm if record.status == "failed"),
    )


def winning_config(records: list[Record]) -> dict[str, Any] | None:
    """The configuration that an arm's confirm trials should have: that of its best completed search trial.

    A study that was extended may have found a better configuration; the confirm trials of the former winner are then
    history. Without search records it is the configuration that was confirmed last.
    """
    best = best_search_record(records)
    if best is not None:
        return best.config
    confirm = [record for record in records if record.phase == "confirm"]
    return max(confirm, key=lambda record: record.started).config if confirm else None


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
