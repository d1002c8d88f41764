"""The pictures of a study. Each picture answers one question, in small panels for the tasks.

- `time_picture` (in a module of its own): what does a method score for the time that it takes?
- `differences_picture`: which methods differ from the baseline, and at what cost?
- `seeds_picture`: how far apart are the seeds?
- `layers_picture`: what does each exit setting cost and score?
- `rules_picture`: how do other exit rules score on the same models?
- `exits_picture`: after which layers do examples exit?
- `search_picture`: how good was the best trial after how much compute?
- `losses_picture` (in a module of its own): how did the parts of the loss fall?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.layouts.evidence import Evidence
from analysis.layouts.table import ESTIMATE
from analysis.pictures.loss_picture import losses_picture
from analysis.pictures.picture import (
    INK,
    PANELS_PER_LINE,
    QUIET,
    STYLE,
    Picture,
    Style,
    Tip,
    add_legend,
    choose_rule_style,
    choose_styles,
    figure_width,
    lay_out,
    make_panels,
    make_task_panels,
    share_height,
    share_x,
)
from analysis.pictures.time_picture import time_picture
from analysis.statistics.costs import relative_layers
from analysis.statistics.exits import Exits, Sweep
from analysis.statistics.samples import Place
from analysis.studies.cells import Cell
from study.facts.record import Record
from study.terminal.text import joined
from trainables.data.tasks import TASKS

REACH = 10  # points shown below the lowest score at a trained-for exit setting; lower scores may be cut off
ROW_HEIGHT = 0.26  # inches; height of a row of marks in the picture of the seeds
STRIP_HEIGHT = 0.9  # inches; height of the strip for one method and task


def pictures(evidence: Evidence) -> list[Picture]:
    """Draw every picture for which the study has the necessary results.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    draws = (
        time_picture,
        differences_picture,
        seeds_picture,
        layers_picture,
        rules_picture,
        exits_picture,
        search_picture,
        losses_picture,
    )
    return [picture for draw in draws if (picture := draw(evidence)) is not None]


# Which methods differ from the baseline, by how much, and at what cost.


@matplotlib.rc_context(STYLE)
def differences_picture(evidence: Evidence) -> Picture | None:
    """Draw every method's difference from the baseline against its relative cost.

    The cost is time, or layers if undisturbed times of some models are missing. After repeated searches, the
    difference is the mean over all searches. The cost is still that of the first search. Return None if there is no
    baseline or no test.
    """
    baseline = evidence.baseline
    tests = {(one.row, one.task): one for one in evidence.tested if one.family == "baseline"}
    if baseline is None or not tests:
        return None
    costs, unit = _compare_costs(evidence, list(tests))
    figure, panels = make_task_panels(
        {task for _, task in tests}, xlabel=unit, ylabel=f"difference from {baseline}, points"
    )
    styles = choose_styles(evidence.rows)
    trends: dict[str, list[str]] = {task: [] for task in panels}
    tips: list[Tip] = []
    for axes in panels.values():
        axes.axhline(0, color=QUIET, lw=0.8, zorder=0)
        axes.axvline(1, color=QUIET, lw=0.8, zorder=0)
    for (label, task), compared in tests.items():
        if (label, task) not in costs:
            continue
        cost, low, high = costs[label, task]
        axes, style, test, is_marked = panels[task], styles[label], compared.test, bool(compared.arrow)
        axes.vlines(cost, 100 * test.low, 100 * test.high, style.colour, lw=1.1)
        axes.hlines(100 * test.difference, low, high, style.colour, lw=1.1)
        face = style.colour if is_marked else "white"
        axes.plot(cost, 100 * test.difference, marker=style.marker, ms=5, color=style.colour, mfc=face, ls="", zorder=3)
        estimate = ESTIMATE.entry(test.difference, test.low, test.high).text
        trends[task].append(f"{label} {estimate}{', marked' * is_marked} at {cost:.2f}")
        tips.append(Tip(axes, cost, 100 * test.difference, trends[task][-1]))
    for axes in panels.values():
        axes.margins(x=0.1)
    share_x(panels.values())
    legend = add_legend(figure, {label: styles[label] for label, _ in tests})
    remarks = (
        " Horizontal lines are 95 % intervals of the time."
        if "time" in unit
        else " Cost is in layers, because undisturbed times of some models are missing."
    )
    remarks += " Cost is that of the models from the first search." * bool(evidence.comparisons_of_methods)
    mean = "mean score over all searches" if evidence.comparisons_of_methods else "mean score"
    caption = (
        f"Each mark is the {mean} minus that of {baseline}, with its 95 % interval. Filled marks are significant at "
        f"the 5 % level.{remarks}"
    )
    return lay_out(
        "differences", f"Difference from {baseline} against relative cost", caption, trends, figure, tips, legend
    )


