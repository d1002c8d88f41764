"""The papers' table layouts, filled with a study's cells beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.layouts.beside_published import beside_published
from analysis.layouts.cell_facts import (
    ELECTRA_METRICS,
    PAPER_METRICS,
    cell_facts,
    cell_names,
    electra_scores,
    interval_facts,
    mark_meanings,
    mean_and_deviation_of,
    median_interval,
    optimism_entry,
    optimism_of,
    points,
    points_interval,
    score_entry,
    speed_entries,
    spread_entry,
)
from analysis.layouts.published_numbers import PublishedRow, published_rows
from analysis.layouts.table import Block, Line, Table, number_entry
from analysis.statistics import uncertainty
from analysis.statistics.comparisons import (
    Comparison,
    Place,
    Sample,
    baseline_method,
    baseline_row,
    compare,
    marks,
    samples_of,
)
from analysis.statistics.costs import ledger_notes, row_ledger, speed_facts
from analysis.studies.cells import Cell, Row
from analysis.studies.joined import names_of, rows_of, table_seeds
from analysis.studies.load import Study
from analysis.studies.protocol_words import is_mini, protocol_in_words, seeds_in_words, setting_notes
from trainables.data.tasks import TASKS
from trainables.schema import to_plain

PAPER_TASKS = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")  # PALBERT, table 2; macro is their mean
ABLATION_TASKS = ("sst2", "rte", "cola")  # PALBERT, table 1
ELECTRA_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")


@dataclass(frozen=True)
class Evidence:
    """What the tables are made of, gathered once for all of them."""

    studies: list[Study]
    rows: list[Row]
    samples: dict[Place, Sample]  # stored predictions by (row label, task)


def gather(studies: list[Study], *, separate: bool = False) -> Evidence:
    """The evidence in these studies, of one protocol; with rows of their own for each of them where `separate`.

    Raises:
        ValueError: the studies cannot share a table; stored predictions are not their record's.
    """
    rows = rows_of(studies, separate=separate)
    return Evidence(studies, rows, samples_of(rows))


def dev_table(evidence: Evidence) -> Table:
    """PALBERT's table 2 (table 3 on RoBERTa): methods x tasks and macro, median over the confirm seeds."""
    studies, rows = evidence.studies, evidence.rows
    comparisons, entries = compare(rows, evidence.samples), row_ledger(rows)
    arrows = marks(rows, comparisons)
    placed = beside_published(rows, _paper_rows(rows), PAPER_METRICS, lambda row: _median_line(row, arrows))
    return Table(
        name="dev",
        title=f"GLUE dev scores{_on_mini(studies)}, median over {seeds_in_words(studies)}",
        columns=task_columns(studies, PAPER_TASKS) | {"macro": "macro"},
        lines=placed.lines,
        blocks=placed.blocks + _test_blocks(rows),
        marks=mark_meanings(baseline_row(rows)),
        caption=" ".join(
            [
                "Points (100 x score).",
                _macro_in_words(rows),
                _marks_in_words(rows, comparisons),
                protocol_in_words(studies),
            ]
        ),
        notes=[
            *seed_notes(rows),
            *sampled_exit_notes(rows),
            *ledger_notes(entries),
            *_study_notes(evidence),
            *placed.notes,
            *departure_notes(studies),
        ],
        sidecar=_sidecar(studies, rows, cell_facts)
        | {
            "macro": {row.label: macro(row) for row in rows},
            "comparisons": [comparison.to_json() for comparison in comparisons],
            "compute": [entry.to_json() for entry in entries],
        },
    )


def intervals_table(evidence: Evidence) -> Table:
    """How sure the dev table is: each median's range over seeds, and what other dev examples could have made of it."""
    studies, rows = evidence.studies, evidence.rows
    over_seeds = {(row.label, task): median_interval(cell) for row in rows for task, cell in row.cells.items()}
    over_examples = {place: sample.interval for place, sample in evidence.samples.items()}
    coverage = min((interval.coverage for interval in over_seeds.values() if interval), default=0.0)
    return Table(
        name="intervals",
        title=f"Intervals of the dev scores{_on_mini(studies)}, {seeds_in_words(studies)}",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[
            Line(f"{row.label}, {over}", {task: points_interval(found.get((row.label, task))) for task in row.cells})
            for row in rows
            for over, found in (("seeds", over_seeds), ("dev examples", over_examples))
        ],
        caption=(
            f"Points. Seeds: order statistics, which cover the median over all seeds with {100 * coverage:.4g} % or "
            "more. Dev examples: 95 % bootstrap interval of the mean score of these models. "
            f"{protocol_in_words(studies)}"
        ),
        notes=seed_notes(rows),
        sidecar=_sidecar(studies, rows, cell_names)
        | {
            "over_seeds": [interval_facts(place, interval) for place, interval in over_seeds.items()],
            "over_examples": [interval_facts(place, interval) for place, interval in over_examples.items()],
        },
    )


