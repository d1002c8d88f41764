"""Ours beside the published: which published rows may stand next to ours, and which belong apart."""

from __future__ import annotations

from collections.abc import Callable

from analysis.layouts.published_numbers import PublishedRow
from analysis.layouts.rendering import Block, Line
from analysis.studies.cells import Row
from analysis.studies.protocol_words import is_mini
from trainables.data.tasks import TASKS


def beside_published(
    rows: list[Row], published: tuple[PublishedRow, ...], line_of: Callable[[Row], Line]
) -> tuple[list[Line], list[Block], list[str]]:
    """Our lines with the comparable published one beneath each; blocks of the others; notes on comparable ones.

    Comparable is a row of the same method that was run on real GLUE and on the backbone of the published row.
    """
    lines: list[Line] = []
    used: set[PublishedRow] = set()
    for row in rows:
        lines.append(line_of(row))
        for other in published:
            if other.method == row.method and _comparable(row, other):
                lines.append(_published_line(other))
                used.add(other)
    tasks = {task for row in rows for task in row.cells}
    rest = [other for other in published if other not in used]
    titles = {other: _apart_title(rows, other) for other in rest}
    blocks = [
        Block(title, [_published_line(other) for other in rest if titles[other] == title])
        for title in dict.fromkeys(titles.values())
    ]
    return lines, blocks, [*_sources(rows, used), *_published_notes(published, tasks)] if used else []


def mean_and_deviation(published: tuple[PublishedRow, ...]) -> tuple[PublishedRow, ...]:
    """Rows printed as `mean ± deviation`: each `mean of n` row with the texts of its `std of n` row joined in."""
    deviations = {row.label: row.values for row in published if row.statistic.startswith("std")}
    return tuple(
        row.with_texts({task: f"{value:.1f} ± {deviations[row.label][task]:.1f}" for task, value in row.values.items()})
        for row in published
        if row.statistic.startswith("mean")
    )


def _sources(rows: list[Row], used: set[PublishedRow]) -> list[str]:
    """Where the published lines beneath ours come from, and what sets them apart from ours."""
    sources = {f"{other.paper}, {other.source}; {other.backbone}, dev, {other.statistic}" for other in used}
    notes = [f"published lines: {source}" for source in sorted(sources)]
    if any(cell.study.protocol.selection != "dev" for row in rows for cell in row.cells.values()):
        notes.append("published scores were selected on the dev set they report; ours were not")
    return notes


def _comparable(row: Row, other: PublishedRow) -> bool:
    studies = [cell.study for cell in row.cells.values()]
    return not any(map(is_mini, studies)) and all(other.backbone in backbone for backbone in row.backbones.split())


def _apart_title(rows: list[Row], other: PublishedRow) -> str:
    source = f"{other.paper}, {other.source}; {other.backbone}, dev, {other.statistic}"
    if any(is_mini(cell.study) for row in rows for cell in row.cells.values()):
        return f"Published, on real GLUE; not comparable with --data mini ({source})"
    backbones = sorted({backbone for row in rows for backbone in row.backbones.split()})
    if not any(other.backbone in backbone for backbone in backbones):
        return f"Published, on another backbone than {', '.join(backbones)}; not comparable ({source})"
    return f"Published, not run here ({source})"


def _published_line(other: PublishedRow) -> Line:
    return Line(f"published {other.label}", other.texts, published=True)


def _published_notes(published: tuple[PublishedRow, ...], tasks: set[str]) -> list[str]:
    """Each note on the published numbers of these tasks once, with the numbers it is about."""
    about: dict[str, list[str]] = {}
    for other in published:
        for task, note in other.notes.items():
            if task in tasks:
                about.setdefault(note, []).append(f"{other.label} {TASKS[task].title}")
    return [f"published {', '.join(names)}: {note}" for note, names in about.items()]
