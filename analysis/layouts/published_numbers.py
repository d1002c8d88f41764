"""The published numbers of `published.csv`, and their places in our tables.

A published number stands beside ours only if these columns agree: `split`, `metric` (if stated), `method` (of this
project, or ""), `backbone` (name on the hub, or ""), `layers` (of the encoder), `settings` (JSON of configuration
fields; "*" is any value but null) and `start` (task of the starting model).

`cost` is as printed. `cost_unit` is `speed-up` (all layers / mean layers), `% of layers saved` or `% of run time
saved`. The task `relative` means a number over all of GLUE, relative to another model.

In three rows of test scores, PALBERT's paper has almost certainly swapped MNLI and QQP. The file has these numbers as
printed, with a note.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import UNSET

from analysis.layouts import protocol_notes
from analysis.layouts.table import (
    DEVIATION,
    HUNDREDTHS,
    TENTHS,
    WHOLE,
    Block,
    Entry,
    Line,
)
from analysis.statistics.searches import variance_over_searches
from analysis.statistics.verdicts import Verdict, Word, verdict
from analysis.studies.cells import Cell, Row
from study.terminal.text import counted
from trainables.configuration.schema import Configuration
from trainables.data.tasks import GLUE_TASKS, TASKS

FILE = Path(__file__).parents[1] / "published.csv"
NO_STATISTIC = "n/a"  # in `published.csv`, if the source does not describe the runs behind a number
NOT_STATED = "not stated"  # metric (the number stands beside ours, with a note) or split (it stands apart)

# The metrics of the columns of PALBERT's and of ELECTRA's tables, named as in `published.csv`.
PAPER_METRICS = dict.fromkeys(TASKS, "accuracy") | {
    "cola": "matthews",
    "mrpc": "mean(acc,f1)",
    "mnli": "mean(acc m,mm)",
    "qqp": "mean(acc,f1)",
    "stsb": "mean(pearson,spearman)",
}
ELECTRA_METRICS = PAPER_METRICS | {"mrpc": "accuracy", "qqp": "accuracy", "stsb": "spearman"}


class PublishedNumber(msgspec.Struct, frozen=True, kw_only=True):
    """One number as printed in a paper, in points."""

    value: float
    deviation: float | None  # over runs; None if it is not printed
    metric: str
    start: str  # the task that provided the starting model, or ""
    cost: float | None  # as printed
    cost_unit: str
    note: str

    @property
    def notes(self) -> list[str]:
        """Notes on the number: its note in `published.csv`, and a printed saving of layers or time."""
        saved = f"cost as printed: {self.cost:g} {self.cost_unit}" if self.cost_unit.startswith("%") else ""
        return [note for note in (self.note, saved) if note]


class PublishedRow(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One row of a table in a paper."""

    paper: str
    label: str  # the method's name as printed
    method: str
    backbone: str
    layers: int
    settings: Configuration
    parameters: str  # as printed, "12M"
    split: str
    statistic: str
    source: str
    confidence: str  # "read directly" or "quoted by third party"
    numbers: dict[str, PublishedNumber]  # by task, and "macro" if printed; or only "relative", over all of GLUE

    @property
    def origin(self) -> str:
        """Text for a heading: source, backbone, split and statistic of the row."""
        split = f"split {self.split}" if self.split == NOT_STATED else self.split
        statistics = () if self.statistic == NO_STATISTIC else (self.statistic,)
        second_hand = ("quoted at second hand",) if self.confidence == "quoted by third party" else ()
        facts = (self.backbone or "own backbone", split, *statistics, *second_hand)
        return f"{self.paper}, {self.source}; {', '.join(facts)}"

    @property
    def speed_up(self) -> float | None:
        """The number of all layers divided by the mean number of layers run.

        None if the cost is not given in layers, or if it differs between tasks.
        """
        costs = {(number.cost, number.cost_unit) for number in self.numbers.values()}
        (cost, unit), *others = costs
        if others or cost is None or unit == "% of run time saved":
            return None
        return cost if unit == "speed-up" else 1 / (1 - cost / 100)

    def is_about(self, tasks: Collection[str]) -> bool:
        """Check whether the row has a number for one of these tasks, or one number for GLUE as a whole."""
        on_glue = not {*GLUE_TASKS}.isdisjoint(tasks)
        return any(task in tasks or (task == "relative" and on_glue) for task in self.numbers)

    def line(self, tasks: Collection[str]) -> Line:
        """Make the row's line in a table, with its numbers on these tasks, size and speed-up."""
        entries: dict[str, Entry] = {}
        if self.parameters:
            entries["parameters_millions"] = WHOLE.entry(float(self.parameters.removesuffix("M")))
        if self.speed_up is not None:
            entries["speed_up"] = HUNDREDTHS.entry(self.speed_up)
        for task, number in self.numbers.items():
            if task in tasks and number.deviation is None:
                entries[task] = TENTHS.entry(number.value)
            elif task in tasks:
                entries[task] = DEVIATION.entry(number.value, number.deviation)
        return Line(f"published {self.label}", entries, source="published")