def _compare_costs(evidence: Evidence, places: Sequence[Place]) -> tuple[dict[Place, tuple[float, float, float]], str]:
    """Compute each cell's relative time with its interval, or its relative layers if a cell was not timed.

    Also return the name of the unit.
    """
    cells, newest = evidence.cells_by_place, evidence.trusted_times
    size = newest.batch_sizes[0] if newest else 1
    times: dict[Place, tuple[float, float, float]] = {}
    for place in places:
        reference = evidence.find_time_reference(place)
        if reference and (ratio := evidence.find_time_ratio(cells[place], reference, size)):
            times[place] = ratio.value, ratio.low, ratio.high
    if times and len(times) == len(places):
        references = " or ".join(evidence.time_references)
        return times, f"time per text in batches of {size}, relative to {references}"
    baseline = str(evidence.baseline)
    layers = {place: relative_layers(cells[place], cells[baseline, place[1]]) for place in places}
    return {place: (cost,) * 3 for place, cost in layers.items() if cost}, f"layers relative to {baseline}"


# How far apart the seeds are.


@matplotlib.rc_context(STYLE)
def seeds_picture(evidence: Evidence) -> Picture | None:
    """Draw the score of every seed, and the median over seeds; return None if there are no scores."""
    cells = [(label, cell) for label, cell in evidence.cells if cell.records]
    if not cells:
        return None
    most = max(Counter(cell.task for _, cell in cells).values())
    figure, panels = make_task_panels(
        {cell.task for _, cell in cells}, xlabel="score, points", ylabel="", height=0.6 + ROW_HEIGHT * most
    )
    styles = choose_styles(evidence.rows)
    trends, tips = {}, []
    for task, axes in panels.items():
        task_cells = [(label, cell) for label, cell in cells if cell.task == task]
        texts = []
        places = range(len(task_cells))[::-1]  # the first row is on top
        for place, (label, cell) in zip(places, task_cells, strict=True):
            style, scores = styles[label], [100 * score for score in cell.scores]
            axes.vlines(100 * cell.median, place - 0.38, place + 0.38, color=style.colour, lw=1.4, zorder=1)
            tips += _draw_runs(axes, style, label, cell, place)
            texts.append(f"{label} {100 * cell.median:.1f} ({min(scores):.1f} to {max(scores):.1f})")
        axes.set_yticks(places, [label for label, _ in task_cells])
        axes.set_ylim(-0.6, len(task_cells) - 0.4)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        trends[task] = [f"median and range of {joined(texts)}"]
    caption = (
        "Marks show the confirm score of every seed, and vertical bars show the median. Each panel has its own scale."
    )
    if any(record.status == "dropped" for _, cell in cells for record in cell.tested):
        caption += " Hollow marks are of dropped runs, which count for means but not for medians."
    return lay_out("seeds", "Scores of every seed", caption, trends, figure, tips)


def _draw_runs(axes: Axes, style: Style, label: str, cell: Cell, place: int) -> list[Tip]:
    """Draw the score of every final run around the height `place`, hollow if it was dropped; return the tooltips."""
    heights = place + np.linspace(-0.2, 0.2, len(cell.tested))
    tips: list[Tip] = []
    for status, look in (("completed", {}), ("dropped", {"mfc": "white", "mec": style.colour})):
        points = [
            (100 * record.score, height, record.seed)
            for record, height in zip(cell.tested, heights, strict=True)
            if record.status == status and record.score is not None
        ]
        if points:
            axes.plot([x for x, _, _ in points], [y for _, y, _ in points], ms=5, **(style.mark | look))
        ending = ", dropped" * (status == "dropped")
        tips += [Tip(axes, x, y, f"{label}, seed {seed}: {x:.1f}{ending}") for x, y, seed in points]
    return tips


# The cost in layers and the score of every exit setting.


@dataclass(frozen=True)
class Curve:
    """Mean layers and scores at each setting of a sweep. Scores are means and ranges over the seeds, in points."""

    names: tuple[str, ...]  # names of the settings: "q 0.5"
    layers: np.ndarray  # (settings,), mean over the seeds
    mean: np.ndarray  # (settings,)
    lowest: np.ndarray  # (settings,)
    highest: np.ndarray  # (settings,)

    @property
    def extremes(self) -> str:
        """Text with the lowest and the highest mean score, each with its mean layers."""
        low, high = int(self.mean.argmin()), int(self.mean.argmax())
        start = f"{self.mean[low]:.1f} at {self.layers[low]:.1f} layers"
        return f"from {start} to {self.mean[high]:.1f} at {self.layers[high]:.1f}"


