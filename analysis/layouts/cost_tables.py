"""What the numbers cost: layers and time, scores at equal compute and at equal layers, what exits are worth."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from analysis.layouts.cell_facts import cell_names, range_entry, speed_entries
from analysis.layouts.evidence import PAPER_TASKS, Evidence, on_mini, sidecar, task_columns
from analysis.layouts.notes import origin_in_words, seed_notes
from analysis.layouts.table import Entry, Line, Table, number_entry
from analysis.statistics.costs import (
    MeasuredExit,
    devices_in_words,
    latencies_of,
    measured_exits,
    row_ledger,
    speed_facts,
)
from analysis.statistics.exits import Calibration, LayerCalibration, Spread, TradeOff, calibration, trade_off
from analysis.statistics.samples import Place
from analysis.statistics.searches import UNITS, EqualBudget, at_equal_budget
from analysis.studies.cells import Row
from analysis.studies.protocol_words import seeds_in_words
from trainables.data.tasks import TASKS
from trainables.runs.trial import TIMED_BATCHES
from trainables.schema import to_plain

ENDS = (min(TIMED_BATCHES), max(TIMED_BATCHES))  # batch sizes; more columns are wider than a page
SHARES_OF_DEPTH = (0.25, 0.5, 0.75)  # at which scores are compared


def speed_table(evidence: Evidence) -> Table:
    """Layers run, layer ratio and measured time of every cell, medians over the confirm seeds."""
    studies, rows = evidence.studies, evidence.rows
    facts = {(row.label, task): speed_facts(cell) for row in rows for task, cell in row.cells.items()}
    return Table(
        name="speed",
        title=f"Layers and time{on_mini(studies)}, median over {seeds_in_words(studies, evidence.rows)}",
        first_column="arm",
        columns={
            "score": "score",
            "parameters": "#Param",
            "num_layers": "depth",
            "mean_layers": "layers",
            "range": "range",
            "layer_ratio": "ratio",
            **{f"time_ratio_{size}": f"time, {size}" for size in ENDS},
            "seconds_per_trial": "trial s",
        },
        lines=[
            Line(f"{row.label}/{task}", speed_entries(cell, facts[row.label, task]))
            for row in rows
            for task, cell in row.cells.items()
        ],
        caption=(
            "Layers: mean layers run per dev example, with their range over seeds; ratio: depth / mean layers, so many "
            f"times fewer layers. {_time_in_words(rows, ENDS)}"
            "Parameters in millions, of the whole model; trial s, wall-clock seconds of a confirm trial. "
            f"{origin_in_words(studies)}"
        ),
        notes=seed_notes(rows),
        sidecar=sidecar(evidence, lambda cell: cell_names(cell) | speed_facts(cell)),
    )


def _time_in_words(rows: list[Row], batch_sizes: Iterable[int]) -> str:
    """What the measured ratios are; said where anything was timed."""
    devices = devices_in_words(cell for row in rows for cell in row.cells.values())
    if not devices:
        return ""
    sizes = ", ".join(map(str, batch_sizes))
    return (
        f"Time: milliseconds with all layers / with the model's exit, so many times less time, in batches of {sizes} "
        f"on {devices}, timed in the trial's own process after its training, on a few examples of the split that "
        "selects (one thread of a CPU by its own clock), while other trials may have shared the machine. "
    )


def latency_table(evidence: Evidence) -> Table | None:
    """Milliseconds per example at each timed setting of the exit; None where nothing was timed."""
    studies, rows = evidence.studies, evidence.rows
    found = {(label, cell.task): measured_exits(cell) for label, cell in evidence.cells}
    if not any(found.values()):
        return None
    return Table(
        name="latency",
        title=f"Milliseconds per example{on_mini(studies)}, median over {seeds_in_words(studies, evidence.rows)}",
        first_column="arm",
        columns={"layer_ratio": "ratio", "gigaflops": "GFLOPs"}
        | {f"milliseconds_{size}": f"ms, {size}" for size in TIMED_BATCHES}
        | {f"time_ratio_{size}": f"time, {size}" for size in TIMED_BATCHES},
        lines=[
            Line(f"{label}/{task}, {own.name}{' (its own)' if own is exits[0] else ''}", _latency_entries(own))
            for (label, task), exits in found.items()
            for own in exits
        ],
        caption=(
            f"{_time_in_words(rows, TIMED_BATCHES)}Ratio: of layers, by the examples of the largest batches, as are "
            f"GFLOPs per example (products of matrices alone). {origin_in_words(studies)}"
        ),
        notes=seed_notes(rows),
        sidecar=sidecar(evidence, lambda cell: cell_names(cell) | {"latencies": to_plain(latencies_of(cell))}),
    )


def _latency_entries(own: MeasuredExit) -> dict[str, Entry]:
    sizes = own.by_batch_size
    entries = {f"milliseconds_{size}": number_entry(timed.milliseconds, 2) for size, timed in sizes.items()}
    entries |= {f"time_ratio_{size}": number_entry(timed.time_ratio, 2) for size, timed in sizes.items()}
    ratio = number_entry(sizes[max(sizes)].layer_ratio, 2)
    return {"layer_ratio": ratio, "gigaflops": number_entry(own.flops / 1e9, 3), **entries}


def equal_compute_table(evidence: Evidence) -> Table | None:
    """Every row's expected best search score at the smallest budget that all rows of a task had.

    None where no task was searched by two rows.
    """
    studies, rows = evidence.studies, evidence.rows
    found = {unit: {budget.task: budget for budget in at_equal_budget(rows, unit)} for unit in UNITS}
    if not found["trials"]:
        return None
    lines = [
        Line(f"{row.label}, equal {unit}", {task: _score_entry(budget, row.label) for task, budget in budgets.items()})
        for unit, budgets in found.items()
        for row in rows
    ]
    budgets = [f"{TASKS[task].title} {budget.budget:,.0f}" for task, budget in found["epochs"].items()]
    return Table(
        name="equal_compute",
        title=f"Search scores at equal compute{on_mini(studies)}",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[line for line in lines if line.entries],
        caption=(
            "Points: expected best selection score of a search of the smallest budget that a row of the task had "
            "(arXiv:1909.03004, which is biased downwards near the end of a budget; stopped and failed trials are part "
            "of the cost). Seconds are of GPUs, or of the clock where not all searches had one. "
            f"{origin_in_words(studies)}"
        ),
        notes=[f"budgets in epochs: {', '.join(budgets)}", *_not_in_budgets(rows)],
        sidecar=sidecar(evidence, cell_names)
        | {"budgets": [to_plain(budget) for budgets in found.values() for budget in budgets.values()]},
    )


def _not_in_budgets(rows: list[Row]) -> list[str]:
    pretrained = any(entry.pretrained for entry in row_ledger(rows))
    return ["budgets are of the searches alone: the pretraining before them is in none"] if pretrained else []


def equal_layers_table(evidence: Evidence) -> Table | None:
    """Scores at the same mean layers; None where no cell exits early."""
    studies = evidence.studies
    found = _trade_offs(evidence)
    if not found:
        return None
    depths = {place: evidence.exits[place].num_layers for place in found}
    lines = []
    for row in evidence.rows:
        for share in SHARES_OF_DEPTH:
            entries = {
                task: _spread_entry(found[row.label, task].score_at(share * depths[row.label, task]), 100, 1)
                for task in row.cells
                if (row.label, task) in found
            }
            lines.append(Line(f"{row.label}, {share:.0%} of its layers", entries))
    return Table(
        name="equal_layers",
        title=f"Scores at equal layers{on_mini(studies)}, median over {seeds_in_words(studies, evidence.rows)}",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[line for line in lines if line.entries],
        caption=(
            "Points, with the range over seeds: each model's score where it runs this share of its layers per dev "
            "example, along the Pareto front of its settings of q and patience. A gap: not every seed's front reaches "
            f"there. {origin_in_words(studies)}"
        ),
        notes=seed_notes(evidence.rows),
        sidecar=sidecar(evidence, cell_names),
    )


def equal_score_table(evidence: Evidence) -> Table | None:
    """Mean layers that each row needs for the baseline's score; None without a baseline or an early exit."""
    studies, baseline = evidence.studies, evidence.baseline
    found = _trade_offs(evidence)
    wanted = {cell.task: cell.median for label, cell in evidence.cells if label == baseline and cell.records}
    if not found or not wanted:
        return None
    lines = []
    for row in evidence.rows:
        for less in (0.0, 0.01):
            entries = {
                task: _spread_entry(found[row.label, task].layers_for(wanted[task] - less), 1, 1)
                for task in row.cells
                if (row.label, task) in found and task in wanted
            }
            target = f"{baseline}'s median" + (f" - {100 * less:g} point" if less else "")
            lines.append(Line(f"{row.label}, {target}", entries))
    return Table(
        name="equal_score",
        title=f"Layers for the score of {baseline}{on_mini(studies)}",
        columns=task_columns(studies, PAPER_TASKS),
        lines=[line for line in lines if line.entries],
        unit="mean layers",
        caption=(
            "Mean layers run per dev example, median and range over seeds, along the Pareto front of each model's "
            f"settings. A gap: not every seed's front reaches the score. {origin_in_words(studies)}"
        ),
        notes=seed_notes(evidence.rows),
        sidecar=sidecar(evidence, cell_names) | {"wanted": wanted},
    )