def optimism_table(evidence: Evidence) -> Table:
    """How much better the best search trial looked than its configuration is on fresh seeds."""
    studies, rows = evidence.studies, evidence.rows
    return Table(
        name="optimism",
        title=f"Optimism{_on_mini(studies)}: best search score minus confirmed median",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[Line(row.label, {task: optimism_entry(cell) for task, cell in row.cells.items()}) for row in rows],
        caption=f"Points. The search score is the one that selected. {protocol_in_words(studies)}",
        notes=seed_notes(rows),
        sidecar=_sidecar(studies, rows, lambda cell: cell_names(cell) | {"optimism": optimism_of(cell)}),
    )


def ablation_table(evidence: Evidence) -> Table:
    """PALBERT's table 1: mean ± standard deviation over the confirm seeds, one row per method and setting."""
    studies, rows = evidence.studies, evidence.rows
    placed = beside_published(rows, published_rows("PALBERT Tab.1"), PAPER_METRICS, _deviation_line)
    return Table(
        name="ablation",
        title=f"GLUE dev scores{_on_mini(studies)}, mean ± standard deviation over {seeds_in_words(studies)}",
        columns=task_columns(studies, ABLATION_TASKS),
        lines=placed.lines,
        blocks=placed.blocks,
        caption=f"Points (100 x score); the deviation is of single seeds (n - 1). {protocol_in_words(studies)}",
        notes=[*seed_notes(rows), *_study_notes(evidence), *placed.notes],
        sidecar=_sidecar(studies, rows, lambda cell: cell_names(cell) | mean_and_deviation_of(cell.scores)),
    )


def electra_table(evidence: Evidence) -> Table:
    """ELECTRA's and ALECTRA's layout: MRPC and QQP by accuracy, STS-B by Spearman."""
    studies, rows = evidence.studies, evidence.rows
    placed = beside_published(rows, electra_published(), ELECTRA_METRICS, _electra_line)
    return Table(
        name="electra",
        title=f"GLUE dev scores{_on_mini(studies)} in ELECTRA's metrics, median over {seeds_in_words(studies)}",
        columns=task_columns(studies, ELECTRA_TASKS),
        lines=placed.lines,
        blocks=placed.blocks + [_test_block(paper) for paper in ("lmtuners", "electra_pytorch")],
        caption=(
            "Points. CoLA Matthews, STS-B Spearman, the others accuracy; MNLI is the mean of matched and mismatched "
            f"here and in lmtuners, matched only in ELECTRA's README. {protocol_in_words(studies)}"
        ),
        notes=[*seed_notes(rows), *_study_notes(evidence), *placed.notes],
        sidecar=_sidecar(studies, rows, lambda cell: cell_names(cell) | {"scores": electra_scores(cell)}),
    )


def electra_published() -> tuple[PublishedRow, ...]:
    """The published rows that stand in the ELECTRA table."""
    return published_rows("ELECTRA README") + published_rows("lmtuners") + published_rows("electra_pytorch")


def has_electra_rows(studies: list[Study]) -> bool:
    """Whether a study has a method, or a backbone, of the published rows of the ELECTRA table."""
    published = electra_published()
    methods, backbones = {row.method for row in published}, {row.backbone for row in published}
    arms = [arm for study in studies for arm in study.file.plan.arms]
    return any(arm.method in methods or arm.backbone in backbones for arm in arms)


