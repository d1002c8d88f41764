"""A table before any format prints it: a list of columns (name, heading, function of a row, style), rows, a caption."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

GAP = "–"  # printed for a planned number that is missing
Subject = TypeVar("Subject")  # what a line is about


@dataclass(frozen=True)
class Entry:
    """The content of one cell; without numbers it is a gap: planned, and missing."""

    text: str = GAP  # the numbers as printed, without n and mark
    numbers: Mapping[str, str] = field(default_factory=dict)  # suffix of the CSV column -> number, as in the text
    n: int | None = None  # seeds behind it; None if the number is not over seeds
    off_protocol: bool = False  # its seeds are not the protocol's: n is printed
    mark: str = ""  # printed behind the text; `Table.marks` says what it means
    href: str = ""  # a page about it
    bold: bool = False

    @classmethod
    def of_text(cls, text: str) -> Entry:
        """Make the entry of a text, or of a number printed alike everywhere."""
        return cls(text, {"": text})

    @property
    def seeds(self) -> str:
        """The number of seeds as printed behind the entry: nothing if they are the protocol's."""
        return f" (n={self.n})" if self.off_protocol else ""


@dataclass(frozen=True)
class Style:
    """How the numbers of an entry are printed, and the suffixes of their columns in the CSV."""

    pattern: str = "{}"
    suffixes: tuple[str, ...] = ("",)
    scale: float = 1
    decimals: int = 1
    signed: bool = False

    def text(self, value: float) -> str:
        """Round the number; what rounds to zero has no minus, but if signs count, a digit shows it."""
        number = self.scale * value
        if self.signed and round(number, self.decimals) == 0 and round(number, 4) < 0:  # less is noise of floats
            return f"{number:.1g}"
        return f"{number:{'+' if self.signed else ''}z.{self.decimals}f}"

    def entry(self, *values: float | None, mark: str = "") -> Entry:
        """Print the numbers as an entry; a gap if the first is missing, and a gap within the text for any other."""
        if values[0] is None:
            return Entry()
        texts = ["" if value is None else self.text(value) for value in values]
        numbers = dict(zip(self.suffixes, texts, strict=True))
        return Entry(self.pattern.format(*(text or GAP for text in texts)), numbers, mark=mark)

    def entry_in_range(self, value: float, low: float, high: float) -> Entry:
        """Print a number with its range, which is left out if it is a point."""
        entry = self.entry(value, low, high)
        return entry if low < high else replace(entry, text=entry.numbers[""])


INTERVAL = ("_low", "_high")
WHOLE, TENTHS, HUNDREDTHS = Style(decimals=0), Style(), Style(decimals=2)
DEVIATION = Style("{} ± {}", ("", "_sd"))  # 72.1 ± 1.6
# Of scores in [-1, 1], which the papers print in points:
POINTS = Style(scale=100)  # 72.5
DIFFERENCE = Style(scale=100, signed=True)  # +1.5
HALF_WIDTH = Style("± {}", scale=100)
POINTS_RANGE = Style("{} ({} to {})", ("", *INTERVAL), scale=100)  # 72.5 (70.0 to 74.0)
ESTIMATE = Style("{} ({} to {})", ("", *INTERVAL), scale=100, signed=True)  # +1.5 (-0.2 to +3.1)


@dataclass(frozen=True)
class Column(Generic[Subject]):
    """One column: its name in the CSV header, its heading elsewhere, and the entry that it has of a subject."""

    name: str
    heading: str
    entry: Callable[[Subject], Entry | None]  # None if nothing was planned


@dataclass(frozen=True)
class Line:
    """One line of a table: entries by column, none if nothing was planned."""

    label: str
    entries: Mapping[str, Entry]
    source: Literal["ours", "mean", "published"] = "ours"  # "mean": of ours, beneath the number in question

    @property
    def published(self) -> bool:
        """Whether it is a line of a paper."""
        return self.source == "published"


def fill(columns: Sequence[Column[Subject]], subjects: Iterable[tuple[str, Subject]]) -> list[Line]:
    """Make a line for each labelled subject, with what the columns have of it."""
    return [
        Line(label, {column.name: entry for column in columns if (entry := column.entry(subject)) is not None})
        for label, subject in subjects
    ]


def headings(columns: Iterable[Column[Any]]) -> dict[str, str]:
    """Name -> heading."""
    return {column.name: column.heading for column in columns}


@dataclass(frozen=True)
class Block:
    """Lines under a heading that says what they are."""

    title: str
    lines: list[Line]


@dataclass(frozen=True)
class Table:
    """A finished table, and in `sidecar` every number in full with its origin."""

    name: str  # file name without its ending
    title: str
    columns: Mapping[str, str]  # name in the CSV header -> heading elsewhere
    lines: list[Line]
    caption: str
    blocks: list[Block] = field(default_factory=list)  # apart from the table's own lines
    notes: list[str] = field(default_factory=list)
    sidecar: dict[str, Any] = field(default_factory=dict)
    first_column: str = "method"
    marks: Mapping[str, str] = field(default_factory=dict)  # mark -> what it means
    unit: str = "points"  # of the columns that have none in their name; those of another unit follow by name
    answer: str = ""  # of the dev table: what the study says, as Markdown
    is_prose: bool = False  # sentences instead of numbers

    @property
    def shown(self) -> dict[str, str]:
        """The columns that hold anything of ours; the CSV keeps the others too."""
        ours = [line.entries for line in self.lines if not line.published]
        return {name: title for name, title in self.columns.items() if any(name in entries for entries in ours)}

    @property
    def parts(self) -> list[Block]:
        """The table's own lines, under no heading, then the blocks."""
        return [Block("", self.lines), *self.blocks]


def text_table(
    name: str, *, title: str, first_column: str, lines: Iterable[tuple[str, Mapping[str, str]]], caption: str = ""
) -> Table:
    """Make a table of words for a page: for each labelled line its texts by heading."""
    texts = list(lines)
    columns = {heading: heading for _, line in texts for heading in line}
    made = [Line(label, {heading: Entry.of_text(text) for heading, text in line.items()}) for label, line in texts]
    return Table(
        name=name, title=title, columns=columns, lines=made, caption=caption, first_column=first_column, unit=""
    )
