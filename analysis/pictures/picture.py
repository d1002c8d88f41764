"""A picture with its words, and its files: the same data give the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
from matplotlib.figure import Figure

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


def finished(name: str, title: str, caption: str, alt: str, figure: Figure) -> Picture:
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
