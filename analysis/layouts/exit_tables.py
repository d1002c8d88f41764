"""Table of early exits: layers and FLOPs, gains over a coin toss, exit rules, and guarantees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.layouts.evidence import Evidence, format_test, make_table
from analysis.layouts.model_notes import difficulty_notes, draws_exits
from analysis.layouts.table import (
    DIFFERENCE,
    ESTIMATE,
    HUNDREDTHS,
    INTERVAL,
    POINTS,
    TENTHS,
    Block,
    Entry,
    Line,
    NumberFormat,
    Table,
    format_digits,
)
from analysis.statistics import costs
from analysis.statistics.budgets import MOST_LOST, Saving
from analysis.statistics.comparisons import Comparison, is_epoch_chosen_on_dev
from analysis.statistics.curves import shared_ranges
from analysis.statistics.exit_settings import HALVINGS, apply_settings
from analysis.statistics.exits import Guarantee, Sweep, find_rule, read_guarantees
from analysis.statistics.gains import Gain, can_measure, measure_gains
from analysis.statistics.samples import Place
from analysis.studies.stored_predictions import read_cell_predictions
from study.terminal.text import joined
from trainables.data.tasks import TASKS
from trainables.models.safe_exits import CONFIDENCE

SHARES = {"at_25": 0.25, "at_50": 0.5, "at_75": 0.75}  # of the layers, as in F-PABEE's table 1 (arXiv:2305.11916)
NEARBY = 1 / 8  # largest distance of a setting from its share, as a share of the layers
LAYERS_RANGE = NumberFormat("{} ({} to {})", ("", *INTERVAL), decimals=2)
POINTS_LOST = f"{100 * MOST_LOST:g} point"
WITHIN = f"within {POINTS_LOST}"  # title of the column with the fewest layers
NO_SETTING = "-"  # printed if no exit setting keeps the score
GAIN_MEANS = (
    "the mean score minus that of a coin toss between two fixed layers of the same models, for equal mean layers; only "
    "an interval above 0 shows exits that beat the coin."
)
CHOSEN_ON_DEV = "each model's epoch was chosen on the same dev set, so slightly more examples may be lost on new data"
SHOWN = "at_50"  # the share of the layers at which the table shows exit rules
RULES = "Exit rules on the same models, each at the setting nearest to half of the layers"
SAFE = (
    "Exits shown to lose the last layer's right answer on at most a share of the examples, each with "
    f"{100 * CONFIDENCE:.0f} % confidence by itself"
)
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
    guarantees = {(label, cell.task): own for label, cell in cells if (own := [*read_guarantees(cell)])}
    rules = {place: _measure_rules(evidence, place) for place, sweeps in evidence.rules.items() if len(sweeps) > 1}
    lines = [Line(f"{label}/{cell.task}", describe_exits(evidence, (label, cell.task))) for label, cell in cells]
    blocks = [Block(RULES, _describe_rules(evidence, rules)), Block(SAFE, [*_describe_guarantees(guarantees)])]
    return make_table(
        evidence,
        "exits",
        title="Exits{data}, {seeds}",
        first_column="arm",
        columns=EXITS,
        lines=lines,
        blocks=[block for block in blocks if block.lines],
        caption=" ".join(_explain_exits(evidence, lines)),
        notes=[
            *_warn_of_gains(evidence),
            *_warn_of_guarantees(evidence, guarantees),
            *difficulty_notes(evidence.layers_by_difficulty),
            *_note_scores(rules),
        ],
        sidecar={
            "settings": [*_list_settings(evidence)],
            "rules": _list_rules(evidence, rules),
            "guarantees": _list_guarantees(guarantees),
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
        yield (
            f'"{WITHIN.capitalize()}" has the fewest mean layers, with the difference, '
            f"{explain_saving(evidence, others=' / any exit rule')}."
        )
    names = '"Layers" and "MFLOPs" (without padding)' if "megaflops" in shown else '"Layers"'
    yield f"{names} are medians over seeds of means over dev texts."
    if "difference" in shown:
        yield f'"Difference" from {baseline} is {explain_difference(evidence.differences.values())}.'


def _warn_of_guarantees(evidence: Evidence, guarantees: Iterable[Place]) -> list[str]:
    """Note that guarantees are weaker if the epochs were chosen on the same dev set."""
    chosen = any(is_epoch_chosen_on_dev(evidence.cells_by_place[place]) for place in guarantees)
    return [CHOSEN_ON_DEV] * chosen


def explain_saving(evidence: Evidence, others: str = "") -> str:
    """Explain how the exits of column `fewest_layers` are chosen; `others` are rules besides the method's own."""
    references = " or ".join(dict.fromkeys(saving.reference for saving in evidence.savings.values()))
    return (
        f"at which some setting of the method's own exit rule{_explain_drawn_exits(evidence)}{others} loses at most "
        f"{POINTS_LOST} against {references}, chosen on one half of dev and measured on the other, over {HALVINGS} "
        f"random splits ({NO_SETTING}: none does on most halves)"
    )


