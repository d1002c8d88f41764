"""Summary of a study: what each method scores on each task, what its exits gain and cost, and the caveats.

The summary marks a difference from the baseline with ↑ or ↓ only if it is significant. With repeated searches, it
follows the tests of the table `search_repeats`. No number of the summary is an average over tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from analysis.layouts import comparison_notes, model_notes, protocol_notes
from analysis.layouts.evidence import Evidence, add_seeds, format_test, make_table
from analysis.layouts.exit_tables import (
    GAIN_MEANS,
    NO_SETTING,
    WITHIN,
    describe_gain,
    explain_difference,
    explain_saving,
)
from analysis.layouts.paper_tables import ON_THESE_ROWS, is_chosen_on_these_rows
from analysis.layouts.rendering import markdown_grid, markdown_text
from analysis.layouts.table import POINTS, TENTHS, Entry, Line, Table
from analysis.layouts.time_tables import describe_times, format_ratio
from analysis.statistics.budgets import Kept
from analysis.statistics.comparisons import Comparison
from analysis.statistics.costs import row_ledger, warn_of_unlike_compute
from analysis.statistics.samples import PLAIN_METHOD, Place
from analysis.studies.cells import find_repeats
from study.terminal.text import counted, joined
from trainables.data.tasks import TASKS

NOTHING_MISSING = "Nothing is missing"
GENERATED = "The tasks are generated (mini-GLUE): the numbers say nothing about GLUE."
MOST_PAIRS = 3  # of methods without the baseline that the headline names
LONGEST_CAVEAT = 240  # letters that the report does not fold
IN_THE_REPORT = ("compute", "departures")  # anchors of the caveats that only the report prints


def answer(evidence: Evidence) -> str:
    """Summarise the study on one screen, as Markdown: a line per method and task, the headline and the caveats."""
    table = summary_table(evidence)
    limits = [caveat.text for caveat in caveats(evidence) if caveat.anchor not in IN_THE_REPORT]
    limits = [limit for limit in limits if not limit.startswith(NOTHING_MISSING) and limit != GENERATED]
    return (
        "\n\n".join(
            [
                f"## {markdown_text(table.title)}",
                *[GENERATED] * evidence.on_mini,
                *map(markdown_text, warn_of_weak_models(evidence)),  # before any number on exits
                markdown_grid(table, table.parts[0]),
                markdown_text(headline(evidence)),
                *map(markdown_text, describe_times(evidence)),
                markdown_text(table.caption),
                *["\n".join(f"- {markdown_text(limit)}" for limit in limits)] * bool(limits),
            ]
        )
        + "\n"
    )


def warn_of_weak_models(evidence: Evidence) -> list[str]:
    """List in sentences the cells whose models score below plain models even with all layers."""
    return [_as_sentence(note) for note in model_notes.weak_model_notes(evidence.weak_models)]


@dataclass(frozen=True)
class Caveat:
    """A caveat about the results, and the anchor of its details in the report."""

    text: str
    anchor: str

    @property
    def parts(self) -> tuple[str, str]:
        """The text up to its list, and the list, which the report folds; "" if the whole text is short."""
        head, colon, rest = self.text.partition(": ")
        return (f"{head}.", rest) if colon and len(self.text) > LONGEST_CAVEAT else (self.text, "")


def summary_table(evidence: Evidence) -> Table:
    """Tabulate each cell's score, layers, difference from the baseline, gain of exits, fewest layers and time."""
    lines = [
        Line(f"{label}/{cell.task}", _describe_cell(evidence, (label, cell.task))) for label, cell in evidence.cells
    ]
    depths, made = _list_depths(evidence), evidence.trusted_times
    return make_table(
        evidence,
        "summary",
        title="{glue}dev scores{data}, mean over {seeds}",
        first_column="arm",
        columns={
            "score": "score",
            "mean_layers": f"layers of {depths.pop()}" if len(depths) == 1 else "layers",
            "difference": f"against {evidence.baseline}",
            "gain": "gain of exits",
            "fewest_layers": WITHIN,
            "time_ratio": "time" if made is None else f"time, batch {made.batch_sizes[0]}",
        },
        lines=lines,
        caption=" ".join(_explain_summary(evidence, lines)),
        unit="points; mean_layers: layers; fewest_layers: layers; time_ratio: ratio",
    )


