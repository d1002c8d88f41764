"""A table as a file of each format. Nothing here computes a number."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from typing import Literal

from analysis.layouts.html_tables import html_page
from analysis.layouts.latex import latex_table
from analysis.layouts.table import Entry, Line, Table

Format = Literal["md", "csv", "tex", "html"]
FORMATS: tuple[Format, ...] = ("md", "csv", "tex", "html")


def render(table: Table, format: Format) -> str:
    """The table as text of this format."""
    return {"md": _markdown, "csv": _csv, "tex": latex_table, "html": html_page}[format](table)


def _markdown(table: Table) -> str:
    parts = [f"## {_escaped(table.title)}", _markdown_lines(table, table.lines)]
    for block in table.blocks:
        parts += [f"**{_escaped(block.title)}**", _markdown_lines(table, block.lines)]
    parts.append(_escaped(table.caption))
    if table.notes:
        parts.append("\n".join(f"- {_escaped(note)}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def _markdown_lines(table: Table, lines: list[Line]) -> str:
    rows = [[_escaped(text) for text in (table.first_column, *table.shown.values())]]
    rows += [
        [_markdown_label(line), *(_markdown_entry(line.entries.get(name)) for name in table.shown)] for line in lines
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths))] for row in rows
    ]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [aligned[0], rule, *aligned[1:]])


def _markdown_label(line: Line) -> str:
    return f"*{_escaped(line.label)}*" if line.published else _escaped(line.label)


def _markdown_entry(entry: Entry | None) -> str:
    if entry is None:
        return ""
    text = f"[{entry.text}](<{entry.href}>)" if entry.href else entry.text
    return _escaped_bars(text + entry.mark + (f" (n={entry.n})" if entry.off_protocol else ""))


def _escaped(text: str) -> str:
    """On one line, with every character standing for itself (CommonMark 0.31, 2.4 and GitHub's tables)."""
    return _escaped_bars(re.sub(r"([\\*`<\[])", r"\\\1", " ".join(text.split())))


def _escaped_bars(text: str) -> str:
    return text.replace("|", r"\|")


def _csv(table: Table) -> str:
    """One row per line, published ones too; in the columns of the table numbers, or nothing where one is missing.

    `source` is `ours` or `published`, `block` the heading that a line stands under, `unit` that of the columns without
    one in their name. `_sd` follows a mean, `_low` and `_high` are an interval, `_n` at the end is the number of seeds.
    """
    entries = [line.entries for _, line in table.all_lines]
    numbers = [(name, suffix) for name in table.columns for suffix in _suffixes(name, entries)]
    counted = [name for name in table.columns if any(name in line and line[name].n is not None for line in entries)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = [name + suffix for name, suffix in numbers] + [f"{name}_n" for name in counted]
    writer.writerow([table.first_column, "source", "block", "unit", *header])
    for block, line in table.all_lines:
        found = {name: line.entries.get(name, Entry()) for name in table.columns}
        cells = [found[name].numbers.get(suffix, "") for name, suffix in numbers] + [found[name].n for name in counted]
        writer.writerow([line.label, "published" if line.published else "ours", block, table.unit, *cells])
    return text.getvalue()


def _suffixes(name: str, entries: list[Mapping[str, Entry]]) -> list[str]:
    """The suffixes of a column's numbers, in the order of its entries; the column itself where it has no number."""
    return list(dict.fromkeys(suffix for line in entries if name in line for suffix in line[name].numbers)) or [""]
