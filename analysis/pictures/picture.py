"""Building blocks of all pictures: texts, files, a style for every row, a panel for every task.

The same data always give byte-identical files.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.transforms import Bbox

from analysis.studies.cells import Row
from trainables.data.metrics import metric_words
from trainables.data.tasks import TASKS

Place = TypeVar("Place")  # of a panel: a task, or a row and a task

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
LEGEND_COLUMNS = 4  # at most
LEGEND_LINE = 0.18  # inches
LETTER_POINTS, SIGN_POINTS = 4.4, 32  # widths in a legend: of an average letter, and of a sign with the space around it
MARGIN_PIXELS = 2  # around a panel that is rendered alone
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
class Key:
    """An entry of a legend: a line, a marker, or both."""

    label: str
    colour: str
    line: Any = "-"
    width: float = 1.1  # of the line, in points
    marker: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure with its title, caption and alternative text."""

    name: str  # file name without its ending
    title: str
    caption: str  # how to read the picture
    alt: str  # trends and numbers, for readers who cannot see the picture
    figure: Figure
    legend: tuple[Key, ...]
    strips: int  # axes that stand on one another in a panel
    note: str  # what the picture leaves out

    @property
    def panels(self) -> list[list[Axes]]:
        """The axes of each panel, in reading order."""
        panels: dict[tuple[int, int], list[Axes]] = {}
        for axes in (axes for axes in self.figure.axes if axes.axison):
            place = axes.get_subplotspec()
            assert place is not None
            panels.setdefault((place.rowspan.start // self.strips, place.colspan.start), []).append(axes)
        return [panels[place] for place in sorted(panels)]

    @property
    def columns(self) -> int:
        """The number of panels beside one another."""
        place = self.figure.axes[0].get_subplotspec()
        assert place is not None
        return int(place.get_gridspec().ncols)

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
    legend: tuple[Key, ...] = (),
    strips: int = 1,
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
    return Picture(name, title, caption, alt, figure, legend, strips, note)


def render_image(figure: Figure, ending: Literal["svg", "pdf"], *, part: Bbox | None = None) -> bytes:
    """Return the figure as bytes without dates and versions; an SVG includes the tooltips of its points.

    Args:
        part: the part of the figure to render, in inches; by default, the whole figure.
    """
    buffer = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=ending, metadata=METADATA[ending], bbox_inches=part)
    if ending == "pdf":
        return buffer.getvalue()
    return re.sub(rf'<g id="{TIPS}([^"]*)">(.*?)</g>', _title_points, buffer.getvalue().decode(), flags=re.S).encode()


def _title_points(group: re.Match[str]) -> str:
    """Add the tooltip of each point in an SVG group as a title element."""
    texts = iter(group[1].split(TIPS[-1]))
    return re.sub(r"(<use [^>]*)/>", lambda use: f"{use[1]}><title>{next(texts)}</title></use>", f"<g>{group[2]}</g>")


def render_panels(picture: Picture) -> list[str]:
    """Render each panel as an SVG element of its own, without legend and outer titles, for a page that arranges them.

    All elements have the same size, with the same margins around the axes.
    """
    figure, panels = picture.figure, picture.panels
    inner = [Bbox.union([axes.get_window_extent() for axes in panel]) for panel in panels]
    with matplotlib.rc_context(STYLE):
        outer = [Bbox.union([box for axes in panel if (box := axes.get_tightbbox())]) for panel in panels]
    beyond = np.array([around.get_points() - own.get_points() for around, own in zip(outer, inner, strict=True)])
    margins = np.array([beyond[:, 0].min(axis=0) - MARGIN_PIXELS, beyond[:, 1].max(axis=0) + MARGIN_PIXELS])
    others = [*figure.axes, *figure.legends, *figure.texts]
    elements = []
    for number, (panel, box) in enumerate(zip(panels, inner, strict=True)):
        for artist in others:
            artist.set_visible(artist in panel)
        part = Bbox((box.get_points() + margins) / figure.dpi)
        elements.append(inline_svg(render_image(figure, "svg", part=part), f"{picture.name}-{number}"))
    for artist in others:
        artist.set_visible(True)
    return elements


def draw_key(key: Key) -> str:
    """Draw the sign of a legend's entry as an SVG element."""
    dashes = [] if isinstance(key.line, str) else [f"{1.8 * key.width * length:g}" for length in key.line[1]]
    stroke = f"stroke: {key.colour.lower()}; stroke-width: {1.8 * key.width:g}"
    style = f"{stroke}; stroke-dasharray: {' '.join(dashes) or 'none'}"
    parts = [f'<path d="M0 6H28" style="{style}"/>']
    if key.marker:
        sign = MarkerStyle(key.marker)
        shapes = sign.get_path().transformed(sign.get_transform()).to_polygons()
        corners = " ".join(f"{14 + 9 * x:.1f},{6 - 9 * y:.1f}" for shape in shapes for x, y in np.asarray(shape))
        parts.append(f'<polygon points="{corners}" style="fill: {key.colour.lower()}"/>')
    return f'<svg class="key" viewBox="0 0 28 12" aria-hidden="true">{"".join(parts)}</svg>'


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
    the next free colour is chosen. If no colour is free, methods of one colour have different markers and lines.
    """
    places: dict[str, tuple[int, int]] = {}  # method -> places of its colour and marker
    for method in dict.fromkeys(row.method for row in rows):
        wanted = zlib.crc32(f"{SALT}{method}".encode()) % len(COLOURS)
        free = [(wanted + i) % len(COLOURS) for i in range(len(COLOURS))]
        taken = [colour for colour, _ in places.values()]
        colour = next((place for place in free if place not in taken), wanted)
        places[method] = colour, (colour + taken.count(colour)) % len(MARKERS)
    styles, seen = {}, Counter[int]()
    for row in rows:
        colour, marker = places[row.method]
        styles[row.label] = Style(COLOURS[colour], MARKERS[marker], LINES[seen[colour] % len(LINES)])
        seen[colour] += 1
    return styles


def choose_rule_style(number: int) -> Style:
    """Choose the style of exit rule `number`, counted from 0."""
    return Style(RULE_COLOURS[number % len(RULE_COLOURS)], "", LINES[number // len(RULE_COLOURS) % len(LINES)])


def make_task_panels(
    tasks: Iterable[str], *, xlabel: str, ylabel: str = "score, points", height: float = PANEL_HEIGHT
) -> tuple[Figure, dict[str, Axes]]:
    """Create an empty panel for each task, at most three in a row. The title names the task and the metric."""
    wanted = set(tasks)
    titles = {task: f"{TASKS[task].title}: {metric_words(TASKS[task])}" for task in TASKS if task in wanted}
    return make_panels(titles, xlabel=xlabel, ylabel=ylabel, height=height)


def make_panels(
    titles: Mapping[Place, str], *, xlabel: str, ylabel: str = "score, points", height: float = PANEL_HEIGHT
) -> tuple[Figure, dict[Place, Axes]]:
    """Create an empty panel for each title, at most three in a row; `height` is in inches."""
    lines = -(-len(titles) // PANELS_PER_LINE)
    columns = -(-len(titles) // lines)
    figure = Figure(figsize=(figure_width(columns), height * lines + 0.4), layout=ConstrainedLayoutEngine(w_pad=0.08))
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


def add_legend(
    figure: Figure, styles: Mapping[str, Style], lines: Mapping[str, float] = MappingProxyType({})
) -> tuple[Key, ...]:
    """Add a legend of the rows, or of the exit rules, above the panels; return its entries.

    The figure grows by the legend's height, so that the panels keep theirs.

    `lines` are lines that every row has, such as a thin one, with their widths in points.
    """
    keys = [Key(label, style.colour, style.line, marker=style.marker) for label, style in styles.items()]
    keys += [Key(label, QUIET, width=width) for label, width in lines.items()]
    room = 72 * figure.get_figwidth() / (SIGN_POINTS + LETTER_POINTS * max(len(key.label) for key in keys))
    columns = max(1, min(LEGEND_COLUMNS, len(keys), int(room)))
    handles = [
        Line2D([], [], color=key.colour, ls=key.line, marker=key.marker, ms=4.5, lw=key.width, label=key.label)
        for key in keys
    ]
    by_column = [handle for column in range(columns) for handle in handles[column::columns]]  # so that lines are read
    figure.legend(handles=by_column, loc="outside upper left", ncols=columns, handlelength=1.6)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * -(-len(keys) // columns))
    return tuple(keys)
