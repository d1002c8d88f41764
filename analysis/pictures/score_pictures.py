"""Scores of the confirmed models: over seeds, and against what their exits cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from analysis.pictures import alt_texts
from analysis.pictures.panels import End, Style, label_ends, share_height, share_x, task_panels
from analysis.pictures.picture import STYLE, Picture, finished
from analysis.pictures.subject import Subject
from analysis.statistics.exits import Exits, Sweep
from analysis.statistics.trade_off import TradeOff, trade_off
from study.facts.plain_words import joined
from trainables.data.tasks import TASKS

REACH = 10  # points below the lowest own exit of a task: what scores less is cut off
SPEED_UPS = (1, 1.5, 2, 3, 4, 6, 12)  # ticks of the layer ratio
BAND = "the band goes from the lowest seed to the highest"
CUT = f"A point of score is as high in all panels; {REACH} points below the lowest mark they end."


@dataclass(frozen=True)
class Curve:
    """A line over the settings of an exit, x rising; scores in points, the median over the seeds and their range."""

    x: np.ndarray  # (settings,)
    median: np.ndarray  # (settings,)
    lowest: np.ndarray  # (settings,)
    highest: np.ndarray  # (settings,)
    own: int | None  # place of the setting that the models were recorded with


@dataclass(frozen=True)
class Mark:
    """A cell's own exit, median over the seeds: on its curve where its setting was swept, else alone."""

    x: float
    score: float  # points


XOf = Callable[[Sweep, Exits], np.ndarray]


def layers_of(sweep: Sweep, exits: Exits) -> np.ndarray:
    """Mean layers run per example, median over the seeds: (settings,)."""
    return np.median(sweep.mean_layers, axis=0)


def ratios_of(sweep: Sweep, exits: Exits) -> np.ndarray:
    """Layer ratio, median over the seeds: (settings,)."""
    return np.median(exits.num_layers / sweep.mean_layers, axis=0)


def settings_of(sweep: Sweep, exits: Exits) -> np.ndarray:
    """The settings themselves."""
    return sweep.settings


def curve_of(sweep: Sweep, exits: Exits, x_of: XOf) -> Curve:
    """The curve of a sweep over x."""
    x, scores = x_of(sweep, exits), 100 * sweep.scores
    order = np.argsort(x, kind="stable")
    own = None if sweep.own is None else order.tolist().index(sweep.own)
    columns = (np.median(scores, axis=0), scores.min(axis=0), scores.max(axis=0))
    median, lowest, highest = (column[order] for column in columns)
    return Curve(x[order], median, lowest, highest, own)


@matplotlib.rc_context(STYLE)
def seeds_picture(subject: Subject) -> Picture | None:
    """How far the seeds lie apart: every confirm score, and the median, per task and method."""
    cells = [(label, cell) for label, cell in subject.cells if cell.records]
    if not cells:
        return None
    figure, panels = task_panels({cell.task for _, cell in cells}, xlabel="")
    seen: dict[str, list[str]] = {}
    for task, axes in panels.items():
        own = [(label, cell) for label, cell in cells if cell.task == task]
        for place, (label, cell) in enumerate(own):
            style, scores = subject.styles[label], [100 * score for score in cell.scores]
            axes.plot(place + np.linspace(-0.18, 0.18, len(scores)), scores, ms=5, **style.mark)
            axes.hlines(100 * cell.median, place - 0.3, place + 0.3, color=style.colour, lw=2)
            text = f"{label} {100 * cell.median:.1f} ({min(scores):.1f} to {max(scores):.1f})"
            seen.setdefault(TASKS[task].title, []).append(text)
        axes.set_xticks(range(len(own)), [label for label, _ in own], rotation=25, ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.6, len(own) - 0.4)
    caption = "The confirm score of every seed (marks) and their median (bar). Each panel has its own scale."
    alt = alt_texts.by_task({title: "median and range of " + joined(texts) for title, texts in seen.items()})
    return finished("seeds", "Scores of every seed", caption, alt, figure)


@matplotlib.rc_context(STYLE)
def layers_picture(subject: Subject) -> Picture | None:
    """What every setting of an exit costs in layers, and what it scores."""
    return _curves_picture(
        subject,
        "score-against-layers",
        "Score against layers run",
        x_of=layers_of,
        own_x=lambda exits: exits.mean_layers,
        xlabel="mean layers run per example",
        at="{:.1f} layers",
        finish=_draw_layers,
    )


