"""What the numbers cost: layers and time, scores at equal compute and at equal layers, what exits are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.layouts.evidence import Evidence, Measure, make_table, median_entry, task_lines
from analysis.layouts.table import (
    HUNDREDTHS,
    INTERVAL,
    POINTS,
    TENTHS,
    WHOLE,
    Column,
    Entry,
    Style,
    Table,
    text_table,
)
from analysis.statistics import costs
from analysis.statistics.exits import Calibration, LayerCalibration, Spread, TradeOff, calibration, trade_off
from analysis.statistics.samples import Place
from analysis.statistics.searches import UNITS, EqualBudget, at_equal_budget
from analysis.studies.cells import Cell
from study.facts.ledger import in_words
from trainables.data.tasks import TASKS
from trainables.runs.trial import TIMED_BATCHES
from trainables.schema import to_plain

ENDS = (min(TIMED_BATCHES), max(TIMED_BATCHES))  # batch sizes; more columns are wider than a page
SHARES_OF_DEPTH = (0.25, 0.5, 0.75)  # at which scores are compared
RANGE = ("", *INTERVAL)
POINTS_RANGE = Style("{} ({} to {})", RANGE, scale=100)  # 72.5 (70.0 to 74.0)
LAYERS_RANGE = Style("{} ({} to {})", RANGE)

Facts = dict[str, Any]  # of `speed_facts`


def _fact(name: str, heading: str, style: Style) -> Column[tuple[Cell, Facts]]:
    return Column(name, heading, lambda subject: style.entry(subject[1][name]))


def _parameters(subject: tuple[Cell, Facts]) -> Entry:
    millions = subject[1]["parameters"]
    return (Style(decimals=3) if millions is not None and millions < 1 else TENTHS).entry(millions)


def _layer_range(subject: tuple[Cell, Facts]) -> Entry:
    return Style("{} to {}", INTERVAL).entry(subject[1]["fewest_layers"], subject[1]["most_layers"])


SPEED: list[Column[tuple[Cell, Facts]]] = [
    Column("score", "score", lambda subject: median_entry(subject[0])),
    Column("parameters", "#Param", _parameters),
    _fact("num_layers", "depth", WHOLE),
    _fact("mean_layers", "layers", HUNDREDTHS),
    Column("range", "range", _layer_range),
    _fact("layer_ratio", "ratio", HUNDREDTHS),
    *(_fact(f"time_ratio_{size}", f"time, {size}", HUNDREDTHS) for size in ENDS),
    _fact("seconds_per_trial", "trial s", WHOLE),
]


def speed_table(evidence: Evidence) -> Table:
    """Layers run, layer ratio and measured time of every cell, medians over the confirm seeds."""
    return make_table(
        evidence,
        "speed",
        title="Layers and time{data}, median over {seeds}",
        first_column="arm",
        columns=SPEED,
        subjects=[(f"{label}/{cell.task}", (cell, costs.speed_facts(cell))) for label, cell in evidence.cells],
        caption=(
            "Layers: mean layers run per dev example, with their range over seeds; ratio: depth / mean layers, so many "
            f"times fewer layers. {_time_in_words(evidence, ENDS)}Parameters in millions, of the whole model; trial s, "
            "wall-clock seconds of a confirm trial."
        ),
        facts=costs.speed_facts,
    )


def _time_in_words(evidence: Evidence, batch_sizes: Iterable[int]) -> str:
    """What the measured ratios are; empty if nothing was timed."""
    devices = costs.devices_in_words(cell for _, cell in evidence.cells)
    if not devices:
        return ""
    return (
        "Time: milliseconds with all layers / with the model's exit, so many times less time, in batches of "
        f"{', '.join(map(str, batch_sizes))} on {devices}, timed in the trial's own process after its training, on a "
        "few examples of the split that selects (one thread of a CPU by its own clock), while other trials may have "
        "shared the machine. "
    )


def _timed(name: str, size: int) -> Callable[[costs.MeasuredExit], Entry | None]:
    return lambda timed: HUNDREDTHS.entry(getattr(timed, name)(size)) if size in timed.batch_sizes else None


LATENCY: list[Column[costs.MeasuredExit]] = [
    Column("layer_ratio", "ratio", lambda timed: HUNDREDTHS.entry(timed.layer_ratio(max(timed.batch_sizes)))),
    Column("gigaflops", "GFLOPs", lambda timed: Style(scale=1e-9, decimals=3).entry(timed.flops)),
    *(Column(f"milliseconds_{size}", f"ms, {size}", _timed("milliseconds", size)) for size in TIMED_BATCHES),
    *(Column(f"time_ratio_{size}", f"time, {size}", _timed("time_ratio", size)) for size in TIMED_BATCHES),
]


def latency_table(evidence: Evidence) -> Table | None:
    """Milliseconds per example at each timed setting of the exit; None where nothing was timed."""
    subjects = [
        (f"{label}/{cell.task}, {timed.name}{' (its own)' * (number == 0)}", timed)
        for label, cell in evidence.cells
        for number, timed in enumerate(costs.measured_exits(cell))
    ]
    if not subjects:
        return None
    return make_table(
        evidence,
        "latency",
        title="Milliseconds per example{data}, median over {seeds}",
        first_column="arm",
        columns=LATENCY,
        subjects=subjects,
        caption=(
            f"{_time_in_words(evidence, TIMED_BATCHES)}Ratio: of layers, by the examples of the largest batches, as "
            "are GFLOPs per example (products of matrices alone)."
        ),
        facts=lambda cell: {"latencies": to_plain(costs.latencies_of(cell))},
    )


def compute_tables(evidence: Evidence) -> list[Table]:
    """The time of each row's trials, and of each arm and phase, in words: for the report's page."""
    ledger = costs.row_ledger(evidence.rows)
    arms = [spent for entry in ledger for spent in entry.spent]
    unit = costs.unit_of(entry.total for entry in ledger)
    longest = costs.time_unit(max((max(spent.wall_seconds, spent.gpu_seconds) for spent in arms), default=0.0))
    shared = any(entry.pretrained for entry in ledger)
    caption = "Time of all trials, stopped and failed ones too."
    caption += " Pretraining: what it has cost, each arm paying as much of it as any other." * shared
    of_rows = {
        entry.row: {
            "search": entry.search.in_words(unit),
            "confirm": entry.confirm.in_words(unit),
            **({"pretraining": entry.pretraining.in_words(unit)} if shared else {}),
            "together": entry.total.in_words(unit),
            "trials": in_words(entry.trials),
        }
        for entry in ledger
    }
    of_arms = [
        {
            "phase": spent.phase,
            "epochs": str(spent.epochs),
            "examples": f"{spent.train_examples:,}",
            "training": costs.time_in_words(spent.train_seconds, longest),
            "evaluation": costs.time_in_words(spent.eval_seconds, longest),
            "wall clock": costs.time_in_words(spent.wall_seconds, longest),
            "GPU": costs.time_in_words(spent.gpu_seconds, longest),
            "trials": in_words(spent.trials),
        }
        for spent in arms
    ]
    by_row = text_table(
        "compute", title="Compute of each method", first_column="method", lines=of_rows.items(), caption=caption
    )
    by_arm = text_table(
        "compute_of_arms",
        title="Compute of each arm and phase",
        first_column="arm",
        lines=[(spent.arm, texts) for spent, texts in zip(arms, of_arms, strict=True)],
        caption="Examples with their repeats.",
    )
    return [replace(by_row, notes=costs.ledger_notes(ledger)[1:]), by_arm]


def equal_compute_table(evidence: Evidence) -> Table | None:
    """Every row's expected best search score at the smallest budget that all rows of a task had.

    None where no task was searched by two rows.
    """
    budgets_by_unit = {unit: {budget.task: budget for budget in at_equal_budget(evidence.rows, unit)} for unit in UNITS}
    if not budgets_by_unit["trials"]:
        return None

    def measure(budgets: dict[str, EqualBudget]) -> Measure:
        return lambda place, cell: (
            POINTS.entry(budgets[cell.task].scores.get(place[0])) if cell.task in budgets else None
        )

    epochs = [f"{TASKS[task].title} {budget.budget:,.0f}" for task, budget in budgets_by_unit["epochs"].items()]
    pretrained = any(entry.pretrained for entry in costs.row_ledger(evidence.rows))
    return make_table(
        evidence,
        "equal_compute",
        title="Search scores at equal compute{data}",
        lines=[
            line for unit in UNITS for line in task_lines(evidence, {f", equal {unit}": measure(budgets_by_unit[unit])})
        ],
        caption=(
            "Points: expected best selection score of a search of the smallest budget that a row of the task had "
            "(arXiv:1909.03004, which is biased downwards near the end of a budget; stopped and failed trials are part "
            "of the cost). Seconds are of GPUs, or of the clock where not all searches had one."
        ),
        notes=[
            f"budgets in epochs: {', '.join(epochs)}",
            *["budgets are of the searches alone: the pretraining before them is in none"] * pretrained,
        ],
        further={"budgets": [to_plain(budget) for budgets in budgets_by_unit.values() for budget in budgets.values()]},
    )


def equal_layers_table(evidence: Evidence) -> Table | None:
    """Scores at the same mean layers; None where no cell exits early."""
    trade_offs = _trade_offs(evidence)
    if not trade_offs:
        return None

    def measure(share: float) -> Measure:
        def entry(place: Place, _: Cell) -> Entry | None:
            depth = evidence.exits[place].num_layers if place in trade_offs else 0
            return (
                _spread_entry(trade_offs[place].score_at(share * depth), POINTS_RANGE) if place in trade_offs else None
            )

        return entry

    return make_table(
        evidence,
        "equal_layers",
        title="Scores at equal layers{data}, median over {seeds}",
        measures={f", {share:.0%} of its layers": measure(share) for share in SHARES_OF_DEPTH},
        caption=(
            "Points, with the range over seeds: each model's score where it runs this share of its layers per dev "
            "example, along the Pareto front of its settings of q and patience. A gap: not every seed's front reaches "
            "there."
        ),
    )


def equal_score_table(evidence: Evidence) -> Table | None:
    """Mean layers that each row needs for the baseline's score; None without a baseline or an early exit."""
    trade_offs, baseline = _trade_offs(evidence), evidence.baseline
    wanted = {cell.task: cell.median for label, cell in evidence.cells if label == baseline and cell.records}
    if not trade_offs or not wanted:
        return None

    def measure(less: float) -> Measure:
        def entry(place: Place, cell: Cell) -> Entry | None:
            if place not in trade_offs or cell.task not in wanted:
                return None
            return _spread_entry(trade_offs[place].layers_for(wanted[cell.task] - less), LAYERS_RANGE)

        return entry

    return make_table(
        evidence,
        "equal_score",
        title=f"Layers for the score of {baseline}{{data}}",
        measures={f", {baseline}'s median": measure(0.0), f", {baseline}'s median - 1 point": measure(0.01)},
        unit="mean layers",
        caption=(
            "Mean layers run per dev example, median and range over seeds, along the Pareto front of each model's "
            "settings. A gap: not every seed's front reaches the score."
        ),
        further={"wanted": wanted},
    )


