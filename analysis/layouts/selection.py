"""Choice, order and names of a table's rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from analysis.layouts.table import Line, Table
from trainables.spelling import resolve_name


def select(
    table: Table, *, rows: Sequence[str] = (), tasks: Sequence[str] = (), names: Mapping[str, str], bold_best: bool
) -> Table:
    """Reduce the table to these rows and columns, in this order; drop notes and blocks of published numbers.

    Args:
        rows: labels of rows; empty for all. A row keeps the lines beneath it: its mean and published numbers.
        tasks: names of columns; empty for all.
        names: new names of rows, as label -> new name.
        bold_best: print our highest number of each column in bold.

    Raises:
        ValueError: a row or a column is not in the table, or `names` has an empty or repeated new name.
    """
    groups = {lines[0].label: lines for lines in _groups(table.lines)}
    named = {resolve_name(row, groups, what="row"): name for row, name in names.items()}
    kept = [resolve_name(row, groups, what="row") for row in rows] or list(groups)
    printed = [named.get(row, row) for row in kept]
    if any(not name.strip() or printed.count(name) > 1 for name in printed):
        raise ValueError(f"--names makes rows {', '.join(map(repr, printed))}; allowed: a different name for each")
    columns = {name: table.columns[name] for name in [resolve_name(t, table.shown, what="column") for t in tasks]}
    lines = [_renamed(line, label, named.get(label, label)) for label in kept for line in groups[label]]
    cut = replace(table, columns=columns or table.columns, lines=lines, blocks=[], notes=[])
    return _with_bold(cut) if bold_best else cut


def _groups(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Group each of our rows with the lines beneath it."""
    starts = [number for number, line in enumerate(lines) if line.source == "ours"]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield list(lines[start:end])


def _renamed(line: Line, label: str, name: str) -> Line:
    return replace(line, label=name + line.label.removeprefix(label)) if line.label.startswith(label) else line


def _with_bold(table: Table) -> Table:
    ours = [line for line in table.lines if line.source == "ours"]
    numbers = {column: [_number(line, column) for line in ours] for column in table.columns}
    best = {column: max((one for one in found if one is not None), default=None) for column, found in numbers.items()}

    def embolden(line: Line) -> Line:
        is_best = {name: best.get(name) is not None and _number(line, name) == best[name] for name in line.entries}
        return replace(line, entries={name: replace(own, bold=is_best[name]) for name, own in line.entries.items()})

    return replace(table, lines=[embolden(line) if line in ours else line for line in table.lines])


def _number(line: Line, column: str) -> float | None:
    """Read the first number of the entry; None if the entry has no number."""
    entry = line.entries.get(column)
    with suppress(ValueError):
        return float(entry.numbers.get("", "")) if entry else None
    return None
