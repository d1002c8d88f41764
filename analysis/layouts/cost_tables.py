"""Tables of costs: layers and time with early exits, guarantees for exits, compute, and scores at equal compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from analysis.layouts.evidence import Evidence, format_test, make_table
from analysis.layouts.table import (
    ESTIMATE,
    HUNDREDTHS,
    INTERVAL,
    POINTS,
    POINTS_RANGE,
    TENTHS,
    WHOLE,
    Entry,
    Line,
    Style,
    Table,
)
from analysis.statistics import costs
from analysis.statistics.comparisons import Comparison
from analysis.statistics.curves import Curves, shared_ranges
from analysis.statistics.exits import RISKS, Guarantee, Sweep, read_guarantees
from analysis.statistics.samples import Place
from analysis.statistics.searches import UNITS, at_equal_budget, completed_scores
from analysis.statistics.uncertainty import mean_interval
from study.facts.plain_words import joined
from study.facts.record import format_counts
from trainables.data.tasks import TASKS
from trainables.models.answer_rules import FixedLayer
from trainables.models.safe_exits import CONFIDENCE
from trainables.runs.trial import TIMED_BATCHES

ENDS = (min(TIMED_BATCHES), max(TIMED_BATCHES))  # batch sizes in the table; more columns do not fit on a page
FEWEST_COMPLETED = 10  # completed search trials of an arm; with fewer, the expected best score is noise
SHARES = {"at_25": 0.25, "at_50": 0.5, "at_75": 0.75}  # of the layers, as in F-PABEE's table 1 (arXiv:2305.11916)
NEARBY = 1 / 8  # largest distance of a setting from its share, as a share of the layers
LAYERS_RANGE = Style("{} ({} to {})", ("", *INTERVAL), decimals=2)
SAFE_LAYERS = Style("{} / {}", ("_with_labels", "_without"), decimals=2)


EXITS = {  # columns
    "mean_layers": "layers",
    "depth_layers": "of",
    **{f"time_ratio_{size}": f"time, {size}" for size in ENDS},
    "megaflops": "MFLOPs",
    "score_at_half": "at half its layers",
    "fixed_at_half": "fixed layer",
    "elue_score": "ELUE score",
    "curve_difference": "curve",
    "curve_difference_by_flops": "curve, FLOPs",
    "difference": "difference",
}


def exits_table(evidence: Evidence) -> Table | None:
    """Tabulate the mean number of layers, the inference time and the scores of each arm.

    Return None if no run recorded its mean number of layers.
    """
    cells = [(label, cell) for label, cell in evidence.cells if cell.records]
    if not any(record.mean_layers for _, cell in cells for record in cell.records):
        return None
    baseline = evidence.baseline or "the baseline"
    differences = {
        "curve_difference": evidence.compare_curves(evidence.curves),
        "curve_difference_by_flops": evidence.compare_curves(evidence.curves_by_flops),
        "difference": evidence.differences,
    }
    lines = [
        Line(f"{label}/{cell.task}", _describe_exits(evidence, (label, cell.task), differences))
        for label, cell in cells
    ]
    devices = costs.name_devices(cell for _, cell in cells)
    caption = [
        '"Layers" is the mean number of layers per dev example. Parentheses enclose the range over seeds or, for '
        "differences and ELUE scores, the 95 % interval."
    ]
    if devices and evidence.baseline:
        caption.append(
            f'"Time" is the inference time per example divided by that of {baseline}, in batches of '
            f"{' and '.join(map(str, ENDS))} on {devices}. A few batches were timed after training; their times are "
            "scaled to the mean number of layers on dev. Other trials may have run during the measurement."
        )
    caption += _explain_curves(evidence)
    if any("fixed_at_half" in line.entries for line in lines):
        caption.append('"Fixed layer" is the score if every example exits at the middle layer.')
    caption.append(f'"Difference" is the mean score minus that of {baseline}.')
    return make_table(
        evidence,
        "exits",
        title="Exits{data}, median over {seeds}",
        first_column="arm",
        columns=EXITS,
        lines=lines,
        caption=" ".join(caption),
    )


def exit_settings_table(evidence: Evidence) -> Table | None:
    """Tabulate the score, the mean number of layers and the speed-up at every exit setting.

    Return None if the models have no exit settings.
    """
    lines = [
        Line(
            f"{'/'.join(place)}, {sweep.field} {setting:g}",
            {
                "score": POINTS.entry(score),
                "mean_layers": HUNDREDTHS.entry(layers),
                "speed_up": HUNDREDTHS.entry(exits.num_layers / layers),
            },
        )
        for place, exits in evidence.exits.items()
        for sweep in exits.sweeps
        for setting, score, layers in zip(
            sweep.settings, np.median(sweep.scores, axis=0), np.median(sweep.mean_layers, axis=0), strict=True
        )
    ]
    if not lines:
        return None
    return make_table(
        evidence,
        "exit_settings",
        title="Exit settings of the trained models{data}, median over {seeds}",
        first_column="setting",
        columns={"score": "score", "mean_layers": "layers", "speed_up": "speed-up"},
        lines=lines,
        caption=(
            "Each line has the dev results of an arm's models at one exit setting. A setting that is chosen from this "
            "table is chosen on dev. Speed-up means all layers / mean layers; PABEE, GPFEE, PCEE-BERT and F-PABEE "
            "print 1 - mean layers / all layers."
        ),
        unit="points; speed_up: ratio",
    )


def _explain_curves(evidence: Evidence) -> list[str]:
    """Explain the columns that are computed from curves; return an empty list if no method exits early."""
    if not evidence.curves:
        is_early = any(exits.is_early for exits in evidence.exits.values())
        return ['"At half its layers" needs stored predictions and an exit rule of this package.'] * is_early
    over_layers = _format_ranges(evidence.curves, "{:.1f} to {:.1f}")
    over_flops = _format_ranges(evidence.curves_by_flops, "{:.3g} to {:.3g}")
    return [
        '"At half its layers" is a model\'s score at half of all layers, interpolated on the Pareto front of its exit '
        "settings. The front is chosen on one half of dev and measured on the other; then the halves swap roles.",
        '"ELUE score" is the mean gain of a model\'s exit settings over exits at a fixed layer, for equal mean layers.',
        *[
            f'"Curve" is the mean score along the Pareto front minus that of {evidence.curve_reference}. Both means '
            f"cover the range of layers that all rows reach ({over_layers})."
        ]
        * bool(over_layers),
        *[f'"Curve, FLOPs" is like "curve", but over MFLOPs instead of layers ({over_flops}).'] * bool(over_flops),
    ]


def _format_ranges(curves: Mapping[Place, Curves], form: str) -> str:
    """Format the range of costs that all curves of a task cover, for each task."""
    return ", ".join(f"{TASKS[task].title} {form.format(*ends)}" for task, ends in shared_ranges(curves).items())


def _describe_exits(
    evidence: Evidence, place: Place, differences: Mapping[str, Mapping[Place, Comparison]]
) -> dict[str, Entry]:
    """Return the arm's entries in table `exits`.

    `differences` maps column -> place -> comparison.
    """
    cell, exits, curves = evidence.cells_by_place[place], evidence.exits.get(place), evidence.curves.get(place)
    baseline = evidence.cells_by_place.get((str(evidence.baseline), cell.task))
    times = {size: costs.relative_time([(cell, baseline)], size) if baseline else None for size in ENDS}
    flops = costs.flops(cell)
    at_half = curves.score_at(exits.num_layers / 2) if curves and exits else None  # interpolated, one per seed
    fixed = next((sweep for sweep in evidence.rules.get(place, ()) if sweep.rule == FixedLayer.name), None)
    fixed_at_half = fixed.scores[:, len(fixed.settings) // 2 - 1].tolist() if fixed else None  # rounded down
    layers = [record.mean_layers for record in cell.records if record.mean_layers is not None]
    entries = {
        "mean_layers": LAYERS_RANGE.entry_over_seeds(layers),
        "depth_layers": WHOLE.entry(exits.num_layers if exits else None),
        **{f"time_ratio_{size}": HUNDREDTHS.entry(time) for size, time in times.items()},
    }
    if flops is not None:
        text = f"{flops / 1e6:.0f}" if flops >= 1e8 else f"{flops / 1e6:.3g}"
        entries["megaflops"] = replace(Entry.from_text(text), values={"": flops / 1e6})
    if at_half is not None or (exits and exits.is_early):
        entries["score_at_half"] = POINTS_RANGE.entry_over_seeds(at_half or [])
    if fixed_at_half is not None:
        entries["fixed_at_half"] = POINTS_RANGE.entry_over_seeds(fixed_at_half)
    if curves and len(curves.whole) > 1:
        elue = curves.elue()
        mean, interval = float(np.mean(elue.scores)), mean_interval(elue.resampled, elue.scores)
        entries["elue_score"] = ESTIMATE.entry(mean, interval.low, interval.high)
    for column, tests in differences.items():
        if place in tests:
            entries[column] = format_test(tests[place].test)
    return entries


def _format_nearest(sweep: Sweep, depth: int, share: float) -> Entry:
    """Format the exit setting that runs nearest to `share` of all layers, as `score at layers (setting)`.

    Return an empty entry if no setting is near enough.
    """
    place = sweep.nearest(share * depth, within=depth * NEARBY)
    if place is None:
        return Entry()
    score, layers = (float(np.median(by_seed[:, place])) for by_seed in (sweep.scores, sweep.mean_layers))
    setting = float(sweep.settings[place])
    numbers = {"": POINTS.text(score), "_layers": TENTHS.text(layers), "_setting": f"{setting:g}"}
    values = {"": POINTS.scale * score, "_layers": layers, "_setting": setting}
    return Entry("{} at {} ({})".format(*numbers.values()), numbers, values)


def exit_rules_table(evidence: Evidence) -> Table | None:
    """Tabulate how several exit rules score on the same models at about 25, 50 and 75 % of the layers.

    Return None if no models have results of several exit rules.
    """
    rules = {
        (*place, sweep.rule): sweep for place, sweeps in evidence.rules.items() for sweep in sweeps if len(sweeps) > 1
    }
    if not rules:
        return None
    scores = list(dict.fromkeys(TASKS[task].title for _, task, _ in rules if TASKS[task].is_regression))
    return make_table(
        evidence,
        "exit_rules",
        title="Exit rules on the same trained models{data}, median over {seeds}",
        first_column="rule",
        columns={name: f"near {share:.0%}" for name, share in SHARES.items()},
        lines=[
            Line(
                f"{row}/{task}, {rule.replace('_', ' ')}",
                {
                    name: _format_nearest(sweep, evidence.exits[row, task].num_layers, share)
                    for name, share in SHARES.items()
                },
            )
            for (row, task, rule), sweep in rules.items()
        ],
        caption=(
            "Each entry has the exit setting that runs nearest to 25, 50 or 75 % of all layers, as dev score at mean "
            "layers (setting). The models of an arm were trained and selected under the arm's first rule. The JSON "
            "file has all settings."
        ),
        notes=[f"rules on class probabilities do not apply to {joined(scores)}: the labels are scores"]
        if scores
        else [],
        sidecar={
            "rules": [
                {"row": row, "task": task}
                | {
                    name: value.tolist() if isinstance(value, np.ndarray) else value
                    for name, value in vars(sweep).items()
                }
                for (row, task, _), sweep in rules.items()
            ]
        },
    )


def _format_safe_layers(bounds: np.ndarray, num_layers: int) -> Entry:
    entry = SAFE_LAYERS.entry(*(float(np.median(layers)) for layers in bounds))
    are_safe = [bool((layers < num_layers).any()) for layers in bounds]
    texts = [number if is_safe else "none" for number, is_safe in zip(entry.numbers.values(), are_safe, strict=True)]
    return replace(entry, text=" / ".join(texts))


def _describe_guarantee(guarantee: Guarantee) -> dict[str, Entry]:
    counts = {"num_layers": guarantee.num_layers, "examples": guarantee.examples}
    return {name: WHOLE.entry(count) for name, count in counts.items()} | {
        f"confident_{100 * risk:.0f}": _format_safe_layers(bounds, guarantee.num_layers)
        for risk, bounds in guarantee.layers.items()
    }


def guarantees_table(evidence: Evidence) -> Table | None:
    """Tabulate the fewest mean layers at which each exit rule is shown to lose few right answers.

    Return None if no classification task has exit settings.
    """
    lines = [
        Line(f"{label}/{cell.task}, {guarantee.rule}", _describe_guarantee(guarantee))
        for label, cell in evidence.cells
        for guarantee in read_guarantees(cell)
    ]
    if not lines:
        return None
    selected = any(study.protocol.selection == "dev" for study in evidence.studies)
    chosen = "each model's epoch was chosen on the same dev set, so slightly more examples may be lost on new data"
    return make_table(
        evidence,
        "guarantees",
        title="Exits shown to lose few right answers{data}: mean layers, median over {seeds}",
        first_column="exit",
        columns={
            "num_layers": "of",
            "examples": "examples",
            **{f"confident_{100 * risk:.0f}": f"{100 * risk:.0f} %" for risk in RISKS},
        },
        lines=lines,
        unit="layers",
        caption=(
            "The first number of an entry is the mean layers at the earliest exit setting that is shown to lose at "
            "most the column's share of examples. An example is lost if the last layer predicts the dev label and the "
            "exit does not. The second number uses no labels: an example is lost if the exit and the last layer "
            f"predict different labels. Each bound holds by itself with {100 * CONFIDENCE:.0f} % confidence, not "
            "jointly with the others. None: no exit is shown to satisfy the bound."
        ),
        notes=[chosen] * selected,
    )


def compute_table(evidence: Evidence) -> Table:
    """Tabulate the compute that the trials of each method used."""
    ledger = costs.row_ledger(evidence.rows)
    unit = costs.choose_unit(entry.total for entry in ledger)
    shared = any(entry.pretrained for entry in ledger)
    caption = "The table has the time of all trials, including stopped and failed trials."
    caption += " The cost of pretraining is divided equally among the arms." * shared
    columns = ["search", "confirm", *["pretraining"] * shared, "together", "trials"]
    return make_table(
        evidence,
        "compute",
        title="Compute of each method",
        columns={name: name for name in columns},
        lines=[Line(entry.row, _describe_compute(entry, unit)) for entry in ledger],
        caption=caption,
        unit="",
        notes=costs.warn_of_unlike_compute(ledger),
    )


def _describe_compute(entry: costs.Entry, unit: costs.TimeUnit) -> dict[str, Entry]:
    """Return the row's entries in table `compute`. The JSON file has the exact seconds."""

    def describe(spent: costs.Compute) -> Entry:
        seconds = {f"_{name}": number for name, number in vars(spent).items()}
        return replace(Entry.from_text(spent.describe(unit)), values=seconds)

    return {
        "search": describe(entry.search),
        "confirm": describe(entry.confirm),
        "pretraining": describe(entry.pretraining),
        "together": describe(entry.total),
        "trials": Entry.from_text(format_counts(entry.trials)),
    }


