"""Where the tables and pictures of a page stand, and which of them are folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from analysis.layouts.table import Table
from analysis.pictures.picture import Picture

LONGEST_OPEN = 12  # lines: a longer table is folded
ALWAYS_OPEN = ("dev", "over_tasks", "verdicts")

# Anchor, title, and the anchors of what stands there, in this order.
SECTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "scores",
        "Scores",
        (
            "table-dev",
            "table-over_tasks",
            "table-verdicts",
            "picture-seeds",
            "table-intervals",
            "table-spread",
            "table-ablation",
            "table-pabee",
            "table-electra",
        ),
    ),
    ("comparisons", "Comparisons", ("table-comparisons", "table-comparisons_of_others")),
    (
        "speed",
        "Speed",
        (
            "picture-score-against-layers",
            "table-equal_layers",
            "table-equal_score",
            "picture-exit-layers",
            "table-speed",
            "table-latency",
            "table-calibration",
            "picture-calibration",
        ),
    ),
    (
        "search",
        "Search",
        (
            "table-equal_compute",
            "table-optimism",
            "table-search_repeats",
            "picture-search-progress",
        ),
    ),
)


@dataclass(frozen=True)
class Part:
    """A table or a picture of the page."""

    anchor: str
    title: str
    html: Markup
    is_folded: bool

    @classmethod
    def of_table(cls, table: Table, html: Markup) -> Part:
        is_long = sum(len(block.lines) for block in table.parts) > LONGEST_OPEN and table.name not in ALWAYS_OPEN
        return cls(f"table-{table.name}", table.title, html, is_long)

    @classmethod
    def of_picture(cls, picture: Picture, html: Markup) -> Part:
        return cls(f"picture-{picture.name}", picture.title, html, is_folded=False)


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading."""

    anchor: str
    title: str
    parts: list[Part]


def sections(parts: Sequence[Part]) -> list[Section]:
    """The sections in their order; what none of them names stands in a last one, "Further". The forest is none's."""
    left = {part.anchor: part for part in parts if part.anchor != "picture-forest"}
    made = []
    for anchor, title, wanted in SECTIONS:
        own = [left.pop(name) for name in wanted if name in left]
        made.append(Section(anchor, title, own))
    return [*made, Section("further", "Further", list(left.values()))] if left else made
