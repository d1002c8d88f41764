"""What every picture is made of: its words and files, a look for every row, panels for the tasks, alt texts.

The same data give the same bytes.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from analysis.studies.cells import Row
from study.facts.plain_words import joined
from trainables.data.metrics import metric_words
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
NOTEWORTHY = 0.5  # points: alt texts leave out a smaller turn of a line or distance between lines

Coordinates = Sequence[float] | np.ndarray
Line = tuple[Coordinates, Coordinates]  # x, rising, and y

# Drawing happens within `matplotlib.rc_context(STYLE)`, and so does writing.
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "svg.hashsalt": "study",  # the names of an SVG's parts do not change from run to run
}
METADATA = {"Date": None, "Creator": None}


@dataclass(frozen=True)
class Picture:
    """A figure and its words."""

    name: str  # of its files
    title: str
    caption: str  # how to read it, for whoever sees it
    alt: str  # what is seen in it, trends and numbers, for whoever does not
    figure: Figure

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return svg(self.figure).decode()


def lay_out(name: str, title: str, caption: str, alt: str, figure: Figure) -> Picture:
    """The picture, its panels laid out once and not again whenever it is written."""
    engine = figure.get_layout_engine()
    assert engine is not None, name
    engine.execute(figure)
    figure.set_layout_engine(None)  # "none" leaves a placeholder, for which a file is drawn twice
    return Picture(name, title, caption, alt, figure)


def svg(figure: Figure) -> bytes:
    """The figure as an SVG file, without dates and versions."""
    buffer = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata=METADATA)
    return buffer.getvalue()


@dataclass(frozen=True)
class Style:
    """The look of a row in every picture: colour and marker identify the method, the line its study."""

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


def choose_styles(rows: Sequence[Row]) -> dict[str, Style]:
    """The style of every row, by label.

    A method has the same colour in every picture of every study: that of its name's hash, or the next free one if two
    methods of a picture have the same.
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


def task_panels(tasks: Iterable[str], *, xlabel: str, ylabel: str = "score, points") -> tuple[Figure, dict[str, Axes]]:
    """A panel per task, each titled with its metric, at most three side by side."""
    ordered = [task for task in TASKS if task in set(tasks)]
    lines = -(-len(ordered) // PANELS_PER_LINE)
    columns = -(-len(ordered) // lines)
    size = (max(PANEL_INCHES[0] * columns + 0.3, 4.0), PANEL_INCHES[1] * lines + 0.4)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08))
    panels = list(figure.subplots(lines, columns, squeeze=False).ravel())
    for axes in panels[len(ordered) :]:
        axes.set_axis_off()
    for axes, task in zip(panels, ordered, strict=False):
        axes.set_title(f"{TASKS[task].title}: {metric_words(TASKS[task])}", loc="left")
    figure.supxlabel(xlabel, fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    return figure, dict(zip(ordered, panels, strict=False))


def share_x(panels: Iterable[Axes]) -> None:
    """Gives all panels the same horizontal axis."""
    panels = list(panels)
    limits = [axes.get_xlim() for axes in panels]
    for axes in panels:
        axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))


def share_height(panels: Iterable[Axes]) -> None:
    """Makes a point of score equally high in all panels: one span, around each panel's lines, not far above 100."""
    panels = list(panels)
    limits = [axes.get_ylim() for axes in panels]
    span = max(high - low for low, high in limits)
    for axes, (low, high) in zip(panels, limits, strict=True):
        top = max(high, min((low + high + span) / 2, 100 + MARGIN * span))
        axes.set_ylim(top - span, top)


@dataclass(frozen=True)
class End:
    """The end of a row's line, or its only mark, in the units of the panel."""

    label: str
    style: Style
    x: float
    y: float


