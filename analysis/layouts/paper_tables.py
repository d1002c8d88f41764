"""Tables in the layouts of the papers, with our numbers beside the published ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from analysis.layouts import comparison_notes, model_notes, protocol_notes, search_notes
from analysis.layouts.evidence import (
    PAPER_TASKS,
    Evidence,
    add_seeds,
    format_mean,
    format_median,
    list_task_columns,
    make_table,
)
from analysis.layouts.published_numbers import (
    ELECTRA_METRICS,
    NOT_STATED,
    PAPER_METRICS,
    Pair,
    Placed,
    PublishedRow,
    collect_tasks,
    place_published,
    read_published_rows,
    read_scores,
    select_backbones,
    verdict_notes,
)
from analysis.layouts.table import (
    DEVIATION,
    HUNDREDTHS,
    POINTS,
    WHOLE,
    Block,
    Entry,
    Line,
    NumberFormat,
    Table,
)
from analysis.statistics.comparisons import is_epoch_chosen_on_dev
from analysis.statistics.costs import median_over_seeds, row_ledger, speed_up, warn_of_unlike_compute
from analysis.studies.cells import Cell, Row
from study.facts.record import summarise

MEANS = 'Rows with "mean" in their name have the mean score and its 95 % interval over seeds and dev examples.'
ON_THESE_ROWS = "epochs chosen on these rows"
CHOSEN = (
    f'If a row says "{ON_THESE_ROWS}", its trials kept the epoch with the best score on the same dev examples, and its '
    "intervals cover less than 95 %."
)


@dataclass(frozen=True, kw_only=True)
class PaperLayout:
    """The layout of a paper's table: the format of the cells, and the published rows."""

    heading: str = ""  # of the block in the table `published`
    facts: tuple[str, ...] = ()  # columns before the tasks
    entry: Callable[[Cell], Entry] = format_median
    metrics: Mapping[str, str]  # by task, named as in `published.csv`
    published: Callable[[list[Row]], tuple[PublishedRow, ...]]

    def place(self, evidence: Evidence) -> Placed:
        """Place the published rows beneath our rows, or apart; there are none on mini-GLUE."""
        published = () if evidence.on_mini else self.published(evidence.rows)
        return place_published(evidence.rows, published, self.metrics)


def dev_table(evidence: Evidence) -> Table:
    """Make the dev table in the layout of PALBERT's tables 2 and 3, with medians and means over seeds."""
    rows, compared = evidence.rows, evidence.comparisons
    of_macro = ["Macro is the mean over the eight tasks of PALBERT's paper."]
    placed = DEV.place(evidence)
    caption = [
        "Scores are in points (100 x score).",
        *explain_means(evidence),
        *of_macro * any(row.cells.keys() >= {*PAPER_TASKS} for row in rows),
        comparison_notes.explain_marks(rows, compared),
        protocol_notes.describe_protocol(evidence.studies, rows),
        *protocol_notes.describe_pretraining(evidence.studies, rows),
        *protocol_notes.describe_pooling(evidence.studies),
        *protocol_notes.describe_unlike(evidence.studies),
    ]

    def describe(row: Row) -> dict[str, Entry]:
        places = {task: (row.label, task) for task in row.cells}
        marks = {task: "" if at in evidence.samples else evidence.mark(at) for task, at in places.items()}  # else below
        return {task: replace(format_median(cell), mark=marks[task]) for task, cell in row.cells.items()}

    return make_table(
        evidence,
        "dev",
        title="{glue}dev scores{data}, median over {seeds}",
        columns={**_name_backbones(evidence), **list_task_columns(evidence.studies, PAPER_TASKS), "macro": "macro"},
        lines=[
            line
            for row in rows
            for line in (
                Line(row.label, _describe_row(row) | describe(row)),
                _make_mean_line(evidence, row),
                *placed.beneath[row.label],
            )
        ],
        blocks=placed.blocks,
        caption=" ".join(caption),
        notes=[
            *verdict_notes(placed.pairs),
            *search_notes.seed_notes(rows),
            *protocol_notes.own_task_notes(evidence.studies),
            *model_notes.weak_model_notes(evidence.weak_models),
            *evidence.limits,
            *comparison_notes.sign_notes(rows, compared),
            *comparison_notes.power_notes(compared),
            *model_notes.sampled_exit_notes(rows),
            *warn_of_unlike_compute(row_ledger(rows)),
            *protocol_notes.study_notes(evidence.studies, rows),
            *(
                f"departures, {name}: {'; '.join(map(str, lines))}"
                for name, lines in protocol_notes.collect_departures(evidence.studies).items()
            ),
            *placed.notes,
        ],
        sidecar={
            "means": [  # read by `study_folder.read_mean_intervals`
                {"row": row, "task": task, "low": sample.mean_interval.low, "high": sample.mean_interval.high}
                for (row, task), sample in evidence.samples.items()
            ]
        },
    )


