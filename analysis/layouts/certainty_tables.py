"""Tables of comparisons, verdicts on published numbers, variation, winners, repeated searches and test scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.layouts.comparison_notes import choose_number_format, look_notes
from analysis.layouts.evidence import Evidence, add_provenance, add_seeds, format_test, make_table
from analysis.layouts.paper_tables import pairs_with_published
from analysis.layouts.published_numbers import (
    PAPER_METRICS,
    place_published,
    read_published_rows,
    select_backbones,
    verdict_notes,
)
from analysis.layouts.table import (
    DIFFERENCE,
    HALF_WIDTH,
    MARKS,
    POINTS,
    POINTS_RANGE,
    WHOLE,
    Block,
    Entry,
    Line,
    NumberFormat,
    Table,
)
from analysis.statistics import comparisons
from analysis.statistics.comparisons import MOST_REALISTIC, Comparison, Repeats
from analysis.statistics.samples import Sample
from analysis.statistics.searches import best_minus_last, variance_over_searches
from analysis.statistics.verdicts import MARGIN
from analysis.studies.cells import Cell, Row, find_repeats
from study.facts.events import ModelOnTest
from study.terminal.text import counted
from trainables.configuration.ranges import Choices, Interval, format_range
from trainables.configuration.schema import Value
from trainables.data.tasks import TASKS

SPREAD = NumberFormat(scale=100, decimals=2)
MARK_OF = {meaning: mark for mark, meaning in MARKS.items()}
OnTest = Mapping[Path, Mapping[str, ModelOnTest]]  # by the study's folder and the trial's key


def verdicts_table(evidence: Evidence) -> Table | None:
    """Tabulate our numbers minus the published numbers; return None if no published number is comparable."""
    pairs = pairs_with_published(evidence)
    lines: dict[tuple[str, str], dict[str, Entry]] = {}  # (label, label of the line above or "") -> entries by task
    for pair in pairs:
        if (verdict := pair.verdict) is not None:
            label = f"{pair.row.label} - {pair.published.label} ({pair.published.paper.removeprefix('PALBERT ')})"
            difference = DIFFERENCE.entry(verdict.difference, mark=MARK_OF[verdict.word])
            lines.setdefault((label, ""), {})[pair.cell.task] = add_seeds(pair.cell.with_dropped, difference)
            half_width = HALF_WIDTH.entry((verdict.high - verdict.low) / 2)
            lines.setdefault(("± at 95 %", label), {})[pair.cell.task] = half_width
    if not pairs:
        return None
    return make_table(
        evidence,
        "verdicts",
        title="Ours minus published",
        lines=[Line(label, entries) for (label, _), entries in lines.items()],
        caption=(
            'All differences are in points. The line "± at 95 %" has half the width of each 95 % interval. The '
            "intervals cover the variation over seeds, and over searches if there are enough search trials. If a "
            "paper prints no spread over seeds, our spread is used for both numbers. "
            f"=: the interval lies within {100 * MARGIN:g} point of zero. ≠: the interval excludes zero, and the "
            f"difference exceeds {100 * MARGIN:g} point. (≠): like ≠, but another search might change the result. "
            "?: undecided. There is no verdict if the paper does not state its number of seeds."
        ),
        notes=verdict_notes(pairs),
    )


NOTHING = "nothing"  # printed if no realistic difference could have been found
COMPARISONS = {  # columns
    "difference": "difference",
    "p_value": "p",
    "adjusted_p_value": "p, Holm",
    "detectable_difference": "found with 80 % power",
}


def _describe_comparison(one: Comparison) -> dict[str, Entry]:
    entries = {
        "difference": format_test(one.test, mark=one.arrow),
        "p_value": format_p_value(one.test.p_value),
        "adjusted_p_value": format_p_value(one.adjusted_p_value),
    }
    if (missed := one.missed_difference) is not None:
        entry = choose_number_format(missed).entry(missed)
        entries["detectable_difference"] = replace(entry, text=NOTHING) if missed > MOST_REALISTIC else entry
    return entries


def comparisons_table(evidence: Evidence) -> Table | None:
    """Tabulate the difference of each method from the baseline, for each task and for the mean over all tasks.

    Differences between other rows stand apart. Return None if no difference was tested.
    """
    table = tabulate_comparisons(evidence.comparisons, evidence.baseline)
    return table and add_provenance(evidence, replace(table, title=f"{table.title}{{data}}"))


def tabulate_comparisons(compared: Sequence[Comparison], baseline: str | None) -> Table | None:
    """Tabulate the comparisons with the baseline, and in a block those without it; return None if there are none."""
    ours = [one for one in compared if one.family == "baseline"]
    others = [one for one in compared if one.family == "others"]
    means = comparisons.over_tasks(ours)
    rows = dict.fromkeys(one.row for one in ours)
    lines = [_make_line(one) for row in rows for one in (*ours, *means.values()) if one.row == row]
    apart = Block(f"Comparisons without {baseline}" if baseline else "Comparisons", [*map(_make_line, others)])
    if not lines and not apart.lines:
        return None
    caption = [
        "The differences of mean scores are in points. Each 95 % interval covers the variation over seeds and dev "
        "examples (Welch-Satterthwaite t-test; the variance over examples is bootstrapped).",
        *[f"Holm's correction covers the {counted(len(ours), 'comparison')} with {baseline}."] * bool(ours),
        *["The means over tasks are tested as a separate family, and their 95 % intervals hold jointly."] * bool(means),
        *[_explain_others(len(others), baseline)] * bool(others),
    ]
    if any("detectable_difference" in line.entries for line in (*lines, *apart.lines)):
        caption.append(
            f'If no difference was found, "{COMPARISONS["detectable_difference"]}" is about the true difference that '
            f'would have been found in four of five such studies; "{NOTHING}": only one above '
            f"{100 * MOST_REALISTIC:.0f} points."
        )
    return Table(
        "comparisons",
        f"Comparisons with {baseline}" if lines else apart.title,
        COMPARISONS,
        lines or apart.lines,
        " ".join(caption),
        blocks=[apart] * bool(lines and apart.lines),
        first_column="pair",
        unit="points; p_value, adjusted_p_value: probability",
    )


def _explain_others(number: int, baseline: str | None) -> str:
    """Explain the comparisons between rows other than the baseline."""
    without = f" without {baseline}, which are a family of their own" if baseline else ""
    return f"Holm's correction covers the {counted(number, 'comparison')}{without}. Other tables do not mark them."


def _make_line(one: Comparison) -> Line:
    task = TASKS[one.task].title if one.task in TASKS else one.task
    return Line(f"{one.row} - {one.other}, {task}", _describe_comparison(one))


def _describe_sources(cell: Cell, sample: Sample | None) -> dict[str, Entry]:
    """Return the variation of the cell's score from each source in `SOURCES`."""
    variance = variance_over_searches(cell)
    return {
        "seed": SPREAD.entry(sample.spread_over_seeds if sample else None),
        "dev_examples": SPREAD.entry(sample.spread_over_examples if sample else None),
        "search": SPREAD.entry(variance.value**0.5 if variance and variance.value else None),
        "best_minus_last": DIFFERENCE.entry(best_minus_last(cell)),
    }


