"""What tuning itself spreads by: the scores of repeated searches, and whether methods differ with their searches."""

from __future__ import annotations

from collections.abc import Callable

from analysis.layouts.cell_facts import cell_names, gap_entry, mark_meanings
from analysis.layouts.evidence import PAPER_TASKS, Evidence, on_mini, sidecar, task_columns
from analysis.layouts.notes import origin_in_words, seed_notes
from analysis.layouts.table import Entry, Line, Table, number_entry
from analysis.statistics.search_repeats import RepeatedComparison, Repeats, compare_repeats
from analysis.studies.cells import Row
from analysis.studies.joined import repeats_of
from analysis.studies.protocol_words import seeds_in_words


def search_repeats_table(evidence: Evidence) -> Table | None:
    """Every search of the cells that were searched more than once; None where there is none of them."""
    studies, repeats = evidence.studies, evidence.repeats
    if not repeats:
        return None
    compared = compare_repeats(repeats, evidence.baseline)
    seeds = seeds_in_words(studies, evidence.rows)
    return Table(
        name="search_repeats",
        title=f"Repeated searches{on_mini(studies)}, {seeds} and as many others for each repeat",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[line for row in evidence.rows for line in _lines(row, evidence, compared)],
        marks=mark_meanings(evidence.baseline),
        caption=(
            "Points. First: the median of the first search, the number of the other tables. All: the mean over the "
            "searches of their medians. Spread: standard deviation of a search's mean score over the searches, seeds "
            "included; of search: what of it the seeds do not account for. Against the baseline: difference of the "
            "means with its 95 % interval, the searches as what varies (and dev examples; t-test with as few degrees "
            "of freedom as there are searches); ↑ and ↓ at the 5 % level, Holm over this table. They are about the "
            f"methods with their tuning. {origin_in_words(studies)}"
        ),
        notes=[*seed_notes(evidence.rows), *_incomplete(evidence.rows)],
        sidecar=sidecar(evidence, cell_names)
        | {
            "repeats": [{"row": row, "task": task} | own.to_json() for (row, task), own in repeats.items()],
            "comparisons": [comparison.to_json() for comparison in compared],
        },
    )


def _lines(row: Row, evidence: Evidence, compared: list[RepeatedComparison]) -> list[Line]:
    """The lines of a row; none where none of its cells was searched twice."""
    own = {task: found for task in row.cells if (found := evidence.repeats.get((row.label, task)))}
    if not own:
        return []
    parts: dict[str, Callable[[Repeats], float | None]] = {
        "first": lambda found: found.medians[0],
        "all": lambda found: sum(found.medians) / len(found.medians),
        "spread": lambda found: found.deviation,
        "of search": lambda found: found.search_deviation,
    }
    lines = [
        Line(f"{row.label}, {name}", {task: _points(value_of(found)) for task, found in own.items()})
        for name, value_of in parts.items()
    ]
    numbers = {task: number_entry(len(found.scores), 0) for task, found in own.items()}
    lines.append(Line(f"{row.label}, searches", numbers))
    tests = {found.task: _test_entry(found) for found in compared if found.row == row.label}
    return lines + [Line(f"{row.label} against {evidence.baseline}", tests)] * bool(tests)


def _points(value: float | None) -> Entry:
    return number_entry(None if value is None else 100 * value)


def _test_entry(found: RepeatedComparison) -> Entry:
    mark = ("↑" if found.test.difference > 0 else "↓") * found.holds
    return gap_entry(found.test.difference, found.test.low, found.test.high, mark=mark)


def _incomplete(rows: list[Row]) -> list[str]:
    """Repeats that are left out, since confirm trials of theirs are missing."""
    left_out = [
        repeat.describe()
        for row in rows
        for cell in row.cells.values()
        for repeat in repeats_of(cell)[1:]
        if repeat.state != "complete"
    ]
    return [f"left out: {'; '.join(left_out)}"] if left_out else []