def explain_means(evidence: Evidence) -> list[str]:
    """Explain the lines of mean scores; return an empty list if there are none."""
    is_chosen = any(is_chosen_on_these_rows(evidence, row) for row in evidence.rows)
    return [MEANS, *[CHOSEN] * is_chosen] if evidence.samples else []


def is_chosen_on_these_rows(evidence: Evidence, row: Row) -> bool:
    """Check whether a tested cell of the row kept the epoch that scored best on the dev rows of the tables."""
    cells = (cell for task, cell in row.cells.items() if (row.label, task) in evidence.samples)
    return any(map(is_epoch_chosen_on_dev, cells))


def _make_mean_line(evidence: Evidence, row: Row) -> Line:
    samples = {task: evidence.samples.get((row.label, task)) for task in row.cells}
    entries = {
        task: replace(format_mean(sample), mark=evidence.mark((row.label, task)))
        for task, sample in samples.items()
        if sample is not None
    }
    chosen = f", {ON_THESE_ROWS}" * is_chosen_on_these_rows(evidence, row)
    return Line(f"{row.label}, mean{chosen}", entries, source="mean")


def published_table(evidence: Evidence) -> Table | None:
    """Make the table of our numbers in the layouts of other papers' tables, with the published numbers.

    Return None on mini-GLUE, and if no number was published for the tasks.
    """
    layouts = [PABEE, ABLATION, *[ELECTRA] * _is_about_electra(evidence)]
    if evidence.on_mini or not {*collect_tasks(evidence.rows)} & {*PAPER_TASKS}:
        return None
    blocks, pairs, further_notes = list[Block](), list[Pair](), list[str]()
    for layout in layouts:
        placed = layout.place(evidence)
        blocks += [Block(layout.heading, _make_lines(evidence, layout, placed)), *placed.blocks]
        pairs += placed.pairs
        further_notes += placed.notes
    return make_table(
        evidence,
        "published",
        title="{glue}dev scores{data} beside published numbers, over {seeds}",
        columns={
            **_name_backbones(evidence),
            "parameters_millions": "#Param",
            "speed_up": "speed",
            **list_task_columns(evidence.studies, PAPER_TASKS),
        },
        lines=blocks[0].lines,
        blocks=blocks[1:],
        unit="points; speed_up: ratio",
        caption=" ".join([PUBLISHED_CAPTION, *[OF_ELECTRA] * (ELECTRA in layouts)]),
        notes=[
            *verdict_notes(pairs),
            "table dev has the notes on searches, settings, data, code and devices",
            *dict.fromkeys(further_notes),
        ],
    )


def _is_about_electra(evidence: Evidence) -> bool:
    """Check whether the published rows in ELECTRA's layout use one of our methods or backbones."""
    published = [row for row in ELECTRA.published(evidence.rows) if row.is_about(collect_tasks(evidence.rows))]
    methods, backbones = {row.method for row in published}, {row.backbone for row in published}
    arms = [arm for study in evidence.studies for arm in study.plan.arms]
    return any(arm.method in methods or arm.whole_backbone in backbones for arm in arms)


def _make_lines(evidence: Evidence, layout: PaperLayout, placed: Placed) -> list[Line]:
    """Make the lines of our rows in a paper's layout, each with the comparable published lines beneath it."""
    made = list[Line]()
    for row in evidence.rows:
        facts = {name: entry for name, entry in _describe_row(row).items() if name in ("backbone", *layout.facts)}
        scores = {task: layout.entry(cell) for task, cell in row.cells.items()}
        made += [Line(row.label, facts | scores), *placed.beneath[row.label]]
    return made


def pairs_with_published(evidence: Evidence) -> list[Pair]:
    """Pair our numbers with the comparable published numbers of all papers; the result is empty on mini-GLUE."""
    return [pair for layout in (DEV, ABLATION, PABEE, ELECTRA) for pair in layout.place(evidence).pairs]