def label_ends(axes: Axes, ends: list[End]) -> None:
    """Writes each label to the right of the panel, at the height of its end or as near as the other labels allow.

    Labels of ends in the left half stand beside their ends. Call this when the limits of the panel are final.
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
            text: dict[str, Any] = {"color": end.style.colour, "fontsize": 7.5, "annotation_clip": False}
            axes.annotate(end.label, (left, height), xycoords="axes fraction", va="center", **text)


def spread_apart(heights: Sequence[float], *, gap: float) -> list[float]:
    """The rising heights, in shares of a panel, moved as little as possible to leave `gap` between neighbours.

    None lies outside the panel or in its title. A crowd moves together around its mean; two crowds that meet become
    one.
    """
    crowds: list[list[float]] = []
    for height in np.clip(heights, 0, HIGHEST_LABEL).tolist():
        crowds.append([height])
        while len(crowds) > 1 and _places(crowds[-2], gap)[-1] + gap > _places(crowds[-1], gap)[0]:
            last = crowds.pop()
            crowds[-1] += last
    places = [place for crowd in crowds for place in _places(crowd, gap)]
    steps = gap * np.arange(len(places))  # the i-th label is at least i gaps away from either side
    return list(map(float, np.clip(places, steps, HIGHEST_LABEL - steps[::-1])))


def _places(crowd: list[float], gap: float) -> list[float]:
    return [float(np.mean(crowd)) + gap * (i - (len(crowd) - 1) / 2) for i in range(len(crowd))]


def describe_trend(label: str, x: Coordinates, y: Coordinates, *, at: str = "{:.1f}") -> str:
    """The course of a line: "palbert rises from 74.0 at 5.2 layers to 78.3 at 9.1 layers, then falls to ...".

    `at` formats a place on the x axis.
    """
    turns = _turns(y)
    first, *others = [f"{y[i]:.1f} at {at.format(x[i])}" for i in turns]
    if not others:
        return f"{label} has {first}"
    if len(turns) == 2 and abs(y[turns[1]] - y[turns[0]]) < NOTEWORTHY:
        low, high = f"{min(y):.1f}", f"{max(y):.1f}"
        level = f"at {low}" if low == high else f"between {low} and {high}"
        return f"{label} stays {level} from {at.format(x[0])} to {at.format(x[-1])}"
    verbs = ["rises" if y[after] > y[before] else "falls" for before, after in itertools.pairwise(turns)]
    rest = "".join(f", then {verb} to {place}" for verb, place in zip(verbs[1:], others[1:], strict=True))
    return f"{label} {verbs[0]} from {first} to {others[0]}{rest}"


def _turns(y: Coordinates) -> list[int]:
    """Places of the ends, and of the highest or lowest point between them if it stands out from both."""
    last = len(y) - 1
    if last == 0:
        return [0]
    top, bottom = int(np.argmax(y)), int(np.argmin(y))
    if y[top] - max(y[0], y[last]) >= NOTEWORTHY:
        return [0, top, last]
    if min(y[0], y[last]) - y[bottom] >= NOTEWORTHY:
        return [0, bottom, last]
    return [0, last]


def compare_lines(label: str, line: Line, other_label: str, other: Line, *, at: str = "{:.1f}") -> str:
    """The stretches on which a line lies above or below another: "pabee lies below palbert from 6.0 to 9.0".

    Empty if they share no stretch of the x axis.
    """
    low, high = max(line[0][0], other[0][0]), min(line[0][-1], other[0][-1])
    if low >= high:
        return ""
    grid = np.linspace(low, high, 101)
    difference = np.interp(grid, *line) - np.interp(grid, *other)
    signs = np.where(np.abs(difference) < NOTEWORTHY, 0, np.sign(difference)).astype(int)
    if not signs.any():
        return f"{label} lies within {NOTEWORTHY} of {other_label} from {at.format(low)} to {at.format(high)}"
    words = {1: "above", -1: "below"}
    parts: list[str] = []
    for sign, places in itertools.groupby(range(len(grid)), key=lambda place: int(signs[place])):
        stretch = grid[list(places)]
        if sign:
            ends = f"from {at.format(stretch[0])} to {at.format(stretch[-1])}"
            parts.append(f"{words[sign]} {'it' if parts else other_label} {ends}")
    return f"{label} lies {joined(parts)}"


def sentences_by_task(texts: Mapping[str, Sequence[str]]) -> str:
    """One sentence per task, from the texts of each."""
    return " ".join(
        f"{TASKS[task].title}: {'; '.join(filter(None, parts))}." for task, parts in texts.items() if any(parts)
    )
