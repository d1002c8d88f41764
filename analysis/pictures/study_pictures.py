"""The six pictures of a study, one per question, each with the tasks as small multiples.

Which methods differ (`forest_picture`), how far the seeds lie apart (`seeds_picture`), what an exit costs and scores
(`layers_picture`), where examples leave (`exits_picture`), whether exits are as sure as they should be
(`calibration_picture`) and what a search has found after how much compute (`search_picture`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.layouts.evidence import Evidence
from analysis.layouts.table import ESTIMATE
from analysis.pictures.picture import (
    PANELS_PER_LINE,
    STYLE,
    End,
    Picture,
    Style,
    choose_styles,
    compare_lines,
    describe_trend,
    label_ends,
    lay_out,
    sentences_by_task,
    share_height,
    share_x,
    task_panels,
)
from analysis.statistics import uncertainty
from analysis.statistics.comparisons import by_task, macro_test, marks
from analysis.statistics.exits import Exits, LayerCalibration, Sweep, calibration
from analysis.statistics.samples import Place
from analysis.statistics.uncertainty import PairedTest
from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import predictions_of
from study.facts.plain_words import joined
from study.facts.record import Record
from trainables.data.tasks import TASKS

FOREST_INCHES = 4.1  # width: a phone shows it hardly shrunk
LINE_INCHES = 0.08  # from one method's interval to the next
SPREAD = 0.74  # share of a task's height that its intervals take
MEAN = "mean"  # over the tasks, beside their names
REACH = 10  # points below the lowest own exit of a task: what scores less is cut off
STRIP_INCHES = (2.75, 0.8)  # of a method's exit layers on a task
FEWEST_EXAMPLES = 20  # that leave at a layer; with fewer the share of right answers says nothing


def pictures(evidence: Evidence) -> list[Picture]:
    """Every picture that the evidence of a study has something to show in.

    Raises:
        ValueError: a predictions file is broken.
    """
    draws = (forest_picture, seeds_picture, layers_picture, exits_picture, calibration_picture, search_picture)
    return [picture for draw in draws if (picture := draw(evidence)) is not None]


# Which methods differ from the baseline, and by how much.


@matplotlib.rc_context(STYLE)
def forest_picture(evidence: Evidence) -> Picture | None:
    """Every method's difference to the baseline by task, their mean last; None without a baseline or a test."""
    baseline, comparisons = evidence.baseline, evidence.comparisons
    if baseline is None:
        return None
    labels = [row.label for row in evidence.rows if row.label != baseline]
    tests = {label: by_task(comparisons, label, baseline) for label in labels}
    tasks = [task for task in TASKS if any(task in row_tests for row_tests in tests.values())]
    lines = {label: _with_mean(row_tests, tasks) for label, row_tests in tests.items() if row_tests}
    if not lines:
        return None
    names = [name for name in (*tasks, MEAN) if any(name in row_tests for row_tests in lines.values())]
    styles, marked = choose_styles(evidence.rows), marks(evidence.rows, comparisons)
    figure, axes = _forest_panel(names, len(lines))
    offsets = np.linspace(-0.5, 0.5, len(lines)) * SPREAD * (len(lines) - 1) / len(lines)
    for (label, row_tests), offset in zip(lines.items(), offsets, strict=True):
        for name, test in row_tests.items():
            style, place = styles[label], names.index(name) + offset
            look = _forest_look(style, is_mean=name == MEAN, is_marked=(label, name) in marked)
            axes.hlines(place, 100 * test.low, 100 * test.high, style.colour, lw=2.6 if name == MEAN else 1.1, zorder=2)
            axes.plot(100 * test.difference, place, color=style.colour, zorder=3, **look)
    axes.set_xlabel(f"difference to {baseline}, points")
    handles = [
        axes.plot([], [], marker=style.marker, ms=4.5, lw=1.1, color=style.colour, label=label)[0]
        for label, style in styles.items()
        if label in lines
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(2, len(handles)), handlelength=1.6)
    caption = (
        f"Mean score minus {baseline}'s with its 95 % interval over seeds and dev examples. Filled: marked at the 5 % "
        f"level (Holm over all comparisons with {baseline}); hollow: not. The intervals are not adjusted. Mean: "
        "over all of these tasks; it has no mark."
    )
    alt = " ".join(_describe_forest(label, row_tests, marked) for label, row_tests in lines.items())
    return lay_out("forest", f"Differences to {baseline}", caption, alt, figure)