@matplotlib.rc_context(STYLE)
def speed_up_picture(subject: Subject) -> Picture | None:
    """Score against speed-up, the q of one method beside the patience of another: figure 4 of arXiv:2204.03276."""
    picture = _curves_picture(
        subject,
        "score-against-speed-up",
        "Score against speed-up",
        x_of=ratios_of,
        own_x=lambda exits: exits.num_layers / exits.mean_layers,
        xlabel="speed-up, times: layers of the model / mean layers run",
        at="{:.2f}×",
        finish=_draw_ratios,
    )
    return picture if any(exits.sweeps for exits in subject.exits.values()) else None


@matplotlib.rc_context(STYLE)
def q_picture(subject: Subject) -> Picture | None:
    """Score against the q of Q-exit: figure 3 of arXiv:2204.03276."""
    return _curves_picture(
        subject,
        "score-against-q",
        "Score against q",
        x_of=settings_of,
        own_x=None,
        xlabel="q: leave at the first layer whose cumulative probability is above it",
        at="q {:.2f}",
        rule="threshold",
    )


@matplotlib.rc_context(STYLE)
def fronts_picture(subject: Subject) -> Picture | None:
    """Which method scores best at equal layers: the Pareto fronts of all methods."""
    trade_offs = {place: trade_off(exits) for place, exits in subject.exits.items()}
    if not any(exits.sweeps for exits in subject.exits.values()):
        return None
    figure, panels = task_panels({task for _, task in trade_offs}, xlabel="mean layers run per example")
    drawn = {place: _draw_front(panels[place[1]], subject.styles[place[0]], own) for place, own in trade_offs.items()}
    ends: dict[str, list[End]] = {task: [] for task in panels}
    for (label, task), (layers, scores) in drawn.items():
        if len(layers):
            ends[task].append(End(label, subject.styles[label], float(layers[-1]), float(scores[-1])))
    for axes in panels.values():
        _draw_layers(axes)
    _finish(subject, panels, ends)
    caption = (
        "Pareto fronts: settings that no other setting beats in score with as few layers. Thin: one seed's models; "
        f"thick: their median where all seeds' fronts reach; a mark: a method that always runs the same layers. {CUT}"
    )
    alt = alt_texts.by_task({TASKS[task].title: _fronts_seen(subject, task, drawn, trade_offs) for task in panels})
    return finished("fronts", "Best score at equal layers", caption, alt, figure)


def _curves_picture(
    subject: Subject,
    name: str,
    title: str,
    *,
    x_of: XOf,
    own_x: Callable[[Exits], np.ndarray] | None,
    xlabel: str,
    at: str,
    rule: str | None = None,
    finish: Callable[[Axes], object] = lambda axes: None,
) -> Picture | None:
    """Curves of all sweeps (or of one rule's), with a mark at each method's own exit.

    `own_x` gives the x of a cell's own exit by seed, for those that no sweep holds; None leaves them out.
    """
    curves = {
        place: [curve_of(sweep, exits, x_of) for sweep in exits.sweeps if rule in (None, sweep.rule)]
        for place, exits in subject.exits.items()
    }
    marks = {place: mark for place, exits in subject.exits.items() if (mark := _mark(curves[place], exits, own_x))}
    shown = [place for place in subject.exits if curves[place] or place in marks]
    if not shown:
        return None
    figure, panels = task_panels({task for _, task in shown}, xlabel=xlabel)
    ends: dict[str, list[End]] = {task: [] for task in panels}
    for label, task in shown:
        axes, style = panels[task], subject.styles[label]
        for curve in curves[label, task]:
            axes.fill_between(curve.x, curve.lowest, curve.highest, color=style.colour, alpha=0.15, lw=0)
            axes.plot(curve.x, curve.median, lw=1.3, **style.stroke)
            ends[task].append(End(label, style, float(curve.x[-1]), float(curve.median[-1])))
        if mark := marks.get((label, task)):
            axes.plot(mark.x, mark.score, ms=7, zorder=4, **style.mark)
            if not curves[label, task]:
                ends[task].append(End(label, style, mark.x, mark.score))
    for axes in panels.values():
        finish(axes)
    _finish(subject, panels, ends)
    caption = (
        f"Median over the seeds at every setting; {BAND}. Marks: the setting that was trained for and recorded. {CUT}"
    )
    if own_x is not None:
        caption += " Whoever has a rule of its own, all layers or a sampled exit, has a mark beside the curves."
    if missing := subject.without_predictions:
        caption += f" Without curves, because predictions are missing: {', '.join(missing)}."
    alt = alt_texts.by_task({TASKS[task].title: _curves_seen(task, curves, marks, at) for task in panels})
    return finished(name, title, caption, alt, figure)


