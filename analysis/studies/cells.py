"""From records to cells: which trials make a number of the table, and whether they are all there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from analysis.studies.load import Study
from study.facts.record import Record
from study.facts.winner import winner_of
from study.plans.resolved_plan import Arm
from trainables.schema import Configuration

State = Literal["complete", "missing", "fewer seeds", "more seeds", "other seeds"]


@dataclass(frozen=True)
class Cell:
    """One number of a table: an arm's completed confirm records of its winning configuration, by seed."""

    arm: Arm
    studies: tuple[Study, ...]  # that have the arm
    arm_records: tuple[Record, ...]  # all of the arm's, of every phase and status
    records: tuple[Record, ...]
    failed: tuple[Record, ...]  # confirm trials of the same configuration that failed
    seeds_wanted: tuple[int, ...]  # by the protocol of the table

    @property
    def method(self) -> str:
        return self.arm.method

    @property
    def task(self) -> str:
        return self.arm.task

    @property
    def name(self) -> str:
        return self.arm.name

    @property
    def seeds(self) -> list[int]:
        return [record.seed for record in self.records]

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

    @property
    def data_differences(self) -> tuple[str, ...]:
        """How the data that its trials read differ from the official GLUE; empty where they do not."""
        found = [line for record in self.records for line in record.data_differences or ()]
        return tuple(dict.fromkeys(found))

    @property
    def paid(self) -> list[Record]:
        """Every trial of the arm that was paid for: in each of the studies, and those that failed and ran again."""
        return [
            record
            for study in self.studies
            for record in (*study.by_arm.get(self.name, []), *study.retried)
            if record.arm == self.name
        ]

    def study_of(self, record: Record) -> Study:
        """The study that holds the record."""
        return next(study for study in self.studies if record.key in study.by_key)

    @property
    def shortfall(self) -> str:
        """How its seeds differ from the protocol's, and of an empty cell why, where that is known."""
        failed = f"; failed: {', '.join(str(record.seed) for record in self.failed)}" if self.failed else ""
        if self.state == "missing" and (reason := self._waits_for):
            return f"missing: {reason}{failed}"
        wanted, found = ", ".join(map(str, self.seeds_wanted)), ", ".join(map(str, self.seeds)) or "none"
        return f"{self.state}: found {found}; the protocol wants {wanted}{failed}"

    @property
    def _waits_for(self) -> str:
        """What it waits for in the studies that have its arm, by the journals; those that know nothing are left out."""
        reasons = dict.fromkeys(study.waits_for(self.name) for study in self.studies)
        return " and ".join(reason for reason in reasons if reason)

    def describe(self) -> str:
        """One line that names the cell and how its seeds differ from the protocol's."""
        return f"{self.name}: {self.shortfall}"


@dataclass(frozen=True)
class Row:
    """One line of a table: a method's cells."""

    label: str
    method: str
    cells: dict[str, Cell]  # by task

    @cached_property
    def backbones(self) -> tuple[str, ...]:
        """The backbones under the row's cells."""
        return tuple(dict.fromkeys(cell.arm.backbone for cell in self.cells.values()))


def cell_of(study: Study, method: str, task: str) -> Cell:
    """The cell of an arm of one study, empty where it has no completed confirm record of its winner yet."""
    arm = study.arm(method, task)
    return made_cell(arm, [study], study.by_arm.get(arm.name, []), seeds_wanted=arm.seeds)


def made_cell(arm: Arm, studies: list[Study], records: Iterable[Record], *, seeds_wanted: tuple[int, ...]) -> Cell:
    """The cell that these records of the arm make."""
    records = tuple(records)
    winner = winner_of(arm, records)
    confirm = winner.confirm_trials(records) if winner else []
    return Cell(
        arm=arm,
        studies=tuple(studies),
        arm_records=records,
        records=tuple(record for record in confirm if record.status == "completed"),
        failed=tuple(record for record in confirm if record.status == "failed"),
        seeds_wanted=seeds_wanted,
    )


def _score(record: Record) -> float:
    assert record.score is not None  # `Record` has checked it for completed trials
    return record.score
