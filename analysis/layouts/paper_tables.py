"""The papers' table layouts, filled with a study's cells beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from analysis.layouts.evidence import (
    PAPER_TASKS,
    Evidence,
    make_table,
    mark_meanings,
    median_entry,
    optimism_of,
    over_seeds,
    task_columns,
)
from analysis.layouts.notes import (
    comparison_notes,
    constant_notes,
    departures,
    marks_in_words,
    sampled_exit_notes,
    study_notes,
    verdict_notes,
)
from analysis.layouts.published import (
    ELECTRA_METRICS,
    PAPER_METRICS,
    Pair,
    PublishedRow,
    place_published,
    published_rows,
    scores_in,
    tasks_of,
)
from analysis.layouts.table import DEVIATION, HUNDREDTHS, POINTS, WHOLE, Block, Column, Entry, Style, Table, fill
from analysis.statistics import uncertainty
from analysis.statistics.comparisons import marks
from analysis.statistics.costs import ledger_notes, row_ledger, speed_facts, speed_up
from analysis.statistics.samples import Place
from analysis.studies.cells import Cell, Row
from study.facts.winner import best_search_record
from trainables.schema import to_plain


@dataclass(frozen=True, kw_only=True)
class PaperLayout:
    """A paper's table: its columns, how a cell is printed, and the published rows that stand in it."""

    name: str
    title: str
    tasks: tuple[str, ...]
    before: tuple[Column[Row], ...] = ()  # columns before the tasks
    after: tuple[Column[Row], ...] = ()
    entry: Callable[[Cell], Entry] = median_entry
    metrics: Mapping[str, str]  # of the tasks, in the words of `published.csv`
    published: Callable[[list[Row]], tuple[PublishedRow, ...]]
    papers_with_test: Callable[[list[Row]], Sequence[str]] = lambda _: ()
    facts: Callable[[Cell], dict[str, Any]]  # of a cell, for the sidecar


def dev_table(evidence: Evidence) -> Table:
    """PALBERT's table 2 (table 3 on RoBERTa): methods x tasks and macro, median over the confirm seeds."""
    rows, comparisons, ledger = evidence.rows, evidence.comparisons, row_ledger(evidence.rows)
    table = _paper_table(
        evidence,
        DEV,
        caption=" ".join(["Points (100 x score).", *_macro_in_words(rows), marks_in_words(rows, comparisons)]),
        arrows=marks(rows, comparisons),
        notes=[
            *constant_notes(evidence.samples),
            *comparison_notes(comparisons),
            *sampled_exit_notes(rows),
            *ledger_notes(ledger),
        ],
        further={
            "macro": {row.label: macro(row) for row in rows},
            "comparisons": [comparison.to_json() for comparison in comparisons],
            "compute": [entry.to_json() for entry in ledger],
        },
    )
    notes = [f"departures, {who}: {'; '.join(lines)}" for who, lines in departures(evidence.studies).items()]
    return replace(table, notes=[*table.notes, *notes])


def ablation_table(evidence: Evidence) -> Table:
    """PALBERT's table 1: mean ± standard deviation over the confirm seeds, one row per method and setting."""
    return _paper_table(evidence, ABLATION, caption="Points (100 x score); the deviation is of single seeds (n - 1).")


def pabee_table(evidence: Evidence) -> Table:
    """The table of PABEE's README: parameters, speed-up, scores; with what other READMEs print of the same models."""
    caption = (
        "Points. Parameters in millions, heads and Λ included, shared ones once. Speed is all layers / layers run per "
        "dev example, both summed over the tasks."
    )
    return _paper_table(evidence, PABEE, caption=caption)