def compute_curve(sweep: Sweep) -> Curve:
    """Compute the curve of a sweep, sorted by mean layers."""
    layers = np.mean(sweep.mean_layers, axis=0)
    order = np.argsort(layers, kind="stable")
    scores = 100 * sweep.scores[:, order]
    return Curve(
        names=tuple(f"{sweep.field} {setting:g}" for setting in sweep.settings[order]),
        layers=layers[order],
        mean=np.mean(scores, axis=0),
        lowest=scores.min(axis=0),
        highest=scores.max(axis=0),
    )


def _draw_curve(axes: Axes, style: Style, label: str, curve: Curve, *, opacity: float = 0.15) -> list[Tip]:
    """Draw the mean over the seeds as a line and the range as a band; return a tooltip for each setting."""
    axes.fill_between(curve.layers, curve.lowest, curve.highest, color=style.colour, alpha=opacity, lw=0)
    axes.plot(curve.layers, curve.mean, lw=1.3, **style.stroke)
    points = zip(curve.names, curve.layers, curve.mean, curve.lowest, curve.highest, strict=True)
    return [
        Tip(axes, layers, mean, f"{label}, {name}: {mean:.1f} ({low:.1f} to {high:.1f}) at {layers:.1f} layers")
        for name, layers, mean, low, high in points
    ]


def _limit_axes(axes: Axes, own_scores: Sequence[np.ndarray]) -> None:
    """Put ticks only at whole layers, and cut off scores far below the lowest mark, but no seed of a mark.

    Args:
        own_scores: the scores of the seeds at each mark.
    """
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    lowest_mark = min(100 * float(np.mean(scores)) for scores in own_scores)
    lowest_seed = min(100 * float(np.min(scores)) for scores in own_scores)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], min(lowest_mark - REACH, lowest_seed - 1)))


@matplotlib.rc_context(STYLE)
def layers_picture(evidence: Evidence) -> Picture | None:
    """Draw score against mean layers for all exit settings, and mark the setting with which each trial was run.

    Dropped final runs count, as in all means.
    """
    found = evidence.exits_with_dropped
    if not found:
        return None
    curves = {place: [compute_curve(sweep) for sweep in exits.sweeps] for place, exits in found.items()}
    marks = {
        place: (float(np.mean(exits.mean_layers)), 100 * float(np.mean(exits.scores))) for place, exits in found.items()
    }
    figure, panels = make_task_panels({task for _, task in curves}, xlabel="mean layers run per example")
    styles = choose_styles(evidence.rows)
    tips: list[Tip] = []
    for (label, task), cell_curves in curves.items():
        axes, style = panels[task], styles[label]
        for curve in cell_curves:
            tips += _draw_curve(axes, style, label, curve)
        if (label, task) in evidence.coins:
            run, scores = evidence.coins[label, task]
            axes.plot(run, 100 * np.mean(scores, axis=1), color=style.colour, lw=0.5)
        layers, score = marks[label, task]
        scores = 100 * found[label, task].scores
        axes.vlines(layers, scores.min(), scores.max(), style.colour, lw=1.1, zorder=3)
        axes.plot(layers, score, ms=6, zorder=4, **style.mark)
    share_x(panels.values())
    for task, axes in panels.items():
        _limit_axes(axes, [exits.scores for (_, other), exits in found.items() if other == task])
    share_height(panels.values())
    kinds = {"all exit settings": 1.3} if any(curves.values()) else {}
    kinds |= {"coin toss between two fixed layers": 0.5} if evidence.coins else {}
    legend = add_legend(figure, {label: styles[label] for label, _ in curves}, kinds)
    caption = (
        "Marks are the exit settings with which the trials ran; their vertical bars show the range over the seeds. "
        "Thick lines show the mean over the seeds at every exit setting, with the range as a band. Thin lines show "
        "the best coin toss between two fixed layers of the same models; exits help if they lie above it. Methods "
        "without a tunable exit have no line. All panels share one vertical scale. Scores more than "
        f"{REACH} points below the lowest mark of a panel may be cut off."
    )
    missing = _list_without_predictions(evidence)
    note = f"These have no curves, because predictions are missing: {', '.join(missing)}." if missing else ""
    trends: dict[str, list[str]] = {task: [] for task in panels}
    for (label, task), (layers, score) in marks.items():
        trends[task].append(f"{label} is marked at {score:.1f}, {layers:.1f} layers")
        trends[task] += [f"its means range {curve.extremes}" for curve in curves[label, task]]
    return lay_out("score-against-layers", "Score against layers run", caption, trends, figure, tips, legend, note=note)


