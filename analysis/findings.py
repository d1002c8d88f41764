"""The first screen of a report: which method is better, by how much, at what cost; and what limits the answer.

A sentence says "above" or "below" of what the dev table marks, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.layouts.evidence import Evidence
from analysis.layouts.notes import departures, other_data, search_notes, why_no_baseline
from analysis.layouts.paper_tables import macro
from analysis.layouts.table import DIFFERENCE, HUNDREDTHS, POINTS
from analysis.statistics.comparisons import POWER, by_task, macro_test, marks
from analysis.statistics.costs import Compute, ledger_notes, row_ledger, speed_facts, speed_up, unit_of
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
    tests: dict[str, PairedTest]  # by task
    arrows: dict[str, str]  # by task that the dev table marks
    detectable: dict[str, float]  # task -> the difference that would have been marked with 80 % power
    layers: float | None  # run per dev example, mean over the tasks
    depths: tuple[int, ...]  # layers of its models, each number once
    speed_up: float | None  # all layers / layers run, both summed over the tasks
    compute: str  # in the same unit for all rows; empty if there was none

    @cached_property
    def difference(self) -> PairedTest | None:
        """The test of the mean over the tested tasks; None without a test."""
        return macro_test(self.tests) if self.tests else None

    def marked(self, arrow: str) -> list[str]:
        """The titles of the tasks on which it is marked like this."""
        return [TASKS[task].title for task, own in self.arrows.items() if own == arrow]


@dataclass(frozen=True)
class Caveat:
    """A line, and the part of the page that says more."""

    text: str
    anchor: str


def findings(evidence: Evidence) -> list[Finding]:
    """One per row: the baseline first, then by the mean difference to it, and last those without a test."""
    computes = {entry.row: entry.total for entry in row_ledger(evidence.rows)}
    arrows, unit = marks(evidence.rows, evidence.comparisons), unit_of(computes.values())
    spent = {row: "" if own == Compute(0.0, 0.0) else own.in_words(unit) for row, own in computes.items()}
    return sorted((_finding(evidence, row, arrows, spent[row.label]) for row in evidence.rows), key=_place)


def _finding(evidence: Evidence, row: Row, arrows: Mapping[tuple[str, str], str], compute: str) -> Finding:
    baseline = evidence.baseline
    is_baseline = row.label == baseline
    tests = {} if baseline is None or is_baseline else by_task(evidence.comparisons, row.label, baseline)
    speeds = [speed_facts(cell) for cell in row.cells.values() if cell.records]
    layers = [facts["mean_layers"] for facts in speeds if facts["mean_layers"] is not None]
    return Finding(
        row=row.label,
        is_baseline=is_baseline,
        medians={task: row.cells[task].median for task in TASKS if task in row.cells and row.cells[task].records},
        macro=macro(row),
        tests={task: tests[task] for task in TASKS if task in tests},
        arrows={task: arrows[row.label, task] for task in TASKS if task in tests and (row.label, task) in arrows},
        detectable={
            one.task: one.detectable_difference
            for one in evidence.comparisons
            if one.detectable_difference is not None
            if one.task in tests and {one.row, one.other} == {row.label, baseline}
        },
        layers=float(np.mean(layers)) if layers else None,
        depths=tuple(sorted({int(facts["num_layers"]) for facts in speeds if facts["num_layers"]})),
        speed_up=speed_up(speeds),
        compute=compute,
    )


def _place(finding: Finding) -> tuple[int, float]:
    if finding.is_baseline:
        return 0, 0.0
    return (1, -finding.difference.difference) if finding.difference else (2, 0.0)


def headline(evidence: Evidence, found: Sequence[Finding]) -> str:
    """Which methods are marked above and below the baseline, or why none can be."""
    baseline = evidence.baseline
    if len(found) == 1:
        return f"One method, {found[0].row}: there is nothing to compare it with."
    if baseline is None:
        return f"No method is tested: {why_no_baseline(evidence.rows)}."
    tested = [finding for finding in found if finding.tests]
    if not tested:
        return f"No method is tested against {baseline}: a test needs stored predictions of two seeds of both."
    parts = []
    for word, arrow in (("Better", "↑"), ("Worse", "↓")):
        marked = {one.row: f"{len(one.marked(arrow))} of {len(one.tests)} tasks" for one in tested if one.marked(arrow)}
        if marked:
            parts.append(f"{word} than {baseline}: {', '.join(f'{row} on {where}' for row, where in marked.items())}.")
    number = sum(len(finding.tests) for finding in tested)
    where = "the one comparison" if number == 1 else f"any of {number} comparisons"
    return " ".join(parts) or f"No difference to {baseline} was found in {where}."


def sentence(finding: Finding, baseline: str | None) -> str:
    """The method's sentence, without its name: difference, marks, layers, compute."""
    compute = f"{finding.compute} in all" if finding.compute else ""
    parts = [_difference_in_words(finding, baseline), _layers_in_words(finding), compute]
    return "; ".join(part for part in parts if part) + "."


