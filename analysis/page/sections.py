"""Where the tables and pictures of a page stand, which of them are folded, and the links from cells to their runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from analysis.layouts.table import GAP, HUNDREDTHS, POINTS, Column, Entry, Table, fill, headings
from analysis.pictures.picture import Picture
from analysis.studies.cells import Cell, Row
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from trainables.data.tasks import TASKS

LONGEST_OPEN = 12  # lines: a longer table is folded
ALWAYS_OPEN = ("dev", "over_tasks", "verdicts", "compute")
SECTIONS = {  # title -> what stands there, in this order
    "Scores": (
        "table-dev table-over_tasks table-verdicts picture-seeds table-intervals table-spread table-ablation "
        "table-pabee table-electra"
    ),
    "Comparisons": "table-comparisons table-comparisons_of_others",
    "Speed": (
        "picture-score-against-layers table-equal_layers table-equal_score picture-exit-layers table-speed "
        "table-latency table-calibration picture-calibration"
    ),
    "Search": "table-equal_compute table-optimism table-search_repeats picture-search-progress",
    "Compute": "table-compute table-compute_of_arms",
}


@dataclass(frozen=True)
class Part:
    """A table or a picture of the page."""

    anchor: str
    title: str
    html: Markup
    is_folded: bool = False

    @classmethod
    def of_table(cls, table: Table, html: Markup) -> Part:
        is_long = sum(len(block.lines) for block in table.parts) > LONGEST_OPEN and table.name not in ALWAYS_OPEN
        return cls(f"table-{table.name}", table.title, html, is_long)

    @classmethod
    def of_picture(cls, picture: Picture, html: Markup) -> Part:
        return cls(f"picture-{picture.name}", picture.title, html)


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading."""

    anchor: str
    title: str
    parts: list[Part]


def sections(parts: Sequence[Part]) -> list[Section]:
    """The sections in their order; what none of them names stands in a last one, "Further". The forest is none's."""
    left = {part.anchor: part for part in parts if part.anchor != "picture-forest"}
    made = [
        Section(title.lower(), title, [left.pop(name) for name in names.split() if name in left])
        for title, names in SECTIONS.items()
    ]
    return [*made, Section("further", "Further", list(left.values()))] if left else made


def linked(table: Table, rows: Iterable[Row]) -> Table:
    """The table, its lines of one cell per task with a link from each number to the runs behind it."""
    hrefs = {
        (row.label, task): f"#table-{_runs_of(row.label, cell)}"
        for row in rows
        for task, cell in row.cells.items()
        if cell.records
    }

    def with_links(label: str, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        return {name: replace(entry, href=hrefs.get((label, name), "")) for name, entry in entries.items()}

    lines = [
        line if line.published else replace(line, entries=with_links(line.label, line.entries)) for line in table.lines
    ]
    return replace(table, lines=lines)


def run_tables(rows: Iterable[Row]) -> list[Table]:
    """The confirm trials of every cell that has any, a line for each."""
    cells = [(row.label, cell) for row in rows for cell in row.cells.values()]
    return [_run_table(label, cell) for label, cell in cells if cell.records or cell.failed]


RUNS: list[Column[tuple[Cell, Record]]] = [
    Column("score", "score", lambda run: Entry(_result(run[1]))),
    Column("layers", "layers", lambda run: Entry(_layers(run[1]))),
    Column("epoch", "epoch", lambda run: Entry(str(run[1].epoch or GAP))),
    Column("key", "key", lambda run: Entry(run[1].key)),
    Column("predictions", "predictions", lambda run: Entry(_predictions(*run))),
    Column("model", "model", lambda run: Entry(run[1].model or "")),
]


def _run_table(label: str, cell: Cell) -> Table:
    number = f"{POINTS.text(cell.median)}, median of {len(cell.records)}" if cell.records else "no number"
    return Table(
        name=_runs_of(label, cell),
        title=f"{label} on {TASKS[cell.task].title}: {number}",
        first_column="seed",
        columns=headings(RUNS),
        lines=fill(RUNS, [(str(record.seed), (cell, record)) for record in (*cell.records, *cell.failed)]),
        caption="",
    )


def _runs_of(label: str, cell: Cell) -> str:
    return f"runs-{label}/{cell.task}"


def _result(record: Record) -> str:
    return f"failed: {record.error}" if record.score is None else POINTS.text(record.score)


def _layers(record: Record) -> str:
    return f"{HUNDREDTHS.text(record.mean_layers)} of {record.num_layers}" if record.mean_layers else GAP


def _predictions(cell: Cell, record: Record) -> str:
    """The path of its predictions in the study's folder; empty if none are stored."""
    folder = cell.study_of(record).folder
    path = predictions_file(folder, record.key)
    return str(path.relative_to(folder)) if path.exists() else ""
