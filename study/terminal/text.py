"""Functions that format counts, times, lines and tables as text for users."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

# Parameters of a URI that hold a secret: names that contain one of _PARTS, or are one of _WHOLE.
_PARTS = r"pass|pwd|secret|token|credential|(?:access|api|account|shared)[_-]?key|signature"
_WHOLE = r"key|sig|pw|auth"
_NAME = rf"(?:[^=&;\s]*(?:{_PARTS})[^=&;\s]*|{_WHOLE})"
SECRET_PARAMETER = re.compile(rf"([?&;]{_NAME}=)[^&;\s'\"]+", re.IGNORECASE)
_USER = re.compile(r"(\w://[^/?#\s:@]*):[^\s'\"]*@")  # to the last "@": a password may contain one
_TOKEN = re.compile(r"(\bhttps?://)[^/?#\s:@]+@", re.IGNORECASE)  # a user without a password may be a token
# Commands, and text in backticks.
_TO_PASTE = re.compile(r"`[^`]*`|\S*python\S* -m [^;]*[^;,.)]|--continue (?:'[^']*'|\S)+")


@dataclass(frozen=True)
class CellInWords:
    """A table cell (a method on a task) and a description of its missing results."""

    row: str
    column: str
    name: str  # used if no other cell of the row lacks the same
    shortfall: str  # empty if nothing is missing


def describe_shortfalls(cells: Sequence[CellInWords]) -> list[str]:
    """Describe the results that cells lack. Cells of a row share one line if they lack the same results."""
    incomplete: dict[tuple[str, str], list[CellInWords]] = {}
    for cell in cells:
        if cell.shortfall:
            incomplete.setdefault((cell.row, cell.shortfall), []).append(cell)
    sizes = Counter(cell.row for cell in cells)
    return [f"{_name_cells(row, group, sizes[row])}: {shortfall}" for (row, shortfall), group in incomplete.items()]


def _name_cells(row: str, cells: Sequence[CellInWords], row_size: int) -> str:
    if len(cells) == 1:
        return cells[0].name
    every = "both tasks" if row_size == 2 else f"all {row_size} tasks"
    return f"{row} on {every if len(cells) == row_size else joined([cell.column for cell in cells])}"


def joined(parts: Sequence[str]) -> str:
    """Join names in a list: `RTE`, `RTE and CoLA`, `RTE, MRPC and CoLA`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def list_first(names: Sequence[str], most: int) -> str:
    """List up to `most` names and count the rest: `a, b, c and 4 more`."""
    return ", ".join(names[:most]) + f" and {len(names) - most} more" * (len(names) > most)


def counted(number: int, noun: str) -> str:
    """Format a count: `1 cell`, `2 cells`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def read_width(output: TextIO) -> int | None:
    """Return the terminal's width in columns; None if it is unknown or the output is not a terminal."""
    try:
        return os.get_terminal_size(output.fileno()).columns or None
    except (OSError, ValueError):
        return None


def wrap_line(line: str, width: int, *, hang: str = "  ") -> str:
    """Wrap a line between words; `hang` is the extra indent of the continuation lines.

    Commands are never broken, and neither is text in backticks.
    """
    whole = _TO_PASTE.sub(lambda quoted: quoted[0].replace(" ", "\0"), line)
    indent = line[: len(line) - len(line.lstrip())] + hang
    filled = textwrap.fill(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ")


def wrap_text(text: str, output: TextIO) -> str:
    """Wrap the lines of a text if the output is a terminal."""
    width = read_width(output)
    return text if width is None else "\n".join(wrap_line(line, width) for line in text.split("\n"))


def print_lines(lines: Iterable[str], output: TextIO) -> None:
    """Print and flush each line, wrapped if the output is a terminal."""
    for line in lines:
        print(wrap_text(line, output), file=output, flush=True)


def format_markdown(markdown: str, output: TextIO) -> str:
    """Prepare a Markdown text for an output.

    If the output is a terminal, remove Markdown escapes and wrap all lines except table rows.
    """
    if not output.isatty():
        return markdown
    text, width = re.sub(r"\\([\\*`<\[|])", r"\1", markdown), read_width(output)
    if width is None:
        return text
    hangs = [(line, "  " if line.startswith("- ") else "") for line in text.split("\n")]
    return "\n".join(line if line.startswith("|") else wrap_line(line, width, hang=hang) for line, hang in hangs)


def clock(seconds: float) -> str:
    """Format seconds as minutes or hours: 75 as `1:15`, 3675 as `1:01:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def to_second(time: str) -> str:
    """Remove the fraction of a second from an ISO 8601 time: `2026-11-24T02:09:53+00:00`."""
    return datetime.fromisoformat(time).isoformat(timespec="seconds")


def points(score: float | None) -> str:
    """Format a score in [-1, 1] as points: 0.725 becomes `72.5`, and None becomes an empty string."""
    return "" if score is None else f"{100 * score:.1f}"


def python() -> str:
    """Return the path of the Python interpreter for printed commands."""
    path = os.path.relpath(sys.executable)
    return sys.executable if path.startswith("..") else path


def masked(text: str) -> str:
    """Hide passwords, tokens and other secrets in the URIs of a text."""
    return SECRET_PARAMETER.sub(r"\1***", _TOKEN.sub(r"\1***@", _USER.sub(r"\1:***@", text)))
