"""Tables in the layouts of the papers, with our numbers beside the published ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from analysis.layouts import notes
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
    Entry,
    Line,
    Style,
    Table,
)
from analysis.statistics.comparisons import is_epoch_chosen_on_dev
from analysis.statistics.costs import median_over_seeds, row_ledger, speed_up, warn_of_unlike_compute
from analysis.statistics.samples import Place
from analysis.studies.cells import Cell, Row
from study.facts.record import summarise

MEANS = 'Rows with "mean" in their name have the mean score and its 95 % interval over seeds and dev examples.'
ON_THESE_ROWS = "epochs chosen on these rows"
CHOSEN = (
    f'If a row says "{ON_THESE_ROWS}", its trials kept the epoch with the best score on the same dev examples, and its '
    "intervals cover less than 95 %."
)
NOTES_OF_DEV = ("table dev has the notes on searches, settings, data, code and devices",)


@dataclass(frozen=True, kw_only=True)
class PaperLayout:
    """The layout of a paper's table: columns, format of the cells, and published rows."""

    name: str
    title: str
    caption: str = "Scores are in points (100 x score)."
    unit: str = "points"
    tasks: tuple[str, ...]
    before: Mapping[str, str] = field(default_factory=dict)  # columns before the tasks: name -> heading
    after: Mapping[str, str] = field(default_factory=dict)
    entry: Callable[[Cell], Entry] = format_median
    metrics: Mapping[str, str]  # by task, named as in `published.csv`
    published: Callable[[list[Row]], tuple[PublishedRow, ...]]