def _describe_cell(evidence: Evidence, place: Place) -> dict[str, Entry]:
    """Return the cell's entries in the summary."""
    cell, sample = evidence.cells_by_place[place], evidence.samples.get(place)
    if not cell.records:
        return {"score": Entry()}
    averaged = cell.with_dropped  # as in all means
    mean = float(np.mean(sample.scores if sample else averaged.scores))
    entries = {"score": add_seeds(averaged, POINTS.entry(mean, mark="°" * (place in evidence.not_above_constant)))}
    if evidence.with_exits and place in evidence.exits:
        layers = [record.mean_layers for record in averaged.records if record.mean_layers]
        entry = TENTHS.entry(float(np.mean(layers)))
        depth = f" of {evidence.exits[place].num_layers}" * (len(_list_depths(evidence)) > 1)
        entries["mean_layers"] = replace(entry, text=entry.text + depth)
    tests = {(one.row, one.task): one for one in _list_tests(evidence)}
    if place in tests:
        entries["difference"] = format_test(tests[place].test, mark=tests[place].arrow)
    elif tests and place[0] != evidence.baseline:
        entries["difference"] = Entry()
    if (gain := describe_gain(evidence, place)) is not None:
        entries["gain"] = gain
    if saving := evidence.savings.get(place):
        entries["fewest_layers"] = _format_kept(saving.own)
    plain, newest = evidence.find_plain(place), evidence.trusted_times
    if newest is not None and plain is not None and plain is not cell:
        size = newest.batch_sizes[0]
        ratio = evidence.find_time_ratio(cell, plain, size)
        entries["time_ratio"] = Entry.from_text(NO_SETTING) if ratio is None else format_ratio(ratio)
    return entries


def _list_depths(evidence: Evidence) -> set[int]:
    """List the numbers of layers of the models; the heading names a common one, and otherwise the cells do."""
    return {exits.num_layers for exits in evidence.exits.values()}


def _format_kept(kept: Kept | None) -> Entry:
    """Format the score and the mean layers of the cheapest setting; both differ from those of the trials."""
    if kept is None:
        return Entry.from_text(NO_SETTING)
    score, layers = POINTS.text(float(np.mean(kept.scores))), TENTHS.text(float(np.mean(kept.mean_layers)))
    return Entry.from_text(f"{score} at {layers}")


def _explain_summary(evidence: Evidence, lines: list[Line]) -> Iterator[str]:
    """Explain the columns of the summary."""
    shown = {name for line in lines for name in line.entries}
    if "mean_layers" in shown:
        yield "Layers: mean over dev texts and seeds."
    if "difference" in shown:
        over = " (over all searches)" * bool(evidence.comparisons_of_methods)
        difference = explain_difference(_list_tests(evidence), over)
        yield f"Against {evidence.baseline}: {difference}; ↑ and ↓ are significant after Holm's correction."
    if chosen := [row.label for row in evidence.rows if is_chosen_on_these_rows(evidence, row)]:
        yield (
            f"{ON_THESE_ROWS.capitalize()} ({joined(chosen)}): each trial kept its best epoch on the same dev "
            "examples, so new data give lower scores."
        )
    if "gain" in shown:
        yield f"Gain of exits: {GAIN_MEANS}"
    if "fewest_layers" in shown:
        yield f"{WITHIN.capitalize()}: score and fewest mean layers {explain_saving(evidence)}."
    made = evidence.trusted_times
    if made is not None and "time_ratio" in shown:
        yield (
            f"Time: mean per text in batches of {made.batch_sizes[0]}, divided by that of {PLAIN_METHOD}, which has no "
            "exits, with its 95 % interval."
        )


def _list_tests(evidence: Evidence) -> list[Comparison]:
    """List the tests against the baseline."""
    return [one for one in evidence.tested if one.family == "baseline"]


def headline(evidence: Evidence) -> str:
    """State which methods are significantly better or worse than the baseline, or why no method is tested."""
    baseline, rows = evidence.baseline, [row.label for row in evidence.rows]
    if len(rows) == 1:
        return f"The only method is {rows[0]}, so there is nothing to compare it with."
    others = comparison_notes.refer_to_other_pairs(evidence.comparisons)
    if baseline is None:
        return f"No method is tested against a baseline: {comparison_notes.why_no_baseline(evidence.rows)}.{others}"
    tests = _list_tests(evidence)
    if not tests:
        needed = "two comparable rows that have predictions of at least two seeds each"
        return f"No method is tested against {baseline}: a test needs {needed}.{others}"
    parts = []
    for word, arrow in (("Better", "↑"), ("Worse", "↓")):
        marked = [
            f"{row} on {joined([TASKS[one.task].title for one in found])}"
            for row in rows
            if (found := [one for one in tests if one.row == row and one.arrow == arrow])
        ]
        parts += [f"{word} than {baseline} ({arrow}): {'; '.join(marked)}."] * bool(marked)
    where = "the one comparison" if len(tests) == 1 else f"any of {len(tests)} comparisons"
    power = "".join(comparison_notes.power_notes(tests))
    parts += [f"Where no difference was found: {power}."] * bool(parts and power)
    words = " ".join(parts) or f"No difference from {baseline} was found in {where}{f'; {power}' * bool(power)}."
    words += "".join(f" {sentence}" for sentence in _compare_others(evidence))
    if not evidence.comparisons_of_methods:
        return words
    searches = sorted({len(own.confirmed) for own in evidence.repeats.values()})
    times = " to ".join(dict.fromkeys(str(end) for end in (searches[0], searches[-1])))
    return f"{words} These tests compare the methods: each method was searched {times} times (table search_repeats)."


