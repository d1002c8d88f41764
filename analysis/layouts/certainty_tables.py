"""How sure the numbers are: intervals, verdicts on published numbers, optimism, where the spread comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analysis.layouts.beside_published import Beside
from analysis.layouts.cell_facts import (
    cell_entry,
    cell_names,
    gap_entry,
    interval_facts,
    median_interval,
    optimism_of,
    points_interval,
    range_entry,
)
from analysis.layouts.evidence import PAPER_TASKS, Evidence, on_mini, sidecar, task_columns
from analysis.layouts.notes import origin_in_words, seed_notes, verdict_notes
from analysis.layouts.paper_tables import pairs_with_published
from analysis.layouts.table import Entry, Line, Table, interval_entry, number_entry, number_text
from analysis.statistics.comparisons import by_task, macro_test, probability_of_improvement
from analysis.statistics.samples import variance_components
from analysis.statistics.searches import Gap
from analysis.statistics.verdicts import MARGIN, Word
from analysis.studies.cells import Row
from analysis.studies.protocol_words import seeds_in_words
from trainables.schema import to_plain

VERDICT_MARKS: dict[Word, str] = {"reproduced": "=", "not reproduced": "≠", "undecided": "?"}


def intervals_table(evidence: Evidence) -> Table:
    """How sure the dev table is: each median's range over seeds, and what other dev examples could have made of it."""
    studies, rows = evidence.studies, evidence.rows
    over_seeds = {(row.label, task): median_interval(cell) for row in rows for task, cell in row.cells.items()}
    over_examples = {place: sample.interval for place, sample in evidence.samples.items()}
    coverage = min((interval.coverage for interval in over_seeds.values() if interval), default=0.0)
    return Table(
        name="intervals",
        title=f"Intervals of the dev scores{on_mini(studies)}, {seeds_in_words(studies, evidence.rows)}",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[
            Line(f"{row.label}, {over}", {task: points_interval(found.get((row.label, task))) for task in row.cells})
            for row in rows
            for over, found in (("seeds", over_seeds), ("dev examples", over_examples))
        ],
        caption=(
            f"Points. Seeds: order statistics, which cover the median over all seeds with {100 * coverage:.4g} % or "
            "more. Dev examples: 95 % bootstrap interval of the mean score of these models. "
            f"{origin_in_words(studies)}"
        ),
        notes=seed_notes(rows),
        sidecar=sidecar(evidence, cell_names)
        | {
            "over_seeds": [interval_facts(place, interval) for place, interval in over_seeds.items()],
            "over_examples": [interval_facts(place, interval) for place, interval in over_examples.items()],
        },
    )


def verdicts_table(evidence: Evidence) -> Table | None:
    """Ours minus published for every published number that ours may be held against; None where there is none."""
    studies = evidence.studies
    pairs = pairs_with_published(evidence.rows)
    found = [(pair, verdict) for pair in pairs if (verdict := pair.verdict) is not None]
    if not pairs:
        return None
    differences: dict[tuple[str, str, str], dict[str, Entry]] = {}
    widths: dict[tuple[str, str, str], dict[str, Entry]] = {}
    for pair, verdict in found:
        place = (pair.row.label, pair.published.label, pair.published.paper)
        difference = replace(_difference_entry(verdict.difference), mark=VERDICT_MARKS[verdict.word])
        half_width = number_text(50 * (verdict.high - verdict.low))
        differences.setdefault(place, {})[pair.cell.task] = cell_entry(pair.cell, difference)
        widths.setdefault(place, {})[pair.cell.task] = Entry(f"± {half_width}", {"": half_width})
    lines = [
        line
        for (row, label, paper), entries in differences.items()
        for line in (
            Line(f"{row} - {label} ({paper.removeprefix('PALBERT ')})", entries),
            Line("± at 95 %", widths[row, label, paper]),
        )
    ]
    return Table(
        name="verdicts",
        title="Ours minus published",
        columns=task_columns(studies, PAPER_TASKS),
        lines=lines,
        marks={mark: f"{word}" for word, mark in VERDICT_MARKS.items()},
        caption=(
            "Points; beneath each line the half width of the 95 % interval, which knows the spread over seeds of both "
            "numbers: where the published one's is not printed, ours stands in. =: the interval lies within "
            f"{100 * MARGIN:g} point; ≠: it excludes no difference, and the difference is larger than that; ?: "
            "undecided. No verdict on a number that does not say of how many seeds it is the median or mean. "
            f"{origin_in_words(studies)}"
        ),
        notes=verdict_notes(pairs),
        sidecar=sidecar(evidence, cell_names) | {"verdicts": [_verdict_facts(pair) for pair in pairs]},
    )


