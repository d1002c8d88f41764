"""Building blocks of all pictures: texts, files, a style for every row, a panel for every task.

The same data always give byte-identical files.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType
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
# Of exit rules, so that no rule has a method's colour: Tol, "Colour schemes", 2021, scheme "muted".
RULE_COLOURS = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")
INK, QUIET, RULED, GROUND = "#000000", "#57606A", "#E1E4E8", "#FFFFFF"  # text, axes, grid and background
# The same colours on the dark page of a report.
DARK = dict(zip(COLOURS, ("#3D9BE0", "#F5803E", "#22B98A", "#DD94BF", "#85CDF5", "#F2B544", "#E3E6EA"), strict=True))
DARK |= dict(
    zip(
        RULE_COLOURS,
        ("#8A7DE8", "#A5DAF5", "#5BC4B3", "#3FA866", "#B9B955", "#E6D98C", "#E08A98", "#D0589A", "#C872BD"),
        strict=True,
    )
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
# Hash salt for the colours: ALBERT is black; PALBERT, PABEE, PonderNet, DeeBERT and BERxiT are far apart.
SALT = 52627

COLUMN_INCHES, PAGE_INCHES = 219 / 72, 455 / 72  # widths in an ACL paper, which then prints the text at 8 points
PANEL_HEIGHT = 2.1  # inches
PANELS_PER_LINE = 3
MARGIN = 0.04  # space above the highest possible score, as a share of the axis span
LEGEND_COLUMNS = (2, 3)  # as many as fit above a narrow and a wide picture
TIPS = "tips¦"  # prefix of a group's tooltips in an SVG; its last character separates them


# All drawing and writing happens within `matplotlib.rc_context(STYLE)`.
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": RULED,
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
    note: str = ""  # what the picture leaves out

    @property
    def is_wide(self) -> bool:
        """Whether the picture is as wide as a page, and not as one of two columns."""
        return bool(self.figure.get_figwidth() > COLUMN_INCHES)

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
    note: str = "",
) -> Picture:
    """Compute the layout of the panels once for all file formats, and attach tooltips to the visible points.

    `trends` lists the sentences of the alternative text, by task.
    """
    for axes in figure.axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        points = [tip for tip in tips if tip.axes is axes and left <= tip.x <= right and bottom <= tip.y <= top]
        if points:
            texts = TIPS + TIPS[-1].join(tip.text for tip in points)
            axes.scatter(
                [tip.x for tip in points], [tip.y for tip in points], s=64, color=INK, lw=0, alpha=0, gid=texts
            )
    engine = figure.get_layout_engine()
    assert engine is not None, name
    engine.execute(figure)
    figure.set_layout_engine(None)  # "none" would leave a placeholder engine, with which each file is drawn twice
    alt = " ".join(f"{TASKS[task].title}: {'; '.join(texts)}." for task, texts in trends.items() if texts)
    return Picture(name, title, caption, alt, figure, note)


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
    """Turn an SVG file into an element for an HTML page, with ids that are unique on the page.

    Coordinates are rounded to a hundredth of a point.
    """
    element = re.sub(r"\s*<metadata>.*?</metadata>", "", image.decode()[image.index(b"<svg ") :], flags=re.S)
    rounded = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), element)
    return re.sub(r'( id="|"#|\(#)', rf"\1{name}-", rounded)


def follow_page(element: str) -> str:
    """Replace the colours of an inline SVG by the variables of the report's style sheet, which has a dark mode."""
    variables = dict(name_colours()) | {GROUND: "ground", INK: "text", QUIET: "quiet", RULED: "line"}
    return re.sub(
        r"(?<=: )#[0-9a-f]{6}\b",
        lambda colour: f"var(--{variables[colour[0].upper()]})" if colour[0].upper() in variables else colour[0],
        element,
    )


def name_colours() -> Iterator[tuple[str, str]]:
    """Yield each colour of methods and exit rules, with the name of its variable in the report's style sheet."""
    for letter, colours in (("m", COLOURS), ("r", RULE_COLOURS)):
        yield from ((colour, f"{letter}{place}") for place, colour in enumerate(colours))


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
    return Style(RULE_COLOURS[number % len(RULE_COLOURS)], "", LINES[number // len(RULE_COLOURS) % len(LINES)])


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


def add_legend(figure: Figure, styles: Mapping[str, Style], lines: Mapping[str, float] = MappingProxyType({})) -> None:
    """Add a legend of the rows, or of the exit rules, above the panels.

    `lines` are lines that every row has, such as a thin one, with their widths in points.
    """
    handles = [
        Line2D([], [], **style.stroke, marker=style.marker, ms=4.5, lw=1.1, label=label)
        for label, style in styles.items()
    ]
    handles += [Line2D([], [], color=QUIET, lw=width, label=label) for label, width in lines.items()]
    columns = min(LEGEND_COLUMNS[bool(figure.get_figwidth() > COLUMN_INCHES)], len(handles))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=1.6)