def _difference_in_words(finding: Finding, baseline: str | None) -> str:
    test, number = finding.difference, len(finding.tests)
    if test is None:
        scores = [f"{TASKS[task].title} {POINTS.text(median)}" for task, median in finding.medians.items()]
        result = (
            f"macro {POINTS.text(finding.macro)}" if finding.macro is not None else ", ".join(scores) or "no number"
        )
        untested = f"; not tested against {baseline}" if baseline and scores else ""
        return f"the baseline, {result}" if finding.is_baseline else result + untested
    difference, low, high = map(DIFFERENCE.text, (test.difference, test.low, test.high))
    where = f"mean over {number} tasks" if number > 1 else TASKS[next(iter(finding.tests))].title
    marked = [
        f"marked {word} on {len(tasks)} of {number} ({', '.join(tasks)})"
        for word, tasks in (("above", finding.marked("↑")), ("below", finding.marked("↓")))
        if tasks
    ]
    result = " and ".join(marked) or f"no difference was found ({_detectable_in_words(finding.detectable)})"
    return f"{difference} points to {baseline} ({where}; 95 % interval {low} to {high}), {result}"


def _detectable_in_words(detectable: dict[str, float]) -> str:
    """What would have been found, on the task where that is easiest and on the one where it is hardest."""
    if not detectable:
        return "what would have been is not known: all scores are alike"
    ends = (choose(detectable, key=detectable.__getitem__) for choose in (min, max))
    texts = dict.fromkeys(f"{POINTS.text(detectable[task])} points on {TASKS[task].title}" for task in ends)
    return f"differences above {' to '.join(texts)} would have been, {100 * POWER:.0f} % of the time"


def _layers_in_words(finding: Finding) -> str:
    if finding.layers is None or finding.speed_up is None:
        return ""
    depth = " to ".join(dict.fromkeys(str(end) for end in (finding.depths[0], finding.depths[-1])))
    ratio = HUNDREDTHS.text(finding.speed_up)
    if ratio == "1.00":
        return f"runs all {depth} layers"
    return f"runs {HUNDREDTHS.text(finding.layers)} of {depth} layers (speed-up {ratio})"


def caveats(evidence: Evidence, found: Sequence[Finding]) -> list[Caveat]:
    """Incomplete and untested cells, other data than the official GLUE, marks, unlike compute, departures."""
    lines = [Caveat(completeness(evidence), "missing")]
    tested = [finding for finding in found if finding.tests]
    untested = [f"{one.row} on {TASKS[task].title}" for one in tested for task in one.medians if task not in one.tests]
    if untested:
        text = f"Not tested against {evidence.baseline}, for want of predictions of both: {', '.join(untested)}."
        lines.append(Caveat(text, "comparisons"))
    if evidence.on_mini:
        lines.append(Caveat("The tasks are generated (mini-GLUE): the numbers say nothing of GLUE.", "protocol"))
    elif titles := other_data(evidence.rows):
        lines.append(Caveat(f"Not the official GLUE: {', '.join(titles)}.", "missing"))
    lines += [Caveat(_sentence(note), "comparisons") for note in search_notes(evidence.comparisons)]
    warnings = ledger_notes(row_ledger(evidence.rows))[1:]
    lines += [Caveat(_sentence(warning.removeprefix("warning: ")), "compute") for warning in warnings]
    if number := sum(map(len, departures(evidence.studies).values())):
        lines.append(Caveat(f"{counted(number, 'departure')} from the papers and their code.", "departures"))
    return lines


def completeness(evidence: Evidence) -> str:
    """How many cells are empty, and how many have other seeds than the protocol's."""
    states = [cell.state for _, cell in evidence.cells]
    number, missing = counted(len(states), "cell"), states.count("missing")
    others = len(states) - missing - states.count("complete")
    parts = [f"{missing} of {number} {'is' if missing == 1 else 'are'} missing"] * (missing > 0)
    parts += [f"{others} of {number} {'does' if others == 1 else 'do'} not follow the protocol"] * (others > 0)
    return f"{', '.join(parts)}." if parts else f"Nothing is missing: all {number} have the seeds of the protocol."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
