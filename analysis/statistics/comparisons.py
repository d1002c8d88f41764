"""Paired comparisons of methods on a task, from per-example predictions with the seeds as a second level."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from analysis.statistics import uncertainty
from analysis.statistics.resampling import plain_scores, resampled_scores
from analysis.studies.cells import Cell, Row
from analysis.studies.stored_predictions import TOLERANCE, Predictions, read_predictions
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from trainables.data.tasks import TASKS

RESAMPLES = 1_000


@dataclass(frozen=True)
class Comparison:
    """One pair of rows on one task."""

    row: str
    other: str
    task: str
    test: uncertainty.PairedTest
    adjusted_p_value: float  # Holm over the tasks of this pair
    mcnemar: list[float]  # p-value per pair of seeds, both in ascending order; empty for regression

    @property
    def holds(self) -> bool:
        return self.adjusted_p_value < uncertainty.ALPHA

    def to_json(self) -> dict[str, Any]:
        own = {"row": self.row, "other": self.other, "task": self.task, **vars(self.test)}
        return own | {"adjusted_p_value": self.adjusted_p_value, "holds": self.holds, "mcnemar": self.mcnemar}


@dataclass(frozen=True)
class Sample:
    """A cell's predictions of every seed, and its scores on the shared resamples."""

    predictions: list[Predictions]
    scores: list[float]
    resampled: np.ndarray  # (resamples, seeds)

    @property
    def interval(self) -> uncertainty.Interval:
        """What other dev examples could have made of the mean score of these models."""
        return uncertainty.bootstrap_interval(self.resampled.mean(axis=1))


Place = tuple[str, str]  # row label, task


def samples_of(rows: list[Row]) -> dict[Place, Sample]:
    """By row and task, where every one of at least two seeds has stored predictions for the same examples.

    Raises:
        ValueError: the score of stored predictions is not their record's.
    """
    stored = {(row.label, task): _stored(cell) for row in rows for task, cell in row.cells.items()}
    groups: dict[tuple[str, str], list[Place]] = {}
    for place, found in stored.items():
        if found:
            groups.setdefault((place[1], found[0].examples), []).append(place)
    samples = {}
    for (task, _), places in groups.items():
        samples.update(_resample(task, {place: stored[place] for place in places}))
    return samples


def compare(rows: list[Row], samples: dict[Place, Sample]) -> list[Comparison]:
    """Every pair of rows on every task where both have a sample of the same examples."""
    return [comparison for one, other in combinations(rows, 2) for comparison in _pair(one, other, samples)]


def marks(rows: list[Row], comparisons: Iterable[Comparison]) -> dict[tuple[str, str], str]:
    """↑ or ↓ by (row label, task), where a row is better or worse than the baseline's row and the test holds."""
    baseline = baseline_row(rows)
    arrows = {}
    for comparison in comparisons:
        if comparison.holds and baseline in (comparison.row, comparison.other):
            is_other = comparison.row == baseline
            better = (comparison.test.difference > 0) != is_other
            arrows[comparison.other if is_other else comparison.row, comparison.task] = "↑" if better else "↓"
    return arrows


def baseline_row(rows: list[Row]) -> str | None:
    """The label of the row that marks compare with; None where not exactly one row with numbers is the baseline's."""
    filled = [row for row in rows if any(cell.records for cell in row.cells.values())]
    labels = [row.label for row in filled if row.method == baseline_method(rows)]
    return labels[0] if len(labels) == 1 else None


def baseline_method(rows: list[Row]) -> str | None:
    """The method that the plans say the others are compared with; None where they do not agree on one."""
    named = {study.file.plan.asked.baseline for row in rows for cell in row.cells.values() for study in cell.studies}
    return named.pop() if len(named) == 1 else None


def _pair(one: Row, other: Row, samples: dict[Place, Sample]) -> list[Comparison]:
    tasks = [
        task
        for task in one.cells
        if (mine := samples.get((one.label, task)))
        and (theirs := samples.get((other.label, task)))
        and mine.predictions[0].examples == theirs.predictions[0].examples
    ]
    tests = []
    for task in tasks:
        mine, theirs = samples[one.label, task], samples[other.label, task]
        tests.append(uncertainty.paired_bootstrap(mine.resampled, theirs.resampled, mine.scores, theirs.scores))
    adjusted = uncertainty.holm([test.p_value for test in tests])
    return [
        Comparison(
            one.label, other.label, task, test, p_value, _mcnemar(samples[one.label, task], samples[other.label, task])
        )
        for task, test, p_value in zip(tasks, tests, adjusted, strict=True)
    ]


def _stored(cell: Cell) -> list[Predictions]:
    """The predictions of every seed of the cell; empty unless there are several, all stored, of the same examples."""
    read = [read_predictions(cell.study_of(record), record) for record in cell.records]
    stored = [predictions for predictions in read if predictions is not None]
    for record, predictions in zip(cell.records, read, strict=True):
        if predictions is not None:
            _check_score(cell, record, predictions)
    if stored and len(stored) < len(read):
        missing = f"{len(read) - len(stored)} of {len(read)} predictions are missing"
        warnings.warn(
            f"{cell.studies[0].folder}: {cell.method}/{cell.task}: {missing}: no tests of this cell", stacklevel=2
        )
    same_examples = len({predictions.examples for predictions in stored}) == 1
    return stored if len(stored) == len(read) > 1 and same_examples else []


def _check_score(cell: Cell, record: Record, predictions: Predictions) -> None:
    data = (predictions.answers[None], predictions.labels, predictions.split)
    value = float(plain_scores(TASKS[cell.task], *data)[0])
    recorded = record.score if predictions.draw_scores is None else float(predictions.draw_scores[0])
    if recorded is None or abs(recorded - value) > TOLERANCE:
        path = predictions_file(cell.study_of(record).folder, record.key)
        raise ValueError(f"{path} does not belong to its record: its score is {value:.6f}, the record's {recorded}")


def _resample(task: str, stored: dict[Place, list[Predictions]]) -> dict[Place, Sample]:
    """The samples of several rows that answered the same examples, all models on the same resamples."""
    models = [predictions for found in stored.values() for predictions in found]
    answers = np.stack([predictions.answers for predictions in models])  # (models, n)
    data = (TASKS[task], answers, models[0].labels, models[0].split)
    scores, resampled = plain_scores(*data), resampled_scores(*data, resamples=RESAMPLES, seed=0)
    ends = np.cumsum([len(found) for found in stored.values()])
    return {
        place: Sample(found, scores[end - len(found) : end].tolist(), resampled[:, end - len(found) : end])
        for (place, found), end in zip(stored.items(), ends, strict=True)
    }


def _mcnemar(one: Sample, other: Sample) -> list[float]:
    if TASKS[one.predictions[0].task].is_regression:
        return []
    return [
        uncertainty.mcnemar(mine.answers == mine.labels, theirs.answers == theirs.labels)
        for mine, theirs in zip(one.predictions, other.predictions, strict=False)
    ]
