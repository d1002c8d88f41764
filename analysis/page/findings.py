"""Which method is better, by how much, at what cost: a sentence per method, and one over all of them.

A sentence says "above" or "below" of what the dev table marks, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.layouts.evidence import Evidence
from analysis.layouts.paper_tables import macro
from analysis.layouts.table import DIFFERENCE, HUNDREDTHS, POINTS
from analysis.statistics.comparisons import POWER, Comparison, baseline_method, by_task, macro_test, marks
from analysis.statistics.costs import Compute, TimeUnit, row_ledger, speed_facts, speed_up, unit_of
from analysis.statistics.uncertainty import PairedTest
from analysis.studies.cells import Row
from study.facts.plain_words import counted
from trainables.data.tasks import TASKS


@dataclass(frozen=True)
class Finding:
    """What a study says of one method; the tests are of its scores minus the baseline's."""

    row: str
    is_baseline: bool
    medians: dict[str, float]  # by task, of cells with records
    macro: float | None
    difference: PairedTest | None  # of the mean over the tested tasks; None without a test
    tasks: tuple[str, ...]  # tested against the baseline
    above: tuple[str, ...]  # tasks on which it is marked
    below: tuple[str, ...]
    detectable: dict[str, float]  # task -> the difference that would have been marked with 80 % power
    layers: float | None  # run per dev example, mean over the tasks
    depths: tuple[int, ...]  # layers of its models, each number once
    speed_up: float | None  # all layers / layers run, both summed over the tasks
    compute: Compute
    unit: TimeUnit  # of the compute, the same for all rows


def findings(evidence: Evidence) -> list[Finding]:
    """One per row: the baseline first, then by the mean difference to it, and last those without a test."""
    computes = {entry.row: entry.total for entry in row_ledger(evidence.rows)}
    arrows = marks(evidence.rows, evidence.comparisons)
    unit = unit_of(computes.values())
    found = [_finding(evidence, row, arrows, computes[row.label], unit) for row in evidence.rows]
    return sorted(found, key=_place)


def headline(evidence: Evidence, found: Sequence[Finding]) -> str:
    """Which methods are marked above and below the baseline, or why none can be."""
    baseline = evidence.baseline
    if baseline is None:
        return _without_baseline(evidence)
    tested = [finding for finding in found if finding.tasks]
    if len(found) == 1:
        return f"One method, {baseline}: there is nothing to compare it with."
    if not tested:
        return f"No method is tested against {baseline}: a test needs stored predictions of two seeds of both."
    number = sum(len(finding.tasks) for finding in tested)
    parts = []
    for verb in ("above", "below"):
        told = [
            f"{one.row} on {len(tasks)} of {len(one.tasks)} tasks" for one in tested if (tasks := getattr(one, verb))
        ]
        if told:
            parts.append(f"{'Better' if verb == 'above' else 'Worse'} than {baseline}: {', '.join(told)}.")
    where = "the one comparison" if number == 1 else f"any of {number} comparisons"
    return " ".join(parts) or f"No difference to {baseline} was found in {where}."


def sentence(finding: Finding, baseline: str | None) -> str:
    """The method's sentence, without its name: difference, marks, layers, compute."""
    parts = [_difference_in_words(finding, baseline), _layers_in_words(finding)]
    if finding.compute != Compute(0.0, 0.0):
        parts.append(f"{finding.compute.in_words(finding.unit)} in all")
    return "; ".join(part for part in parts if part) + "."


def search_in_words(comparisons: Sequence[Comparison]) -> str:
    """How many marks are about the methods too, and not only about the configurations that were chosen."""
    marked = [one for one in comparisons if one.family == "baseline" and one.holds]
    if not marked:
        return ""
    hold = sum(one.holds_with_search is True for one in marked)
    unknown = sum(one.holds_with_search is None for one in marked)
    told = f"Of {counted(len(marked), 'mark')}, {hold} would hold had each method searched again"
    return f"{told}; of {unknown} the search has too few trials to tell." if unknown else f"{told}."


