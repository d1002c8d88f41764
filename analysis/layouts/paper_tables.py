"""The papers' table layouts, filled with a study's cells beside the published numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from analysis.layouts.beside_published import Beside, Placed, beside_published, tasks_of
from analysis.layouts.cell_facts import (
    ELECTRA_METRICS,
    PAPER_METRICS,
    cell_facts,
    cell_names,
    mark_meanings,
    mean_and_deviation_of,
    score_entry,
    scores_in,
    spread_entry,
)
from analysis.layouts.evidence import PAPER_TASKS, Evidence, on_mini, sidecar, task_columns
from analysis.layouts.notes import (
    comparison_notes,
    constant_notes,
    departure_notes,
    marks_in_words,
    origin_in_words,
    sampled_exit_notes,
    seed_notes,
    study_notes,
    verdict_notes,
)
from analysis.layouts.published_numbers import PublishedRow, published_rows
from analysis.layouts.table import Block, Entry, Line, Table, number_entry
from analysis.statistics.comparisons import marks
from analysis.statistics.costs import ledger_notes, row_ledger, speed_facts, speed_up
from analysis.studies.cells import Row
from analysis.studies.load import Study
from analysis.studies.protocol_words import seeds_in_words

ABLATION_TASKS = ("sst2", "rte", "cola")  # PALBERT, table 1
ELECTRA_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
PABEE_TASKS = ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb")


def dev_table(evidence: Evidence) -> Table:
    """PALBERT's table 2 (table 3 on RoBERTa): methods x tasks and macro, median over the confirm seeds."""
    studies, rows, comparisons = evidence.studies, evidence.rows, evidence.comparisons
    entries = row_ledger(rows)
    arrows = marks(rows, comparisons)
    placed = beside_published(rows, _paper_rows(rows), PAPER_METRICS, lambda row: _median_line(row, arrows))
    return Table(
        name="dev",
        title=f"GLUE dev scores{on_mini(studies)}, median over {seeds_in_words(studies, rows)}",
        columns=task_columns(studies, PAPER_TASKS) | {"macro": "macro"},
        lines=placed.lines,
        blocks=placed.blocks + _test_blocks(evidence, _papers_with_test(rows)),
        marks=mark_meanings(evidence.baseline),
        caption=" ".join(
            [
                "Points (100 x score).",
                *_macro_in_words(rows),
                marks_in_words(rows, comparisons),
                origin_in_words(studies),
            ]
        ),
        notes=[
            *seed_notes(rows),
            *constant_notes(evidence.samples),
            *verdict_notes(placed.pairs),
            *comparison_notes(comparisons),
            *sampled_exit_notes(rows),
            *ledger_notes(entries),
            *study_notes(studies, rows),
            *placed.notes,
            *departure_notes(studies),
        ],
        sidecar=sidecar(evidence, cell_facts)
        | {
            "macro": {row.label: macro(row) for row in rows},
            "comparisons": [comparison.to_json() for comparison in comparisons],
            "compute": [entry.to_json() for entry in entries],
        },
    )


def ablation_table(evidence: Evidence) -> Table:
    """PALBERT's table 1: mean ± standard deviation over the confirm seeds, one row per method and setting."""
    studies, rows = evidence.studies, evidence.rows
    placed = beside_published(rows, published_rows("PALBERT Tab.1"), PAPER_METRICS, _deviation_line)
    return Table(
        name="ablation",
        title=f"GLUE dev scores{on_mini(studies)}, mean ± standard deviation over {seeds_in_words(studies, rows)}",
        columns=task_columns(studies, ABLATION_TASKS),
        lines=placed.lines,
        blocks=placed.blocks,
        caption=f"Points (100 x score); the deviation is of single seeds (n - 1). {origin_in_words(studies)}",
        notes=[*seed_notes(rows), *verdict_notes(placed.pairs), *study_notes(studies, rows), *placed.notes],
        sidecar=sidecar(evidence, lambda cell: cell_names(cell) | mean_and_deviation_of(cell.scores)),
    )