def calibration_table(evidence: Evidence) -> Table | None:
    """Whether exits mean what they say; None without stored predictions of classes."""
    studies = evidence.studies
    found = {
        place: own for place, sample in evidence.samples.items() if (own := calibration(sample.predictions)) is not None
    }
    if not found:
        return None
    return Table(
        name="calibration",
        title=f"Calibration of exits{on_mini(studies)}",
        first_column="arm",
        columns={
            "posterior_error": "posterior, error",
            "posterior": "posterior says",
            "agreement": "agrees",
            "exit_error": "exits, error",
            "confidence": "confidence",
            "accuracy": "accuracy",
        },
        lines=[Line(f"{row}/{task}", _calibration_entries(own)) for (row, task), own in found.items()],
        unit="%",
        caption=(
            "Per cent, means over the layers, each weighted by its examples; by layer in the JSON file. Posterior: how "
            "sure Λ is at a layer that its answer will do (CDF), against the share of examples whose answer there is "
            "the last layer's. Exits: the answer's probability against accuracy, of the examples that leave at a "
            "layer. Error: expected calibration error, ten bins. "
            f"{origin_in_words(studies)}"
        ),
        notes=seed_notes(evidence.rows),
        sidecar=sidecar(evidence, cell_names)
        | {"calibration": [{"row": row, "task": task} | to_plain(own) for (row, task), own in found.items()]},
    )