@matplotlib.rc_context(STYLE)
def rules_picture(evidence: Evidence) -> Picture | None:
    """Draw a panel for each method and task, with a curve for each exit rule.

    Return None if no cell has several rules.
    """
    rules = {place: sweeps for place, sweeps in evidence.rules.items() if len(sweeps) > 1}
    places = [(label, task) for task in TASKS for label, other in rules if other == task]
    if not places:
        return None
    titles = {(label, task): f"{label}, {TASKS[task].title}" for label, task in places}
    figure, panels = make_panels(titles, xlabel="mean layers run per example")
    names = dict.fromkeys(_name_rule(sweep) for place in places for sweep in rules[place])
    styles = {name: choose_rule_style(number) for number, name in enumerate(names)}
    trends: dict[str, list[str]] = {task: [] for _, task in places}
    tips: list[Tip] = []
    for (label, task), axes in panels.items():
        for sweep in rules[label, task]:
            name, curve = _name_rule(sweep), compute_curve(sweep)
            # Pale, because most of the seven bands overlap.
            tips += _draw_curve(axes, styles[name], name, curve, opacity=0.03)
            trends[task].append(f"{label}, {name}: {curve.extremes}")
        _limit_axes(axes, [evidence.exits_with_dropped[label, task].scores])
    share_x(panels.values())
    legend = add_legend(figure, styles)
    caption = (
        "Each line shows the scores of the same trained models under one exit rule, as the mean over the seeds. "
        f"Bands show the range. Each panel has its own scale. Scores more than {REACH} points below the score of the "
        "models' own exit rule are cut off."
    )
    return lay_out("exit-rules", "Exit rules on the same models", caption, trends, figure, tips, legend)


def _name_rule(sweep: Sweep) -> str:
    return sweep.rule.replace("_", " ")


def _list_without_predictions(evidence: Evidence) -> list[str]:
    """List the cells in which at least one seed lacks predictions."""
    return [f"{label}/{task}" for (label, task), exits in evidence.exits_with_dropped.items() if exits.shares is None]


# The layers after which examples leave.


@matplotlib.rc_context(STYLE)
def exits_picture(evidence: Evidence) -> Picture | None:
    """Draw how many examples exit after each layer, and the mean posterior probability of exiting there.

    Each method has a strip per task, as in figure 6 of the PALBERT paper (arXiv:2204.03276). Return None if no method
    with stored predictions exits early.
    """
    found = evidence.exits_with_dropped
    early = {place: exits for place, exits in found.items() if exits.is_early and exits.shares is not None}
    labels = [row.label for row in evidence.rows if any(label == row.label for label, _ in early)]
    tasks = [task for task in TASKS if any(other == task for _, other in early)]
    if not early:
        return None
    figure, strips = _make_strips(labels, tasks)
    styles = choose_styles(evidence.rows)
    drawn = {place: exits for place, exits in found.items() if place in strips and exits.shares is not None}
    for (label, task), exits in drawn.items():
        _draw_strip(strips[label, task], styles[label], label, exits)
    figure.axes[0].set_xlim(0.4, max(exits.num_layers for exits in drawn.values()) + 0.6)  # of all strips
    caption = "Bars show the share of dev examples that exit after each layer, as the mean over the seeds."
    if any(exits.posterior is not None for exits in drawn.values()):
        caption += " The black line shows the mean posterior probability of exiting at each layer."
    missing = _list_without_predictions(evidence)
    note = f"These are left out, because predictions are missing: {', '.join(missing)}." if missing else ""
    trends = {
        task: [_describe_exits(label, drawn[label, task]) for label in labels if (label, task) in drawn]
        for task in tasks
    }
    return lay_out("exit-layers", "Where examples exit", caption, trends, figure, strips=len(labels), note=note)