def _finding(
    evidence: Evidence, row: Row, arrows: dict[tuple[str, str], str], compute: Compute, unit: TimeUnit
) -> Finding:
    baseline = evidence.baseline
    is_baseline = row.label == baseline
    compared = {} if baseline is None or is_baseline else by_task(evidence.comparisons, row.label, baseline)
    tests = {task: compared[task] for task in TASKS if task in compared}
    speeds = [speed_facts(cell) for cell in row.cells.values() if cell.records]
    return Finding(
        row=row.label,
        is_baseline=is_baseline,
        medians={task: row.cells[task].median for task in TASKS if task in row.cells and row.cells[task].records},
        macro=macro(row),
        difference=macro_test(tests) if tests else None,
        tasks=tuple(tests),
        above=tuple(task for task in tests if arrows.get((row.label, task)) == "↑"),
        below=tuple(task for task in tests if arrows.get((row.label, task)) == "↓"),
        detectable={
            one.task: one.detectable_difference
            for one in evidence.comparisons
            if one.detectable_difference is not None
            if one.task in tests and {one.row, one.other} == {row.label, baseline}
        },
        layers=_mean([facts["mean_layers"] for facts in speeds]),
        depths=tuple(sorted({int(facts["num_layers"]) for facts in speeds if facts["num_layers"]})),
        speed_up=speed_up(speeds),
        compute=compute,
        unit=unit,
    )


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _place(finding: Finding) -> tuple[int, float]:
    if finding.is_baseline:
        return 0, 0.0
    return (1, -finding.difference.difference) if finding.difference else (2, 0.0)


def _without_baseline(evidence: Evidence) -> str:
    if len(evidence.rows) == 1:
        return f"One method, {evidence.rows[0].label}: there is nothing to compare it with."
    named = baseline_method(evidence.rows)
    why = f"the baseline {named} has no numbers here" if named else "the plan names no baseline"
    return f"No method is tested: {why}."


def _difference_in_words(finding: Finding, baseline: str | None) -> str:
    if finding.difference is None:
        own = _scores_in_words(finding)
        if finding.is_baseline:
            return f"the baseline, {own}"
        return f"{own}; not tested against {baseline}" if baseline and finding.medians else own
    test = finding.difference
    number, low, high = (DIFFERENCE.text(value) for value in (test.difference, test.low, test.high))
    where = f"mean over {len(finding.tasks)} tasks" if len(finding.tasks) > 1 else TASKS[finding.tasks[0]].title
    return f"{number} points to {baseline} ({where}; 95 % interval {low} to {high}), {_marks_in_words(finding)}"


def _scores_in_words(finding: Finding) -> str:
    if finding.macro is not None:
        return f"macro {POINTS.text(finding.macro)}"
    return (
        ", ".join(f"{TASKS[task].title} {POINTS.text(median)}" for task, median in finding.medians.items())
        or "no number"
    )


def _marks_in_words(finding: Finding) -> str:
    total = len(finding.tasks)
    told = [
        f"marked {verb} on {len(tasks)} of {total} ({_titles(tasks)})"
        for verb, tasks in (("above", finding.above), ("below", finding.below))
        if tasks
    ]
    return " and ".join(told) or f"no difference was found ({_detectable_in_words(finding)})"


def _detectable_in_words(finding: Finding) -> str:
    """What would have been found, on the task where that is easiest and on the one where it is hardest."""
    if not finding.detectable:
        return "what would have been is not known: all scores are alike"
    least, most = (choose(finding.detectable, key=finding.detectable.__getitem__) for choose in (min, max))
    texts = [f"{POINTS.text(finding.detectable[task])} points on {TASKS[task].title}" for task in (least, most)]
    return f"differences above {' to '.join(dict.fromkeys(texts))} would have been, {100 * POWER:.0f} % of the time"


def _layers_in_words(finding: Finding) -> str:
    if finding.layers is None or finding.speed_up is None:
        return ""
    depth = " to ".join(dict.fromkeys(str(end) for end in (finding.depths[0], finding.depths[-1])))
    if HUNDREDTHS.text(finding.speed_up) == "1.00":
        return f"runs all {depth} layers"
    return f"runs {HUNDREDTHS.text(finding.layers)} of {depth} layers (speed-up {HUNDREDTHS.text(finding.speed_up)})"


def _titles(tasks: Sequence[str]) -> str:
    return ", ".join(TASKS[task].title for task in tasks)