def electra_table(evidence: Evidence) -> Table | None:
    """ELECTRA's and ALECTRA's layout: parameters; MRPC and QQP by accuracy, STS-B by Spearman.

    None unless a study has a method, or a backbone, of its published rows.
    """
    published = ELECTRA.published(evidence.rows)
    methods, backbones = {row.method for row in published}, {row.backbone for row in published}
    arms = [arm for study in evidence.studies for arm in study.file.plan.arms]
    if not any(arm.method in methods or arm.backbone in backbones for arm in arms):
        return None
    caption = (
        "Points; parameters in millions. CoLA Matthews, STS-B Spearman, the others accuracy; MNLI is the mean of "
        "matched and mismatched here and in lmtuners, matched only in ELECTRA's README."
    )
    return _paper_table(evidence, ELECTRA, caption=caption)


def pairs_with_published(rows: list[Row]) -> list[Pair]:
    """Every number of ours with every published one that it may be held against, in all layouts."""
    layouts = (DEV, ABLATION, PABEE, ELECTRA)
    placed = [place_published(rows, layout.published(rows), layout.metrics) for layout in layouts]
    return [pair for each in placed for pair in each.pairs]


def macro(row: Row) -> float | None:
    """The mean of the paper's eight medians; None unless each of them follows the protocol."""
    cells = [row.cells.get(task) for task in PAPER_TASKS]
    complete = [cell for cell in cells if cell is not None and cell.state == "complete"]
    return float(np.mean([cell.median for cell in complete])) if len(complete) == len(PAPER_TASKS) else None


def _paper_table(
    evidence: Evidence,
    layout: PaperLayout,
    *,
    caption: str,
    arrows: Mapping[Place, str] = MappingProxyType({}),
    notes: Sequence[str] = (),
    further: Mapping[str, Any] = MappingProxyType({}),
) -> Table:
    rows = evidence.rows
    placed = place_published(rows, layout.published(rows), layout.metrics)
    titles = task_columns(evidence.studies, layout.tasks)

    def task_column(task: str) -> Column[Row]:
        def entry(row: Row) -> Entry | None:
            cell = row.cells.get(task)
            return None if cell is None else replace(layout.entry(cell), mark=arrows.get((row.label, task), ""))

        return Column(task, titles[task], entry)

    columns = [*layout.before, *map(task_column, titles), *layout.after]
    ours = fill(columns, [(row.label, row) for row in rows])
    return make_table(
        evidence,
        layout.name,
        title=layout.title,
        columns=columns,
        lines=[line for own in ours for line in (own, *placed.beneath[own.label])],
        blocks=placed.blocks + _test_blocks(evidence, layout.papers_with_test(rows)),
        marks=mark_meanings(evidence.baseline) if layout is DEV else {},
        caption=caption,
        notes=[*verdict_notes(placed.pairs), *notes, *study_notes(evidence.studies, rows), *placed.notes],
        facts=layout.facts,
        further=further,
    )


def _test_blocks(evidence: Evidence, papers: Sequence[str]) -> list[Block]:
    """The published test numbers on the tasks studied; ours would come from the GLUE server, none for mini-GLUE."""
    blocks = []
    for paper in () if evidence.on_mini else papers:
        published = published_rows(paper, split="test")
        if about := [row for row in published if row.is_about(tasks_of(evidence.rows))]:
            origins = " and ".join(dict.fromkeys(row.origin for row in about))
            title = f"Published, on the test set; ours need the GLUE server, see study.submit ({origins})"
            blocks.append(Block(title, [row.line(row.numbers) for row in about]))
    return blocks


def _macro_in_words(rows: list[Row]) -> list[str]:
    """What macro is, or why there is none; nothing where one task alone gives nobody reason to look for it."""
    if any(macro(row) is not None for row in rows):
        return ["Macro is the mean of the paper's eight tasks."]
    if len(tasks_of(rows).intersection(PAPER_TASKS)) < 2:
        return []
    return ["Macro, the mean of the paper's eight tasks, is left out until all eight are complete."]


def _macro_entry(row: Row) -> Entry | None:
    return POINTS.entry(macro(row)) if set(PAPER_TASKS) <= row.cells.keys() else None


def _parameters_entry(row: Row) -> Entry:
    sizes = [speed_facts(cell)["parameters"] for cell in row.cells.values() if cell.records]
    known = [size for size in sizes if size is not None]
    millions = float(np.median(known)) if known else None
    return (Style(decimals=3) if millions is not None and millions < 1 else WHOLE).entry(millions)