def _make_strips(labels: list[str], tasks: list[str]) -> tuple[Figure, dict[Place, Axes]]:
    """Create a panel for each row and task, with the same axis limits. The panels of a task are stacked."""
    columns = min(PANELS_PER_LINE, len(tasks))
    lines = -(-len(tasks) // columns)
    height = (STRIP_HEIGHT * len(labels) + 0.25) * lines + 0.4
    figure = Figure(figsize=(figure_width(columns), height), layout="constrained")
    panels = figure.subplots(lines * len(labels), columns, squeeze=False, sharex=True, sharey=True)
    strips: dict[Place, Axes] = {}
    for number, task in enumerate(tasks):
        line, column = divmod(number, columns)
        stack = panels[line * len(labels) : (line + 1) * len(labels), column]
        stack[0].set_title(TASKS[task].title, loc="left")
        stack[-1].tick_params(labelbottom=True)
        for axes in stack:
            axes.tick_params(labelleft=True)
        strips |= {(label, task): axes for label, axes in zip(labels, stack, strict=True)}
    for axes in panels[-len(labels) :, column + 1 :].flat:  # the rest of the last line
        axes.set_axis_off()
    figure.supxlabel("layer after which an example exits", fontsize=8)
    figure.supylabel("dev examples, %", fontsize=8)
    return figure, strips


def _draw_strip(axes: Axes, style: Style, label: str, exits: Exits) -> None:
    assert exits.shares is not None
    layers = np.arange(1, exits.num_layers + 1)
    axes.bar(layers, 100 * exits.shares.mean(axis=0), width=0.85, color=style.colour, alpha=0.75)
    if exits.posterior is not None:
        axes.plot(layers, 100 * exits.posterior.mean(axis=0), ".-", color=INK, lw=0.9, ms=3)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set_title(label, loc="right", fontweight="normal")  # above the bars, which fill the strip


def _describe_exits(label: str, exits: Exits) -> str:
    assert exits.shares is not None
    shares = 100 * exits.shares.mean(axis=0)
    fullest = int(shares.argmax())
    text = f"{label} exits {shares[fullest]:.0f} % of examples after layer {fullest + 1}, the most of all layers"
    if fullest + 1 < exits.num_layers:
        text += f", and {shares[-1]:.0f} % run all {exits.num_layers} layers"
    if exits.posterior is None:
        return text
    mass = 100 * exits.posterior.mean(axis=0)
    heaviest = int(mass.argmax())
    return f"{text}; its posterior is heaviest at layer {heaviest + 1}, with {mass[heaviest]:.0f} %"


# The best score of a search against its compute.


@matplotlib.rc_context(STYLE)
def search_picture(evidence: Evidence) -> Picture | None:
    """Draw the best search score so far against the total time of the search trials.

    Return None if nothing was searched.
    """
    searched = {(label, cell.task): trials for label, cell in evidence.cells if (trials := _list_search_trials(cell))}
    if not searched:
        return None
    on_gpu = all(any(record.gpu_seconds > 0 for record, _ in trials) for trials in searched.values())
    figure, panels = make_task_panels(
        {task for _, task in searched},
        xlabel=f"{'GPU' if on_gpu else 'wall-clock'} seconds of search trials",
        ylabel="best search score so far, points",
    )
    styles = choose_styles(evidence.rows)
    trends: dict[str, list[str]] = {task: [] for task in panels}
    tips: list[Tip] = []
    for (label, task), trials in searched.items():
        axes, style = panels[task], styles[label]
        seconds = [record.gpu_seconds if on_gpu else record.wall_seconds for record, _ in trials]
        costs, best = np.cumsum(seconds), np.maximum.accumulate([100 * score for _, score in trials])
        first = int(np.isfinite(best).argmax())  # earlier trials failed
        costs, best, trials = costs[first:], best[first:], trials[first:]
        axes.step(costs, best, where="post", lw=1.3, **style.stroke)
        axes.plot(costs[-1:], best[-1:], ms=5, **style.mark)
        rises = np.flatnonzero(np.diff(best, prepend=-np.inf))  # trials better than all earlier ones
        tips += [Tip(axes, costs[i], best[i], f"{label}, trial {trials[i][0].trial}: {best[i]:.1f}") for i in rises]
        trends[task].append(f"{label} begins at {best[0]:.1f} and ends at {best[-1]:.1f} after {costs[-1]:.0f} s")
    legend = add_legend(figure, {label: styles[label] for label, _ in searched})
    caption = "The trials are in the order in which they ended. Each panel has its own scale: tasks differ in size."
    return lay_out("search-progress", "Best search score against compute", caption, trends, figure, tips, legend)


def _list_search_trials(cell: Cell) -> list[tuple[Record, float]]:
    """List the search trials in the order in which they ended, with their selection scores; skip dropped trials.

    A failed trial that ran again is in the list twice. A trial without a score has -inf. The list is empty if no trial
    has one.
    """
    counting = (record for record in cell.paid if record.phase == "search" and record.status != "dropped")
    searched = sorted(counting, key=lambda record: record.ended)
    scored = [(record, record.selection_score) for record in searched]
    if all(score is None for _, score in scored):
        return []
    return [(record, -np.inf if score is None else score) for record, score in scored]