def _posterior(part: Callable[[LayerCalibration], float]) -> Callable[[Calibration], Entry | None]:
    return lambda exits: _mean(exits.posterior, part) if exits.posterior else None


CALIBRATION: list[Column[Calibration]] = [
    Column("posterior_error", "posterior, error", _posterior(lambda layer: layer.expected_calibration_error)),
    Column("posterior", "posterior says", _posterior(lambda layer: layer.confidence)),
    Column("agreement", "agrees", _posterior(lambda layer: layer.share)),
    Column(
        "exit_error", "exits, error", lambda exits: _mean(exits.exits, lambda layer: layer.expected_calibration_error)
    ),
    Column("confidence", "confidence", lambda exits: _mean(exits.exits, lambda layer: layer.confidence)),
    Column("accuracy", "accuracy", lambda exits: _mean(exits.exits, lambda layer: layer.share)),
]


def calibration_table(evidence: Evidence) -> Table | None:
    """Whether exits mean what they say; None without stored predictions of classes."""
    read = {place: calibration(sample.predictions) for place, sample in evidence.samples.items()}
    calibrations = {place: own for place, own in read.items() if own is not None}
    if not calibrations:
        return None
    return make_table(
        evidence,
        "calibration",
        title="Calibration of exits{data}",
        first_column="arm",
        columns=CALIBRATION,
        subjects=[("/".join(place), own) for place, own in calibrations.items()],
        unit="%",
        caption=(
            "Per cent, means over the layers, each weighted by its examples; by layer in the JSON file. Posterior: how "
            "sure Λ is at a layer that its answer will do (CDF), against the share of examples whose answer there is "
            "the last layer's. Exits: the answer's probability against accuracy, of the examples that leave at a "
            "layer. Error: expected calibration error, ten bins."
        ),
        further={
            "calibration": [{"row": row, "task": task} | to_plain(own) for (row, task), own in calibrations.items()]
        },
    )


def _trade_offs(evidence: Evidence) -> dict[Place, TradeOff]:
    return {place: trade_off(exits) for place, exits in evidence.exits.items() if exits.is_early}


def _spread_entry(spread: Spread | None, style: Style) -> Entry:
    return style.entry_in_range(spread.median, spread.lowest, spread.highest) if spread else Entry()


def _mean(layers: Sequence[LayerCalibration], part: Callable[[LayerCalibration], float]) -> Entry:
    return POINTS.entry(float(np.average([part(layer) for layer in layers], weights=[own.examples for own in layers])))
