"""Counts and tables as people read them, in one form everywhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CellInWords:
    """A cell of a table and what is missing from it."""

    row: str
    column: str
    name: str  # of the cell, where it stands alone
    shortfall: str  # empty where nothing is missing


def shortfalls(cells: Sequence[CellInWords]) -> list[str]:
    """A line for all cells of a row that miss the same: 44 lines of a study that was broken off say no more than 6."""
    found: dict[tuple[str, str], list[CellInWords]] = {}
    for cell in cells:
        if cell.shortfall:
            found.setdefault((cell.row, cell.shortfall), []).append(cell)
    sizes = Counter(cell.row for cell in cells)
    return [f"{_place(row, alike, of=sizes[row])}: {shortfall}" for (row, shortfall), alike in found.items()]


def _place(row: str, cells: Sequence[CellInWords], *, of: int) -> str:
    if len(cells) == 1:
        return cells[0].name
    return f"{row} on {f'all {of} tasks' if len(cells) == of else joined([cell.column for cell in cells])}"


def joined(parts: Sequence[str]) -> str:
    """`RTE`, `RTE and CoLA`, `RTE, MRPC and CoLA`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def counted(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def for_screen(markdown: str) -> str:
    """A Markdown text without the backslashes that make characters stand for themselves."""
    return re.sub(r"\\([\\*`<\[|])", r"\1", markdown)
