"""Notes on searches and seeds: incomplete cells, unequal searches, shared starts, and dropped trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from analysis.layouts.table import POINTS
from analysis.statistics.searches import find_edges
from analysis.studies.cells import Cell, Row, find_repeats
from study.plans.settings import list_scopes
from study.terminal.text import CellInWords, counted, describe_shortfalls, joined
from trainables.data.tasks import TASKS


def seed_notes(rows: list[Row]) -> list[str]:
    """List the cells with missing seeds, surplus seeds or unfinished searches, each with the reason.

    Cells of one row with the same reason share a note.
    """
    return describe_shortfalls(
        [
            CellInWords(
                row=row.label,
                column=TASKS[cell.task].title,
                name=cell.name if row.label == row.method else f"{row.label}, {cell.name}",
                shortfall=cell.unfinished if cell.state == "complete" else cell.shortfall,
            )
            for row in rows
            for cell in row.cells.values()
        ]
    )


def dropped_notes(rows: Iterable[Row]) -> list[str]:
    """List the trials that the user dropped, each with the reason, and say which numbers keep them."""
    return [
        f"{record.phase} trial {record.trial} of {own.name} (seed {record.seed}) was dropped: {record.error}"
        + ("" if record.score is None else f"; means and tests keep its score, {POINTS.text(record.score)}")
        * (record in own.tested)
        for row in rows
        for cell in row.cells.values()
        for own in find_repeats(cell)
        for record in own.dropped
    ]


def first_search_notes(cells: Iterable[Cell], *, are_tabulated: bool) -> list[str]:
    """If searches were repeated, note which numbers are from the first search, and where those of all searches are.

    Args:
        are_tabulated: whether there is a table `search_repeats`.
    """
    counts = " or ".join(map(str, sorted({len(find_repeats(cell)) for cell in cells} - {1})))
    first = f'numbers are from the first of {counts} searches, unless a caption says "over all searches"'
    where = "; table search_repeats has the numbers of all searches" * are_tabulated
    return [f"{first}{where}"] * bool(counts)


def unequal_search_notes(rows: Sequence[Row]) -> list[str]:
    """List the ways in which the searches of the rows were unequal.

    Examples are different numbers of configurations, configurations from another study, and replaced winners.
    """
    tried = format_unequal_counts(rows, lambda cell: cell.tried if cell.records else None)
    former = [
        f"{row.label} on {TASKS[task].title} ({counted(len(scores), 'score')}, median "
        f"{POINTS.text(float(np.median(scores)))})"
        for row in rows
        for task, cell in row.cells.items()
        if (scores := cell.former_scores)
    ]
    notes = [f"rows tried different numbers of configurations on the same task: {tried}"] * bool(tried)
    replaced = f"the winner was replaced after its confirm scores were known: {', '.join(former)}"
    return [*notes, *first_from_notes(rows), *[replaced] * bool(former)]


def shared_start_notes(rows: Sequence[Row]) -> list[str]:
    """List the rows whose models of all seeds start from one trained model, with its method and the tasks."""
    shared: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        for task, cell in row.cells.items():
            if cell.arm.start_from and cell.records:
                method = cell.arm.start_from.partition("/")[0]
                # With a holdout, earlier versions chose it on dev, too, and the journal does not say which rows chose.
                chosen_on = " on dev" if cell.studies[0].protocol.selection == "dev" else ""
                shared.setdefault((row.label, method, chosen_on), []).append(TASKS[task].title)
    return [
        f"all seeds of {label} on {joined(titles)} start from one trained model of {method}, the best of its "
        f"seeds{chosen_on}, so intervals and tests leave out the chance that made this model"
        for (label, method, chosen_on), titles in shared.items()
    ]


def edge_notes(rows: Sequence[Row]) -> list[str]:
    """List the winners with a value at an end of its search range, with the option that widens the range."""
    edges = [
        f"{edge.field} {edge.value:.3g} of {row.label} on {TASKS[task].title} (wider: --search "
        f"{list_scopes(cell.arm.method)[0]}/{task}:{edge.field}={edge.wider})"
        for row in rows
        for task, cell in row.cells.items()
        for edge in find_edges(cell)
    ]
    head = "the search chose values in the first or last tenth of their ranges, so better ones may lie outside"
    return [f"{head}: {', '.join(edges)}"] * bool(edges)


def first_from_notes(rows: Sequence[Row]) -> list[str]:
    """List the searches that began with winners of another study.

    The budgets in our tables do not include the trials of the other study.
    """
    began: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for task, cell in row.cells.items():
            firsts = [
                first
                for study in cell.studies
                for first in study.plan.request.list_firsts(cell.name)
                if study.plan.arm(cell.name).tries_first(first.values)
            ]
            if others := dict.fromkeys(first.origin.rpartition(", ")[0] for first in firsts):
                began.setdefault((row.label, " and ".join(others)), []).append(TASKS[task].title)
    return [
        f"{label}'s search on {joined(titles)} began with winners of another study: {others}"
        for (label, others), titles in began.items()
    ]


def format_unequal_counts(rows: Sequence[Row], count: Callable[[Cell], int | None]) -> str:
    """Format the rows' counts for each task with unequal counts. Rows without a count are left out.

    If the counts are equal on every task, return an empty text.
    """
    tasks: dict[str, list[str]] = {}
    for task in dict.fromkeys(task for row in rows for task in row.cells):
        counts = {row.label: count(row.cells[task]) for row in rows if task in row.cells}
        known = {label: number for label, number in counts.items() if number is not None}
        if len(set(known.values())) > 1:
            words = ", ".join(f"{label} {number}" for label, number in known.items())
            tasks.setdefault(words, []).append(TASKS[task].title)
    return "; ".join(f"{words} on {joined(titles)}" for words, titles in tasks.items())
