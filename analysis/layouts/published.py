"""Published numbers: read from `published.csv`, and placed beside ours or apart from them, with the reason.

Columns that say what was run: `method` (of this project; "" where it has none of that kind), `backbone` (name on the
hub; "" where it was not published), `layers` (of the encoder that may run), `settings` (JSON: fields of the method's
configuration; "*" is any value but null) and `start` (the task whose model a cell began from). A number of ours stands
beside a published one only where all of them agree. The task `relative` is a figure over tasks against another model;
such a row has no score of its own.

The paper's test block has MNLI and QQP swapped in three rows, almost certainly; the file keeps the printed cells and
says so in `note`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from analysis.layouts.table import DEVIATION, HUNDREDTHS, TENTHS, WHOLE, Block, Entry, Line
from analysis.statistics.verdicts import Verdict, verdict
from analysis.studies.cells import Cell, Row
from trainables.data.tasks import TASKS
from trainables.schema import Configuration

FILE = Path(__file__).parents[1] / "published.csv"
NO_STATISTIC = "n/a"  # in the file, where the source does not say of what runs a number is
NOT_STATED = "not stated in README"  # a metric; such a number stands beside ours with that note
ON_REAL_GLUE = "on real GLUE; not comparable with --data mini"

# The metrics of a table's columns, in the words of the file: PALBERT's tables, and ELECTRA's.
PAPER_METRICS = dict.fromkeys(TASKS, "accuracy") | {
    "cola": "matthews",
    "mrpc": "mean(acc,f1)",
    "mnli": "mean(acc m,mm)",
    "qqp": "mean(acc,f1)",
    "stsb": "mean(pearson,spearman)",
}
ELECTRA_METRICS = PAPER_METRICS | {"mrpc": "accuracy", "qqp": "accuracy", "stsb": "spearman"}


class PublishedNumber(msgspec.Struct, frozen=True, kw_only=True):
    """One printed number, in points."""

    value: float
    deviation: float | None  # over runs, where it is printed
    metric: str
    start: str  # the task whose model it began from, or ""
    note: str


class PublishedRow(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One printed row of a published table."""

    paper: str
    label: str  # the method's name as printed
    method: str
    backbone: str
    layers: int
    settings: Configuration
    parameters: str  # as printed, "12M"
    speed_up: float | None
    split: str
    statistic: str
    source: str
    numbers: dict[str, PublishedNumber]  # by task; "macro" where it is printed; "relative" alone

    @property
    def origin(self) -> str:
        """Its source and what it is, for a heading."""
        statistic = "" if self.statistic == NO_STATISTIC else f", {self.statistic}"
        return f"{self.paper}, {self.source}; {self.backbone or 'own backbone'}, {self.split}{statistic}"

    def is_about(self, tasks: Collection[str]) -> bool:
        """Whether it has anything to say on these tasks: a number on one of them, or a figure over all."""
        return any(task in tasks or task == "relative" for task in self.numbers)

    def line(self, tasks: Collection[str]) -> Line:
        """Its line in a table, with its numbers on these tasks and the size and speed that it prints."""
        entries: dict[str, Entry] = {}
        if self.parameters:
            entries["parameters"] = WHOLE.entry(float(self.parameters.removesuffix("M")))
        if self.speed_up is not None:
            entries["speed_up"] = HUNDREDTHS.entry(self.speed_up)
        for task, number in self.numbers.items():
            if task in tasks and number.deviation is None:
                entries[task] = TENTHS.entry(number.value)
            elif task in tasks:
                entries[task] = DEVIATION.entry(number.value, number.deviation)
        return Line(f"published {self.label}", entries, published=True)


@cache
def published_rows(*papers: str, split: str = "dev") -> tuple[PublishedRow, ...]:
    """The rows of published tables in the order printed; deviations are joined to the means that they belong to."""
    with FILE.open(newline="") as file:
        facts = [fact for fact in csv.DictReader(file) if fact["split"] == split]
    deviations = {_place(fact): fact["value"] for fact in facts if fact["statistic"].startswith("std")}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for fact in facts:
        if not fact["statistic"].startswith("std"):
            own = {"settings": json.loads(fact["settings"] or "{}"), "speed_up": fact["speed_up"] or None}
            row = rows.setdefault((fact["paper"], fact["label"]), fact | own | {"numbers": {}})
            row["numbers"][fact["task"]] = fact | {"deviation": deviations.get(_place(fact))}
    wanted = [row for paper in papers for (own_paper, _), row in rows.items() if own_paper == paper]
    return tuple(msgspec.convert(wanted, list[PublishedRow], strict=False))