@cache
def read_published_rows(*papers: str, split: str = "dev") -> tuple[PublishedRow, ...]:
    """Read the rows of these papers from `published.csv`, or of all papers if none is given.

    A mean and its standard deviation become one number.
    """
    with FILE.open(newline="") as file:
        facts = [fact for fact in csv.DictReader(file) if fact["split"] == split]
    deviations = {_place(fact): fact["value"] for fact in facts if fact["statistic"].startswith("std")}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for fact in facts:
        if not fact["statistic"].startswith("std"):
            fact["cost"] = fact["cost"] or None
            fields = {"settings": json.loads(fact["settings"] or "{}"), "numbers": {}}
            row = rows.setdefault((fact["paper"], fact["label"]), fact | fields)
            row["numbers"][fact["task"]] = fact | {"deviation": deviations.get(_place(fact))}
    papers = papers or tuple(dict.fromkeys(paper for paper, _ in rows))
    wanted = [row for name in papers for (paper, _), row in rows.items() if paper == name]
    return tuple(msgspec.convert(wanted, list[PublishedRow], strict=False))


def _place(fact: dict[str, str]) -> tuple[str, str, str]:
    return fact["paper"], fact["label"], fact["task"]


def read_scores(cell: Cell, metric: str | None) -> list[float]:
    """List the scores of the cell's final runs in `metric`; None means the task's own metric."""
    if metric is None or metric == PAPER_METRICS.get(cell.task):
        return cell.scores
    return [record.metrics[metric] for record in cell.records]


@dataclass(frozen=True)
class Pair:
    """One of our numbers and a published number that is comparable to it."""

    row: Row
    cell: Cell
    published: PublishedRow
    number: PublishedNumber
    metric: str  # of both numbers, named as in `published.csv`

    @property
    def verdict(self) -> Verdict | None:
        """Verdict on whether our number reproduces the published number. Dropped final runs count.

        None if the metric or the statistic of the published number is unclear, or if we have fewer than two seeds.
        """
        cell = self.cell.with_dropped
        scores = read_scores(cell, self.metric)
        if self.number.metric == NOT_STATED or len(scores) < 2:
            return None
        deviation = self.number.deviation and self.number.deviation / 100
        search = variance_over_searches(cell)
        return verdict(scores, self.number.value / 100, self.published.statistic, deviation, search=search)


@dataclass(frozen=True)
class Placed:
    """Published rows in one of our tables: comparable rows beneath our rows, and other rows in separate blocks."""

    beneath: dict[str, list[Line]]  # label of our row -> comparable published lines
    blocks: list[Block]  # lines that may not be compared, headed by the reason
    notes: list[str]
    pairs: list[Pair]


def place_published(rows: Sequence[Row], published: Iterable[PublishedRow], metrics: Mapping[str, str]) -> Placed:
    """Put comparable published rows beneath our rows, and other published rows in separate blocks.

    The heading of a block says why its rows are not comparable. `metrics` has the metric of each task's column.
    Published rows without a number on our tasks are left out.
    """
    beneath: dict[str, list[Line]] = {row.label: [] for row in rows}
    apart: dict[str, list[Line]] = {}
    pairs: list[Pair] = []
    shown: dict[PublishedRow, set[str]] = {other: set() for other in published if other.is_about(collect_tasks(rows))}
    for row in rows:
        for other in shown:
            reasons = explain_not_comparable(row, other, metrics)
            fitting = [task for task, reason in reasons.items() if reason is None]
            if fitting:
                pairs += [Pair(row, row.cells[task], other, other.numbers[task], metrics[task]) for task in fitting]
                if len(fitting) == len(reasons):
                    fitting = list(other.numbers)  # adds the macro score, and tasks that were not run here
                beneath[row.label].append(other.line(fitting))
                shown[other].update(fitting)
    sources = _source_notes(rows, [other for other, tasks in shown.items() if tasks])
    for other, tasks in shown.items():
        if (separate := _explain_separate_line(rows, other, metrics, tasks)) is not None:
            reason, left = separate
            apart.setdefault(f"Published, {reason} ({other.origin})", []).append(other.line(left))
            tasks.update(collect_tasks(rows).intersection(left))
    blocks = [Block(title, lines) for title, lines in apart.items()]
    return Placed(beneath, blocks, [*sources, *_number_notes(shown)], pairs)


def collect_tasks(rows: Iterable[Row]) -> set[str]:
    """Collect the tasks for which the rows have cells."""
    return {task for row in rows for task in row.cells}


def explain_not_comparable(row: Row, other: PublishedRow, metrics: Mapping[str, str]) -> dict[str, str | None]:
    """Map each task to the reason why the rows' numbers are not comparable, or to None if they are comparable.

    The result is empty if the rows have different methods.
    """
    if any(cell.arm.base_method != other.method for cell in row.cells.values()):
        return {}
    numbers = {task: number for task, number in other.numbers.items() if task in row.cells}
    return {task: _find_difference(row.cells[task], other, number, metrics[task]) for task, number in numbers.items()}


