"""What a model that reads nothing scores: the same answer for every example."""

from __future__ import annotations

import numpy as np

from analysis.statistics.comparisons import Place, Sample
from analysis.studies.stored_predictions import TOLERANCE, Predictions
from trainables.data.tasks import TASKS, compute_metrics, score


def constant_score(predictions: Predictions) -> float | None:
    """The best score of one class for all of these examples; None where there are no classes."""
    task = TASKS[predictions.task]
    if task.is_regression:
        return None
    labels, splits = predictions.labels, predictions.split
    constants = (np.full_like(labels, label) for label in np.unique(labels))
    return max(score(task, compute_metrics(task, constant, labels, splits)) for constant in constants)


def not_shown_above_constant(samples: dict[Place, Sample]) -> dict[Place, float]:
    """The cells that are not shown to be better: other dev examples could have made of their mean score no more than
    that -> what one answer for all scores there."""
    scores = {place: constant_score(sample.predictions[0]) for place, sample in samples.items()}
    return {
        place: constant
        for place, constant in scores.items()
        if constant is not None and samples[place].interval.low <= constant + TOLERANCE
    }
