"""Notes on what the trained models do: constant answers, scores below plain models, and where they exit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.layouts.table import HUNDREDTHS, POINTS, TENTHS, NumberFormat
from analysis.statistics.difficulty import LayersByDifficulty
from analysis.statistics.exits import FullRun
from analysis.statistics.samples import PLAIN_METHOD, Place, Sample, count_collapsed
from analysis.studies.cells import Cell, Row
from study.terminal.text import counted
from trainables.data.tasks import TASKS

_LAYERS = NumberFormat(signed=True)  # of a difference
_SPREAD_OF_DRAWS = "sample_std"  # metric of models with random exits: over draws; 0 if there is one draw


def sampled_exit_notes(rows: list[Row]) -> list[str]:
    """List the rows that draw exit layers at random, with the standard deviations of their scores."""
    head = "draws exit layers at random; the standard deviations of its score over draws / over seeds are"
    spreads = {
        row.label: list(filter(None, (_spread_of_draws(cell.with_dropped) for cell in row.cells.values())))
        for row in rows
    }
    return [f"{label} {head} {', '.join(texts)}" for label, texts in spreads.items() if texts]


def draws_exits(cell: Cell) -> bool:
    """Check whether the models of a cell draw exit layers at random."""
    return any(_SPREAD_OF_DRAWS in record.metrics for record in cell.records)


def _spread_of_draws(cell: Cell) -> str:
    """Format two standard deviations of the score: over draws of exit layers, and over seeds.

    The first is the root mean square over the models, or "-" if each drew once. If numbers are missing, return an empty
    text.
    """
    deviations = [record.metrics[_SPREAD_OF_DRAWS] for record in cell.records if _SPREAD_OF_DRAWS in record.metrics]
    if len(deviations) < max(2, len(cell.records)):
        return ""
    within, over = np.sqrt(np.mean(np.square(deviations))), np.std(cell.scores, ddof=1)
    return f"{TASKS[cell.task].title} {POINTS.text(float(within)) if within else '-'} / {POINTS.text(float(over))}"


def full_run_notes(full_runs: Mapping[Place, FullRun]) -> list[str]:
    """List the cells whose models run all layers, each with the mildest exit setting that exits earlier."""
    notes = []
    for (row, task), run in full_runs.items():
        examples = "nearly all examples" if run.exits_some else "all examples"
        reason = f" ({run.reason})" * bool(run.reason)
        remedy = "no setting of the exit rule exits earlier"
        if one := run.mildest:
            layers, score, full = HUNDREDTHS.text(one.mean_layers), POINTS.text(one.score), POINTS.text(run.score)
            remedy = (
                f"the mildest setting that exits earlier is {one.field} {one.setting:g}, which runs {layers} layers "
                f"and scores {score} (with all layers: {full})"
            )
        notes.append(f"{examples} of {row} on {TASKS[task].title} run all {run.num_layers} layers{reason}; {remedy}")
    return notes


def difficulty_notes(layers: Mapping[Place, LayersByDifficulty]) -> list[str]:
    """Make notes on the mean exit layers of easy and of hard examples; only an interval above 0 shows a difference."""
    heads = {
        True: "easy examples leave before hard ones (mean exit layers of both; difference with its 95 % interval)",
        False: "easy examples were not shown to leave before hard ones",
    }
    texts: dict[bool, list[str]] = {is_shown: [] for is_shown in heads}
    for place, own in layers.items():
        low, difference, high = map(_LAYERS.text, (own.interval.low, own.hard - own.easy, own.interval.high))
        words = f"{TENTHS.text(own.easy)} and {TENTHS.text(own.hard)}; {difference} ({low} to {high})"
        texts[own.interval.low > 0].append(f"{'/'.join(place)} {words}")
    return [f"{heads[is_shown]}: {', '.join(own)}" for is_shown, own in texts.items() if own]


def collapsed_notes(samples: Mapping[Place, Sample]) -> list[str]:
    """List the cells with models that give one answer to all examples."""
    cells = [
        f"{number} of {counted(len(sample.scores), 'seed')} of {row} on {TASKS[task].title}"
        for (row, task), sample in samples.items()
        if (number := count_collapsed(sample))
    ]
    return [f"some models give one answer to all examples: {', '.join(cells)}"] if cells else []


def weak_model_notes(weak_models: Mapping[Place, tuple[float, float]]) -> list[str]:
    """List the cells whose models score below the plain model even with all layers, with both scores."""
    cells = [
        f"{row} on {TASKS[task].title} ({POINTS.text(score)}; {PLAIN_METHOD} {POINTS.text(plain)})"
        for (row, task), (score, plain) in weak_models.items()
    ]
    head = "even if no text leaves early, these models score significantly below plain ones"
    return [f"{head}: {', '.join(cells)}"] if cells else []


def constant_notes(not_above_constant: Mapping[Place, float], nothing_found: Mapping[Place, float]) -> list[str]:
    """List the cells that are not shown to beat a constant answer, and the searches that found nothing better."""
    constants_by_note = {
        "° marks scores that are not shown to be better than a constant answer": not_above_constant,
        "no search trial beats a constant answer": nothing_found,
    }
    cells = {
        note: [
            f"{row} on {TASKS[task].title} (constant: {POINTS.text(score)})" for (row, task), score in constants.items()
        ]
        for note, constants in constants_by_note.items()
    }
    return [f"{note}: {', '.join(names)}" for note, names in cells.items() if names]
