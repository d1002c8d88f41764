"""Summary of a study: which methods are better, by how much and at what cost, with the caveats.

The summary calls a method better or worse only if the difference is significant. The dev table marks such differences
with ↑ or ↓. With repeated searches, the summary follows the marks of the table `search_repeats` instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.layouts import notes
from analysis.layouts.evidence import Evidence
from analysis.layouts.paper_tables import explain_means, macro
from analysis.layouts.rendering import markdown_grid, markdown_text
from analysis.layouts.table import DIFFERENCE, HUNDREDTHS, POINTS, Table
from analysis.statistics.comparisons import Comparison, over_tasks
from analysis.statistics.costs import (
    Compute,
    choose_unit,
    median_over_seeds,
    relative_time,
    row_ledger,
    warn_of_unlike_compute,
)
from analysis.statistics.uncertainty import PairedTest
from analysis.studies.cells import Row, find_repeats
from study.facts.plain_words import counted
from trainables.data.tasks import TASKS
from trainables.runs.trial import TIMED_BATCHES

NOTHING_MISSING = "Nothing is missing"
GENERATED = "The tasks are generated (mini-GLUE): the numbers say nothing about GLUE."
IN_THE_REPORT = ("compute", "departures")  # anchors of the caveats that only the report prints


def answer(evidence: Evidence, dev: Table) -> str:
    """Summarise the study on one screen, as Markdown: our scores, the headline, the differences and the caveats."""
    found = findings(evidence)
    ours = replace(dev, lines=[line for line in dev.lines if not line.published], blocks=[])
    limits = [caveat.text for caveat in caveats(evidence, found) if caveat.anchor not in IN_THE_REPORT]
    limits = [limit for limit in limits if not limit.startswith(NOTHING_MISSING) and limit != GENERATED]
    weak = [_as_sentence(note) for note in notes.weak_model_notes(evidence.weak_models)]  # before any number on exits
    lines = [f"{one.row}: {sentence(one, evidence.baseline, in_short=True)}" for one in found if one.difference]
    lines = [*weak, *lines, *(limit for limit in limits if limit not in weak)]
    remarks = [GENERATED] * evidence.on_mini + explain_means(evidence)
    return "\n\n".join(
        [
            f"## {markdown_text(dev.title)}",
            *[" ".join(remarks)] * bool(remarks),
            *(markdown_grid(ours, block) for block in ours.parts),
            markdown_text(headline(evidence, found)),
            "\n".join(f"- {markdown_text(line)}" for line in lines) + "\n",
        ]
    )


@dataclass(frozen=True)
class Finding:
    """Results of one method. Every difference is the score of the method minus the score of the baseline."""

    row: str
    is_baseline: bool
    medians: dict[str, float]  # by task, if the task has completed final runs
    macro: float | None
    compared: list[Comparison]  # the comparisons with the baseline
    layers: float | None  # layers run per dev example, averaged over the tasks
    depths: tuple[int, ...]  # how many layers the models have, sorted
    relative_time: float | None  # time for a single example, divided by the baseline's time
    compute: str  # total compute, in one unit for all rows; empty if no time was recorded
    difference: PairedTest | None  # test of the mean difference over the tested tasks
    is_simultaneous: bool  # whether the interval of `difference` holds jointly with those of other rows

    def marked(self, arrow: str) -> list[str]:
        """List the titles of the tasks on which the method has this mark (↑ or ↓)."""
        return [TASKS[one.task].title for one in self.compared if one.arrow == arrow]


@dataclass(frozen=True)
class Caveat:
    """A caveat about the results, and the anchor of its details in the report."""

    text: str
    anchor: str


def findings(evidence: Evidence) -> list[Finding]:
    """Collect the results of all rows.

    The baseline is first. Tested rows follow from best to worst, and then untested rows.
    """
    means = {label: own.test for label, own in over_tasks(evidence.tested, fewest=1).items()}
    computes = {entry.row: entry.total for entry in row_ledger(evidence.rows)}
    unit = choose_unit(computes.values())
    spent = {row: "" if own == Compute(0.0, 0.0) else own.describe(unit) for row, own in computes.items()}
    found = (_finding(evidence, row, means, spent[row.label]) for row in evidence.rows)
    return sorted(found, key=_place)


def _finding(evidence: Evidence, row: Row, means: Mapping[str, PairedTest], compute: str) -> Finding:
    is_baseline = row.label == evidence.baseline
    compared = [one for one in evidence.tested if one.family == "baseline" and one.row == row.label]
    compared.sort(key=lambda one: [*TASKS].index(one.task))
    cells = row.cells.values()
    layers = [number for cell in cells if (number := median_over_seeds(cell, "mean_layers")) is not None]
    depths = {int(number) for cell in cells if (number := median_over_seeds(cell, "num_layers")) is not None}
    return Finding(
        row=row.label,
        is_baseline=is_baseline,
        medians={task: row.cells[task].median for task in TASKS if task in row.cells and row.cells[task].records},
        macro=macro(row),
        compared=compared,
        layers=float(np.mean(layers)) if layers else None,
        depths=tuple(sorted(depths)),
        relative_time=None if is_baseline else _relative_time(evidence, row),
        compute=compute,
        difference=means.get(row.label),
        is_simultaneous=len(means) > 1,
    )


def _relative_time(evidence: Evidence, row: Row) -> float | None:
    """Divide the row's inference time by the baseline's, summed over the tasks with results of both rows.

    Return None if there are no such tasks, or if a cell was not timed.
    """
    others = {cell.task: cell for label, cell in evidence.cells if label == evidence.baseline and cell.records}
    pairs = [(cell, others[task]) for task, cell in row.cells.items() if cell.records and task in others]
    return relative_time(pairs, min(TIMED_BATCHES))


def _place(finding: Finding) -> tuple[int, float]:
    if finding.is_baseline:
        return 0, 0.0
    return (1, -finding.difference.difference) if finding.difference else (2, 0.0)


def headline(evidence: Evidence, found: Sequence[Finding]) -> str:
    """State which methods are significantly better or worse than the baseline, or why no method is tested."""
    baseline = evidence.baseline
    if len(found) == 1:
        return f"The only method is {found[0].row}, so there is nothing to compare it with."
    if baseline is None:
        return f"No method is tested: {notes.why_no_baseline(evidence.rows)}."
    tested = [finding for finding in found if finding.compared]
    if not tested:
        needed = "two comparable rows that have predictions of at least two seeds each"
        return f"No method is tested against {baseline}: a test needs {needed}."
    parts = []
    for word, arrow in (("Better", "↑"), ("Worse", "↓")):
        marked = [
            f"{one.row} on {len(titles)} of {counted(len(one.compared), 'task')}"
            for one in tested
            if (titles := one.marked(arrow))
        ]
        parts += [f"{word} than {baseline} ({arrow}): {', '.join(marked)}."] * bool(marked)
    number = sum(len(finding.compared) for finding in tested)
    where = "the one comparison" if number == 1 else f"any of {number} comparisons"
    words = " ".join(parts) or f"No difference from {baseline} was found in {where}."
    if not evidence.comparisons_of_methods:
        return words
    searches = sorted({len(own.confirmed) for own in evidence.repeats.values()})
    times = " to ".join(dict.fromkeys(str(end) for end in (searches[0], searches[-1])))
    return f"{words} These tests compare the methods: each method was searched {times} times (table search_repeats)."


def sentence(finding: Finding, baseline: str | None, *, in_short: bool = False) -> str:
    """Describe the method's difference from the baseline, its significance, and the number of layers run.

    Without `in_short`, also describe the power of the tests and the compute.
    """
    compute = f"{finding.compute} in all" if finding.compute and not in_short else ""
    parts = [_describe_difference(finding, baseline, in_short=in_short), _describe_layers(finding, baseline), compute]
    return "; ".join(part for part in parts if part) + "."


def _describe_difference(finding: Finding, baseline: str | None, *, in_short: bool) -> str:
    test, number = finding.difference, len(finding.compared)
    if test is None:
        scores = [f"{TASKS[task].title} {POINTS.text(median)}" for task, median in finding.medians.items()]
        result = (
            f"macro {POINTS.text(finding.macro)}" if finding.macro is not None else ", ".join(scores) or "no number"
        )
        untested = f"; not tested against {baseline}" if baseline and scores else ""
        return f"the baseline, {result}" if finding.is_baseline else result + untested
    difference, low, high = map(DIFFERENCE.text, (test.difference, test.low, test.high))
    where = f", averaged over {number} tasks" if number > 1 else f" on {TASKS[finding.compared[0].task].title}"
    marked = [
        f"significantly {word} on {len(tasks)} of {number} tasks ({', '.join(tasks)})"
        if number > 1
        else "a significant difference"
        for word, tasks in (("above", finding.marked("↑")), ("below", finding.marked("↓")))
        if tasks
    ]
    result = " and ".join(marked) or f"no difference was found{_describe_power(finding.compared, in_short=in_short)}"
    interval = f"{'simultaneous ' * finding.is_simultaneous}95 % interval {low} to {high}"
    return f"{difference} points relative to {baseline}{where} ({interval}), {result}"


def _describe_power(compared: Sequence[Comparison], *, in_short: bool) -> str:
    """Describe in parentheses what would have been found, at least and at most, among the tasks.

    With `in_short`, return an empty text unless nothing could have been found.
    """
    if all(one.test.standard_error == 0 for one in compared):
        return " (the detectable difference is unknown: all scores are equal)" * (not in_short)
    missed = {one.task: one.missed_difference for one in compared if one.missed_difference is not None}
    by_size = sorted((task for task in missed if notes.format_detectable(missed[task])), key=missed.__getitem__)
    if not missed or (in_short and by_size):
        return ""
    between = by_size[1:-1]
    return f" ({notes.describe_detectable({task: missed[task] for task in missed if task not in between})})"


def _describe_layers(finding: Finding, baseline: str | None) -> str:
    if finding.layers is None or not finding.depths:
        return ""
    depth = " to ".join(dict.fromkeys(str(end) for end in (finding.depths[0], finding.depths[-1])))
    runs_all = len(finding.depths) == 1 and HUNDREDTHS.text(finding.layers) == HUNDREDTHS.text(finding.depths[0])
    layers = f"runs all {depth} layers"
    if not runs_all:
        layers = f"runs {HUNDREDTHS.text(finding.layers)} of {depth} layers on average"
    if finding.relative_time is None:
        return layers
    return f"{layers}; a single example takes {HUNDREDTHS.text(finding.relative_time)} times {baseline}'s time"


def caveats(evidence: Evidence, found: Sequence[Finding]) -> list[Caveat]:
    """List the caveats about cells, searches, missing tests, data, compute, and departures from the papers."""
    lines = [Caveat(GENERATED, "protocol")] * evidence.on_mini
    lines += [Caveat(_as_sentence(note), "table-dev") for note in evidence.limits]
    lines.append(Caveat(completeness(evidence), "table-dev"))
    untested = [
        f"{one.row} on {TASKS[task].title}"
        for one in found
        for task in one.medians
        if one.compared and task not in {own.task for own in one.compared}
        if evidence.are_comparable(one.row, str(evidence.baseline), task)
    ]
    if untested:
        needed = "repeated searches" if evidence.comparisons_of_methods else "predictions"
        text = f"Not tested against {evidence.baseline}, because {needed} are missing: {', '.join(untested)}."
        lines.append(Caveat(text, "comparisons"))
    if not evidence.on_mini and (titles := notes.list_other_data(evidence.rows)):
        lines.append(Caveat(f"The data of these tasks are not the official GLUE: {', '.join(titles)}.", "table-dev"))
    warnings = warn_of_unlike_compute(row_ledger(evidence.rows))
    lines += [Caveat(_as_sentence(warning), "compute") for warning in warnings]
    if number := sum(map(len, notes.collect_departures(evidence.studies).values())):
        lines.append(
            Caveat(f"The study has {counted(number, 'departure')} from the papers and their code.", "departures")
        )
    return lines


def completeness(evidence: Evidence) -> str:
    """Count the cells without scores, and the cells with other seeds than the protocol asks for.

    Every repeated search counts as a separate cell.
    """
    states = [repeat.state for _, cell in evidence.cells for repeat in find_repeats(cell)]
    number, missing = counted(len(states), "cell"), states.count("missing")
    others = len(states) - missing - states.count("complete")
    parts = [f"{missing} of {number} {'is' if missing == 1 else 'are'} missing"] * (missing > 0)
    parts += [f"{others} of {number} {'does' if others == 1 else 'do'} not have the seeds of the protocol"] * (
        others > 0
    )
    return f"{', '.join(parts)}." if parts else f"{NOTHING_MISSING}: all {number} have the seeds of the protocol."


def _as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