def optimism_table(evidence: Evidence) -> Table:
    """How much better the best search trial looked than its configuration is on fresh seeds."""
    studies, rows = evidence.studies, evidence.rows
    covered = [found.of_search.coverage for _, cell in evidence.cells if (found := optimism_of(cell))]
    least = min(covered, default=0.0)
    coverage = f"{100 * least:.4g} % or more" if least else "nothing: there are too few seeds"
    parts = {"search": "of_search"}
    if studies[0].protocol.selection != "dev":
        parts["slice"] = "of_slice"
    return Table(
        name="optimism",
        title=f"Optimism of the search{on_mini(studies)}",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[line for row in rows for part, name in parts.items() for line in _optimism_lines(row, part, name)],
        caption=(
            f"Points, with the range of order statistics that covers the median over all seeds with {coverage}. "
            "Search: the best search trial's selection score minus the median of the confirm trials' own selection "
            "scores, on one and the same split. Slice, where another split selects than the one reported: the confirm "
            f"trials' selection score minus their dev score. {origin_in_words(studies)}"
        ),
        notes=seed_notes(rows),
        sidecar=sidecar(
            evidence, lambda cell: cell_names(cell) | {"optimism": (found := optimism_of(cell)) and to_plain(found)}
        ),
    )


def spread_table(evidence: Evidence) -> Table | None:
    """Where the spread of a score comes from: seed, dev examples, search; None without stored predictions."""
    studies, rows = evidence.studies, evidence.rows
    found = {place: variance_components(sample) for place, sample in evidence.samples.items()}
    if not found:
        return None
    names = {"seed": "seed", "dev examples": "dev_examples", "search": "search"}
    return Table(
        name="spread",
        title=f"Where the spread comes from{on_mini(studies)}",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[
            Line(
                f"{row.label}, {source}",
                {task: _points_entry(getattr(found.get((row.label, task)), name, None)) for task in row.cells},
            )
            for row in rows
            for source, name in names.items()
        ],
        caption=(
            "Points: standard deviation of one model's score, had one thing alone been different: the seed; the dev "
            "examples, as many of the same kind; the configuration, after another search (a gap where the search has "
            "too few trials to tell). The parts overlap: they do not add up. "
            f"{origin_in_words(studies)}"
        ),
        notes=seed_notes(rows),
        sidecar=sidecar(evidence, cell_names)
        | {"spread": [{"row": row, "task": task} | to_plain(own) for (row, task), own in found.items()]},
    )


def over_tasks_table(evidence: Evidence) -> Table | None:
    """Each row against the baseline over all tasks that both have; None without a baseline or predictions."""
    studies, rows, baseline = evidence.studies, evidence.rows, evidence.baseline
    other = next((row for row in rows if row.label == baseline), None)
    lines, facts = [], []
    for row in rows:
        tests = by_task(evidence.comparisons, row.label, baseline) if baseline else {}
        if other is None or row is other or not tests:
            continue
        mean = macro_test(tests)
        improvement = probability_of_improvement(_scores(row, tests), _scores(other, tests))
        share, low, high = (100 * value for value in (improvement.probability, improvement.low, improvement.high))
        entries = {
            "difference": gap_entry(mean.difference, mean.low, mean.high),
            "probability": range_entry(share, low, high, 0),
            "tasks": number_entry(len(tests), 0),
        }
        lines.append(Line(row.label, entries))
        facts.append({"row": row.label, "baseline": baseline, "difference": vars(mean), **to_plain(improvement)})
    if not lines:
        return None
    return Table(
        name="over_tasks",
        title=f"Over all tasks against {baseline}{on_mini(studies)}",
        columns={"difference": "mean difference", "probability": "runs above, %", "tasks": "tasks"},
        lines=lines,
        caption=(
            f"Mean difference to {baseline} over the tasks that both have, in points, with its 95 % interval (seeds "
            "and dev examples; not adjusted). Runs above: in how many of 100 pairs of a run of each on the same task "
            "the row's is the better one, with the bootstrap interval over seeds (95 % in name, about 93 % with five; "
            f"it says nothing where every run is above or below). {origin_in_words(studies)}"
        ),
        notes=seed_notes(rows),
        sidecar=sidecar(evidence, cell_names) | {"over_tasks": facts},
    )


def _scores(row: Row, tasks: Iterable[str]) -> dict[str, list[float]]:
    return {task: row.cells[task].scores for task in tasks}


def _points_entry(value: float | None) -> Entry:
    return number_entry(None if value is None else 100 * value, 2)


def _difference_entry(value: float) -> Entry:
    return number_entry(100 * value, signed=True)


def _optimism_lines(row: Row, part: str, name: str) -> list[Line]:
    gaps: dict[str, Gap | None] = {}
    for task, cell in row.cells.items():
        found = optimism_of(cell)
        gaps[task] = getattr(found, name) if found else None
    values = {task: cell_entry(row.cells[task], _difference_entry(gap.difference)) for task, gap in gaps.items() if gap}
    ranges = {task: interval_entry(100 * gap.low, 100 * gap.high) for task, gap in gaps.items() if gap}
    missing = {task: Entry() for task, gap in gaps.items() if gap is None}
    return [Line(f"{row.label}, {part}", values | missing), Line(f"{row.label}, {part}, range", ranges | missing)]


def _verdict_facts(pair: Beside) -> dict[str, object]:
    found = pair.verdict
    return {
        "row": pair.row.label,
        "task": pair.cell.task,
        "paper": pair.published.paper,
        "label": pair.published.label,
        "statistic": pair.published.statistic,
        "published": pair.number.value,
        "published_deviation": pair.number.deviation,
        "verdict": found and to_plain(found),
    }
