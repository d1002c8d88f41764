"""Notes on comparisons with the baseline: marks, earlier analyses, detectable differences, and untested pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.layouts.table import DIFFERENCE, POINTS, WHOLE_POINTS, NumberFormat
from analysis.statistics.comparisons import (
    FACTS_OF_FAMILY,
    MOST_REALISTIC,
    POWER,
    Comparison,
    find_baseline_method,
    find_baseline_row,
    find_baseline_rows,
    group_rows,
    list_former_baselines,
    list_interim_analyses,
)
from analysis.statistics.exit_settings import DIGITS
from analysis.studies.cells import Row
from study.terminal.text import counted, joined
from trainables.data.tasks import TASKS


def untestable_pair_notes(rows: Sequence[Row]) -> list[str]:
    """List the rows that are not tested against each other, with the reason."""
    return [
        f"some rows are not tested against each other on {joined([TASKS[task].title for task in tasks])}, because "
        f"{fact.reason} ({fact.remedy}): {groups}"
        for fact in FACTS_OF_FAMILY
        for groups, tasks in group_rows(rows, fact).items()
    ]


def explain_marks(rows: list[Row], comparisons: list[Comparison]) -> str:
    """Explain the marks of a table, or why no difference is tested."""
    baseline = find_baseline_row(rows)
    family = [comparison for comparison in comparisons if comparison.family == "baseline"]
    others = refer_to_other_pairs(comparisons)
    if baseline is None:
        return f"No difference from a baseline is tested: {why_no_baseline(rows)}.{others}"
    if not family:
        why = f"no comparable row has, like {baseline}, predictions of the same examples for at least two seeds"
        return f"No difference from {baseline} is tested, because {why}.{others}"
    tested = (
        f"↑ and ↓: the mean score is above or below that of {baseline} at the 5 % level (Welch-Satterthwaite t-test "
        "over seeds, with bootstrapped variance over examples; Holm's correction covers the "
        f"{counted(len(family), 'comparison')} with {baseline})."
    )
    is_searched = any(cell.arm.searched_fields for row in rows for cell in row.cells.values())
    if not is_searched or not any(comparison.holds for comparison in family):
        return tested
    return (
        f"{tested} A mark compares the configurations that the searches chose, not the methods: two equal methods, "
        "each searched once, get a mark in up to 60 % of comparisons. --compare methods tests the methods."
    )


def refer_to_other_pairs(comparisons: Sequence[Comparison]) -> str:
    """Say where the tests without the baseline are, as a further sentence; empty if there are none."""
    return " The table comparisons has the tests of other pairs." * any(one.family == "others" for one in comparisons)


def look_notes(rows: Sequence[Row], *, at_searches: bool = False) -> list[str]:
    """List the earlier analyses of the results, and say whether p-values are corrected for them.

    Return an empty list if this is the first analysis.
    """
    analyses, former = list_interim_analyses(rows, at_searches=at_searches), list_former_baselines(rows)
    correction = (
        f"p-values are multiplied by {len(analyses)}, and intervals of differences hold jointly for all these analyses "
        "(Bonferroni)"
    )
    return [
        *[f"the results were analysed with {', then '.join(analyses)}; {correction}"] * (len(analyses) > 1),
        *[f"the results were analysed earlier with {'; '.join(former)}; p-values are not corrected for this"]
        * bool(former),
    ]


def why_no_baseline(rows: list[Row]) -> str:
    """Explain why no single row is the baseline, and how to choose a baseline."""
    method = find_baseline_method(rows)
    if method is None:
        return "the plans name different baselines or none; choose one with --baseline"
    labels = find_baseline_rows(rows)
    number = counted(len(labels), "row") if labels else "no row"
    return f"the baseline, {method}, has {number} with results here; choose another with study.launch --baseline"


def power_notes(comparisons: Sequence[Comparison]) -> list[str]:
    """Describe the difference that would have been found, on the tasks on which a comparison found none.

    Name the comparisons for which it is unknown, unless it is unknown for all.
    """
    missed: dict[str, float] = {}
    unknown: list[str] = []
    for one in comparisons:
        if one.family != "baseline" or one.holds:
            continue
        if one.missed_difference is None:
            unknown.append(f"{one.row} on {TASKS[one.task].title}")
        else:
            missed[one.task] = max(missed.get(one.task, 0.0), one.missed_difference)
    except_for = f" (unknown for {joined(unknown)})" * bool(unknown)
    return [f"{described}{except_for}"] if (described := describe_detectable(missed)) else []


def describe_detectable(differences: Mapping[str, float]) -> str:
    """Describe by task which true difference would have been found with 80 % power; empty without differences.

    Differences that no two methods are likely to have are not printed: nothing could have been found.
    """
    sizes = {task: format_detectable(difference) for task, difference in differences.items()}
    found = [f"{size} on {TASKS[task].title}" for task, size in sizes.items() if size]
    nothing = [TASKS[task].title for task, size in sizes.items() if not size]
    parts = [f"a difference of {joined(found)} would have been found with {100 * POWER:.0f} % power"] * bool(found)
    where = f" on {joined(nothing)}" if found else ""
    parts += [f"nothing could have been found with this data{where}"] * bool(nothing)
    return "; ".join(parts)


def format_detectable(difference: float) -> str:
    """Format a detectable difference as one rounded number; empty if two methods are unlikely to differ so much."""
    if difference > MOST_REALISTIC:
        return ""
    return f"about {choose_number_format(difference).text(difference)} points"


def choose_number_format(difference: float) -> NumberFormat:
    """Choose how exactly a detectable difference, which is an estimate, is printed."""
    return POINTS if difference < 0.1 else WHOLE_POINTS


def sign_notes(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> list[str]:
    """List the cells in which median and mean differ from the baseline in opposite directions."""
    cells = {(row.label, task): cell for row in rows for task, cell in row.cells.items()}
    opposite = []
    for one in (one for one in comparisons if one.family == "baseline"):
        medians = cells[one.row, one.task].median - cells[one.other, one.task].median
        if round(medians, DIGITS) * round(one.test.difference, DIGITS) < 0:  # equal scores differ by rounding errors
            opposite.append(
                f"{one.row} on {TASKS[one.task].title}: median {DIFFERENCE.text(medians)}, mean "
                f"{DIFFERENCE.text(one.test.difference)} points relative to {one.other}"
            )
    head = "some medians and means point in opposite directions, and only the means are tested"
    return [f"{head}: {'; '.join(opposite)}"] if opposite else []