def _compare_others(evidence: Evidence) -> Iterator[str]:
    """State which methods differ significantly from one another, apart from the baseline."""
    others = [one for one in evidence.comparisons if one.family == "others"]
    found = [one for one in others if one.holds]
    if not found or evidence.comparisons_of_methods:  # these compare configurations
        return
    titles_by_pair: dict[tuple[str, str], list[str]] = {}  # better, worse -> tasks
    for one in found:
        pair = (one.row, one.other) if one.test.difference > 0 else (one.other, one.row)
        titles_by_pair.setdefault(pair, []).append(TASKS[one.task].title)
    if len(titles_by_pair) > MOST_PAIRS:
        number = f"{len(found)} of {len(others)} comparisons"
        yield f"Among the other methods, {number} found a difference (table comparisons)."
        return
    pairs = [
        f"{better} is better than {worse} on {joined(titles)}" for (better, worse), titles in titles_by_pair.items()
    ]
    yield f"Among the other methods, {'; '.join(pairs)}."


def caveats(evidence: Evidence) -> list[Caveat]:
    """List the caveats about cells, searches, missing tests, data, compute, and departures from the papers.

    `warn_of_weak_models` lists the weak models.
    """
    lines = [Caveat(GENERATED, "protocol")] * evidence.on_mini
    lines += [Caveat(_as_sentence(note), "table-dev") for note in evidence.limits]
    lines.append(Caveat(completeness(evidence), "table-dev"))
    if untested := _list_untested(evidence):
        needed = "repeated searches" if evidence.comparisons_of_methods else "predictions or seeds"
        text = f"Not tested against {evidence.baseline}, because {needed} are missing: {', '.join(untested)}."
        lines.append(Caveat(text, "comparisons"))
    if not evidence.on_mini and (titles := protocol_notes.list_other_data(evidence.rows)):
        lines.append(Caveat(f"The data of these tasks are not the official GLUE: {', '.join(titles)}.", "table-dev"))
    warnings = warn_of_unlike_compute(row_ledger(evidence.rows))
    lines += [Caveat(_as_sentence(warning), "compute") for warning in warnings]
    if number := sum(map(len, protocol_notes.collect_departures(evidence.studies).values())):
        lines.append(
            Caveat(f"The study has {counted(number, 'departure')} from the papers and their code.", "departures")
        )
    return lines


def _list_untested(evidence: Evidence) -> list[str]:
    """List the cells that lack a test against the baseline; return an empty list if no cell has one."""
    tested = {(one.row, one.task) for one in _list_tests(evidence)}
    return [
        f"{label} on {TASKS[cell.task].title}"
        for label, cell in evidence.cells
        if tested and label != evidence.baseline and (label, cell.task) not in tested and cell.records
        if evidence.are_comparable(label, str(evidence.baseline), cell.task)
    ]


def completeness(evidence: Evidence) -> str:
    """Count the cells without scores, with other seeds than the protocol asks for, or with unfinished searches.

    Every repeated search counts as a separate cell.
    """
    cells = [repeat for _, cell in evidence.cells for repeat in find_repeats(cell)]
    states = [cell.state for cell in cells]
    searching = sum(bool(cell.unfinished) for cell in cells if cell.state != "missing")
    number, missing = counted(len(states), "cell"), states.count("missing")
    others = len(states) - missing - states.count("complete")
    parts = [f"{missing} of {number} {'is' if missing == 1 else 'are'} missing"] * (missing > 0)
    parts += [f"{others} of {number} {'does' if others == 1 else 'do'} not have the seeds of the protocol"] * (
        others > 0
    )
    parts += [f"{searching} of {number} {'has' if searching == 1 else 'have'} an unfinished search"] * (searching > 0)
    return f"{', '.join(parts)}." if parts else f"{NOTHING_MISSING}: all {number} have the seeds of the protocol."


def _as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
