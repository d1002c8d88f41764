"""The papers' table layouts, filled with a study's cells beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from analysis import statistics
from analysis.aggregate import Cell, Row, best_search_record, rows_of
from analysis.load import Study
from analysis.protocol import is_mini, protocol_in_words, statistic_in_words
from analysis.published import PublishedRow, published_rows
from analysis.render import GAP, Block, Line, Table
from study.record import Record
from trainables.tasks import TASKS

PAPER_TASKS = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")  # PALBERT, table 2; macro is their mean
Measure = Callable[[Record], float]


def points(score: float) -> str:
    """A score in [-1, 1] as the papers print it."""
    return f"{100 * score:.1f}"


def task_columns(studies: list[Study], order: tuple[str, ...] = PAPER_TASKS) -> dict[str, str]:
    """The layout's tasks in its order, then any other planned ones: name -> title."""
    planned = {task for study in studies for task in study.tasks}
    return {task: TASKS[task].title for task in (*order, *(task for task in TASKS if task in planned - set(order)))}


def dev_table(studies: list[Study]) -> Table:
    """PALBERT's table 2 (table 3 on RoBERTa): methods x tasks and macro, median over the confirm seeds."""
    rows = rows_of(studies)
    paper = "PALBERT Tab.3" if _on_roberta(rows) else "PALBERT Tab.2"
    lines, blocks, notes = _beside_published(rows, published_rows(paper), _median_line)
    return Table(
        name="dev",
        title=f"GLUE dev scores{' on mini-GLUE' if is_mini(studies[0]) else ''}, {statistic_in_words(studies[0])}",
        columns=task_columns(studies) | {"macro": "macro"},
        lines=lines,
        blocks=blocks,
        caption=f"Points (100 x score). {_macro_in_words(rows)}{protocol_in_words(studies)}",
        notes=seed_notes(rows) + notes,
        sidecar=_sidecar(studies, rows) | {"macro": {row.label: macro(row) for row in rows}},
    )


def seed_notes(rows: list[Row]) -> list[str]:
    """A line for every cell whose seeds are not exactly the protocol's."""
    cells = [cell for row in rows for cell in row.cells.values()]
    return [cell.describe() for cell in cells if cell.state != "complete"]


def macro(row: Row) -> float | None:
    """The mean of the paper's eight medians; None unless each of them follows the protocol."""
    cells = [row.cells.get(task) for task in PAPER_TASKS]
    complete = [cell for cell in cells if cell is not None and cell.state == "complete"]
    return float(np.mean([cell.median for cell in complete])) if len(complete) == len(PAPER_TASKS) else None


def cell_text(cell: Cell, number: str) -> str:
    """The number, marked with its n where the seeds are not the protocol's; GAP where there is none."""
    if cell.state == "missing":
        return GAP
    return number if cell.state == "complete" else f"{number} (n={len(cell.records)})"


def _sidecar(studies: list[Study], rows: list[Row]) -> dict[str, Any]:
    return {
        "protocol_hash": studies[0].protocol_hash,
        "protocol": studies[0].protocol,
        "studies": {study.name: study.records_digest for study in studies},
        "incomplete": seed_notes(rows),
        "cells": [cell_facts(cell) for row in rows for cell in row.cells.values()],
    }


def cell_facts(cell: Cell) -> dict[str, Any]:
    """The sidecar's entry of a cell: its number in full, and what it was made from."""
    study = cell.study
    best = best_search_record(study.by_arm.get((cell.method, cell.task), []))
    return {
        "method": cell.method,
        "task": cell.task,
        "study": study.name,
        "state": cell.state,
        "median": cell.median if cell.records else None,
        "summary": statistics.summary(cell.scores) if cell.records else None,
        "n": len(cell.records),
        "seeds": cell.seeds,
        "seeds_wanted": study.seeds,
        "scores": cell.scores,
        "records": [record.key for record in cell.records],
        "failed": [record.key for record in cell.failed],
        "config": cell.config,
        "backbone": study.backbone(cell.method, cell.task),
        "best_search": best and {"record": best.key, "selection_score": best.selection_score},
    }


def _median_line(row: Row) -> Line:
    values = {task: cell_text(cell, points(cell.median)) for task, cell in row.cells.items()}
    mean = macro(row)
    if mean is not None:
        values["macro"] = points(mean)
    elif set(PAPER_TASKS) <= row.cells.keys():
        values["macro"] = GAP
    return Line(row.label, values)


def _macro_in_words(rows: list[Row]) -> str:
    if any(macro(row) is not None for row in rows):
        return "Macro is the mean of the paper's eight tasks. "
    return "Macro, the mean of the paper's eight tasks, is left out until all eight are complete. "


def _beside_published(
    rows: list[Row], published: tuple[PublishedRow, ...], line_of: Callable[[Row], Line]
) -> tuple[list[Line], list[Block], list[str]]:
    """Our lines with the comparable published one beneath each; the published lines that belong apart; their notes."""
    lines, used = [], set()
    for row in rows:
        lines.append(line_of(row))
        for line in published:
            if line.method == row.method and _comparable(row, line):
                lines.append(_published_line(line))
                used.add(line.label)
    planned = {task for row in rows for task in row.cells} | {"macro"}
    rest = [line for line in published if line.label not in used]
    block = Block(_apart_title(rows, published[0], nothing_beside=not used), [_published_line(line) for line in rest])
    return lines, [block] if rest else [], _published_notes(published, planned)


def _published_notes(published: tuple[PublishedRow, ...], tasks: set[str]) -> list[str]:
    """Each note on the published numbers of these tasks once, with the numbers it is about."""
    about: dict[str, list[str]] = {}
    for line in published:
        for task, note in line.notes.items():
            if task in tasks & TASKS.keys():
                about.setdefault(note, []).append(f"{line.label} {TASKS[task].title}")
    return [f"published {', '.join(names)}: {note}" for note, names in about.items()]


def _comparable(row: Row, line: PublishedRow) -> bool:
    cells = row.cells.values()
    return not any(is_mini(cell.study) for cell in cells) and all(_has_backbone(cell, line.backbone) for cell in cells)


def _has_backbone(cell: Cell, backbone: str) -> bool:
    return backbone in cell.study.backbone(cell.method, cell.task).lower()


def _apart_title(rows: list[Row], line: PublishedRow, *, nothing_beside: bool) -> str:
    source = f"{line.paper}, {line.source}, {line.backbone}, dev, {line.statistic}"
    if any(is_mini(cell.study) for row in rows for cell in row.cells.values()):
        return f"Published, on real GLUE; not comparable with --data mini ({source})"
    if nothing_beside:
        backbones = sorted({cell.study.backbone(cell.method, cell.task) for row in rows for cell in row.cells.values()})
        return f"Published, on another backbone than {', '.join(backbones)}; not comparable ({source})"
    return f"Published, not run here ({source})"


def _published_line(line: PublishedRow) -> Line:
    texts = {task: f"{value:.1f}" for task, value in line.values.items()}
    return Line(f"published {line.label}", texts, published=True)


def _on_roberta(rows: list[Row]) -> bool:
    return any(
        "roberta" in cell.study.backbone(cell.method, cell.task).lower() for row in rows for cell in row.cells.values()
    )
