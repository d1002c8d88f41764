"""What pictures are made of, read once for all of them."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.pictures.panels import Style, styles_of
from analysis.statistics.exits import Exits, exits_of
from analysis.studies.cells import Cell, Row
from trainables.data.tasks import TASKS


@dataclass(frozen=True)
class Subject:
    """The rows of one or more studies, each with its look, and how their models leave."""

    rows: list[Row]
    styles: dict[str, Style]  # by the row's label
    exits: dict[tuple[str, str], Exits]  # by label and task, of cells with records

    @property
    def cells(self) -> list[tuple[str, Cell]]:
        """Every cell with the label of its row, tasks in their usual order."""
        return [(row.label, row.cells[task]) for row in self.rows for task in TASKS if task in row.cells]

    @property
    def without_predictions(self) -> list[str]:
        """Which cells have no predictions of every seed, in words."""
        return [f"{label}/{task}" for (label, task), exits in self.exits.items() if exits.shares is None]


def subject_of(rows: list[Row]) -> Subject:
    """The subject of these rows.

    Raises:
        ValueError: a predictions file is broken.
    """
    read = {(row.label, task): exits_of(cell) for row in rows for task, cell in row.cells.items()}
    return Subject(rows, styles_of(rows), {place: exits for place, exits in read.items() if exits is not None})
