"""Tables of costs: layers and FLOPs with early exits, guarantees for exits, compute, and scores at equal compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.layouts.evidence import Evidence, format_test, make_table
from analysis.layouts.notes import difficulty_notes
from analysis.layouts.table import (
    DIFFERENCE,
    ESTIMATE,
    HUNDREDTHS,
    INTERVAL,
    POINTS,
    TENTHS,
    WHOLE,
    Entry,
    Line,
    Style,
    Table,
)
from analysis.statistics import costs
from analysis.statistics.budgets import MOST_LOST, Saving
from analysis.statistics.comparisons import is_epoch_chosen_on_dev
from analysis.statistics.curves import shared_ranges
from analysis.statistics.exit_settings import apply_setting
from analysis.statistics.exits import RISKS, Guarantee, Sweep, find_rule, read_guarantees
from analysis.statistics.gains import Gain, can_measure, measure_gains
from analysis.statistics.samples import Place
from analysis.statistics.searches import UNITS, at_equal_budget, completed_scores
from analysis.studies.stored_predictions import read_cell_predictions
from study.facts.record import format_counts
from study.terminal.text import joined
from trainables.data.tasks import TASKS
from trainables.models.safe_exits import CONFIDENCE

FEWEST_COMPLETED = 10  # completed search trials of an arm; with fewer, the expected best score is noise
SHARES = {"at_25": 0.25, "at_50": 0.5, "at_75": 0.75}  # of the layers, as in F-PABEE's table 1 (arXiv:2305.11916)
NEARBY = 1 / 8  # largest distance of a setting from its share, as a share of the layers
LAYERS_RANGE = Style("{} ({} to {})", ("", *INTERVAL), decimals=2)
POINTS_LOST = f"{100 * MOST_LOST:g} point"
WITHIN = f"within {POINTS_LOST}"  # title of the column with the fewest layers
NO_SETTING = "-"  # printed if no exit setting keeps the score
GAIN_MEANS = (
    "the mean score minus that of a coin toss between two fixed layers of the same models, for equal mean layers; only "
    "an interval above 0 shows exits that tell easy examples from hard ones."
)
SAFE_LAYERS = Style("{} / {}", ("_with_labels", "_without"), decimals=2)


EXITS = {  # columns
    "mean_layers": "layers",
    "gain": "gain",
    "fewest_layers": WITHIN,
    "megaflops": "MFLOPs",
    "difference": "difference",
}


def exits_table(evidence: Evidence) -> Table | None:
    """Tabulate the layers and the gain of each arm's exits, the fewest layers that keep its score, and its costs.

    Return None if no run recorded its mean number of layers.
    """
    cells = [(label, cell) for label, cell in evidence.cells if cell.records]
    if not any(record.mean_layers for _, cell in cells for record in cell.records):
        return None
    lines = [Line(f"{label}/{cell.task}", describe_exits(evidence, (label, cell.task))) for label, cell in cells]
    return make_table(
        evidence,
        "exits",
        title="Exits{data}, {seeds}",
        first_column="arm",
        columns=EXITS,
        lines=lines,
        caption=" ".join(_explain_exits(evidence, lines)),
        notes=[*_warn_of_gains(evidence), *difficulty_notes(evidence.layers_by_difficulty)],
        sidecar={
            "savings": _list_savings(evidence),
            "curves": _list_curves(evidence),
            "difficulty": _list_difficulties(evidence),
        },
    )


def _explain_exits(evidence: Evidence, lines: Sequence[Line]) -> Iterator[str]:
    """Explain the columns of table `exits`, in at most four sentences."""
    shown = {name for line in lines for name in line.entries}
    baseline = evidence.baseline or "the baseline"
    if "gain" in shown:
        yield f'"Gain" is {GAIN_MEANS}'
    if "fewest_layers" in shown:
        references = " or ".join(dict.fromkeys(saving.reference for saving in evidence.savings.values()))
        yield (
            f'"{WITHIN.capitalize()}" has the fewest mean layers that lose at most {POINTS_LOST} against {references}, '
            "under the arm's own exit rule / any exit rule, with the difference; one half of dev chooses the setting, "
            "and the other half measures it."
        )
    if "megaflops" in shown:
        yield '"MFLOPs" is a mean over dev texts without padding.'
    if "difference" in shown:
        yield f'"Difference" is the mean score minus that of {baseline}; intervals are 95 % intervals.'


def _warn_of_gains(evidence: Evidence) -> list[str]:
    """Name the rows whose epochs were chosen by the score from which the gain is computed."""
    places = [place for place in evidence.gains if is_epoch_chosen_on_dev(evidence.cells_by_place[place])]
    names = joined(list(dict.fromkeys(row for row, _ in places)))
    note = f"gains of {names} are too high: on these rows, their epochs were chosen by the score with exits"
    return [note] * bool(places)


def exit_settings_table(evidence: Evidence) -> Table | None:
    """Tabulate the score, the coin's score, the mean layers and the speed-up at every exit setting.

    Return None if the models have no exit settings.
    """
    lines = [line for place in evidence.exits for line in _describe_settings(evidence, place)]
    if not lines:
        return None
    return make_table(
        evidence,
        "exit_settings",
        title="Exit settings of the trained models{data}, median over {seeds}",
        first_column="setting",
        columns={"score": "score", "coin": "coin", "mean_layers": "layers", "speed_up": "speed-up"},
        lines=lines,
        caption=(
            "Each line has the dev results of an arm's models at one exit setting. A setting that is chosen from this "
            "table is chosen on dev. The coin is a toss between two fixed layers of the same models, for equal mean "
            "layers. Speed-up means all layers / mean layers; PABEE, GPFEE, PCEE-BERT and F-PABEE "
            "print 1 - mean layers / all layers."
        ),
        unit="points; speed_up: ratio",
    )


def _describe_settings(evidence: Evidence, place: Place) -> Iterator[Line]:
    """Make a line for each exit setting of an arm's models."""
    exits = evidence.exits[place]
    for sweep in exits.sweeps:
        coins = evidence.score_coins(place, sweep.mean_layers.T)  # (settings, seeds)
        for number, setting in enumerate(sweep.settings):
            layers = float(np.median(sweep.mean_layers[:, number]))
            entries = {
                "score": POINTS.entry(float(np.median(sweep.scores[:, number]))),
                "mean_layers": HUNDREDTHS.entry(layers),
                "speed_up": HUNDREDTHS.entry(exits.num_layers / layers),
            }
            if coins is not None:
                entries["coin"] = POINTS.entry(float(np.median(coins[number])))
            yield Line(f"{'/'.join(place)}, {sweep.field} {setting:g}", entries)


