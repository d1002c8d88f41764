"""Where examples leave: figure 6 of the PALBERT paper (arXiv:2204.03276)."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.pictures import alt_texts
from analysis.pictures.panels import PANELS_PER_LINE, Style
from analysis.pictures.picture import STYLE, Picture, finished
from analysis.pictures.subject import Subject
from analysis.statistics.exits import Exits
from trainables.data.tasks import TASKS

PANEL_INCHES = (2.75, 0.8)


@matplotlib.rc_context(STYLE)
def exits_picture(subject: Subject) -> Picture | None:
    """Where examples leave, and where the posterior would let them: a block per task, in it a strip per method."""
    early = {place: exits for place, exits in subject.exits.items() if exits.is_early and exits.shares is not None}
    labels = [row.label for row in subject.rows if any(label == row.label for label, _ in early)]
    tasks = [task for task in TASKS if any(other == task for _, other in early)]
    if not early:
        return None
    figure, strips = _strips(labels, tasks)
    seen = {}
    for task in tasks:
        own = {label: early[label, task] for label in labels if (label, task) in early}
        for label, exits in own.items():
            _draw_strip(strips[label, task], subject.styles[label], label, exits)
        seen[TASKS[task].title] = "; ".join(_seen(label, exits) for label, exits in own.items())
    caption = "Bars: share of the dev examples of all seeds by the layer after which they leave."
    if any(exits.posterior is not None for exits in early.values()):
        caption += " Black line: the posterior's mean probability of leaving there."
    if missing := subject.without_predictions:
        caption += f" Left out, because predictions are missing: {', '.join(missing)}."
    return finished("exit-layers", "Where examples leave", caption, alt_texts.by_task(seen), figure)


def _strips(labels: list[str], tasks: list[str]) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """A panel for every label and task, those of a task below each other, all with the same axes."""
    columns = min(PANELS_PER_LINE, len(tasks))
    lines = -(-len(tasks) // columns)
    size = (max(PANEL_INCHES[0] * columns + 0.3, 4.0), (PANEL_INCHES[1] * len(labels) + 0.25) * lines + 0.4)
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


def _seen(label: str, exits: Exits) -> str:
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
