"""Small multiples: one panel per task, the same units in all of them, and a look of its own for every row."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from analysis.studies.cells import Row
from trainables.data.tasks import TASKS

# Okabe and Ito, "Color universal design", 2008; without the yellow, which vanishes on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
SALT = 2664  # of the colours' hash: the first that tells the six methods of this house apart, the baseline in black

PANEL_INCHES = (2.75, 2.1)
PANELS_PER_LINE = 3  # a picture is then hardly shrunk on paper, and its text stays readable
MARGIN = 0.04  # of a span, above the highest possible score
HIGHEST_LABEL = 0.96  # in heights of a panel: above it stands the title
BESIDE = 0.05  # from a mark to the label beside it, in widths of a panel
LABEL_GAP = 0.085  # between two labels at the ends of lines, in heights of a panel

_METRICS = {
    "accuracy": "accuracy",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson",
    "spearman": "Spearman",
}


@dataclass(frozen=True)
class Style:
    """How a row is drawn in every picture: colour and marker tell the method, the line its study."""

    colour: str
    marker: str
    line: Any

    @property
    def stroke(self) -> dict[str, Any]:
        return {"color": self.colour, "ls": self.line}

    @property
    def mark(self) -> dict[str, Any]:
        """A marker without a line."""
        return {"color": self.colour, "marker": self.marker, "ls": "", "mec": "white", "mew": 0.6}


def styles_of(rows: Sequence[Row]) -> dict[str, Style]:
    """The look of every row, by label.

    A method has the same colour in every picture of every study: that of its name's hash, or the next free one where
    two methods of a picture fall on the same.
    """
    places: dict[str, int] = {}
    for method in dict.fromkeys(row.method for row in rows):
        wanted = zlib.crc32(f"{SALT}{method}".encode()) % len(COLOURS)
        free = [(wanted + i) % len(COLOURS) for i in range(len(COLOURS))]
        places[method] = next((place for place in free if place not in places.values()), wanted)
    styles, seen = {}, dict.fromkeys(places, 0)
    for row in rows:
        place, line = places[row.method], LINES[seen[row.method] % len(LINES)]
        styles[row.label] = Style(COLOURS[place], MARKERS[place], line)
        seen[row.method] += 1
    return styles


def metric_words(task: str) -> str:
    """What a task's score is, in words: "mean of accuracy and F1"."""
    names = list(dict.fromkeys(_METRICS[metric.split("_")[0]] for metric in TASKS[task].metrics))
    words = " and ".join(names)
    return f"mean of {words}" if len(names) > 1 else words


def panel_grid(count: int, *, inches: tuple[float, float] = PANEL_INCHES) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, at most three side by side."""
    lines = -(-count // PANELS_PER_LINE)
    columns = -(-count // lines)
    size = (max(inches[0] * columns + 0.3, 4.0), inches[1] * lines + 0.4)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08))
    panels = list(figure.subplots(lines, columns, squeeze=False).ravel())
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, panels[:count]


def task_panels(tasks: Iterable[str], *, xlabel: str, ylabel: str = "score, points") -> tuple[Figure, dict[str, Axes]]:
    """A panel per task, each titled with its metric."""
    ordered = [task for task in TASKS if task in set(tasks)]
    figure, panels = panel_grid(len(ordered))
    for axes, task in zip(panels, ordered, strict=True):
        axes.set_title(f"{TASKS[task].title}: {metric_words(task)}", loc="left")
    figure.supxlabel(xlabel, fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    return figure, dict(zip(ordered, panels, strict=True))


def share_x(panels: Iterable[Axes]) -> None:
    """Gives all panels the same horizontal axis."""
    panels = list(panels)
    limits = [axes.get_xlim() for axes in panels]
    for axes in panels:
        axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))


def share_height(panels: Iterable[Axes]) -> None:
    """Lets a point be as high in every panel: the same span, around what each panel shows and not far above 100."""
    panels = list(panels)
    limits = [axes.get_ylim() for axes in panels]
    span = max(high - low for low, high in limits)
    for axes, (low, high) in zip(panels, limits, strict=True):
        top = max(high, min((low + high + span) / 2, 100 + MARGIN * span))
        axes.set_ylim(top - span, top)


@dataclass(frozen=True)
class End:
    """Where a row's line ends, or its only mark lies, in the units of the panel."""

    label: str
    style: Style
    x: float
    y: float


def label_ends(axes: Axes, ends: list[End]) -> None:
    """Writes each label to the right of the panel, at the height of its end or as near as the others let it; beside the
    end where that lies in the left half, as far apart. To be called when the limits of the panel are final.
    """
    to_panel = axes.transData + axes.transAxes.inverted()
    places = {end: to_panel.transform((end.x, end.y)) for end in ends}
    rising = sorted(ends, key=lambda end: end.y)
    outside = [end for end in rising if places[end][0] > 0.5]
    inside = [end for end in rising if places[end][0] <= 0.5]
    for group in (outside, inside):
        heights = spread_apart([float(places[end][1]) for end in group], gap=LABEL_GAP)
        for end, height in zip(group, heights, strict=True):
            left = 1.02 if group is outside else float(places[end][0]) + BESIDE
            axes.annotate(end.label, (left, height), xycoords="axes fraction", va="center", **_text(end))


def _text(end: End) -> dict[str, Any]:
    return {"color": end.style.colour, "fontsize": 7.5, "annotation_clip": False}


def spread_apart(heights: Sequence[float], *, gap: float) -> list[float]:
    """The rising heights, in shares of a panel, moved as little as leaves `gap` between neighbours and none outside or
    in the title.

    A crowd is what must move together, its middle stays; two crowds that meet become one.
    """
    crowds: list[list[float]] = []
    for height in np.clip(heights, 0, HIGHEST_LABEL).tolist():
        crowds.append([height])
        while len(crowds) > 1 and _places(crowds[-2], gap)[-1] + gap > _places(crowds[-1], gap)[0]:
            last = crowds.pop()
            crowds[-1] += last
    places = [place for crowd in crowds for place in _places(crowd, gap)]
    steps = gap * np.arange(len(places))
    return np.clip(
        places, steps, HIGHEST_LABEL - steps[::-1]
    ).tolist()  # the i-th from either side is i gaps away from it


def _places(crowd: list[float], gap: float) -> list[float]:
    return [float(np.mean(crowd)) + gap * (i - (len(crowd) - 1) / 2) for i in range(len(crowd))]
