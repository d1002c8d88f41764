"""Building blocks of all pictures: texts, files, a style for every row, a panel for every task.

The same data always give byte-identical files.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from analysis.studies.cells import Row
from trainables.data.metrics import metric_words
from trainables.data.tasks import TASKS

Key = TypeVar("Key")  # key of a panel: a task, or a row and a task

# Okabe and Ito, "Color universal design", 2008; without yellow, which is hard to see on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
SALT = 2664  # hash salt for the colours: the first that gives our six methods distinct colours and the baseline black

COLUMN_INCHES, PAGE_INCHES = 219 / 72, 455 / 72  # widths in an ACL paper, which then prints the text at 8 points
PANEL_HEIGHT = 2.1  # inches
PANELS_PER_LINE = 3
MARGIN = 0.04  # space above the highest possible score, as a share of the axis span
LEGEND_COLUMNS = 2  # as many as fit above the narrowest picture
TIPS = "tips¦"  # prefix of a group's tooltips in an SVG; its last character separates them


# All drawing and writing happens within `matplotlib.rc_context(STYLE)`.
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # keeps text as text: smaller, searchable files
    "svg.hashsalt": "study",  # keeps the ids in an SVG the same from run to run
    "pdf.fonttype": 42,  # TrueType; some publishers refuse the default
}
METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@dataclass(frozen=True)
class Picture:
    """A figure with its title, caption and alternative text."""

    name: str  # file name without its ending
    title: str
    caption: str  # how to read the picture
    alt: str  # trends and numbers, for readers who cannot see the picture
    figure: Figure

    def _repr_svg_(self) -> str:
        """Return the SVG that a notebook shows."""
        return inline_svg(render_image(self.figure, "svg"), self.name)


@dataclass(frozen=True)
class Tip:
    """Tooltip of a point: text that an SVG shows when the pointer is over the point."""

    axes: Axes
    x: float
    y: float
    text: str


def lay_out(
    name: str,
    title: str,
    caption: str,
    trends: Mapping[str, Sequence[str]],
    figure: Figure,
    tips: Sequence[Tip] = (),
) -> Picture:
    """Compute the layout of the panels once for all file formats, and attach tooltips to the visible points.

    `trends` lists the sentences of the alternative text, by task.
    """
    for axes in figure.axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        points = [tip for tip in tips if tip.axes is axes and left <= tip.x <= right and bottom <= tip.y <= top]
        if points:
            texts = TIPS + TIPS[-1].join(tip.text for tip in points)
            axes.scatter([tip.x for tip in points], [tip.y for tip in points], s=64, lw=0, alpha=0, gid=texts)
    engine = figure.get_layout_engine()
    assert engine is not None, name
    engine.execute(figure)
    figure.set_layout_engine(None)  # "none" would leave a placeholder engine, with which each file is drawn twice
    alt = " ".join(f"{TASKS[task].title}: {'; '.join(texts)}." for task, texts in trends.items() if texts)
    return Picture(name, title, caption, alt, figure)


def render_image(figure: Figure, ending: Literal["svg", "pdf"]) -> bytes:
    """Return the figure as bytes without dates and versions; an SVG includes the tooltips of its points."""
    buffer = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=ending, metadata=METADATA[ending])
    if ending == "pdf":
        return buffer.getvalue()
    return re.sub(rf'<g id="{TIPS}([^"]*)">(.*?)</g>', _title_points, buffer.getvalue().decode(), flags=re.S).encode()


def _title_points(group: re.Match[str]) -> str:
    """Add the tooltip of each point in an SVG group as a title element."""
    texts = iter(group[1].split(TIPS[-1]))
    return re.sub(r"(<use [^>]*)/>", lambda use: f"{use[1]}><title>{next(texts)}</title></use>", f"<g>{group[2]}</g>")


def inline_svg(image: bytes, name: str) -> str:
    """Turn an SVG file into an element for an HTML page, with ids that are unique on the page."""
    element = image.decode()[image.index(b"<svg ") :]
    return re.sub(r'( id="|"#|\(#)', rf"\1{name}-", element)


def figure_width(columns: int) -> float:
    """Return the width of a figure in inches. A figure with several columns of panels is as wide as the page."""
    return COLUMN_INCHES if columns == 1 else PAGE_INCHES


@dataclass(frozen=True)
class Style:
    """Style of a row in all pictures.

    Colour and marker identify the method; the line style tells rows of the same method apart.
    """

    colour: str
    marker: str
    line: Any

    @property
    def stroke(self) -> dict[str, Any]:
        """Matplotlib arguments for a line without markers."""
        return {"color": self.colour, "ls": self.line}

    @property
    def mark(self) -> dict[str, Any]:
        """Matplotlib arguments for a marker without a line."""
        return {"color": self.colour, "marker": self.marker, "ls": "", "mec": "white", "mew": 0.6}


def choose_styles(rows: Sequence[Row]) -> dict[str, Style]:
    """Choose a style for every row; return row label -> style.

    A method's colour is chosen by a hash of its name, so it is usually the same in every study. If the colour is taken,
    the next free colour is chosen.
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


