"""Ours beside the published: which published numbers may stand next to ours, and which stand apart, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from analysis.layouts.cell_facts import scores_in
from analysis.layouts.published_numbers import PublishedNumber, PublishedRow
from analysis.layouts.table import Block, Line
from analysis.statistics.verdicts import Verdict, verdict
from analysis.studies.cells import Cell, Row
from trainables.data.tasks import TASKS

ON_REAL_GLUE = "on real GLUE; not comparable with --data mini"
NOT_STATED = "not stated in README"  # a metric; such a number stands beside ours with that note


@dataclass(frozen=True)
class Beside:
    """A number of ours and the published one that it may be held against."""

    row: Row
    cell: Cell
    published: PublishedRow
    number: PublishedNumber
    metric: str  # of both, in the words of `published.csv`

    @property
    def verdict(self) -> Verdict | None:
        """Whether the published number was reproduced; None where its statistic or metric does not say enough."""
        scores = scores_in(self.cell, self.metric)
        if self.number.metric == NOT_STATED or len(scores) < 2:
            return None
        deviation = self.number.deviation and self.number.deviation / 100
        return verdict(scores, self.number.value / 100, self.published.statistic, deviation)


@dataclass(frozen=True)
class Placed:
    """Where the published rows stand in a table."""

    lines: list[Line]  # ours, each with what may stand beside it beneath
    blocks: list[Block]  # what may not, under its reason
    notes: list[str]
    pairs: list[Beside]
    published: dict[str, PublishedRow]  # by the label of its line


def beside_published(
    rows: Sequence[Row],
    published: Sequence[PublishedRow],
    metrics: Mapping[str, str],
    line_of: Callable[[Row], Line],
) -> Placed:
    """Our lines with the published ones of the same settings beneath each; the others in blocks that say why.

    `metrics` are those of the table's columns, by task, in the words of `published.csv`. A row without a number on the
    tasks of ours says nothing here.
    """
    published = [other for other in published if other.is_about(tasks_of(rows))]
    lines: list[Line] = []
    pairs: list[Beside] = []
    shown: dict[PublishedRow, set[str]] = {other: set() for other in published}
    for row in rows:
        lines.append(line_of(row))
        for other in published:
            reasons = reasons_apart(row, other, metrics)
            fitting = [task for task, reason in reasons.items() if reason is None]
            if fitting:
                pairs += [Beside(row, row.cells[task], other, other.numbers[task], metrics[task]) for task in fitting]
                if all(reason is None for reason in reasons.values()):
                    fitting = list(other.numbers)  # with the macro score, and tasks that were not run here
                lines.append(_published_line(other, fitting))
                shown[other].update(fitting)
    apart: dict[str, list[Line]] = {}
    for other in published:
        for reason, tasks in _why_apart(rows, other, metrics, shown[other]).items():
            apart.setdefault(f"Published, {reason} ({other.what})", []).append(_published_line(other, tasks))
    blocks = [Block(title, apart_lines) for title, apart_lines in apart.items()]
    used = [other for other in published if shown[other]]
    notes = [*_sources(rows, used), *_published_notes(used, shown)]
    return Placed(lines, blocks, notes, pairs, {_label(other): other for other in published})


def tasks_of(rows: Sequence[Row]) -> set[str]:
    """The tasks that the rows have cells for."""
    return {task for row in rows for task in row.cells}


def reasons_apart(row: Row, other: PublishedRow, metrics: Mapping[str, str]) -> dict[str, str | None]:
    """By task that both have: why the numbers may not be held against each other; None where they may.

    Empty where the row is of another method.
    """
    if any(cell.arm.base_method != other.method for cell in row.cells.values()):
        return {}
    numbers = {task: number for task, number in other.numbers.items() if task in row.cells}
    return {task: _reason(row.cells[task], other, number, metrics[task]) for task, number in numbers.items()}


def _reason(cell: Cell, other: PublishedRow, number: PublishedNumber, metric: str) -> str | None:
    """The first of what sets the cell apart; None where nothing does."""
    if any(study.is_mini for study in cell.studies):
        return ON_REAL_GLUE
    if cell.data_differences:
        return f"on the official GLUE; here {TASKS[cell.task].title} {cell.data_differences[0]}"
    if cell.arm.pretrained_by is not UNSET:
        return f"on a backbone that its authors pretrained; here by {cell.arm.pretrained_by}"
    if cell.arm.backbone != other.backbone:
        return f"on another backbone than {cell.arm.backbone}"
    if number.metric not in (metric, NOT_STATED):
        return f"as {number.metric}; here {metric}"
    depths = {record.num_layers for record in cell.records} - {other.layers}
    if depths:
        return f"with {other.layers} layers; here {', '.join(map(str, sorted(filter(None, depths))))}"
    for field, wanted in other.settings.items():
        value = (cell.config or cell.arm.any_configuration).get(field)
        if not (value is not None if wanted == "*" else value == wanted):
            return f"with {field} {wanted if wanted != '*' else 'set'}; here {value}"
    start = cell.arm.start_from.rpartition("/")[2] if cell.arm.start_from else ""
    if start != number.start:
        return f"started from {number.start or 'the backbone'}; here from {start or 'the backbone'}"
    return None


def _why_apart(
    rows: Sequence[Row], other: PublishedRow, metrics: Mapping[str, str], shown: set[str]
) -> dict[str, list[str]]:
    """The tasks of the row that stand beside none of ours, by reason: that of our row that is nearest to it."""
    left = [task for task in other.numbers if task not in shown]
    if not left or (shown and left == ["macro"]):
        return {}
    on_mini = any(study.is_mini for row in rows for cell in row.cells.values() for study in cell.studies)
    if (relative := other.numbers.get("relative")) is not None:
        figure = f"as {relative.value:g} {relative.metric} alone"
        return {f"{figure}, {ON_REAL_GLUE}" if on_mini else figure: left}
    if on_mini:
        return {ON_REAL_GLUE: left}
    found = [reasons for row in rows if (reasons := reasons_apart(row, other, metrics))]
    if not found:
        return {"not run here": left}
    nearest = min(found, key=lambda reasons: sum(reason is not None for reason in reasons.values()))
    told = {task: reason for task in left if (reason := nearest.get(task))}
    if not shown:
        first = next(iter(told.values()), "not run here")
        return {first: left} if set(told.values()) <= {first} else _by_reason(told)
    return _by_reason(told)


def _by_reason(told: dict[str, str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for task, reason in told.items():
        grouped.setdefault(reason, []).append(task)
    return grouped


def _label(other: PublishedRow) -> str:
    return f"published {other.label}"


def _published_line(other: PublishedRow, tasks: Sequence[str]) -> Line:
    entries = {task: number.entry for task, number in other.numbers.items() if task in tasks}
    return Line(_label(other), entries, published=True)


def _sources(rows: Sequence[Row], used: Sequence[PublishedRow]) -> list[str]:
    """Where the published lines beneath ours come from, and what sets them apart from ours."""
    notes = [f"published lines: {source}" for source in dict.fromkeys(other.what for other in used)]
    studies = [study for row in rows for cell in row.cells.values() for study in cell.studies]
    if used and any(study.protocol.selection != "dev" for study in studies):
        notes.append("published scores were selected on the dev set they report; ours were not")
    return notes


def _published_notes(used: Sequence[PublishedRow], shown: dict[PublishedRow, set[str]]) -> list[str]:
    """Each note on a published number beneath ours once, with the numbers that it is about."""
    about: dict[str, list[str]] = {}
    for other in used:
        for task, number in other.numbers.items():
            if number.note and task in shown[other] and task in TASKS:
                about.setdefault(number.note, []).append(f"{other.label} {TASKS[task].title}")
    return [f"published {', '.join(names)}: {note}" for note, names in about.items()]