def explain_difference(tests: Iterable[Comparison], over: str = "") -> str:
    """Explain a difference from the baseline, and what its interval is corrected for. The means are `over` this."""
    analyses = max((test.num_analyses for test in tests), default=1)
    interval = "its uncorrected 95 % interval"
    if analyses > 1:
        interval = (
            f"its 95 % interval, corrected for {analyses} analyses (Bonferroni) but not for the other comparisons"
        )
    return f"the difference of the mean scores{over}, in points, with {interval}"


def _explain_drawn_exits(evidence: Evidence) -> str:
    """Explain in parentheses what the own exit settings of methods with random exits are; "" if none has such exits."""
    names = list(
        dict.fromkeys(row for row, task in evidence.savings if draws_exits(evidence.cells_by_place[row, task]))
    )
    if not names:
        return ""
    return f" (for {joined(names)}, which draws exits at random: its draws and PALBERT's threshold)"


def _warn_of_gains(evidence: Evidence) -> list[str]:
    """Name the rows whose epochs were chosen by the score from which the gain is computed."""
    shown = [place for place, gain in evidence.gains.items() if gain.only_layer is None]
    places = [place for place in shown if is_epoch_chosen_on_dev(evidence.cells_by_place[place])]
    names = joined(list(dict.fromkeys(row for row, _ in places)))
    note = f"gains of {names} are too high: on these rows, their epochs were chosen by the score with exits"
    return [note] * bool(places)


def _list_settings(evidence: Evidence) -> Iterator[dict[str, Any]]:
    """List the results of each arm's models at every exit setting, as medians over seeds, for the JSON file.

    The coin is a toss between two fixed layers of the same models, for equal mean layers.
    """
    for place, exits in evidence.exits.items():
        for sweep in exits.sweeps:
            coins = evidence.score_coins(place, sweep.mean_layers.T)  # (settings, seeds)
            for number, setting in enumerate(sweep.settings.tolist()):
                layers = float(np.median(sweep.mean_layers[:, number]))
                yield {
                    "row": place[0],
                    "task": place[1],
                    "rule": sweep.rule,
                    sweep.field: setting,
                    "score": 100 * float(np.median(sweep.scores[:, number])),
                    **({} if coins is None else {"coin": 100 * float(np.median(coins[number]))}),
                    "mean_layers": layers,
                    "speed_up": exits.num_layers / layers,
                }


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
    """Format the gain of a cell's exits.

    The entry is a gap if the gain is unknown. Return None if the models have no early exits.
    """
    exits, gain = evidence.exits.get(place), evidence.gains.get(place)
    if exits and gain:
        return _describe_gain(gain, exits.num_layers)
    return Entry() if exits and exits.is_early else None


def _describe_gain(gain: Gain, num_layers: int) -> Entry:
    """Format a gain; in words if all examples exit at one layer, because then the exits choose nothing."""
    entry = format_gain(gain)
    if gain.only_layer is None:
        return entry
    return replace(
        entry, text="runs all layers" if gain.only_layer == num_layers else f"all at layer {gain.only_layer}"
    )


def _format_flops(flops: float | None) -> Entry:
    if flops is None:
        return Entry()
    return replace(Entry.from_text(format_digits(flops)), values={"": flops})


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