def equal_compute_table(evidence: Evidence) -> Table | None:
    """Tabulate the expected best score of each search within the cost of the task's cheapest search.

    Return None if no task was searched by two rows, or if an arm completed fewer than `FEWEST_COMPLETED` search trials.
    """
    completed = [len(completed_scores(cell.arm_records)) for _, cell in evidence.cells]
    if min(completed, default=0) < FEWEST_COMPLETED:
        return None
    budgets_by_unit = {unit: {budget.task: budget for budget in at_equal_budget(evidence.rows, unit)} for unit in UNITS}
    if not budgets_by_unit["trials"]:
        return None

    epochs = [f"{TASKS[task].title} {budget.budget:,.0f}" for task, budget in budgets_by_unit["epochs"].items()]
    pretrained = any(entry.pretrained for entry in costs.row_ledger(evidence.rows))
    return make_table(
        evidence,
        "equal_compute",
        title="Search scores at equal compute{data}",
        first_column="arm",
        columns={f"equal_{unit}": f"equal {unit}" for unit in UNITS},
        lines=[
            Line(
                f"{row}/{task}",
                {
                    f"equal_{unit}": POINTS.entry(budgets[task].scores.get(row))
                    for unit, budgets in budgets_by_unit.items()
                    if task in budgets
                },
            )
            for row, task in evidence.cells_by_place
        ],
        caption=(
            "Each entry is the expected best selection score of a search, in points, within the budget of the task's "
            "cheapest search. This estimate (arXiv:1909.03004) is biased downwards near the end of a budget. Stopped "
            "and failed trials count as cost. Seconds are GPU seconds if all searches used GPUs, and otherwise "
            "wall-clock seconds."
        ),
        notes=[
            f"budgets in epochs: {', '.join(epochs)}",
            *["budgets cover the searches only, not the pretraining"] * pretrained,
        ],
    )