def _with_mean(tests: dict[str, PairedTest], tasks: list[str]) -> dict[str, PairedTest]:
    """The tests in the order of the tasks, then that of their mean if they are several and no task lacks its test."""
    ordered = {task: tests[task] for task in tasks if task in tests}
    return ordered | ({MEAN: macro_test(tests)} if len(ordered) == len(tasks) > 1 else {})


def _forest_panel(names: list[str], methods: int) -> tuple[Figure, Axes]:
    height = 0.95 + 0.2 * -(-methods // 2) + len(names) * max(LINE_INCHES * methods / SPREAD, 0.22)
    figure = Figure(figsize=(FOREST_INCHES, height), layout="constrained")
    axes = figure.subplots()
    axes.set_yticks(range(len(names)), [_forest_title(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for i, name in enumerate(names[1:]):
        colour, width = ("black", 0.8) if name == MEAN else ("0.85", 0.5)
        axes.axhline(i + 0.5, color=colour, lw=width, zorder=0)
    axes.axvline(0, color="black", lw=0.8, zorder=1)
    return figure, axes


def _forest_look(style: Style, *, is_mean: bool, is_marked: bool) -> dict[str, Any]:
    """The mark of a difference: a bar for the mean, else the row's marker, filled where it is marked."""
    if is_mean:
        return {"marker": "|", "ms": 8, "mew": 2.0}
    return {"marker": style.marker, "ms": 4.5, "mfc": style.colour if is_marked else "white"}


def _forest_title(name: str) -> str:
    return MEAN if name == MEAN else TASKS[name].title


def _describe_forest(label: str, tests: dict[str, PairedTest], marked: dict[Place, str]) -> str:
    differences = [
        f"{_forest_title(name)} {ESTIMATE.entry(test.difference, test.low, test.high).text}"
        + ", marked" * ((label, name) in marked)
        for name, test in tests.items()
    ]
    return f"{label}: {joined(differences)}."


# How far the seeds lie apart.


@matplotlib.rc_context(STYLE)
def seeds_picture(evidence: Evidence) -> Picture | None:
    """Every confirm score, and the median, per task and method."""
    cells = [(label, cell) for label, cell in evidence.cells if cell.records]
    if not cells:
        return None
    figure, panels = task_panels({cell.task for _, cell in cells}, xlabel="")
    styles = choose_styles(evidence.rows)
    seen = {}
    for task, axes in panels.items():
        task_cells = [(label, cell) for label, cell in cells if cell.task == task]
        texts = []
        for place, (label, cell) in enumerate(task_cells):
            style, scores = styles[label], [100 * score for score in cell.scores]
            axes.plot(place + np.linspace(-0.18, 0.18, len(scores)), scores, ms=5, **style.mark)
            axes.hlines(100 * cell.median, place - 0.3, place + 0.3, color=style.colour, lw=2)
            texts.append(f"{label} {100 * cell.median:.1f} ({min(scores):.1f} to {max(scores):.1f})")
        labels = [label for label, _ in task_cells]
        axes.set_xticks(range(len(labels)), labels, rotation=25, ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.6, len(labels) - 0.4)
        seen[task] = [f"median and range of {joined(texts)}"]
    caption = "The confirm score of every seed (marks) and their median (bar). Each panel has its own scale."
    return lay_out("seeds", "Scores of every seed", caption, sentences_by_task(seen), figure)


# What every setting of an exit costs in layers, and what it scores.


@dataclass(frozen=True)
class Curve:
    """A sweep over the mean layers run per example, rising; scores in points, the median over the seeds and range."""

    layers: np.ndarray  # (settings,), median over the seeds
    median: np.ndarray  # (settings,)
    lowest: np.ndarray  # (settings,)
    highest: np.ndarray  # (settings,)
    own: int | None  # place of the setting that the models were recorded with


def compute_curve(sweep: Sweep) -> Curve:
    """The curve of a sweep."""
    layers, scores = np.median(sweep.mean_layers, axis=0), 100 * sweep.scores
    order = np.argsort(layers, kind="stable")
    own = None if sweep.own is None else order.tolist().index(sweep.own)
    columns = (np.median(scores, axis=0), scores.min(axis=0), scores.max(axis=0))
    median, lowest, highest = (column[order] for column in columns)
    return Curve(layers[order], median, lowest, highest, own)


@matplotlib.rc_context(STYLE)
def layers_picture(evidence: Evidence) -> Picture | None:
    """Curves of all sweeps, with a mark at each method's own exit: on its curve where its setting was swept."""
    if not evidence.exits:
        return None
    curves = {place: [compute_curve(sweep) for sweep in exits.sweeps] for place, exits in evidence.exits.items()}
    own_exits = {place: _own_exit(curves[place], exits) for place, exits in evidence.exits.items()}
    figure, panels = task_panels({task for _, task in curves}, xlabel="mean layers run per example")
    styles = choose_styles(evidence.rows)
    ends: dict[str, list[End]] = {task: [] for task in panels}
    for (label, task), cell_curves in curves.items():
        axes, style = panels[task], styles[label]
        for curve in cell_curves:
            axes.fill_between(curve.layers, curve.lowest, curve.highest, color=style.colour, alpha=0.15, lw=0)
            axes.plot(curve.layers, curve.median, lw=1.3, **style.stroke)
            ends[task].append(End(label, style, float(curve.layers[-1]), float(curve.median[-1])))
        axes.plot(*own_exits[label, task], ms=7, zorder=4, **style.mark)
        if not cell_curves:
            ends[task].append(End(label, style, *own_exits[label, task]))
    share_x(panels.values())
    for task, axes in panels.items():
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        medians = [np.median(exits.scores) for (_, other), exits in evidence.exits.items() if other == task]
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 100 * float(min(medians)) - REACH))
    share_height(panels.values())
    for task, axes in panels.items():
        label_ends(axes, ends[task])
    caption = (
        "Median over the seeds at every setting; the band goes from the lowest seed to the highest. Marks: the setting "
        "that was trained for and recorded. A point of score is as high in all panels; "
        f"{REACH} points below the lowest mark they end. Whoever has a rule of its own, all layers or a sampled exit, "
        "has a mark beside the curves."
    )
    if missing := _without_predictions(evidence):
        caption += f" Without curves, because predictions are missing: {', '.join(missing)}."
    alt = sentences_by_task({task: _describe_curves(task, curves, own_exits) for task in panels})
    return lay_out("score-against-layers", "Score against layers run", caption, alt, figure)


def _without_predictions(evidence: Evidence) -> list[str]:
    """The cells that have no predictions of every seed, in words."""
    return [f"{label}/{task}" for (label, task), exits in evidence.exits.items() if exits.shares is None]


def _own_exit(curves: list[Curve], exits: Exits) -> tuple[float, float]:
    """Mean layers and score, in points, that the models were recorded with, median over the seeds."""
    for curve in curves:
        if curve.own is not None:
            return float(curve.layers[curve.own]), float(curve.median[curve.own])
    return float(np.median(exits.mean_layers)), 100 * float(np.median(exits.scores))


def _describe_curves(
    task: str, curves: dict[Place, list[Curve]], own_exits: dict[Place, tuple[float, float]]
) -> list[str]:
    at = "{:.1f} layers"
    task_curves = {label: curve for (label, other), several in curves.items() if other == task for curve in several}
    marked = {label: mark for (label, other), mark in own_exits.items() if other == task}
    texts = [describe_trend(label, curve.layers, curve.median, at=at) for label, curve in task_curves.items()]
    texts += [f"{label} is marked at {score:.1f}, {at.format(layers)}" for label, (layers, score) in marked.items()]
    if not task_curves:
        return texts
    lines = {label: (curve.layers, curve.median) for label, curve in task_curves.items()}
    best = max(lines, key=lambda label: marked[label][1])
    return texts + [compare_lines(label, lines[label], best, lines[best], at=at) for label in lines if label != best]


# Where examples leave.


@matplotlib.rc_context(STYLE)
def exits_picture(evidence: Evidence) -> Picture | None:
    """Where examples leave, and where the posterior would let them: a block per task, in it a strip per method.

    As figure 6 of the PALBERT paper (arXiv:2204.03276).
    """
    early = {place: exits for place, exits in evidence.exits.items() if exits.is_early and exits.shares is not None}
    labels = [row.label for row in evidence.rows if any(label == row.label for label, _ in early)]
    tasks = [task for task in TASKS if any(other == task for _, other in early)]
    if not early:
        return None
    figure, strips = _strips(labels, tasks)
    styles = choose_styles(evidence.rows)
    for (label, task), exits in early.items():
        _draw_strip(strips[label, task], styles[label], label, exits)
    caption = "Bars: share of the dev examples of all seeds by the layer after which they leave."
    if any(exits.posterior is not None for exits in early.values()):
        caption += " Black line: the posterior's mean probability of leaving there."
    if missing := _without_predictions(evidence):
        caption += f" Left out, because predictions are missing: {', '.join(missing)}."
    seen = {
        task: [_describe_exits(label, early[label, task]) for label in labels if (label, task) in early]
        for task in tasks
    }
    return lay_out("exit-layers", "Where examples leave", caption, sentences_by_task(seen), figure)


def _strips(labels: list[str], tasks: list[str]) -> tuple[Figure, dict[Place, Axes]]:
    """A panel for every label and task, those of a task below each other, all with the same axes."""
    columns = min(PANELS_PER_LINE, len(tasks))
    lines = -(-len(tasks) // columns)
    size = (max(STRIP_INCHES[0] * columns + 0.3, 4.0), (STRIP_INCHES[1] * len(labels) + 0.25) * lines + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(lines * len(labels), columns, squeeze=False, sharex=True, sharey=True)
    strips = {}
    for number in range(lines * columns):
        line, column = divmod(number, columns)
        for i, label in enumerate(labels):
            axes = panels[line * len(labels) + i, column]
            if number < len(tasks):
                strips[label, tasks[number]] = axes
            else:
                axes.set_axis_off()
        if number < len(tasks):
            panels[line * len(labels), column].set_title(TASKS[tasks[number]].title, loc="left")
            strips[labels[-1], tasks[number]].tick_params(labelbottom=True)
    figure.supxlabel("layer after which an example leaves", fontsize=9)
    figure.supylabel("dev examples, %", fontsize=9)
    return figure, strips


def _draw_strip(axes: Axes, style: Style, label: str, exits: Exits) -> None:
    assert exits.shares is not None
    layers = np.arange(1, exits.num_layers + 1)
    axes.bar(layers, 100 * exits.shares.mean(axis=0), width=0.85, color=style.colour, alpha=0.75)
    if exits.posterior is not None:
        axes.plot(layers, 100 * exits.posterior.mean(axis=0), "k.-", lw=0.9, ms=3)
    axes.set_xlim(0.4, exits.num_layers + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.annotate(label, (0.02, 0.97), xycoords="axes fraction", va="top", color=style.colour, fontsize=7.5)


def _describe_exits(label: str, exits: Exits) -> str:
    assert exits.shares is not None
    shares = 100 * exits.shares.mean(axis=0)
    fullest = int(shares.argmax())
    text = f"{label} lets {shares[fullest]:.0f} % leave after layer {fullest + 1}, more than after any other"
    if fullest + 1 < exits.num_layers:
        text += f", and {shares[-1]:.0f} % run all {exits.num_layers}"
    if exits.posterior is None:
        return text
    mass = 100 * exits.posterior.mean(axis=0)
    heaviest = int(mass.argmax())
    return f"{text}; its posterior is heaviest at layer {heaviest + 1}, with {mass[heaviest]:.0f} %"


# Whether exits are as sure as they should be.


@matplotlib.rc_context(STYLE)
def calibration_picture(evidence: Evidence) -> Picture | None:
    """How probable a model calls its answers at each exit, against how often they are right.

    Raises:
        ValueError: a predictions file is broken.
    """
    shown = {(label, cell.task): layers for label, cell in evidence.cells if (layers := _calibrated_exits(cell))}
    if not shown:
        return None
    figure, panels = task_panels(
        {task for _, task in shown},
        xlabel="mean probability of the answers that leave at a layer, %",
        ylabel="of them right, %",
    )
    styles = choose_styles(evidence.rows)
    ends: dict[str, list[End]] = {task: [] for task in panels}
    seen: dict[str, list[str]] = {task: [] for task in panels}
    for (label, task), layers in shown.items():
        style = styles[label]
        claimed, true = 100 * np.array([(each.confidence, each.share) for each in layers]).T
        panels[task].plot(claimed, true, lw=1.0, ms=4, marker=style.marker, **style.stroke)
        ends[task].append(End(label, style, float(claimed[-1]), float(true[-1])))
        worst = int(np.abs(claimed - true).argmax())
        seen[task].append(
            f"{label} is farthest off at layer {layers[worst].layer}, where it claims {claimed[worst]:.0f} % and "
            f"{true[worst]:.0f} % hold"
        )
    for task, axes in panels.items():
        axes.set_title(TASKS[task].title, loc="left")  # no score is shown
        low = min(*axes.get_xlim(), *axes.get_ylim())
        axes.axline((low, low), slope=1, color="0.6", lw=0.8, zorder=0)
        axes.set_xlim(right=102)
        axes.set_ylim(top=102)
        label_ends(axes, ends[task])
    caption = (
        f"One mark per layer at which at least {FEWEST_EXAMPLES} examples leave, all seeds together. On the grey "
        "line confidence is deserved, below it there is too much of it."
    )
    return lay_out("calibration", "What answers at exits claim", caption, sentences_by_task(seen), figure)


def _calibrated_exits(cell: Cell) -> list[LayerCalibration]:
    """The layers that enough examples leave at; none without predictions of classes, or where all leave at one."""
    calibrated = calibration(predictions_of(cell))
    exits = calibrated.exits if calibrated and len(calibrated.exits) > 1 else ()
    return [layer for layer in exits if layer.examples >= FEWEST_EXAMPLES]


# What a search has found after how much compute.


@matplotlib.rc_context(STYLE)
def search_picture(evidence: Evidence) -> Picture | None:
    """The best search score so far, against the time of the search trials until then."""
    searched = {(label, cell.task): trials for label, cell in evidence.cells if (trials := _scored_search(cell))}
    if not searched:
        return None
    on_gpu = any(record.gpu_seconds > 0 for _, cell in evidence.cells for record in cell.arm_records)
    figure, panels = task_panels(
        {task for _, task in searched},
        xlabel=f"{'GPU' if on_gpu else 'wall-clock'} seconds of search trials",
        ylabel="best search score so far, points",
    )
    styles = choose_styles(evidence.rows)
    ends: dict[str, list[End]] = {task: [] for task in panels}
    seen: dict[str, list[str]] = {task: [] for task in panels}
    for (label, task), trials in searched.items():
        style = styles[label]
        seconds = [record.gpu_seconds if on_gpu else record.wall_seconds for record, _ in trials]
        costs, best = uncertainty.incumbents(seconds, [100 * score for _, score in trials])
        panels[task].step(costs, best, where="post", lw=1.3, **style.stroke)
        panels[task].plot(costs[-1:], best[-1:], ms=5, **style.mark)
        ends[task].append(End(label, style, costs[-1], best[-1]))
        seen[task].append(describe_trend(label, costs, best, at="{:.0f} s"))
    for task, axes in panels.items():
        label_ends(axes, ends[task])
    caption = "Trials in the order in which they ended. Each panel has its own scale: tasks differ in size."
    return lay_out("search-progress", "Best search score against compute", caption, sentences_by_task(seen), figure)


def _scored_search(cell: Cell) -> list[tuple[Record, float]]:
    """The search trials with their selection score, in the order in which they ended; without those that have none."""
    searched = sorted((record for record in cell.arm_records if record.phase == "search"), key=lambda one: one.ended)
    return [(record, record.selection_score) for record in searched if record.selection_score is not None]