def _speed_entry(row: Row) -> Entry:
    return HUNDREDTHS.entry(speed_up([speed_facts(cell) for cell in row.cells.values() if cell.records]))


def _deviation_entry(cell: Cell) -> Entry:
    in_points = _mean_and_deviation([100 * score for score in cell.scores])
    return over_seeds(cell, DEVIATION.entry(*in_points.values()))


def _electra_entry(cell: Cell) -> Entry:
    scores = scores_in(cell, ELECTRA_METRICS[cell.task])
    return over_seeds(cell, POINTS.entry(float(np.median(scores)) if scores else None))


def _mean_and_deviation(scores: list[float]) -> dict[str, float | None]:
    return {
        "mean": float(np.mean(scores)) if scores else None,
        "standard_deviation": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
    }


def _cell_facts(cell: Cell) -> dict[str, Any]:
    """The number in full, how sure it is, and the search behind it."""
    best, optimism = best_search_record(cell.arm_records), optimism_of(cell)
    return {
        "median": cell.median if cell.records else None,
        "summary": uncertainty.summary(cell.scores) if cell.records else None,
        "scores": cell.scores,
        "best_search": best and {"record": best.key, "selection_score": best.selection_score},
        "optimism": optimism and to_plain(optimism),
    }


def _paper_rows(rows: list[Row]) -> tuple[PublishedRow, ...]:
    """The dev rows of the PALBERT paper on the table's backbones: table 2 unless all of them are table 3's."""
    backbones = {backbone for row in rows for backbone in row.backbones}
    both = published_rows("PALBERT Tab.2", "PALBERT Tab.3")
    return tuple(row for row in both if row.backbone in backbones) or published_rows("PALBERT Tab.2")


def _papers_with_test(rows: list[Row]) -> list[str]:
    """PALBERT's tables of the rows' backbones, and COSEE's on ALBERT."""
    papers = list(dict.fromkeys(row.paper for row in _paper_rows(rows)))
    return papers + ["COSEE Tab.3"] * ("PALBERT Tab.2" in papers)


DEV = PaperLayout(
    name="dev",
    title="GLUE dev scores{data}, median over {seeds}",
    tasks=PAPER_TASKS,
    after=(Column("macro", "macro", _macro_entry),),
    metrics=PAPER_METRICS,
    published=_paper_rows,
    papers_with_test=_papers_with_test,
    facts=_cell_facts,
)
ABLATION = PaperLayout(
    name="ablation",
    title="GLUE dev scores{data}, mean ± standard deviation over {seeds}",
    tasks=("sst2", "rte", "cola"),  # PALBERT, table 1
    entry=_deviation_entry,
    metrics=PAPER_METRICS,
    published=lambda _: published_rows("PALBERT Tab.1"),
    facts=lambda cell: _mean_and_deviation(cell.scores),
)
PABEE = PaperLayout(
    name="pabee",
    title="Parameters, speed-up and GLUE dev scores{data}, median over {seeds}",
    tasks=("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb"),
    before=(Column("parameters", "#Param", _parameters_entry), Column("speed_up", "speed", _speed_entry)),
    metrics=PAPER_METRICS,
    published=lambda _: published_rows(
        "PABEE README", "ALBERT README", "albert_pytorch", "fairseq README", "ShareBERT"
    ),
    facts=speed_facts,
)
ELECTRA = PaperLayout(
    name="electra",
    title="GLUE dev scores{data} in ELECTRA's metrics, median over {seeds}",
    tasks=("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"),
    before=(Column("parameters", "#Param", _parameters_entry),),
    entry=_electra_entry,
    metrics=ELECTRA_METRICS,
    published=lambda _: published_rows("ELECTRA README", "lmtuners", "electra_pytorch"),
    papers_with_test=lambda _: ("lmtuners", "electra_pytorch"),
    facts=lambda cell: {"scores": scores_in(cell, ELECTRA_METRICS[cell.task])},
)
