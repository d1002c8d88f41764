"""Which methods differ from the baseline, and by how much: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.layouts.cell_facts import gap_entry
from analysis.pictures.panels import Style
from analysis.pictures.picture import STYLE, Picture, finished
from analysis.pictures.subject import Subject
from analysis.statistics.across_tasks import ForestLine, by_task, forest
from analysis.statistics.comparisons import Comparison, marks
from study.facts.plain_words import joined
from trainables.data.tasks import TASKS

WIDTH = 4.1  # inches: a phone shows it hardly shrunk
LINE_INCHES = 0.08  # from one method's interval to the next
SPREAD = 0.74  # share of a task's height that its intervals take
MACRO = "macro"  # `ForestLine.name` of the mean over the tasks


@matplotlib.rc_context(STYLE)
def forest_picture(subject: Subject, comparisons: Sequence[Comparison], baseline: str | None) -> Picture | None:
    """Every method's difference to the baseline by task, their mean last; None without a baseline or a test."""
    if baseline is None:
        return None
    tests = {row.label: by_task(comparisons, row.label, baseline) for row in subject.rows if row.label != baseline}
    tasks = [task for task in TASKS if any(task in own for own in tests.values())]
    lines = {label: _shown(forest(own), tasks) for label, own in tests.items() if own}
    if not lines:
        return None
    names = [name for name in (*tasks, MACRO) if any(line.name == name for own in lines.values() for line in own)]
    marked = marks(subject.rows, comparisons)
    figure, axes = _panel(names, len(lines))
    offsets = np.linspace(-0.5, 0.5, len(lines)) * SPREAD * (len(lines) - 1) / len(lines)
    for (label, own), offset in zip(lines.items(), offsets, strict=True):
        for line in own:
            place = names.index(line.name) + offset
            _draw(axes, subject.styles[label], line, place, is_marked=(label, line.name) in marked)
    _finish(figure, axes, {label: subject.styles[label] for label in lines}, baseline)
    caption = (
        f"Mean score minus {baseline}'s with its 95 % interval over seeds and dev examples. Filled: marked at the 5 % "
        f"level (Holm over all comparisons with {baseline}); hollow: not. The intervals are not adjusted. Mean: "
        "over all of these tasks; it has no mark."
    )
    return finished("forest", f"Differences to {baseline}", caption, _seen(lines, marked), figure)


def _shown(lines: list[ForestLine], tasks: list[str]) -> list[ForestLine]:
    """In the order of the tasks, with their mean where it is over several and over all."""
    own = {line.name: line for line in lines}
    names = [*tasks, *([MACRO] if len(own) == len(tasks) + 1 > 2 else [])]
    return [own[name] for name in names if name in own]


def _panel(names: list[str], methods: int) -> tuple[Figure, Axes]:
    height = 0.95 + 0.2 * -(-methods // 2) + len(names) * max(LINE_INCHES * methods / SPREAD, 0.22)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.set_yticks(range(len(names)), [_title(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for i in range(1, len(names)):
        before_macro = names[i] == MACRO
        axes.axhline(i - 0.5, color="black" if before_macro else "0.85", lw=0.8 if before_macro else 0.5, zorder=0)
    axes.axvline(0, color="black", lw=0.8, zorder=1)
    return figure, axes


def _draw(axes: Axes, style: Style, line: ForestLine, place: float, *, is_marked: bool) -> None:
    is_macro = line.name == MACRO
    axes.hlines(place, 100 * line.low, 100 * line.high, color=style.colour, lw=2.6 if is_macro else 1.1, zorder=2)
    if is_macro:
        axes.plot(100 * line.difference, place, marker="|", ms=8, mew=2.0, color=style.colour, zorder=3)
        return
    face = style.colour if is_marked else "white"
    axes.plot(100 * line.difference, place, marker=style.marker, ms=4.5, color=style.colour, mfc=face, zorder=3)


def _finish(figure: Figure, axes: Axes, styles: dict[str, Style], baseline: str) -> None:
    axes.set_xlabel(f"difference to {baseline}, points")
    handles = [
        axes.plot([], [], marker=style.marker, ms=4.5, lw=1.1, color=style.colour, label=label)[0]
        for label, style in styles.items()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(2, len(handles)), handlelength=1.6)


def _title(name: str) -> str:
    return "mean" if name == MACRO else TASKS[name].title


def _seen(lines: dict[str, list[ForestLine]], marked: dict[tuple[str, str], str]) -> str:
    texts = []
    for label, own in lines.items():
        told = [
            f"{_title(line.name)} {gap_entry(line.difference, line.low, line.high).text}"
            + ", marked" * ((label, line.name) in marked)
            for line in own
        ]
        texts.append(f"{label}: {joined(told)}.")
    return " ".join(texts)