SOURCES = {"seed": "seed", "dev_examples": "dev examples", "search": "search", "best_minus_last": "best - last epoch"}


def sources_table(evidence: Evidence) -> Table | None:
    """Tabulate how much each score varies over seeds, dev examples, searches and epochs.

    Return None if no cell has two final runs.
    """
    lines = [
        Line("/".join(place), _describe_sources(cell, evidence.samples.get(place)))
        for place, cell in evidence.cells_by_place.items()
        if len(cell.records) > 1
    ]
    if not lines:
        return None
    return make_table(
        evidence,
        "sources",
        title="Sources of variation{data}",
        first_column="arm",
        columns=SOURCES,
        lines=lines,
        caption=(
            'All numbers are in points. The columns "seed", "dev examples" and "search" have the standard deviation '
            "of one model's score over seeds, over samples of dev examples, and over searches. The standard deviation "
            "over searches is missing if there are too few search trials, if ASHA stopped some of them, or if their "
            "scores differ no more than those of seeds. The "
            'column "best - last epoch" has the score of the selected epoch minus the score of the last epoch, on the '
            "selection split."
        ),
    )


def winners_table(evidence: Evidence) -> Table | None:
    """Tabulate the best value and the search range of every searched field; None if nothing was searched."""
    arms = [
        (f"{label}/{cell.task}", cell, cell.config) for label, cell in evidence.cells if cell.arm.space and cell.config
    ]
    fields = dict.fromkeys(name for _, cell, _ in arms for name in cell.arm.searched_fields)
    if not arms:
        return None
    return make_table(
        evidence,
        "winners",
        title="Best configurations{data}",
        columns={name: name.replace("_", " ") for name in fields},
        lines=[
            *(
                Line(label, {name: _make_value_entry(config[name]) for name in cell.arm.searched_fields})
                for label, cell, config in arms
            ),
            *_searched_lines(evidence, fields),
        ],
        caption="The table has the best value of every searched field, and the search ranges. The confirm trials use "
        "the best values, and best.toml is a plan with these values.",
        first_column="arm",
        unit="",
    )


