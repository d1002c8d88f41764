"""Table of a study's test scores, beside the papers' test scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from analysis.layouts.evidence import Evidence, make_table
from analysis.layouts.paper_tables import PAPER_METRICS, place_published, published_rows
from analysis.layouts.table import POINTS, POINTS_RANGE, Column, Entry, Table, fill
from analysis.studies.cells import Cell, Row
from study.facts.events import ModelOnTest
from trainables.data.tasks import TASKS

PAPERS = ("PALBERT Tab.2", "PALBERT Tab.3", "COSEE Tab.2", "COSEE Tab.3", "DeeBERT Tab.1", "lmtuners")
OnTest = Mapping[str, ModelOnTest]  # by the trial's key


def scores_on_test_table(evidence: Evidence) -> Table | None:
    """Tabulate the test scores of the confirm models; None unless a study was scored on test labels."""
    events = [event for study in evidence.studies for event in study.facts.scored_on_test]
    tasks = list(dict.fromkeys(event.task for event in events))
    on_test = {model.key: model for event in events for model in event.models}
    rows = [replace(row, cells={task: row.cells[task] for task in tasks if task in row.cells}) for row in evidence.rows]
    rows = [row for row in rows if any(_scores(cell, on_test) for cell in row.cells.values())]
    if not rows:
        return None
    backbones = {cell.arm.whole_backbone for row in rows for cell in row.cells.values()}
    published = () if evidence.on_mini else published_rows(*PAPERS, split="test")
    placed = place_published(rows, [other for other in published if other.backbone in backbones], PAPER_METRICS)
    columns = [column for task in tasks for column in _columns(task, on_test)]
    ours = fill(columns, [(row.label, row) for row in rows])
    return make_table(
        evidence,
        "scores_on_test",
        title="Test scores{data}",
        columns=columns,
        lines=[line for own in ours for line in (own, *placed.beneath[own.label])],
        blocks=placed.blocks,
        caption=(
            "Points (100 x score) on test sets whose labels were read after the last trial. First the model with the "
            "best dev score, as papers report it, then the median over the confirm seeds, with their range."
        ),
        notes=[
            *(
                f"{TASKS[event.task].title}: {event.rows:,} rows, labels with SHA-256 {event.labels_digest[:16]}, "
                f"read at {event.time}"
                for event in events
            ),
            *placed.notes,
        ],
        further={"scores_on_test": [{"record": key, **model.metrics} for key, model in on_test.items()]},
    )


def _scores(cell: Cell, on_test: OnTest) -> list[float]:
    return [on_test[record.key].score for record in cell.records if record.key in on_test]


def _columns(task: str, on_test: OnTest) -> list[Column[Row]]:
    """Make two columns of test scores: the model with the best dev score, and the median and range over models."""

    def best(cell: Cell) -> Entry:
        model = on_test.get(max(cell.records, key=lambda record: record.score or 0.0).key)
        return POINTS.entry(model.score if model else None)

    def spread(cell: Cell) -> Entry:
        scores = _scores(cell, on_test)
        return POINTS_RANGE.entry_in_range(float(np.median(scores)), min(scores), max(scores))

    def entry_of(entry: Callable[[Cell], Entry]) -> Callable[[Row], Entry | None]:
        return lambda row: entry(row.cells[task]) if task in row.cells and _scores(row.cells[task], on_test) else None

    title = TASKS[task].title
    return [Column(task, title, entry_of(best)), Column(f"{task}_seeds", f"{title}, seeds", entry_of(spread))]