def describe_exits(evidence: Evidence, place: Place) -> dict[str, Entry]:
    """Return the arm's entries in table `exits`."""
    cell, exits = evidence.cells_by_place[place], evidence.exits.get(place)
    layers = LAYERS_RANGE.entry_over_seeds([record.mean_layers for record in cell.records if record.mean_layers])
    if exits:
        depth = str(exits.num_layers)
        layers = replace(
            layers,
            text=f"{layers.numbers['']} of {depth}",
            numbers={**layers.numbers, "_of": depth},
            values={**layers.values, "_of": exits.num_layers},
        )
    entries = {"mean_layers": layers}
    if (gain := describe_gain(evidence, place)) is not None:
        entries["gain"] = gain
    if place in evidence.savings:
        entries["fewest_layers"] = _format_saving(evidence.savings[place])
    if any(record.text_flops for record in cell.records):
        entries["megaflops"] = _format_flops(costs.flops(cell))
    if place in evidence.differences:
        entries["difference"] = format_test(evidence.differences[place].test)
    return entries


def describe_gain(evidence: Evidence, place: Place) -> Entry | None:
    """Format the gain of a cell's exits, as a gap if it is unknown; None if the models have no early exits."""
    if place in evidence.gains:
        return format_gain(evidence.gains[place])
    exits = evidence.exits.get(place)
    return Entry() if exits and exits.is_early else None


