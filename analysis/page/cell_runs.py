"""The runs behind every cell, and the links from tables to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from analysis.layouts.table import GAP, HUNDREDTHS, POINTS, Entry, Line, Table
from analysis.studies.cells import Cell, Row
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from trainables.data.tasks import TASKS


@dataclass(frozen=True)
class Run:
    """A confirm trial as the page prints it."""

    seed: int
    result: str  # the score in points, or the error of a failed trial
    layers: str
    epoch: str
    key: str
    model: str  # path or URI; empty where none is kept
    predictions: str  # path in the study's folder; empty where none are stored


@dataclass(frozen=True)
class CellRuns:
    """A cell with its runs."""

    anchor: str
    title: str
    runs: list[Run]


def cells_with_runs(rows: list[Row]) -> list[CellRuns]:
    """Every cell that has a confirm trial, row by row."""
    return [_cell_runs(row.label, cell) for row in rows for cell in row.cells.values() if cell.records or cell.failed]


def linked(table: Table, rows: list[Row]) -> Table:
    """The table, its lines of one cell per task with a link from each number to the runs behind it."""
    anchors = {(row.label, task): _anchor(row.label, task) for row in rows for task, cell in row.cells.items()}
    filled = {(row.label, task) for row in rows for task, cell in row.cells.items() if cell.records}
    hrefs = {place: f"#{anchor}" for place, anchor in anchors.items() if place in filled}
    return replace(table, lines=[line if line.published else _linked(line, hrefs) for line in table.lines])


def _linked(line: Line, hrefs: Mapping[tuple[str, str], str]) -> Line:
    entries: dict[str, Entry] = {
        name: replace(entry, href=hrefs.get((line.label, name), "")) for name, entry in line.entries.items()
    }
    return replace(line, entries=entries)


def _anchor(label: str, task: str) -> str:
    return f"runs-{label}/{task}"


def _cell_runs(label: str, cell: Cell) -> CellRuns:
    number = f"{POINTS.text(cell.median)}, median of {len(cell.records)}" if cell.records else "no number"
    return CellRuns(
        anchor=_anchor(label, cell.task),
        title=f"{label} on {TASKS[cell.task].title}: {number}",
        runs=[_run(cell, record) for record in (*cell.records, *cell.failed)],
    )


def _run(cell: Cell, record: Record) -> Run:
    folder = cell.study_of(record).folder
    predictions = predictions_file(folder, record.key)
    return Run(
        seed=record.seed,
        result=f"failed: {record.error}" if record.score is None else POINTS.text(record.score),
        layers=f"{HUNDREDTHS.text(record.mean_layers)} of {record.num_layers}" if record.mean_layers else GAP,
        epoch=str(record.epoch or GAP),
        key=record.key,
        model=record.model or "",
        predictions=str(predictions.relative_to(folder)) if predictions.exists() else "",
    )