def _find_difference(cell: Cell, other: PublishedRow, number: PublishedNumber, metric: str) -> str | None:
    """Describe the first difference between the published run and the cell; return None if there is none."""
    if other.split == NOT_STATED:
        return "on a split that is not stated"
    if cell.data_differences:
        return "on the official GLUE; here on other rows, see the notes"
    if cell.arm.pretraining is not UNSET:
        return f"on the authors' backbone; here pretrained by study.pretrain {cell.arm.pretraining.objective}"
    if cell.arm.whole_backbone != other.backbone:
        return f"on another backbone than {protocol_notes.name_backbone(cell.arm.backbone)}"
    if number.metric not in (metric, NOT_STATED):
        return f"as {number.metric}; here {metric}"
    depths = {record.num_layers for record in cell.records} - {other.layers}
    if depths:
        return f"with {other.layers} layers; here {', '.join(map(str, sorted(filter(None, depths))))}"
    for name, wanted in other.settings.items():
        value = (cell.config or cell.arm.any_configuration).get(name)
        if not (value is not None if wanted == "*" else value == wanted):
            return f"with {name} {wanted if wanted != '*' else 'set'}; here {value}"
    start = cell.arm.start_from.rpartition("/")[2] if cell.arm.start_from else ""
    start = "" if start == cell.task else start  # the arm starts from the first stage of its own method
    if start != number.start:
        return f"started from {number.start or 'the backbone'}; here from {start or 'the backbone'}"
    return None


def _explain_separate_line(
    rows: Sequence[Row], other: PublishedRow, metrics: Mapping[str, str], shown: Collection[str]
) -> tuple[str, list[str]] | None:
    """Return why a published row needs a separate line, and the tasks on that line; None if no line is needed.

    `shown` has the row's tasks that already stand beneath our rows.
    """
    left = [task for task in other.numbers if task not in shown]
    if not left or (shown and left == ["macro"]):
        return None
    if (relative := other.numbers.get("relative")) is not None:
        return f"as {relative.value:g} {relative.metric} alone", left
    reasons_by_row = [reasons for row in rows if (reasons := explain_not_comparable(row, other, metrics))]
    nearest = min(reasons_by_row, key=lambda reasons: sum(map(bool, reasons.values())), default={})
    titles: dict[str, list[str]] = {}
    for task, reason in nearest.items():
        if task in left and reason:
            titles.setdefault(reason, []).append(TASKS[task].title)
    if shown and not titles:
        return None
    parts = [f"{', '.join(tasks)} {reason}" if len(titles) > 1 else reason for reason, tasks in titles.items()]
    return "; ".join(parts) or "not run here", [task for task in left if nearest.get(task)] if shown else left


def _source_notes(rows: Sequence[Row], shown: Sequence[PublishedRow]) -> list[str]:
    """Name the sources of the published lines. Note if these scores were selected on dev, unlike ours."""
    sources = list(dict.fromkeys(f"published lines: {other.origin}" for other in shown))
    selections = {study.protocol.selection for row in rows for cell in row.cells.values() for study in cell.studies}
    selected = "published scores were selected on the reported dev set; our scores were not"
    return sources + [selected] * bool(shown and selections - {"dev"})


def _number_notes(shown: Mapping[PublishedRow, Collection[str]]) -> list[str]:
    """List the notes on published numbers, each with its rows and tasks. `shown` maps rows to printed tasks."""
    places: dict[str, dict[str, list[str]]] = {}
    for other, tasks in shown.items():
        for task, number in other.numbers.items():
            for note in number.notes if task in tasks and task in TASKS else ():
                places.setdefault(note, {}).setdefault(other.label, []).append(TASKS[task].title)
    texts = {
        note: [f"{label} ({', '.join(titles)})" for label, titles in rows.items()] for note, rows in places.items()
    }
    return [f"published {', '.join(rows)}: {note}" for note, rows in texts.items()]


def verdict_notes(pairs: Sequence[Pair]) -> list[str]:
    """Count the verdicts on the published numbers that are compared with ours."""
    if not pairs:
        return []
    words = Counter(pair.verdict.word if pair.verdict else "without a verdict" for pair in pairs)
    order = (*get_args(Word), "without a verdict")
    counts = ", ".join(f"{words[word]} {word}" for word in order if words[word])
    return [
        f"our numbers are compared with {counted(len(pairs), 'published number')}: {counts} (see table verdicts; "
        "reproduced means within 1 point)"
    ]


def select_backbones(rows: list[Row], published: Iterable[PublishedRow]) -> tuple[PublishedRow, ...]:
    """Choose the published rows with a backbone that our rows use too."""
    backbones = {cell.arm.whole_backbone for row in rows for cell in row.cells.values()}
    return tuple(other for other in published if other.backbone in backbones)