def choose_rule_style(number: int) -> Style:
    """Choose the style of exit rule `number`, counted from 0."""
    return Style(COLOURS[number % len(COLOURS)], "", LINES[number // len(COLOURS) % len(LINES)])


def make_task_panels(
    tasks: Iterable[str], *, xlabel: str, ylabel: str = "score, points"
) -> tuple[Figure, dict[str, Axes]]:
    """Create an empty panel for each task, at most three in a row. The title names the task and the metric."""
    wanted = set(tasks)
    titles = {task: f"{TASKS[task].title}: {metric_words(TASKS[task])}" for task in TASKS if task in wanted}
    return make_panels(titles, xlabel=xlabel, ylabel=ylabel)


def make_panels(
    titles: Mapping[Key, str], *, xlabel: str, ylabel: str = "score, points"
) -> tuple[Figure, dict[Key, Axes]]:
    """Create an empty panel for each title, at most three in a row."""
    lines = -(-len(titles) // PANELS_PER_LINE)
    columns = -(-len(titles) // lines)
    figure = Figure(
        figsize=(figure_width(columns), PANEL_HEIGHT * lines + 0.4), layout=ConstrainedLayoutEngine(w_pad=0.08)
    )
    panels = list(figure.subplots(lines, columns, squeeze=False).ravel())
    for axes in panels[len(titles) :]:
        axes.set_axis_off()
    for axes, title in zip(panels, titles.values(), strict=False):
        axes.set_title(title, loc="left")
    figure.supxlabel(xlabel, fontsize=8)
    figure.supylabel(ylabel, fontsize=8)
    return figure, dict(zip(titles, panels, strict=False))


def share_x(panels: Collection[Axes]) -> None:
    """Give all panels the same limits on the x-axis."""
    lows, highs = zip(*(axes.get_xlim() for axes in panels), strict=True)
    for axes in panels:
        axes.set_xlim(min(lows), max(highs))


def share_height(panels: Collection[Axes]) -> None:
    """Give all y-axes the same length, and centre each axis on its data.

    No axis reaches far above 100 points.
    """
    limits = [axes.get_ylim() for axes in panels]
    span = max(high - low for low, high in limits)
    for axes, (low, high) in zip(panels, limits, strict=True):
        top = max(high, min((low + high + span) / 2, 100 + MARGIN * span))
        axes.set_ylim(top - span, top)


def add_legend(figure: Figure, styles: Mapping[str, Style]) -> None:
    """Add a legend of the rows, or of the exit rules, above the panels."""
    handles = [
        Line2D([], [], **style.stroke, marker=style.marker, ms=4.5, lw=1.1, label=label)
        for label, style in styles.items()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(LEGEND_COLUMNS, len(handles)), handlelength=1.6)
