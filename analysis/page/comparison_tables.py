"""The pairs of methods as tables, a line per pair and task: those with the baseline, and those that mark nothing."""

from __future__ import annotations

from analysis.layouts.cell_facts import gap_entry, mark_meanings
from analysis.layouts.evidence import Evidence
from analysis.layouts.table import Entry, Line, Table, number_entry
from analysis.statistics.comparisons import Comparison, Family
from study.facts.plain_words import counted
from trainables.data.tasks import TASKS

NAMES: dict[Family, str] = {"baseline": "comparisons", "others": "comparisons_of_others"}
COLUMNS = {
    "difference": "difference",
    "p_value": "p",
    "adjusted_p_value": "p, Holm",
    "adjusted_p_value_with_search": "p, had each searched again",
    "detectable_difference": "found with 80 % power",
    "mcnemar": "McNemar p by seed",
}


def comparison_tables(evidence: Evidence) -> list[Table]:
    """A table per family of comparisons that has any, with the baseline's first."""
    found = {family: [one for one in evidence.comparisons if one.family == family] for family in NAMES}
    return [_table(evidence, family, own) for family, own in found.items() if own]


def _table(evidence: Evidence, family: Family, comparisons: list[Comparison]) -> Table:
    baseline = evidence.baseline
    what = f"with {baseline}" if family == "baseline" else "of all pairs" if baseline is None else "of other methods"
    role = "" if family == "baseline" else " They mark nothing and take nothing from the marks."
    return Table(
        name=NAMES[family],
        title=f"Comparisons {what}",
        first_column="pair",
        columns=COLUMNS,
        lines=[_line(one, baseline) for one in comparisons],
        marks=mark_meanings(baseline),
        caption=(
            "Differences of mean scores in points with 95 % intervals: paired bootstrap over dev examples with the "
            f"seeds as a second level. Holm is over the {counted(len(comparisons), 'comparison')} of this table.{role} "
            "The first two p-values are of the chosen configurations; the third is of the methods, had each searched "
            "again (Holm too; a gap where a search has too few trials to tell). McNemar compares the models of one "
            "seed each: the lowest and the highest p."
        ),
    )


def _line(one: Comparison, baseline: str | None) -> Line:
    """The pair the way round that the dev table marks it: the method minus the baseline."""
    turned = one.row == baseline
    row, other = (one.other, one.row) if turned else (one.row, one.other)
    sign = -1 if turned else 1
    low, high = sorted((sign * one.test.low, sign * one.test.high))
    difference = sign * one.test.difference
    mark = ("↑" if difference > 0 else "↓") if one.family == "baseline" and one.holds else ""
    entries = {
        "difference": gap_entry(difference, low, high, mark=mark),
        "p_value": _p_entry(one.test.p_value),
        "adjusted_p_value": _p_entry(one.adjusted_p_value),
        "adjusted_p_value_with_search": _p_entry(one.adjusted_p_value_with_search),
        "detectable_difference": number_entry(
            None if one.detectable_difference is None else 100 * one.detectable_difference
        ),
    }
    if one.mcnemar:
        texts = [_p_text(p) for p in (min(one.mcnemar), max(one.mcnemar))]
        numbers = {"_low": f"{min(one.mcnemar):.2g}", "_high": f"{max(one.mcnemar):.2g}"}
        entries["mcnemar"] = Entry(" to ".join(texts), numbers)
    return Line(f"{row} - {other}, {TASKS[one.task].title}", entries)


def _p_entry(p_value: float | None) -> Entry:
    return Entry() if p_value is None else Entry(_p_text(p_value), {"": f"{p_value:.2g}"})


def _p_text(p_value: float) -> str:
    return "<0.001" if p_value < 0.0005 else f"{p_value:.3f}"