def _place(fact: dict[str, str]) -> tuple[str, str, str]:
    return fact["paper"], fact["label"], fact["task"]


def scores_in(cell: Cell, metric: str) -> list[float]:
    """The scores of the confirm records in a metric, named as in `published.csv`."""
    if metric == PAPER_METRICS[cell.task]:
        return cell.scores
    return [record.metrics[metric] for record in cell.records]


@dataclass(frozen=True)
class Pair:
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

    beneath: dict[str, list[Line]]  # by the label of the row of ours that they may be held against
    blocks: list[Block]  # those that may not, under the reason
    notes: list[str]
    pairs: list[Pair]


def place_published(rows: Sequence[Row], published: Iterable[PublishedRow], metrics: Mapping[str, str]) -> Placed:
    """Places published rows of the same settings beneath ours, and the others in blocks that say why.

    `metrics` are those of the table's columns, by task. A row without a number on the tasks of ours is left out.
    """
    beneath: dict[str, list[Line]] = {row.label: [] for row in rows}
    apart: dict[str, list[Line]] = {}
    pairs: list[Pair] = []
    shown: dict[PublishedRow, set[str]] = {other: set() for other in published if other.is_about(tasks_of(rows))}
    for row in rows:
        for other in shown:
            reasons = reasons_apart(row, other, metrics)
            fitting = [task for task, reason in reasons.items() if reason is None]
            if fitting:
                pairs += [Pair(row, row.cells[task], other, other.numbers[task], metrics[task]) for task in fitting]
                if len(fitting) == len(reasons):
                    fitting = list(other.numbers)  # with the macro score, and tasks that were not run here
                beneath[row.label].append(other.line(fitting))
                shown[other].update(fitting)
    for other, tasks in shown.items():
        for reason, left in _why_apart(rows, other, metrics, tasks).items():
            apart.setdefault(f"Published, {reason} ({other.origin})", []).append(other.line(left))
    blocks = [Block(title, lines) for title, lines in apart.items()]
    return Placed(beneath, blocks, list(_notes(rows, {other: tasks for other, tasks in shown.items() if tasks})), pairs)


def tasks_of(rows: Iterable[Row]) -> set[str]:
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
    if cell.arm.pretraining is not UNSET:
        return f"on a backbone that its authors pretrained; here by study.pretrain {cell.arm.pretraining.objective}"
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
    rows: Sequence[Row], other: PublishedRow, metrics: Mapping[str, str], shown: Collection[str]
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
    of_rows = [reasons for row in rows if (reasons := reasons_apart(row, other, metrics))]
    nearest = min(of_rows, key=lambda reasons: sum(map(bool, reasons.values())), default={})
    reason_of = {task: reason for task in left if (reason := nearest.get(task))}
    if not shown and len(set(reason_of.values())) < 2:
        return {next(iter(reason_of.values()), "not run here"): left}
    return {
        reason: [task for task in reason_of if reason_of[task] == reason]
        for reason in dict.fromkeys(reason_of.values())
    }


def _notes(rows: Sequence[Row], shown: Mapping[PublishedRow, set[str]]) -> Iterator[str]:
    """The sources of the published lines beneath ours, what sets them apart, and each note with its numbers."""
    yield from dict.fromkeys(f"published lines: {other.origin}" for other in shown)
    studies = [study for row in rows for cell in row.cells.values() for study in cell.studies]
    if shown and any(study.protocol.selection != "dev" for study in studies):
        yield "published scores were selected on the dev set they report; ours were not"
    places: dict[str, list[str]] = {}
    for other, tasks in shown.items():
        for task, number in other.numbers.items():
            if number.note and task in tasks and task in TASKS:
                places.setdefault(number.note, []).append(f"{other.label} {TASKS[task].title}")
    yield from (f"published {', '.join(names)}: {note}" for note, names in places.items())