def _trade_offs(evidence: Evidence) -> dict[Place, TradeOff]:
    return {place: trade_off(exits) for place, exits in evidence.exits.items() if exits.is_early}


def _score_entry(budget: EqualBudget, label: str) -> Entry:
    score = budget.scores.get(label)
    return number_entry(None if score is None else 100 * score)


def _spread_entry(spread: Spread | None, factor: float, decimals: int) -> Entry:
    if spread is None:
        return Entry()
    median, low, high = (factor * value for value in (spread.median, spread.lowest, spread.highest))
    return range_entry(median, low, high, decimals)


def _calibration_entries(own: Calibration) -> dict[str, Entry]:
    entries = {}
    if own.posterior:
        error, says, agrees = _means(own.posterior)
        entries = {"posterior_error": error, "posterior": says, "agreement": agrees}
    error, confidence, accuracy = _means(own.exits)
    return {**entries, "exit_error": error, "confidence": confidence, "accuracy": accuracy}


def _means(layers: tuple[LayerCalibration, ...]) -> tuple[Entry, Entry, Entry]:
    weights = [layer.examples for layer in layers]
    parts = [(layer.expected_calibration_error, layer.confidence, layer.share) for layer in layers]
    error, confidence, share = np.average(parts, axis=0, weights=weights)
    return number_entry(100 * error), number_entry(100 * confidence), number_entry(100 * share)