def _format_flops(flops: float | None) -> Entry:
    if flops is None:
        return Entry()
    return replace(Entry.from_text(f"{flops:.0f}" if flops >= 100 else f"{flops:.3g}"), values={"": flops})


def format_gain(gain: Gain) -> Entry:
    """Format the mean gain over the seeds, with its 95 % interval."""
    return ESTIMATE.entry(gain.mean, gain.interval.low, gain.interval.high)


def _format_saving(saving: Saving) -> Entry:
    """Format `layers (difference) / layers (difference)`: with the method's own exit rule, and with any exit rule."""
    texts: list[str] = []
    numbers: dict[str, str] = {}
    values: dict[str, float | None] = {}
    for name, chosen in (("_own", saving.own), ("_any", saving.of_all)):
        if chosen is None:
            texts.append(NO_SETTING)
            continue
        layers, lost = float(np.mean(chosen.mean_layers)), float(np.mean(chosen.scores)) - saving.reference_score
        numbers |= {name: TENTHS.text(layers), f"{name}_difference": DIFFERENCE.text(lost)}
        values |= {name: layers, f"{name}_difference": DIFFERENCE.scale * lost}
        texts.append(f"{numbers[name]} ({numbers[f'{name}_difference']})")
    return Entry(" / ".join(texts), numbers, values)


def _list_savings(evidence: Evidence) -> list[dict[str, Any]]:
    """List the settings behind column `fewest_layers` for the JSON file."""
    return [
        {
            "row": row,
            "task": task,
            "reference": saving.reference,
            "reference_score": saving.reference_score,
            **{
                name: chosen and {"settings": chosen.names, "mean_layers": chosen.mean_layers, "scores": chosen.scores}
                for name, chosen in (("own", saving.own), ("any", saving.of_all))
            },
        }
        for (row, task), saving in evidence.savings.items()
    ]


def _list_difficulties(evidence: Evidence) -> list[dict[str, Any]]:
    """List the mean exit layers of easy and of hard examples for the JSON file."""
    return [
        {
            "row": row,
            "task": task,
            "easy": own.easy,
            "hard": own.hard,
            "low": own.interval.low,
            "high": own.interval.high,
        }
        for (row, task), own in evidence.layers_by_difficulty.items()
    ]


def _list_curves(evidence: Evidence) -> list[dict[str, Any]]:
    """List the differences between the arms' curves of score over layers and over MFLOPs, for the JSON file."""
    return [
        {
            "row": row,
            "task": task,
            "reference": evidence.curve_reference,
            "over": cost,
            "range": shared_ranges(curves)[task],
            "difference": DIFFERENCE.scale * one.test.difference,
            "low": DIFFERENCE.scale * one.test.low,
            "high": DIFFERENCE.scale * one.test.high,
        }
        for cost, curves in (("layers", evidence.curves), ("megaflops", evidence.curves_by_flops))
        for (row, task), one in evidence.compare_curves(curves).items()
    ]


def _describe_rules(evidence: Evidence, place: Place) -> Iterator[Line]:
    """Make a line for each exit rule on an arm's models, with the gains near several shares of the layers."""
    sweeps, depth = evidence.rules[place], evidence.exits[place].num_layers
    stored = read_cell_predictions(evidence.cells_by_place[place].with_dropped)
    near = {
        (sweep.rule, column): (sweep, number)
        for sweep in sweeps
        for column, share in SHARES.items()
        if (number := sweep.nearest(share * depth, within=depth * NEARBY)) is not None
    }
    rules = {key: find_rule(sweep, number, stored) for key, (sweep, number) in near.items()}
    settings = {key: apply_setting(rule, stored) for key, rule in rules.items() if rule is not None}
    gains = measure_gains(stored, [*settings.values()]) if settings and can_measure(stored) else []
    entries = {
        key: _format_gain_at(gain, *near[key])
        for key, gain in zip(settings, gains, strict=False)  # none if untestable
    }
    for sweep in sweeps:
        label = f"{'/'.join(place)}, {sweep.rule.replace('_', ' ')}"
        yield Line(label, {column: entries.get((sweep.rule, column), Entry()) for column in SHARES})