def speed_table(evidence: Evidence) -> Table:
    """Layers run, layer ratio and measured time of every cell, medians over the confirm seeds."""
    studies, rows = evidence.studies, evidence.rows
    facts = {(row.label, task): speed_facts(cell) for row in rows for task, cell in row.cells.items()}
    return Table(
        name="speed",
        title=f"Layers and time{_on_mini(studies)}, median over {seeds_in_words(studies)}",
        first_column="arm",
        columns={
            "score": "score",
            "num_layers": "depth",
            "mean_layers": "mean layers",
            "layer_ratio": "layer ratio",
            "eval_seconds_per_epoch": "evaluation s",
            "train_examples_per_second": "training ex/s",
            "seconds_per_trial": "trial s",
        },
        lines=[
            Line(f"{row.label}/{task}", speed_entries(cell, facts[row.label, task]))
            for row in rows
            for task, cell in row.cells.items()
        ],
        caption=(
            "Layer ratio is depth / mean layers run per dev example. Measured: seconds of one dev evaluation, which is "
            "one pass at full depth for every exit rule at once and so does not fall with the layers run; training "
            f"examples per second; wall-clock seconds of a confirm trial. {protocol_in_words(studies)}"
        ),
        sidecar=_sidecar(studies, rows, lambda cell: cell_names(cell) | speed_facts(cell)),
    )


def task_columns(studies: list[Study], order: tuple[str, ...]) -> dict[str, str]:
    """The layout's tasks in its order, then any other planned ones: name -> title."""
    tasks = {task for study in studies for task in study.tasks}
    return {task: TASKS[task].title for task in (*order, *(task for task in TASKS if task in tasks - set(order)))}


def macro(row: Row) -> float | None:
    """The mean of the paper's eight medians; None unless each of them follows the protocol."""
    cells = [row.cells.get(task) for task in PAPER_TASKS]
    complete = [cell for cell in cells if cell is not None and cell.state == "complete"]
    return float(np.mean([cell.median for cell in complete])) if len(complete) == len(PAPER_TASKS) else None


def seed_notes(rows: list[Row]) -> list[str]:
    """A line for every cell whose seeds are not exactly the protocol's."""
    return [
        cell.describe() if row.label == row.method else f"{row.label}, {cell.describe()}"
        for row in rows
        for cell in row.cells.values()
        if cell.state != "complete"
    ]


def sampled_exit_notes(rows: list[Row]) -> list[str]:
    """A line for every row with a sampled exit: the spread over its draws, apart from the spread over seeds."""
    notes = []
    for row in rows:
        spreads = {task: spread for task, cell in row.cells.items() if (spread := _spread_of_draws(cell)) is not None}
        texts = [f"{TASKS[task].title} {points(within)} / {points(over)}" for task, (within, over) in spreads.items()]
        if texts:
            head = "sampled exit, standard deviation over draws of one model / over seeds"
            notes.append(f"{row.label}: {head}: {', '.join(texts)}")
    return notes


def _spread_of_draws(cell: Cell) -> tuple[float, float] | None:
    deviations = [record.metrics["sample_std"] for record in cell.records if "sample_std" in record.metrics]
    if len(deviations) < len(cell.records) or len(deviations) < 2:
        return None
    return uncertainty.spread_of_sampled_exit(deviations, cell.scores)


def _median_line(row: Row, arrows: dict[tuple[str, str], str]) -> Line:
    scores = {task: score_entry(cell, cell.median) for task, cell in row.cells.items()}
    entries = {task: replace(entry, mark=arrows.get((row.label, task), "")) for task, entry in scores.items()}
    if set(PAPER_TASKS) <= row.cells.keys():
        mean = macro(row)
        entries["macro"] = number_entry(None if mean is None else 100 * mean)
    return Line(row.label, entries)


def _deviation_line(row: Row) -> Line:
    return Line(row.label, {task: spread_entry(cell) for task, cell in row.cells.items()})


def _electra_line(row: Row) -> Line:
    medians = {task: float(np.median(electra_scores(cell))) for task, cell in row.cells.items() if cell.records}
    return Line(row.label, {task: score_entry(cell, medians.get(task, np.nan)) for task, cell in row.cells.items()})


def _on_mini(studies: list[Study]) -> str:
    return " on mini-GLUE" if any(map(is_mini, studies)) else ""


def _macro_in_words(rows: list[Row]) -> str:
    if any(macro(row) is not None for row in rows):
        return "Macro is the mean of the paper's eight tasks."
    return "Macro, the mean of the paper's eight tasks, is left out until all eight are complete."


