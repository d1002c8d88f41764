"""Tables, independent of file formats, and the selection of their rows and columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from trainables.configuration.spelling import resolve_name

GAP = "–"  # printed for a planned number that is missing
MARKS = {  # mark behind a number -> its meaning
    "↑": "significantly above the baseline",
    "↓": "significantly below the baseline",
    "°": "not shown to be better than a constant answer",
    "=": "reproduced",
    "≠": "not reproduced",
    "(≠)": "not by this configuration",
    "?": "undecided",
}


@dataclass(frozen=True)
class Entry:
    """The content of one cell of a table.

    An entry without numbers is a gap: its number was planned but is missing.
    """

    text: str = GAP  # the numbers as printed, without n and mark
    numbers: Mapping[str, str] = field(default_factory=dict)  # suffix of the CSV column -> number as printed
    values: Mapping[str, float | None] = field(default_factory=dict)  # like `numbers`, with all digits; only in JSON
    n: int | None = None  # number of seeds; None if the entry is not over seeds
    off_protocol: bool = False  # whether the seeds differ from the protocol's; if so, n is printed
    mark: str = ""  # printed behind the text: one of `MARKS`, or ° and an arrow
    href: str = ""  # address that the text links to in HTML
    bold: bool = False

    @classmethod
    def from_text(cls, text: str) -> Entry:
        """Make an entry from a text, which may be a formatted number."""
        return cls(text, {"": text})

    @property
    def seeds(self) -> str:
        """The number of seeds as ` (n=3)`; empty if the seeds are those of the protocol."""
        return f" (n={self.n})" if self.off_protocol else ""


@dataclass(frozen=True)
class NumberFormat:
    """Format of an entry's numbers, and the suffixes of the CSV columns."""

    pattern: str = "{}"
    suffixes: tuple[str, ...] = ("",)
    scale: float = 1
    decimals: int = 1
    signed: bool = False

    def text(self, value: float) -> str:
        """Format the number. A rounded zero gets no minus sign.

        In a signed style, a negative number that would round to zero gets one significant digit instead.
        """
        number = self.scale * value
        if self.signed and round(number, self.decimals) == 0 and round(number, 4) < 0:  # less is float noise
            return f"{number:.1g}"
        return f"{number:{'+' if self.signed else ''}z.{self.decimals}f}"

    def entry(self, *values: float | None, mark: str = "") -> Entry:
        """Format the numbers as an entry; None becomes `–`. If the first number is None, return a gap."""
        if values[0] is None:
            return Entry()
        texts = ["" if value is None else self.text(value) for value in values]
        numbers = dict(zip(self.suffixes, texts, strict=True))
        scaled = (None if value is None else self.scale * value for value in values)
        exact = dict(zip(self.suffixes, scaled, strict=True))
        return Entry(self.pattern.format(*(text or GAP for text in texts)), numbers, exact, mark=mark)

    def entry_over_seeds(self, values: Sequence[float]) -> Entry:
        """Format the median and the range of the values. If all values are equal, leave out the range.

        If there are no values, return a gap.
        """
        if not values:
            return Entry()
        low, high = min(values), max(values)
        entry = self.entry(float(np.median(values)), low, high)
        return entry if low < high else replace(entry, text=entry.numbers[""])


INTERVAL = ("_low", "_high")
WHOLE, TENTHS, HUNDREDTHS = NumberFormat(decimals=0), NumberFormat(), NumberFormat(decimals=2)
DEVIATION = NumberFormat("{} ± {}", ("", "_sd"))  # 72.1 ± 1.6
# Styles of scores in [-1, 1], which the papers print in points:
POINTS = NumberFormat(scale=100)  # 72.5
WHOLE_POINTS = NumberFormat(scale=100, decimals=0)  # 73
DIFFERENCE = NumberFormat(scale=100, signed=True)  # +1.5
HALF_WIDTH = NumberFormat("± {}", scale=100)
POINTS_RANGE = NumberFormat("{} ({} to {})", ("", *INTERVAL), scale=100)  # 72.5 (70.0 to 74.0)
ESTIMATE = NumberFormat("{} ({} to {})", ("", *INTERVAL), scale=100, signed=True)  # +1.5 (-0.2 to +3.1)


def format_digits(number: float) -> str:
    """Format a number with three significant digits, and from 100 on as a whole number."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


@dataclass(frozen=True)
class Line:
    """One line of a table. A column without a planned number has no entry."""

    label: str
    entries: Mapping[str, Entry]  # by column name
    source: Literal["ours", "mean", "published", "given"] = "ours"  # "mean": the line below ours; "given": by the user

    @classmethod
    def from_texts(cls, label: str, texts: Mapping[str, str]) -> Line:
        """Make a line of our own results; `texts` maps column names to texts."""
        return cls(label, {column: Entry.from_text(text) for column, text in texts.items()})

    @property
    def published(self) -> bool:
        """Whether the line's numbers are from a paper, or given by the user."""
        return self.source in ("published", "given")


