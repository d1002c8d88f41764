"""Published numbers: facts from papers and READMEs, with source and confidence, in `published.csv`.

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
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.layouts.table import Entry, deviation_entry, number_entry
from trainables.schema import Configuration

FILE = Path(__file__).parents[1] / "published.csv"
NO_STATISTIC = "n/a"  # in the file, where the source does not say of what runs a number is


@dataclass(frozen=True)
class PublishedNumber:
    """One printed number, in points."""

    value: float
    deviation: float | None  # over runs, where it is printed
    metric: str
    start: str  # the task whose model it began from, or ""
    note: str

    @property
    def entry(self) -> Entry:
        return number_entry(self.value) if self.deviation is None else deviation_entry(self.value, self.deviation)


@dataclass(frozen=True, eq=False)
class PublishedRow:
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
    def what(self) -> str:
        """Where it is from and what it is, for a heading."""
        statistic = "" if self.statistic == NO_STATISTIC else f", {self.statistic}"
        return f"{self.paper}, {self.source}; {self.backbone or 'own backbone'}, {self.split}{statistic}"

    def is_about(self, tasks: Collection[str]) -> bool:
        """Whether it has anything to say on these tasks: a number on one of them, or a figure over all."""
        return any(task in tasks or task == "relative" for task in self.numbers)


@cache
def published_rows(paper: str, *, split: str = "dev") -> tuple[PublishedRow, ...]:
    """The rows of a published table in the order printed; deviations are joined to the means that they belong to."""
    with FILE.open(newline="") as file:
        facts = [fact for fact in csv.DictReader(file) if fact["paper"] == paper and fact["split"] == split]
    deviations = {
        (fact["label"], fact["task"]): float(fact["value"]) for fact in facts if fact["statistic"].startswith("std")
    }
    grouped: dict[str, list[dict[str, str]]] = {}
    for fact in facts:
        if not fact["statistic"].startswith("std"):
            grouped.setdefault(fact["label"], []).append(fact)
    return tuple(_row(group, deviations) for group in grouped.values())


def _row(facts: list[dict[str, str]], deviations: dict[tuple[str, str], float]) -> PublishedRow:
    first = facts[0]
    return PublishedRow(
        paper=first["paper"],
        label=first["label"],
        method=first["method"],
        backbone=first["backbone"],
        layers=int(first["layers"]),
        settings=json.loads(first["settings"] or "{}"),
        parameters=first["parameters"],
        speed_up=float(first["speed_up"]) if first["speed_up"] else None,
        split=first["split"],
        statistic=first["statistic"],
        source=first["source"],
        numbers={
            fact["task"]: PublishedNumber(
                value=float(fact["value"]),
                deviation=deviations.get((fact["label"], fact["task"])),
                metric=fact["metric"],
                start=fact["start"],
                note=fact["note"],
            )
            for fact in facts
        },
    )
