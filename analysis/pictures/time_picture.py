"""The picture of score against time per text. It answers what a method scores for the time that it takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from analysis.layouts.evidence import Evidence
from analysis.layouts.table import format_digits
from analysis.pictures.picture import STYLE, Picture, Style, Tip, add_legend, choose_styles, lay_out, make_task_panels
from analysis.statistics.exit_settings import apply_setting
from analysis.statistics.samples import Place
from analysis.statistics.times import LayerCosts, Measurement, find_error, find_scale
from analysis.studies.stored_predictions import Predictions, read_cell_predictions
from study.terminal.text import joined
from trainables.models.exit_rules import describe_rule


@dataclass(frozen=True)
class TimedCurve:
    """Times and scores of a cell's models at several exit settings, sorted by time. Scores are in points."""

    names: tuple[str, ...]
    milliseconds: np.ndarray  # (settings,), mean over the seeds
    scores: np.ndarray  # (settings, seeds)


def compute_timed_curve(costs: LayerCosts, stored: Sequence[Predictions], *, scale: float) -> TimedCurve:
    """Compute the time at every swept exit setting from the layers at which the dev texts leave.

    Args:
        scale: time of the texts that the curve is about, relative to those at which single layers were timed.
    """
    rules = [rule for rule in stored[0].sweep_rules if rule is not None]
    settings = [apply_setting(rule, stored) for rule in rules]
    times = [
        scale * np.mean([costs.compute(rule, layers) for layers in setting.exit_layers])
        for rule, setting in zip(rules, settings, strict=True)
    ]
    scores = [
        [100 * one.score_answers(answers) for one, (answers,) in zip(stored, setting.answers, strict=True)]
        for setting in settings
    ]
    order = np.argsort(times, kind="stable")
    names = tuple(describe_rule(rules[place]) for place in order)
    return TimedCurve(names, np.array(times)[order], np.array(scores)[order])


def compute_cuts(costs: LayerCosts, stored: Sequence[Predictions], *, scale: float) -> TimedCurve:
    """Compute the scores of the same models if all texts leave after one layer, without any decision."""
    layers = range(len(costs.cut))
    scores = [[100 * one.score_answers(one.layer_answers[layer]) for one in stored] for layer in layers]
    return TimedCurve(tuple(f"layer {layer + 1}" for layer in layers), scale * costs.cut, np.array(scores))


@matplotlib.rc_context(STYLE)
def time_picture(evidence: Evidence) -> Picture | None:
    """Draw score against milliseconds per text; return None if no trusted measurement has single texts."""
    trusted = {task: made for _, task in evidence.cells_by_place if (made := evidence.find_times_of_single_texts(task))}
    timed = {
        (label, task): times
        for (label, task), cell in evidence.cells_by_place.items()
        if task in trusted and (times := trusted[task].read(cell, 1))
    }
    if not timed:
        return None
    figure, panels = make_task_panels(set(trusted), xlabel="milliseconds per text")
    styles = choose_styles(evidence.rows)
    scales = {task: find_scale([times for (_, own), times in timed.items() if own == task]) for task in panels}
    trends: dict[str, list[str]] = {task: [] for task in panels}
    tips: list[Tip] = []
    errors: list[float] = []
    has_curves = False
    for place, times in timed.items():
        label, task = place
        axes, style = panels[task], styles[label]
        found, worst = _draw_curves(evidence, trusted[task], place, axes, style, scale=scales[task])
        has_curves = has_curves or bool(found)
        tips += found
        errors += worst
        score, low, high = _find_score(evidence, place)
        interval = times.interval
        axes.hlines(score, interval.low, interval.high, style.colour, lw=1.1)
        axes.vlines(times.mean, low, high, style.colour, lw=1.1)
        axes.plot(times.mean, score, ms=6, zorder=4, **style.mark)
        trends[task].append(f"{label} scores {score:.1f} in {format_digits(times.mean)} ms")
        tips.append(Tip(axes, times.mean, score, trends[task][-1]))
    for axes in panels.values():
        axes.set_xlim(left=0)
    lines = {"other exit settings": 1.3, "one fixed layer": 0.5}
    legend = add_legend(figure, {label: styles[label] for label, _ in timed}, lines if has_curves else {})
    machines = joined(list(dict.fromkeys(map(evidence.describe_measurement, trusted.values()))))
    caption = (
        f"Times are means of single texts on {machines}. Marks are the settings of the trials, with 95 % intervals of "
        "both means. Thick lines are other exit settings of the same models, with the range of the scores over the "
        "seeds as a band; on thin lines, all texts leave at one fixed layer."
    )
    if errors:
        caption += (
            " Times of lines are computed from those of single layers of one model per method, measured on a part of "
            "the texts and scaled to all of them; at the settings that were also timed directly on this part, they are "
            f"off by up to {100 * max(errors):.0f} %."
        )
    title, note = "Score against time per text", _name_untimed(evidence, timed)
    return lay_out("score-against-time", title, caption, trends, figure, tips, legend, note=note)


def _name_untimed(evidence: Evidence, timed: Collection[Place]) -> str:
    """Name the cells with scores that the measurement of their task lacks for single texts; empty if there are none."""
    untimed = [
        "/".join(place) for place, cell in evidence.cells_by_place.items() if cell.records and place not in timed
    ]
    return f"These are left out, because these measurements lack their models: {', '.join(untimed)}." if untimed else ""


def _draw_curves(
    evidence: Evidence, made: Measurement, place: Place, axes: Axes, style: Style, *, scale: float
) -> tuple[list[Tip], list[float]]:
    """Draw the exit settings and the fixed layers of a cell; return tooltips, and the errors of computed times."""
    cell = evidence.cells_by_place[place]
    costs, stored = made.read_layer_costs(cell), read_cell_predictions(cell.with_dropped)
    if costs is None or not stored:
        return [], []
    curve, cuts = compute_timed_curve(costs, stored, scale=scale), compute_cuts(costs, stored, scale=scale)
    axes.fill_between(
        curve.milliseconds, curve.scores.min(axis=1), curve.scores.max(axis=1), color=style.colour, alpha=0.12, lw=0
    )
    means = np.mean(curve.scores, axis=1)
    axes.plot(curve.milliseconds, means, lw=1.3, **style.stroke)
    axes.plot(cuts.milliseconds, np.mean(cuts.scores, axis=1), color=style.colour, lw=0.5)
    tips = [
        Tip(axes, time, score, f"{place[0]}, {name}: {score:.1f} in {format_digits(time)} ms")
        for name, time, score in zip(curve.names, curve.milliseconds, means, strict=True)
    ]
    rules = [rule for rule in stored[0].sweep_rules if rule is not None]
    error = find_error(costs, rules)
    return tips, [] if error is None else [error]


def _find_score(evidence: Evidence, place: Place) -> tuple[float, float, float]:
    """Return the mean score of a cell and its 95 % interval, in points; without an interval, the mean three times."""
    sample, cell = evidence.samples.get(place), evidence.cells_by_place[place]
    if sample is None:
        return (100 * float(np.mean(cell.with_dropped.scores)),) * 3
    interval = sample.mean_interval
    return 100 * float(np.mean(sample.scores)), 100 * interval.low, 100 * interval.high