def pabee_table(evidence: Evidence) -> Table:
    """The table of PABEE's README: parameters, speed-up, scores; with what other READMEs print of the same models."""
    studies, rows = evidence.studies, evidence.rows
    placed = beside_published(rows, _pabee_published(), PAPER_METRICS, _sized_line)
    over = f"median over {seeds_in_words(studies, rows)}"
    return Table(
        name="pabee",
        title=f"Parameters, speed-up and GLUE dev scores{on_mini(studies)}, {over}",
        columns={"parameters": "#Param", "speed_up": "speed"} | task_columns(studies, PABEE_TASKS),
        lines=_with_sizes(placed.lines, placed),
        blocks=[Block(block.title, _with_sizes(block.lines, placed)) for block in placed.blocks],
        caption=(
            "Points. Parameters in millions, heads and Λ included, shared ones once. Speed is all layers / "
            f"layers run per dev example, both summed over the tasks. {origin_in_words(studies)}"
        ),
        notes=[*seed_notes(rows), *study_notes(studies, rows), *placed.notes],
        sidecar=sidecar(evidence, lambda cell: cell_names(cell) | speed_facts(cell)),
    )


def electra_table(evidence: Evidence) -> Table:
    """ELECTRA's and ALECTRA's layout: parameters; MRPC and QQP by accuracy, STS-B by Spearman."""
    studies, rows = evidence.studies, evidence.rows
    placed = beside_published(rows, electra_published(), ELECTRA_METRICS, _electra_line)
    return Table(
        name="electra",
        title=f"GLUE dev scores{on_mini(studies)} in ELECTRA's metrics, median over {seeds_in_words(studies, rows)}",
        columns={"parameters": "#Param"} | task_columns(studies, ELECTRA_TASKS),
        lines=[_with_size(line, placed.published.get(line.label)) for line in placed.lines],
        blocks=[
            Block(block.title, [_with_size(line, placed.published.get(line.label)) for line in block.lines])
            for block in placed.blocks
        ]
        + _test_blocks(evidence, ("lmtuners", "electra_pytorch")),
        caption=(
            "Points; parameters in millions. CoLA Matthews, STS-B Spearman, the others accuracy; MNLI is the mean of "
            "matched and mismatched here and in lmtuners, matched only in ELECTRA's README. "
            f"{origin_in_words(studies)}"
        ),
        notes=[*seed_notes(rows), *verdict_notes(placed.pairs), *study_notes(studies, rows), *placed.notes],
        sidecar=sidecar(
            evidence, lambda cell: cell_names(cell) | {"scores": scores_in(cell, ELECTRA_METRICS[cell.task])}
        ),
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


def pairs_with_published(rows: list[Row]) -> list[Beside]:
    """Every number of ours with every published one that it may be held against, in all layouts."""
    papers = [(_paper_rows(rows), PAPER_METRICS), (published_rows("PALBERT Tab.1"), PAPER_METRICS)]
    papers += [(_pabee_published(), PAPER_METRICS), (electra_published(), ELECTRA_METRICS)]
    placed = [beside_published(rows, published, metrics, _no_line) for published, metrics in papers]
    return [pair for each in placed for pair in each.pairs]


def macro(row: Row) -> float | None:
    """The mean of the paper's eight medians; None unless each of them follows the protocol."""
    cells = [row.cells.get(task) for task in PAPER_TASKS]
    complete = [cell for cell in cells if cell is not None and cell.state == "complete"]
    return float(np.mean([cell.median for cell in complete])) if len(complete) == len(PAPER_TASKS) else None


def _no_line(row: Row) -> Line:
    return Line(row.label, {})


def _median_line(row: Row, arrows: dict[tuple[str, str], str]) -> Line:
    scores = {task: score_entry(cell, cell.median) for task, cell in row.cells.items()}
    entries = {task: replace(entry, mark=arrows.get((row.label, task), "")) for task, entry in scores.items()}
    if set(PAPER_TASKS) <= row.cells.keys():
        mean = macro(row)
        entries["macro"] = number_entry(None if mean is None else 100 * mean)
    return Line(row.label, entries)


def _deviation_line(row: Row) -> Line:
    return Line(row.label, {task: spread_entry(cell) for task, cell in row.cells.items()})


def _sized_line(row: Row) -> Line:
    facts = [speed_facts(cell) for cell in row.cells.values() if cell.records]
    parameters = [own["parameters"] for own in facts if own["parameters"] is not None]
    sizes = {
        "parameters": _size_entry(float(np.median(parameters)) if parameters else None),
        "speed_up": number_entry(speed_up(facts), 2),
    }
    return Line(row.label, sizes | {task: score_entry(cell, cell.median) for task, cell in row.cells.items()})


def _size_entry(millions: float | None) -> Entry:
    return number_entry(millions, 0 if millions is None or millions >= 1 else 3)


def _electra_line(row: Row) -> Line:
    parameters = _sized_line(row).entries["parameters"]
    medians = {
        task: float(np.median(scores_in(cell, ELECTRA_METRICS[task])))
        for task, cell in row.cells.items()
        if cell.records
    }
    entries = {task: score_entry(cell, medians.get(task, np.nan)) for task, cell in row.cells.items()}
    return Line(row.label, {"parameters": parameters} | entries)


def _with_sizes(lines: Sequence[Line], placed: Placed) -> list[Line]:
    return [_with_size(line, placed.published.get(line.label)) for line in lines]


def _with_size(line: Line, published: PublishedRow | None) -> Line:
    """A published line with the parameters and the speed-up that are printed with it."""
    if published is None:
        return line
    sizes = {}
    if published.parameters:
        sizes["parameters"] = number_entry(float(published.parameters.removesuffix("M")), 0)
    if published.speed_up is not None:
        sizes["speed_up"] = number_entry(published.speed_up, 2)
    return replace(line, entries=sizes | dict(line.entries))


def _macro_in_words(rows: list[Row]) -> list[str]:
    """What macro is, or why there is none; nothing where one task alone gives nobody reason to look for it."""
    if any(macro(row) is not None for row in rows):
        return ["Macro is the mean of the paper's eight tasks."]
    if len(tasks_of(rows).intersection(PAPER_TASKS)) < 2:
        return []
    return ["Macro, the mean of the paper's eight tasks, is left out until all eight are complete."]


def _paper_rows(rows: list[Row]) -> tuple[PublishedRow, ...]:
    """The dev rows of the PALBERT paper on the table's backbones: table 2 unless all of them are table 3's."""
    backbones = {backbone for row in rows for backbone in row.backbones}
    papers = {paper: published_rows(paper) for paper in ("PALBERT Tab.2", "PALBERT Tab.3")}
    fitting = [found for found in papers.values() if found[0].backbone in backbones]
    return tuple(row for found in fitting or [papers["PALBERT Tab.2"]] for row in found)


def _pabee_published() -> tuple[PublishedRow, ...]:
    """The published rows that stand in PABEE's table."""
    papers = ("PABEE README", "ALBERT README", "albert_pytorch", "fairseq README", "ShareBERT")
    return tuple(row for paper in papers for row in published_rows(paper))


def _papers_with_test(rows: list[Row]) -> list[str]:
    """The papers whose test numbers stand in the dev table: PALBERT's of its backbones, and COSEE's on ALBERT."""
    papers = list(dict.fromkeys(row.paper for row in _paper_rows(rows)))
    return papers + ["COSEE Tab.3"] * ("PALBERT Tab.2" in papers)


def _test_blocks(evidence: Evidence, papers: Iterable[str]) -> list[Block]:
    """The published test numbers on the tasks studied; ours would come from the GLUE server, none for mini-GLUE."""
    if any(study.is_mini for study in evidence.studies):
        return []
    tasks = tasks_of(evidence.rows)
    found = [[row for row in published_rows(paper, split="test") if row.is_about(tasks)] for paper in papers]
    return [_test_block(rows) for rows in found if rows]


def _test_block(published: list[PublishedRow]) -> Block:
    what = dict.fromkeys(other.what for other in published)
    title = f"Published, on the test set; ours need the GLUE server, see study.submit ({' and '.join(what)})"
    return Block(title, [_with_size(_published_test_line(other), other) for other in published])


def _published_test_line(other: PublishedRow) -> Line:
    return Line(f"published {other.label}", {task: n.entry for task, n in other.numbers.items()}, published=True)