def dev_table(evidence: Evidence) -> Table:
    """Make the dev table in the layout of PALBERT's tables 2 and 3, with medians and means over seeds."""
    rows, compared = evidence.rows, evidence.comparisons
    of_macro = ["Macro is the mean over the eight tasks of PALBERT's paper."]
    caption = [
        DEV.caption,
        *explain_means(evidence),
        *of_macro * any(row.cells.keys() >= {*PAPER_TASKS} for row in rows),
        notes.explain_marks(rows, compared),
        notes.describe_protocol(evidence.studies, rows),
        *notes.describe_pretraining(evidence.studies),
        *notes.describe_pooling(evidence.studies),
    ]
    return _make_paper_table(
        evidence,
        DEV,
        caption=" ".join(caption),
        mark=lambda place: "" if place in evidence.samples else evidence.mark(place),  # else on the mean
        beneath={row.label: [_make_mean_line(evidence, row)] for row in rows},
        own_notes=[
            *notes.seed_notes(rows),
            *notes.own_task_notes(evidence.studies),
            *notes.weak_model_notes(evidence.weak_models),
            *evidence.limits,
            *notes.sign_notes(rows, compared),
            *notes.comparison_notes(compared),
            *notes.sampled_exit_notes(rows),
            *warn_of_unlike_compute(row_ledger(rows)),
            *notes.study_notes(evidence.studies, rows),
            *(
                f"departures, {name}: {'; '.join(map(str, lines))}"
                for name, lines in notes.collect_departures(evidence.studies).items()
            ),
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


def ablation_table(evidence: Evidence) -> Table | None:
    """Make a table in the layout of PALBERT's table 1, with the mean ± standard deviation over seeds.

    Return None on mini-GLUE.
    """
    return None if evidence.on_mini else _make_paper_table(evidence, ABLATION)


def pabee_table(evidence: Evidence) -> Table | None:
    """Make a table in the layout of PABEE's README, with parameters, speed-up and scores.

    Return None on mini-GLUE.
    """
    return None if evidence.on_mini else _make_paper_table(evidence, PABEE)


def electra_table(evidence: Evidence) -> Table | None:
    """Make a table in ELECTRA's layout, with parameters, accuracy on MRPC and QQP, and Spearman on STS-B.

    Return None on mini-GLUE, or if the published rows use neither our methods nor our backbones.
    """
    published = [row for row in ELECTRA.published(evidence.rows) if row.is_about(collect_tasks(evidence.rows))]
    methods, backbones = {row.method for row in published}, {row.backbone for row in published}
    arms = [arm for study in evidence.studies for arm in study.plan.arms]
    is_about = any(arm.method in methods or arm.whole_backbone in backbones for arm in arms)
    return _make_paper_table(evidence, ELECTRA) if is_about and not evidence.on_mini else None


def pairs_with_published(evidence: Evidence) -> list[Pair]:
    """Pair our numbers with the comparable published numbers of all papers; the result is empty on mini-GLUE."""
    rows = [] if evidence.on_mini else evidence.rows
    layouts = (DEV, ABLATION, PABEE, ELECTRA)
    return [pair for layout in layouts for pair in place_published(rows, layout.published(rows), layout.metrics).pairs]


def macro(row: Row) -> float | None:
    """Compute the row's macro score: the mean of its medians on the eight tasks of PALBERT's paper.

    Return None if one of the eight cells is missing or incomplete.
    """
    complete = {task: cell for task, cell in row.cells.items() if cell.state == "complete"}
    return (
        float(np.mean([complete[task].median for task in PAPER_TASKS])) if complete.keys() >= {*PAPER_TASKS} else None
    )


def _make_paper_table(
    evidence: Evidence,
    layout: PaperLayout,
    *,
    mark: Callable[[Place], str] = lambda _: "",
    beneath: Mapping[str, list[Line]] = MappingProxyType({}),
    own_notes: Sequence[str] = NOTES_OF_DEV,
    **others: Any,
) -> Table:
    rows = evidence.rows
    placed = place_published(rows, () if evidence.on_mini else layout.published(rows), layout.metrics)

    def describe(row: Row) -> dict[str, Entry]:
        entries = {task: layout.entry(cell) for task, cell in row.cells.items()}
        return _describe_row(row) | {task: replace(own, mark=mark((row.label, task))) for task, own in entries.items()}

    is_mixed = len({cell.arm.backbone_fingerprint for row in rows for cell in row.cells.values()}) > 1
    return make_table(
        evidence,
        layout.name,
        title=layout.title,
        columns={
            **({"backbone": "backbone"} if is_mixed else {}),
            **layout.before,
            **list_task_columns(evidence.studies, layout.tasks),
            **layout.after,
        },
        lines=[
            line
            for row in rows
            for line in (
                Line(row.label, describe(row)),
                *beneath.get(row.label, ()),
                *placed.beneath[row.label],
            )
        ],
        blocks=placed.blocks,
        unit=layout.unit,
        notes=[
            *verdict_notes(placed.pairs),
            *own_notes,
            *placed.notes,
        ],
        **{"caption": layout.caption, **others},
    )


def _describe_row(row: Row) -> dict[str, Entry]:
    """Return the row's backbone, parameters and speed-up, and its macro score if all eight tasks were planned."""
    cells = [*row.cells.values()]
    sizes = [size for cell in cells if (size := median_over_seeds(cell, "num_parameters")) is not None]
    millions = float(np.median(sizes)) / 1e6 if sizes else None
    entries = {
        "backbone": Entry.from_text(cells[-1].arm.pinned_backbone),
        "parameters_millions": (Style(decimals=3) if millions and millions < 1 else WHOLE).entry(millions),
        "speed_up": HUNDREDTHS.entry(speed_up(cells)),
    }
    return entries | ({"macro": POINTS.entry(macro(row))} if row.cells.keys() >= {*PAPER_TASKS} else {})


def _format_deviation(cell: Cell) -> Entry:
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


DEV = PaperLayout(
    name="dev",
    title="{glue}dev scores{data}, median over {seeds}",
    tasks=PAPER_TASKS,
    after={"macro": "macro"},
    metrics=PAPER_METRICS,
    published=_choose_palbert_rows,
)
ABLATION = PaperLayout(
    name="ablation",
    title="{glue}dev scores{data}, mean ± standard deviation over {seeds}",
    caption=(
        "Scores are in points (100 x score). The standard deviation is that of single seeds, with n - 1 in the "
        "denominator."
    ),
    tasks=("sst2", "rte", "cola"),  # PALBERT, table 1
    entry=_format_deviation,
    metrics=PAPER_METRICS,
    published=lambda _: read_published_rows("PALBERT Tab.1"),
)
PABEE = PaperLayout(
    name="pabee",
    title="Parameters, speed-up and {glue}dev scores{data}, median over {seeds}",
    caption=(
        "Scores are in points. Parameters are in millions and include heads and Λ; shared parameters count once. Speed "
        "is the number of all layers, summed over the tasks, divided by the sum of the mean layers per dev example. "
        "The table exits has measured times."
    ),
    unit="points; speed_up: ratio",
    tasks=("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb"),
    before={"parameters_millions": "#Param", "speed_up": "speed"},
    metrics=PAPER_METRICS,
    published=_choose_early_exit_rows,
)
ELECTRA = PaperLayout(
    name="electra",
    title="{glue}dev scores{data} in ELECTRA's metrics, median over {seeds}",
    caption=(
        "Scores are in points, parameters in millions. The metric is Matthews correlation on CoLA, Spearman "
        "correlation on STS-B, and accuracy on the other GLUE tasks. On MNLI, our score is the mean of the matched and "
        "the mismatched accuracy; ELECTRA's README has the matched accuracy alone."
    ),
    tasks=("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"),
    before={"parameters_millions": "#Param"},
    entry=_format_electra_score,
    metrics=ELECTRA_METRICS,
    published=lambda _: read_published_rows("ELECTRA README", "lmtuners", "electra_pytorch"),
)