@dataclass(frozen=True)
class Block:
    """Lines under a common heading."""

    title: str
    lines: list[Line]


@dataclass(frozen=True)
class Table:
    """A finished table."""

    name: str  # file name without its ending
    title: str
    columns: Mapping[str, str]  # name in the CSV header -> heading elsewhere
    lines: list[Line]
    caption: str
    heading: str = ""  # of the table's own lines
    blocks: list[Block] = field(default_factory=list)  # apart from the table's own lines
    notes: list[str] = field(default_factory=list)
    sidecar: dict[str, Any] = field(default_factory=dict)  # only in the JSON file: the origin of the numbers
    first_column: str = "method"
    unit: str = "points"  # default unit of the columns; columns with another unit follow: `points; speed_up: ratio`
    answer: str = ""  # the study's answer, as Markdown; only on the dev table
    is_prose: bool = False  # sentences instead of numbers

    @property
    def shown(self) -> dict[str, str]:
        """The columns that have an entry in our own lines, of all blocks. CSV and JSON files have all columns."""
        ours = [line.entries for block in self.parts for line in block.lines if not line.published]
        return {name: title for name, title in self.columns.items() if any(name in entries for entries in ours)}

    @property
    def parts(self) -> list[Block]:
        """All blocks of the table: a block of its own lines, then `blocks`."""
        return [Block(self.heading, self.lines), *self.blocks]


def text_table(name: str, *, lines: Iterable[tuple[str, Mapping[str, str]]], caption: str = "", **others: Any) -> Table:
    """Make a table of texts.

    Args:
        lines: for each line, its label and its texts by heading.
        others: further fields of `Table`.
    """
    made = [Line.from_texts(label, texts) for label, texts in lines]
    columns = {heading: heading for line in made for heading in line.entries}
    return Table(name=name, columns=columns, lines=made, caption=caption, unit="", **others)


def select(
    table: Table, *, rows: Sequence[str] = (), tasks: Sequence[str] = (), names: Mapping[str, str], bold_best: bool
) -> Table:
    """Reduce the table to these rows and columns, in this order. Notes and `blocks` are dropped.

    Args:
        rows: labels of our rows to keep, with the lines beneath them; empty keeps all.
        tasks: names of the columns to keep; empty keeps all.
        names: new names of rows, as label -> new name.
        bold_best: whether to print our highest number of each column in bold.

    Raises:
        ValueError: if a row or a column is not in the table, or if a new name is empty or not unique.
    """
    groups = {lines[0].label: lines for lines in _group_lines(table.lines)}
    named = {resolve_name(row, groups, what="row"): name for row, name in names.items()}
    kept = list(dict.fromkeys(resolve_name(row, groups, what="row") for row in rows)) or list(groups)
    printed = [named.get(row, row) for row in kept]
    if any(not name.strip() or printed.count(name) > 1 for name in printed):
        called = ", ".join(map(repr, printed))
        raise ValueError(f"with --names, the rows are called {called}; allowed: a different name for each row")
    columns = {name: table.columns[name] for name in [resolve_name(t, table.shown, what="column") for t in tasks]}
    lines = [_rename_line(line, label, named.get(label, label)) for label in kept for line in groups[label]]
    cut = replace(table, columns=columns or table.columns, lines=lines, blocks=[], notes=[])
    return _embolden_best(cut) if bold_best else cut


def _group_lines(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield each line of our own results with the lines beneath it (means and published numbers)."""
    starts = [number for number, line in enumerate(lines) if line.source == "ours"]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield list(lines[start:end])


def _rename_line(line: Line, label: str, name: str) -> Line:
    return replace(line, label=name + line.label.removeprefix(label)) if line.label.startswith(label) else line


def _embolden_best(table: Table) -> Table:
    ours = [line for line in table.lines if line.source == "ours"]
    best = {column: max(_read_number(line, column) for line in ours) for column in table.columns}

    def embolden(line: Line) -> Line:
        is_best = {name: _read_number(line, name) == best.get(name) != -math.inf for name in line.entries}
        return replace(line, entries={name: replace(entry, bold=is_best[name]) for name, entry in line.entries.items()})

    return replace(table, lines=[embolden(line) if line in ours else line for line in table.lines])


def _read_number(line: Line, column: str) -> float:
    """Read the first number of the line's entry in the column; return minus infinity if there is no number."""
    try:
        return float(line.entries[column].numbers[""])
    except (KeyError, ValueError):
        return -math.inf