def macro(row: Row) -> float | None:
    """Compute the row's macro score: the mean of its medians on the eight tasks of PALBERT's paper.

    Return None if one of the eight cells is missing or incomplete.
    """
    complete = {task: cell for task, cell in row.cells.items() if cell.state == "complete"}
    return (
        float(np.mean([complete[task].median for task in PAPER_TASKS])) if complete.keys() >= {*PAPER_TASKS} else None
    )


def _name_backbones(evidence: Evidence) -> dict[str, str]:
    """Return the column of backbones if they differ between cells; else return no column."""
    fingerprints = {cell.arm.backbone_fingerprint for row in evidence.rows for cell in row.cells.values()}
    return {"backbone": "backbone"} if len(fingerprints) > 1 else {}


def _describe_row(row: Row) -> dict[str, Entry]:
    """Return the row's backbone, parameters and speed-up, and its macro score if all eight tasks were planned."""
    cells = [*row.cells.values()]
    sizes = [size for cell in cells if (size := median_over_seeds(cell, "num_parameters")) is not None]
    millions = float(np.median(sizes)) / 1e6 if sizes else None
    entries = {
        "backbone": Entry.from_text(cells[-1].arm.pinned_backbone),
        "parameters_millions": (NumberFormat(decimals=3) if millions and millions < 1 else WHOLE).entry(millions),
        "speed_up": HUNDREDTHS.entry(speed_up(cells)),
    }
    return entries | ({"macro": POINTS.entry(macro(row))} if row.cells.keys() >= {*PAPER_TASKS} else {})


def _format_deviation(cell: Cell) -> Entry:
    """Format the mean score and the standard deviation; dropped final runs count, as in all means."""
    cell = cell.with_dropped
    summary = summarise([100 * score for score in cell.scores]) if cell.scores else {}
    return add_seeds(cell, DEVIATION.entry(summary.get("mean"), summary.get("standard_deviation")))


def _format_electra_score(cell: Cell) -> Entry:
    scores = read_scores(cell, ELECTRA_METRICS.get(cell.task))
    return add_seeds(cell, POINTS.entry(float(np.median(scores)) if scores else None))


def _choose_palbert_rows(rows: list[Row]) -> tuple[PublishedRow, ...]:
    """Choose the rows of PALBERT's tables 2 and 3 with a backbone that our rows use too; if there are none, table 2."""
    published = read_published_rows("PALBERT Tab.2", "PALBERT Tab.3")
    return select_backbones(rows, published) or read_published_rows("PALBERT Tab.2")


def _choose_early_exit_rows(rows: list[Row]) -> tuple[PublishedRow, ...]:
    """Choose the rows of PABEE's README and of six other sources.

    Rows of ElasticBERT and F-PABEE are left out if our rows do not use their backbone.
    """
    later = read_published_rows("ElasticBERT GLUE dev") + read_published_rows("F-PABEE Tab.1", split=NOT_STATED)
    first = read_published_rows("PABEE README", "ALBERT README", "albert_pytorch", "fairseq README", "ShareBERT")
    return first + select_backbones(rows, later)


DEV = PaperLayout(metrics=PAPER_METRICS, published=_choose_palbert_rows)
PABEE = PaperLayout(  # of its README
    facts=("parameters_millions", "speed_up"), metrics=PAPER_METRICS, published=_choose_early_exit_rows
)
ABLATION = PaperLayout(
    heading="Mean ± standard deviation, as in PALBERT's table 1",
    entry=_format_deviation,
    metrics=PAPER_METRICS,
    published=lambda _: read_published_rows("PALBERT Tab.1"),
)
ELECTRA = PaperLayout(
    heading="Median in ELECTRA's metrics",
    facts=("parameters_millions",),
    entry=_format_electra_score,
    metrics=ELECTRA_METRICS,
    published=lambda _: read_published_rows("ELECTRA README", "lmtuners", "electra_pytorch"),
)
PUBLISHED_CAPTION = (
    "Scores are in points (100 x score), above the first heading as medians; a standard deviation is that of single "
    "seeds, with n - 1 in the denominator. Parameters are in millions and include heads and Λ; shared parameters count "
    "once. Speed is the number of all layers, summed over the tasks, divided by the sum of the mean layers per dev "
    "example; the table times has measured times."
)
OF_ELECTRA = (
    "ELECTRA's metric is Matthews correlation on CoLA, Spearman correlation on STS-B, and accuracy on the other GLUE "
    "tasks; on MNLI, our score is the mean of the matched and the mismatched accuracy, and ELECTRA's README has the "
    "matched accuracy alone."
)
