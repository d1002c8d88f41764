"""Published numbers: facts from papers and READMEs, with source and confidence, in `published.csv`.

The paper's test block has MNLI and QQP swapped in three rows, almost certainly; the file keeps the printed cells and
says so in `note`. Tables show dev numbers only.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

FILE = Path(__file__).parents[1] / "published.csv"


@dataclass(frozen=True, eq=False)
class PublishedRow:
    """One printed row of a published table; values are points."""

    paper: str
    label: str  # the method's name as printed
    method: str  # this project's method of the same kind; "" where there is none
    backbone: str
    statistic: str
    source: str
    values: dict[str, float]  # by task, and "macro" where printed
    texts: dict[str, str]  # the same as tables show them
    notes: dict[str, str]  # by task

    def with_texts(self, texts: dict[str, str]) -> PublishedRow:
        return replace(self, texts=texts)


@cache
def published_rows(paper: str, *, split: str = "dev", statistic: str = "") -> tuple[PublishedRow, ...]:
    """The rows of a published table in the order printed; only those of `statistic` where it is given."""
    with FILE.open(newline="") as file:
        facts = [fact for fact in csv.DictReader(file) if fact["paper"] == paper and fact["split"] == split]
    grouped: dict[tuple[str, str], list[dict[str, str]]] = {}
    for fact in facts:
        if not statistic or fact["statistic"] == statistic:
            grouped.setdefault((fact["label"], fact["statistic"]), []).append(fact)
    return tuple(_row(group) for group in grouped.values())


def _row(facts: list[dict[str, str]]) -> PublishedRow:
    first = facts[0]
    values = {fact["task"]: float(fact["value"]) for fact in facts}
    return PublishedRow(
        paper=first["paper"],
        label=first["label"],
        method=first["method"],
        backbone=first["backbone"],
        statistic=first["statistic"],
        source=first["source"],
        values=values,
        texts={task: f"{value:.1f}" for task, value in values.items()},
        notes={fact["task"]: fact["note"] for fact in facts if fact["note"]},
    )