def _measure_rules(evidence: Evidence, place: Place) -> dict[tuple[str, str], Entry]:
    """Measure the gain of each exit rule on an arm's models near several shares of the layers.

    Return an entry for each rule and each name in `SHARES`. A rule without a setting near a share has no entry there.
    """
    sweeps, depth = evidence.rules[place], evidence.exits[place].num_layers
    stored = read_cell_predictions(evidence.cells_by_place[place].with_dropped)
    near = {
        (sweep.rule, name): (sweep, number)
        for sweep in sweeps
        for name, share in SHARES.items()
        if (number := sweep.nearest(share * depth, within=depth * NEARBY)) is not None
    }
    found = {key: find_rule(sweep, number, stored) for key, (sweep, number) in near.items()}
    rules = {key: rule for key, rule in found.items() if rule is not None}
    settings = dict(zip(rules, apply_settings(rules.values(), stored), strict=True))
    if not settings or not can_measure(stored):
        return {}
    gains = measure_gains(stored, [*settings.values()])
    return {
        key: _add_setting(_describe_gain(gain, depth), *near[key]) for key, gain in zip(settings, gains, strict=True)
    }


def _add_setting(entry: Entry, sweep: Sweep, number: int) -> Entry:
    """Add the setting and its mean layers to an entry, for CSV and JSON files."""
    layers, setting = float(np.median(sweep.mean_layers[:, number])), float(sweep.settings[number])
    numbers = {**entry.numbers, "_setting": f"{setting:g}"}
    return replace(entry, numbers=numbers, values={**entry.values, "_layers": layers, "_setting": setting})


Rules = dict[Place, dict[tuple[str, str], Entry]]


def _describe_rules(evidence: Evidence, rules: Rules) -> list[Line]:
    """Make a line for each exit rule on an arm's models, at the setting nearest to half of the layers."""
    return [
        Line(f"{'/'.join(place)}, {sweep.rule.replace('_', ' ')}", _describe_rule(gains.get((sweep.rule, SHOWN))))
        for place, gains in rules.items()
        for sweep in evidence.rules[place]
    ]


def _describe_rule(gain: Entry | None) -> dict[str, Entry]:
    if gain is None:
        return {"mean_layers": Entry(), "gain": Entry()}
    return {"mean_layers": HUNDREDTHS.entry(gain.values["_layers"]), "gain": gain}


def _list_rules(evidence: Evidence, rules: Rules) -> list[dict[str, Any]]:
    """List the layers and the score of each exit rule at every setting, and its gains, for the JSON file."""
    return [
        {"row": row, "task": task, **{name: _to_list(value) for name, value in vars(sweep).items()}}
        | {name: _name_values(gain) for (rule, name), gain in gains.items() if rule == sweep.rule}
        for (row, task), gains in rules.items()
        for sweep in evidence.rules[row, task]
    ]


def _name_values(gain: Entry) -> dict[str, float | None]:
    return {suffix.removeprefix("_") or "gain": value for suffix, value in gain.values.items()}


def _to_list(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _note_scores(rules: Rules) -> list[str]:
    """Note the tasks to which rules on class probabilities do not apply; [] if there are none."""
    scores = joined(list(dict.fromkeys(TASKS[task].title for _, task in rules if TASKS[task].is_regression)))
    return [f"rules on class probabilities do not apply to {scores}: the labels are scores"] * bool(scores)


def _describe_guarantees(found: Mapping[Place, Sequence[Guarantee]]) -> Iterator[Line]:
    """Make a line for each share of lost examples and each arm: the mean layers of the earliest safe exits."""
    for place, guarantees in found.items():
        for own in guarantees:
            for risk, (with_labels, _) in own.layers.items():
                entry = HUNDREDTHS.entry(float(np.median(with_labels)))
                is_safe = bool((with_labels < own.num_layers).any())
                label = f"{'/'.join(place)}, {own.rule.replace('_', ' ')}, {100 * risk:.0f} %"
                yield Line(label, {"mean_layers": entry if is_safe else replace(entry, text="none")})


def _list_guarantees(found: Mapping[Place, Sequence[Guarantee]]) -> list[dict[str, Any]]:
    """List the mean layers of the exits that are shown to lose few examples, as medians over seeds, for the JSON file.

    With labels, an example is lost if the last layer predicts the dev label and the exit does not; without, if the exit
    and the last layer predict different labels. If nothing is shown, the number is that of all layers.
    """
    return [
        {
            "row": row,
            "task": task,
            "rule": own.rule,
            "num_layers": own.num_layers,
            "examples": own.examples,
            "last_layer": POINTS.scale * float(np.median(own.last_layer)),
            **{
                f"lost_{100 * risk:.0f}_percent": dict(
                    zip(("with_labels", "without"), np.median(bounds, axis=1).tolist(), strict=True)
                )
                for risk, bounds in own.layers.items()
            },
        }
        for (row, task), guarantees in found.items()
        for own in guarantees
    ]
