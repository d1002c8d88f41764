"""What stands in a table, before any format prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GAP = "–"  # printed where a planned number is missing


@dataclass(frozen=True)
class Entry:
    """What stands in one cell; without numbers it is a gap: planned, and missing."""

    text: str = GAP  # the numbers as printed, without n and mark
    numbers: Mapping[str, str] = field(default_factory=dict)  # suffix of the CSV column -> number, as in the text
    n: int | None = None  # seeds behind it; None where the number is not over seeds
    off_protocol: bool = False  # its seeds are not the protocol's: n is printed
    mark: str = ""  # printed behind the text; `Table.marks` says what it means
    href: str = ""  # a page about it

    @property
    def seeds(self) -> str:
        """The number of seeds as printed behind the entry: nothing if they are the protocol's."""
        return f" (n={self.n})" if self.off_protocol else ""


def number_text(value: float, decimals: int = 1, *, signed: bool = False) -> str:
    """The number rounded; what rounds to zero has no minus."""
    return f"{value:{'+' if signed else ''}z.{decimals}f}"


def number_entry(value: float | None, decimals: int = 1, *, signed: bool = False) -> Entry:
    """One number: `72.5`."""
    if value is None:
        return Entry()
    text = number_text(value, decimals, signed=signed)
    return Entry(text, {"": text})


def deviation_entry(mean: float | None, deviation: float | None) -> Entry:
    """Mean and standard deviation: `72.1 ± 1.6`; the deviation of a single number is a gap."""
    if mean is None:
        return Entry()
    texts = number_text(mean), "" if deviation is None else number_text(deviation)
    return Entry(f"{texts[0]} ± {texts[1] or GAP}", {"": texts[0], "_sd": texts[1]})


def interval_entry(low: float, high: float) -> Entry:
    """Both ends of an interval: `55.0 to 65.0`."""
    texts = number_text(low), number_text(high)
    return Entry(" to ".join(texts), {"_low": texts[0], "_high": texts[1]})


@dataclass(frozen=True)
class Line:
    """One line of a table: entries by column, none where nothing was planned."""

    label: str
    entries: Mapping[str, Entry]
    published: bool = False


@dataclass(frozen=True)
class Block:
    """Lines apart from the table's own, under a heading that says what they are."""

    title: str
    lines: list[Line]


@dataclass(frozen=True)
class Table:
    """A finished table, and in `sidecar` every number in full with where it comes from."""

    name: str  # file name without its ending
    title: str
    columns: dict[str, str]  # name in the CSV header -> title elsewhere
    lines: list[Line]
    caption: str
    blocks: list[Block] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sidecar: dict[str, Any] = field(default_factory=dict)
    first_column: str = "method"
    marks: dict[str, str] = field(default_factory=dict)  # mark -> what it means
    unit: str = "points"  # of the columns that have none in their name

    @property
    def shown(self) -> dict[str, str]:
        """The columns that hold anything of ours; the CSV keeps the others too."""
        ours = [line.entries for line in self.lines if not line.published]
        return {name: title for name, title in self.columns.items() if any(name in entries for entries in ours)}

    @property
    def parts(self) -> list[Block]:
        """The table's own lines, under no heading, then the blocks."""
        return [Block("", self.lines), *self.blocks]