def _format_gain_at(gain: Gain, sweep: Sweep, number: int) -> Entry:
    """Format `gain (low to high) at layers`; CSV and JSON files have the setting, too."""
    entry, layers = format_gain(gain), float(np.median(sweep.mean_layers[:, number]))
    setting = float(sweep.settings[number])
    return Entry(
        f"{entry.text} at {TENTHS.text(layers)}",
        {**entry.numbers, "_layers": TENTHS.text(layers), "_setting": f"{setting:g}"},
        {**entry.values, "_layers": layers, "_setting": setting},
    )


def exit_rules_table(evidence: Evidence) -> Table | None:
    """Tabulate the gains of several exit rules on the same models at about 25, 50 and 75 % of the layers.

    Return None if no models have results of several exit rules.
    """
    rules = {
        (*place, sweep.rule): sweep for place, sweeps in evidence.rules.items() for sweep in sweeps if len(sweeps) > 1
    }
    if not rules:
        return None
    scores = list(dict.fromkeys(TASKS[task].title for _, task, _ in rules if TASKS[task].is_regression))
    places = dict.fromkeys((row, task) for row, task, _ in rules)
    return make_table(
        evidence,
        "exit_rules",
        title="Gains of exit rules on the same trained models{data}, {seeds}",
        first_column="rule",
        columns={name: f"near {share:.0%}" for name, share in SHARES.items()},
        lines=[line for place in places for line in _describe_rules(evidence, place)],
        caption=(
            "Each entry has the setting that runs nearest to 25, 50 or 75 % of all layers: its gain, with the 95 % "
            "interval, at its mean layers. Table exits explains the gain. The models of an arm were trained and "
            "selected under the arm's first rule. The JSON file has the scores of all settings."
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
    entries = {"last_layer": POINTS.entry(float(np.median(guarantee.last_layer)))}
    return (
        entries
        | {name: WHOLE.entry(count) for name, count in counts.items()}
        | {
            f"confident_{100 * risk:.0f}": _format_safe_layers(bounds, guarantee.num_layers)
            for risk, bounds in guarantee.layers.items()
        }
    )


def guarantees_table(evidence: Evidence) -> Table | None:
    """Tabulate the fewest mean layers at which each exit rule is shown to lose few right answers.

    Return None if no classification task has exit settings.
    """
    found = [(label, cell, guarantee) for label, cell in evidence.cells for guarantee in read_guarantees(cell)]
    if not found:
        return None
    lines = [Line(f"{label}/{cell.task}, {own.rule}", _describe_guarantee(own)) for label, cell, own in found]
    selected = any(is_epoch_chosen_on_dev(cell) for _, cell, _ in found)
    chosen = "each model's epoch was chosen on the same dev set, so slightly more examples may be lost on new data"
    return make_table(
        evidence,
        "guarantees",
        title="Exits shown to lose few right answers{data}: mean layers, median over {seeds}",
        first_column="exit",
        columns={
            "last_layer": "last layer",
            "num_layers": "of",
            "examples": "examples",
            **{f"confident_{100 * risk:.0f}": f"{100 * risk:.0f} %" for risk in RISKS},
        },
        lines=lines,
        unit="layers; last_layer: points; examples: examples",
        caption=(
            '"Last layer" is the score with all layers: a model with few right answers has few to lose. '
            "The first number of an entry is the mean layers at the earliest exit setting that is shown to lose at "
            "most the column's share of examples. An example is lost if the last layer predicts the dev label and the "
            "exit does not. The second number uses no labels: an example is lost if the exit and the last layer "
            f"predict different labels. Each bound holds by itself with {100 * CONFIDENCE:.0f} % confidence, not "
            "jointly with the others: the fastest of several rules, chosen here, is not shown to satisfy it. None: no "
            "exit is shown to satisfy the bound."
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