def _marks_in_words(rows: list[Row], comparisons: list[Comparison]) -> str:
    seeds = table_seeds([study for row in rows for cell in row.cells.values() for study in cell.studies])
    floor = (
        f"A sign test over {len(seeds)} seeds alone cannot go below p = {uncertainty.sign_test_floor(len(seeds)):.4g}."
        if len(seeds) > 1
        else "One seed says nothing about the spread over seeds."
    )
    baseline = baseline_row(rows)
    if baseline is None or not any(baseline in (comparison.row, comparison.other) for comparison in comparisons):
        method = baseline_method(rows)
        need = f"of {method}'s, which must be one" if method else "of a baseline that all plans name"
        return f"No marks: they need stored predictions of a row and {need}. {floor}"
    return (
        f"↑ and ↓: mean score above or below {baseline} at the 5 % level (paired bootstrap over dev examples with "
        f"seeds as second level, Holm over tasks). {floor}"
    )


def departure_notes(studies: list[Study]) -> list[str]:
    """What sets the numbers apart from the methods' papers, a line per method."""
    told: dict[str, list[str]] = {}
    for study in studies:
        for who, lines in study.file.plan.departures.items():
            if is_mini(study) and who != "protocol":
                continue  # nothing there is to be held against a paper
            told.setdefault(who, []).extend(line for line in lines if line not in told.get(who, []))
    return [f"departures, {who}: {'; '.join(lines)}" for who, lines in told.items() if lines]


def _study_notes(evidence: Evidence) -> list[str]:
    """Which studies the cells are from, what was asked for beyond the methods' own values, and the search behind."""
    studies, rows = evidence.studies, evidence.rows
    notes = setting_notes(studies) + _search_notes(rows) + _data_notes(rows)
    if len(studies) > 1:
        named = zip(names_of(studies), studies, strict=True)
        notes += [f"study {name}: {', '.join(study.methods)} on {', '.join(study.tasks)}" for name, study in named]
    return notes


def _search_notes(rows: list[Row]) -> list[str]:
    """How many configurations each row was chosen from; said where rows differ."""
    samples = {row.label: sorted({cell.arm.samples for cell in row.cells.values()}) for row in rows}
    if len({tuple(numbers) for numbers in samples.values()}) < 2:
        return []
    told = [f"{label} {' or '.join(map(str, numbers))}" for label, numbers in samples.items()]
    return [f"rows were chosen from unlike numbers of configurations per task: {', '.join(told)}"]


def _data_notes(rows: list[Row]) -> list[str]:
    """A line for every column that is not the official GLUE."""
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        for task, cell in row.cells.items():
            if cell.data_differences and not any(map(is_mini, cell.studies)):
                found[task] = cell.data_differences
    return [f"{TASKS[task].title} is not the official GLUE: {'; '.join(lines)}" for task, lines in found.items()]


def _paper_rows(rows: list[Row]) -> tuple[PublishedRow, ...]:
    """The dev rows of the PALBERT paper on the table's backbones: table 2 unless all of them are table 3's."""
    backbones = {backbone for row in rows for backbone in row.backbones}
    papers = {paper: published_rows(paper) for paper in ("PALBERT Tab.2", "PALBERT Tab.3")}
    fitting = [found for found in papers.values() if found[0].backbone in backbones]
    return tuple(row for found in fitting or [papers["PALBERT Tab.2"]] for row in found)


def _test_blocks(rows: list[Row]) -> list[Block]:
    """The paper's test numbers beside its dev numbers; ours would come from the GLUE server."""
    return [_test_block(paper) for paper in dict.fromkeys(row.paper for row in _paper_rows(rows))]


def _test_block(paper: str) -> Block:
    published = published_rows(paper, split="test")
    what = dict.fromkeys(other.what for other in published)
    title = f"Published, on the test set; ours need the GLUE server, see study.submit ({' and '.join(what)})"
    return Block(title, [_published_test_line(other) for other in published])


def _published_test_line(other: PublishedRow) -> Line:
    return Line(f"published {other.label}", {task: n.entry for task, n in other.numbers.items()}, published=True)


def _sidecar(studies: list[Study], rows: list[Row], facts: Callable[[Cell], dict[str, Any]]) -> dict[str, Any]:
    return {
        "protocol": {studies[0].protocol_hash: to_plain(studies[0].protocol)},
        "studies": [
            {"name": name, "records": study.records_digest}
            for name, study in zip(names_of(studies), studies, strict=True)
        ],
        "incomplete": seed_notes(rows),
        "cells": [{"row": row.label} | facts(cell) for row in rows for cell in row.cells.values()],
    }