def _mark(curves: list[Curve], exits: Exits, own_x: Callable[[Exits], np.ndarray] | None) -> Mark | None:
    for curve in curves:
        if curve.own is not None:
            return Mark(float(curve.x[curve.own]), float(curve.median[curve.own]))
    if own_x is None:
        return None
    return Mark(float(np.median(own_x(exits))), 100 * float(np.median(exits.scores)))


def _finish(subject: Subject, panels: dict[str, Axes], ends: dict[str, list[End]]) -> None:
    """Shared axes, and the rows' labels at the ends of their lines."""
    share_x(panels.values())
    for task, axes in panels.items():
        own = [np.median(exits.scores) for (_, other), exits in subject.exits.items() if other == task]
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 100 * float(min(own)) - REACH))
    share_height(panels.values())
    for task, axes in panels.items():
        label_ends(axes, ends[task])


def _draw_layers(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _draw_ratios(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(SPEED_UPS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))


def _draw_front(axes: Axes, style: Style, own: TradeOff) -> alt_texts.Line:
    """Draws the fronts of a cell; gives layers and score in points of their median."""
    for front in own.fronts:
        layers = [*front.mean_layers, front.most_layers]
        axes.plot(layers, 100 * np.array([*front.scores, front.scores[-1]]), lw=0.6, alpha=0.45, **style.stroke)
    low = max(front.mean_layers[0] for front in own.fronts)
    high = min(front.most_layers for front in own.fronts)
    if low > high:
        return [], []
    grid = np.linspace(low, high, 101) if high > low else np.array([low])
    medians = [100 * spread.median for layers in grid if (spread := own.score_at(layers))]
    axes.plot(grid, medians, lw=1.8, zorder=3, **style.stroke)
    if len(grid) == 1:
        scores = [100 * front.scores[0] for front in own.fronts]
        axes.vlines(low, min(scores), max(scores), color=style.colour, lw=0.8)
        axes.plot(grid, medians, ms=7, zorder=4, **style.mark)
    return grid, medians


def _curves_seen(
    task: str, curves: dict[tuple[str, str], list[Curve]], marks: dict[tuple[str, str], Mark], at: str
) -> str:
    own = {label: curve for (label, other), several in curves.items() if other == task for curve in several}
    own_marks = {label: mark for (label, other), mark in marks.items() if other == task}
    texts = [alt_texts.trend(label, curve.x, curve.median, at=at) for label, curve in own.items()]
    texts += [f"{label} is marked at {mark.score:.1f}, {at.format(mark.x)}" for label, mark in own_marks.items()]
    best = max(own, key=lambda label: own_marks[label].score if label in own_marks else -np.inf, default=None)
    texts += [
        alt_texts.beside(label, (curve.x, curve.median), best, (own[best].x, own[best].median), at=at)
        for label, curve in own.items()
        if best is not None and label != best
    ]
    return "; ".join(text for text in texts if text)


def _fronts_seen(
    subject: Subject,
    task: str,
    drawn: dict[tuple[str, str], alt_texts.Line],
    trade_offs: dict[tuple[str, str], TradeOff],
) -> str:
    """The score of each method at half, two thirds and all of the layers, then who lies above whom."""
    own = {label: line for (label, other), line in drawn.items() if other == task and len(line[0])}
    depth = max(exits.num_layers for (_, other), exits in subject.exits.items() if other == task)
    texts = []
    for layers in (depth / 2, 2 * depth / 3, depth):
        spreads = {label: trade_offs[label, task].score_at(layers) for label in own}
        scores = [f"{label} {100 * spread.median:.1f}" for label, spread in spreads.items() if spread]
        if scores:
            texts.append(f"at {layers:g} layers {joined(scores)}")
    several = {label: line for label, line in own.items() if len(line[0]) > 1}
    best = max(several, key=lambda label: float(np.mean(several[label][1])), default=None)
    texts += [
        alt_texts.beside(label, line, best, several[best], at="{:.1f} layers")
        for label, line in several.items()
        if best is not None and label != best
    ]
    return "; ".join(text for text in texts if text)
