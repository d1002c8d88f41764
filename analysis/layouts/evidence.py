"""What tables are made of, gathered once for all of them, and what they share: columns, titles, sidecars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from analysis.layouts.notes import seed_notes
from analysis.layouts.pretraining_words import pretraining_facts
from analysis.statistics.comparisons import Comparison, baseline_row, compare
from analysis.statistics.exits import Exits, exits_of
from analysis.statistics.samples import Place, Sample, samples_of
from analysis.statistics.search_repeats import Repeats, repeats_of_rows
from analysis.studies.cells import Cell, Row
from analysis.studies.joined import names_of, rows_of
from analysis.studies.load import Study
from trainables.data.tasks import TASKS
from trainables.schema import to_plain

PAPER_TASKS = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")  # PALBERT, table 2; macro is their mean


@dataclass(frozen=True)
class Evidence:
    """What the tables are made of."""

    studies: list[Study]
    rows: list[Row]
    samples: dict[Place, Sample]  # stored predictions by (row label, task)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Every pair of rows on every task where both have predictions of the same examples."""
        return compare(self.rows, self.samples)

    @cached_property
    def repeats(self) -> dict[Place, Repeats]:
        """Of every cell that was searched more than once, what each search came to."""
        return repeats_of_rows(self.rows)

    @property
    def baseline(self) -> str | None:
        """The label of the row that the others are compared with."""
        return baseline_row(self.rows)

    @cached_property
    def exits(self) -> dict[Place, Exits]:
        """How the models of every cell with records leave."""
        read = {(row.label, task): exits_of(cell) for row in self.rows for task, cell in row.cells.items()}
        return {place: exits for place, exits in read.items() if exits is not None}

    @property
    def cells(self) -> list[tuple[str, Cell]]:
        """Every cell with the label of its row."""
        return [(row.label, cell) for row in self.rows for cell in row.cells.values()]


def gather(studies: list[Study], *, separate: bool = False) -> Evidence:
    """The evidence in these studies, of one protocol; with rows of their own for each of them where `separate`.

    Raises:
        ValueError: the studies cannot share a table; stored predictions are not their record's.
    """
    rows = rows_of(studies, separate=separate)
    return Evidence(studies, rows, samples_of(rows))


def task_columns(studies: list[Study], order: tuple[str, ...]) -> dict[str, str]:
    """The layout's tasks in its order, then any other planned ones: name -> title."""
    tasks = {task for study in studies for task in study.tasks}
    return {task: TASKS[task].title for task in (*order, *(task for task in TASKS if task in tasks - set(order)))}


def on_mini(studies: list[Study]) -> str:
    return " on mini-GLUE" if any(study.is_mini for study in studies) else ""


def sidecar(evidence: Evidence, facts: Callable[[Cell], dict[str, Any]]) -> dict[str, Any]:
    """What every table says of its studies, and of each cell what `facts` gives."""
    studies = evidence.studies
    return {
        "protocol": {studies[0].protocol_hash: to_plain(studies[0].protocol)},
        "studies": [
            {"name": name, "journal": study.journal.sha256, "lines": study.journal.lines}
            for name, study in zip(names_of(studies), studies, strict=True)
        ],
        "incomplete": seed_notes(evidence.rows),
        "cells": [{"row": label} | facts(cell) for label, cell in evidence.cells],
    } | ({"pretraining": pretrained} if (pretrained := _pretrained(studies)) else {})


def _pretrained(studies: list[Study]) -> dict[str, Any]:
    found = {name: pretraining_facts(study) for name, study in zip(names_of(studies), studies, strict=True)}
    return {name: facts for name, facts in found.items() if facts is not None}
