"""What of a study is missing, or may not be held against other numbers: one line each, with its place in the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.layouts.evidence import Evidence
from analysis.page.findings import Finding, search_in_words
from analysis.statistics.costs import ledger_notes, row_ledger
from analysis.studies.load import Study
from study.facts.plain_words import counted
from trainables.data.tasks import TASKS


@dataclass(frozen=True)
class Caveat:
    """A line, and the part of the page that says more."""

    text: str
    anchor: str


def caveats(evidence: Evidence, found: Sequence[Finding]) -> list[Caveat]:
    """Incomplete and untested cells, other data than the official GLUE, marks, unlike compute, departures."""
    told = [Caveat(completeness(evidence), "missing"), *_untested(evidence, found), *_data(evidence)]
    if searched := search_in_words(evidence.comparisons):
        told.append(Caveat(searched, "comparisons"))
    warnings = ledger_notes(row_ledger(evidence.rows))[1:]
    told += [Caveat(_sentence(warning.removeprefix("warning: ")), "compute") for warning in warnings]
    departures = sum(len(lines) for study in evidence.studies for lines in departures_of(study).values())
    if departures:
        told.append(Caveat(f"{counted(departures, 'departure')} from the papers and their code.", "departures"))
    return told


def completeness(evidence: Evidence) -> str:
    """How many cells are empty, and how many have other seeds than the protocol's."""
    states = [cell.state for _, cell in evidence.cells]
    number, missing = counted(len(states), "cell"), states.count("missing")
    others = len(states) - missing - states.count("complete")
    parts = [f"{missing} of {number} {'is' if missing == 1 else 'are'} missing"] * (missing > 0)
    parts += [f"{others} of {number} {'does' if others == 1 else 'do'} not follow the protocol"] * (others > 0)
    return f"{', '.join(parts)}." if parts else f"Nothing is missing: all {number} have the seeds of the protocol."


def departures_of(study: Study) -> dict[str, tuple[str, ...]]:
    """The plan's departures, of the protocol and of each method that has any."""
    return {who: lines for who, lines in study.file.plan.departures.items() if lines}


def other_data(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """How a task's data differ from the official GLUE, by title; tasks that do not are left out."""
    found: dict[str, dict[str, None]] = {}
    for _, cell in evidence.cells:
        if cell.data_differences:
            found.setdefault(TASKS[cell.task].title, {}).update(dict.fromkeys(cell.data_differences))
    return {title: tuple(lines) for title, lines in found.items()}


def _untested(evidence: Evidence, found: Sequence[Finding]) -> list[Caveat]:
    """The cells of tested methods that could not be held against the baseline."""
    tested = [finding for finding in found if finding.tasks]
    cells = [f"{one.row} on {TASKS[task].title}" for one in tested for task in one.medians if task not in one.tasks]
    if not cells:
        return []
    text = f"Not tested against {evidence.baseline}, for want of predictions of both: {', '.join(cells)}."
    return [Caveat(text, "comparisons")]


def _data(evidence: Evidence) -> list[Caveat]:
    if any(study.is_mini for study in evidence.studies):
        return [Caveat("The tasks are generated (mini-GLUE): the numbers say nothing of GLUE.", "protocol")]
    titles = other_data(evidence)
    return [Caveat(f"Not the official GLUE: {', '.join(titles)}.", "missing")] if titles else []


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
