"""A terminal table with one row per arm (a method on a task): trials done, best score, median."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table

from study.decisions.progress import ArmProgress, StudyProgress
from study.screen.words import points

UNDER_WAY = "under way"
COLUMNS = ("arm", "search", "stopped", "failed", UNDER_WAY, "best search", "confirm", "median")
_DISPENSABLE = ("stopped", UNDER_WAY, "best search", "failed", "median")  # dropped in this order
_BETWEEN = 2  # blanks between columns


def arms_table(
    progress: StudyProgress, *, width: int, arms: Sequence[ArmProgress] | None = None, under_way: str = UNDER_WAY
) -> Table:
    """Build a table of `arms`, by default all; columns that do not fit are dropped, but names are never truncated.

    Args:
        width: width of the terminal in characters.
        under_way: heading of the column that counts unfinished trials.
    """
    rows = [(arm.arm.name, *_cells(arm)) for arm in (progress.arms if arms is None else arms)]
    renamed = {UNDER_WAY: under_way}
    columns, dispensable = ([renamed.get(name, name) for name in names] for names in (COLUMNS, _DISPENSABLE))
    return build_table(columns, rows, width=width, dispensable=dispensable)


def build_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, dispensable: Sequence[str] = ()
) -> Table:
    """Build a table without borders; the first column is left-aligned, and the other columns right-aligned.

    Args:
        width: width of the terminal in characters.
        dispensable: headings of the columns to drop, in this order, until the table fits the width.
    """
    widths = {name: max(map(cell_len, (name, *cells))) for name, *cells in zip(columns, *rows, strict=True)}
    for name in dispensable:
        if sum(widths.values()) + _BETWEEN * (len(widths) - 1) > width:
            widths.pop(name, None)
    table = Table(box=None, pad_edge=False)
    for name in widths:
        table.add_column(name, justify="left" if name == columns[0] else "right", no_wrap=True, min_width=widths[name])
    for row in rows:
        table.add_row(*(cell for name, cell in zip(columns, row, strict=True) if name in widths))
    return table


def _cells(arm: ArmProgress) -> list[str]:
    searched = [trial.record for trial in arm.facts.search if trial.record]
    return [
        f"{len(searched)}/{arm.arm.samples}",
        _count(sum(1 for record in searched if record.status == "stopped")),
        _count(sum(1 for trial in arm.facts.trials if trial.record and trial.record.status == "failed")),
        _count(len(arm.facts.under_way)),
        points(_best_score(arm)),
        f"{len(arm.confirmed)}/{len(arm.arm.seeds)}",
        points(arm.median),
    ]


def _best_score(arm: ArmProgress) -> float | None:
    """Return the best score of the search trials, except failed and dropped ones; None if there is no score."""
    others = [t for t in arm.facts.search if not (t.record and t.record.status in ("failed", "dropped"))]
    return max((trial.best.row.selection_score for trial in others if trial.best), default=None)


def _count(number: int) -> str:
    return str(number or "")