def _searched_lines(evidence: Evidence, fields: Iterable[str]) -> list[Line]:
    """Make one line of search ranges for each row. Tasks with different ranges get separate lines."""
    lines: dict[str, dict[str, str]] = {}
    for label, cell in evidence.cells:
        ranges = {name: _format_range(cell.arm.read_field(name)) for name in fields if name in cell.arm.searched_fields}
        if ranges and lines.setdefault(label, ranges) != ranges:
            lines[f"{label}/{cell.task}"] = ranges
    return [Line.from_texts(f"{name}, searched in", ranges) for name, ranges in lines.items()]


def _format_range(searched: Choices | Interval | Value) -> str:
    text = format_range(searched) if isinstance(searched, tuple | Interval) else str(searched)
    return text.replace('"', "").replace(" | ", ", ")


def _make_value_entry(value: Value) -> Entry:
    entry = Entry.from_text(f"{value:.3g}" if isinstance(value, float) else str(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return replace(entry, values={"": value})
    return entry


def search_repeats_table(evidence: Evidence) -> Table | None:
    """Tabulate the scores after repeated searches, and the spread of these scores.

    Return None if no cell has two complete searches.
    """
    repeats, baseline = evidence.repeats, evidence.baseline
    if not repeats:
        return None
    tests = {(one.row, one.task): one for one in evidence.comparisons_of_methods}
    others = [repeat for _, cell in evidence.cells for repeat in find_repeats(cell)[1:]]
    left_out = [f"{repeat.name}: {repeat.shortfall}" for repeat in others if repeat.with_dropped.state != "complete"]
    return make_table(
        evidence,
        "search_repeats",
        title="Repeated searches{data}; {seeds} after the first search, other seeds after each repeat",
        first_column="arm",
        columns={
            "number_of_searches": "searches",
            "first": "first",
            "all": "all, mean",
            "spread": "spread",
            "of_search": "of search",
            "difference": f"against {baseline}",
        },
        lines=[
            Line("/".join(place), _describe_repeats(evidence.cells_by_place[place], own, tests.get(place)))
            for place, own in repeats.items()
        ],
        caption=(
            'Scores are in points. "First" is the median score after the first search, as in the other tables. "All, '
            'mean" is the mean score over all searches. "Spread" is the standard deviation of the searches\' mean '
            'scores. "Of search" is the part of this spread that the seeds do not explain. The last column has the '
            "mean score over all searches minus that of the baseline, with its 95 % interval (t-test over searches "
            "and dev examples). ↑ and ↓: significant at the 5 % level, with Holm's correction over this table. The "
            "tests compare the methods including their tuning."
        ),
        unit="points; number_of_searches: searches",
        notes=[
            *look_notes(evidence.rows, at_searches=True),
            *[f"some searches are left out: {'; '.join(left_out)}"] * bool(left_out),
        ],
    )


def _describe_repeats(cell: Cell, repeats: Repeats, compared: Comparison | None) -> dict[str, Entry]:
    return {
        "number_of_searches": WHOLE.entry(len(repeats.confirmed)),
        "first": POINTS.entry(cell.median if cell.records else None),
        "all": POINTS.entry(float(np.mean(repeats.scores))),
        "spread": POINTS.entry(repeats.deviation),
        "of_search": POINTS.entry(repeats.search_deviation),
        **({"difference": format_test(compared.test, mark=compared.arrow)} if compared else {}),
    }


def format_p_value(p_value: float) -> Entry:
    """Format a p-value with three decimals; CSV files have two digits of it."""
    return Entry("<0.001" if p_value < 0.0005 else f"{p_value:.3f}", {"": f"{p_value:.2g}"}, {"": p_value})


def scores_on_test_table(evidence: Evidence) -> Table | None:
    """Tabulate the test scores of the confirm models; None if no study was scored on test labels."""
    events = [event for study in evidence.studies for event in study.facts.scored_on_test]
    tasks = list(dict.fromkeys(event.task for event in events))
    on_test = {
        study.folder: {model.key: model for event in study.facts.scored_on_test for model in event.models}
        for study in evidence.studies
    }
    rows = [replace(row, cells={task: row.cells[task] for task in tasks if task in row.cells}) for row in evidence.rows]
    rows = [row for row in rows if any(_models_on_test(cell, on_test) for cell in row.cells.values())]
    if not rows:
        return None
    published = () if evidence.on_mini else read_published_rows(split="test")
    papers = {other.paper for other in select_backbones(rows, published)}
    named = [other for other in published if not other.backbone and other.paper in papers]  # models without a hub name
    placed = place_published(rows, [*select_backbones(rows, published), *named], PAPER_METRICS)
    titles = {task: TASKS[task].title for task in tasks}
    lines: list[Line] = []
    for row in rows:
        lines += [Line(row.label, _describe_test_scores(row, on_test)), *placed.beneath[row.label]]
    return make_table(
        evidence,
        "scores_on_test",
        title="Test scores{data}",
        columns={
            name: heading
            for task, title in titles.items()
            for name, heading in ((task, title), (f"{task}_seeds", f"{title}, seeds"))
        },
        lines=lines,
        blocks=placed.blocks,
        caption=(
            "Scores on the test sets are in points (100 x score). The test labels were read after the last trial "
            "of their study. The first column of each task has the test score of the model with the best dev score, as "
            "in papers. The second column has the median and the range over all confirm seeds."
        ),
        notes=[
            *(
                f"the {event.rows:,} test labels of {titles[event.task]} (SHA-256 {event.labels_digest[:16]}) were "
                f"read at {event.time}"
                for event in events
            ),
            *placed.notes,
        ],
    )


def _models_on_test(cell: Cell, on_test: OnTest) -> dict[str, ModelOnTest]:
    """Return the test scores of the cell's own studies, by the trial's key."""
    found = {key: model for study in cell.studies for key, model in on_test[study.folder].items()}
    return {record.key: found[record.key] for record in cell.records if record.key in found}


def _describe_test_scores(row: Row, on_test: OnTest) -> dict[str, Entry]:
    """Make two entries for each task of the row.

    The first entry is the test score of the model with the best dev score. The second entry is the median and range of
    the test scores of all models.
    """
    entries: dict[str, Entry] = {}
    for task, cell in row.cells.items():
        if models := _models_on_test(cell, on_test):
            model = models.get(max(cell.records, key=lambda record: record.score or 0.0).key)
            entries[task] = POINTS.entry(model.score if model else None)
            entries[f"{task}_seeds"] = POINTS_RANGE.entry_over_seeds([model.score for model in models.values()])
    return entries
