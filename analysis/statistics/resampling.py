"""Scores on bootstrap resamples of the dev examples, for all seeds of a method and draws of its exit at once.

A resample gives every example a weight, how often it was drawn; every GLUE metric is a function of weighted means, so
a matrix product gives all resamples. Sums of such weights are exact: a model that answers all alike has no
correlation, not one of 1e-8. Spearman keeps the ranks of the whole dev set.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainables.data.tasks import Task

_WEIGHTS_AT_ONCE = 4_000_000


def resampled_scores(
    task: Task, predictions: np.ndarray, labels: np.ndarray, splits: np.ndarray, *, resamples: int, seed: int
) -> np.ndarray:
    """The task's score on each resample, (resamples, models), from predictions (models, n); a draw is a model here.

    The same `seed` and `splits` give the same resamples, so that scores of two methods are paired. Examples are drawn
    within their dev split.
    """
    per_split = []
    for number, name in enumerate(np.unique(splits)):
        rng = np.random.default_rng(seed + number)
        chosen, own = predictions[:, splits == name], labels[splits == name]
        step = max(1, _WEIGHTS_AT_ONCE // len(own))
        parts = [
            _weighted_scores(task, _draw_weights(rng, min(step, resamples - start), len(own)), chosen, own)
            for start in range(0, resamples, step)
        ]
        per_split.append(np.concatenate(parts))
    return np.mean(per_split, axis=0)


def plain_scores(task: Task, predictions: np.ndarray, labels: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """The task's score of each model on the examples as they are, (models,)."""
    per_split = []
    for name in np.unique(splits):
        own = labels[splits == name]
        weights = np.ones((1, len(own)))
        per_split.append(_weighted_scores(task, weights, predictions[:, splits == name], own)[0])
    return np.mean(per_split, axis=0)


def mean_over_draws(scores: np.ndarray, draws: Sequence[int]) -> np.ndarray:
    """Means over the draws of each model, (..., models), from the scores of all draws, (..., sum of `draws`)."""
    starts = np.cumsum([0, *draws[:-1]])
    return np.add.reduceat(scores, starts, axis=-1) / np.asarray(draws)


def _draw_weights(rng: np.random.Generator, resamples: int, n: int) -> np.ndarray:
    """How often each example is drawn, (resamples, n)."""
    drawn = rng.integers(n, size=(resamples, n)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * n).reshape(resamples, n).astype(float)


def _weighted_scores(task: Task, weights: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    names = ("accuracy",) if len(task.dev_splits) > 1 else task.metrics
    return np.mean([_METRICS[name](weights, predictions, labels) for name in names], axis=0)


def _accuracy(weights: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return _means(weights, predictions == labels)


def _counts(weights: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """Shares of true positives, and of positives among predictions and among labels."""
    hits = _means(weights, (predictions == 1) & (labels == 1))
    return hits, _means(weights, predictions == 1), _means(weights, labels[None] == 1)


def _f1(weights: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    hits, predicted, actual = _counts(weights, predictions, labels)
    return _ratio(2 * hits, predicted + actual)


def _matthews(weights: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    hits, predicted, actual = _counts(weights, predictions, labels)
    return _ratio(hits - predicted * actual, np.sqrt(predicted * (1 - predicted) * actual * (1 - actual)))


def _pearson(weights: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    x, y = predictions - predictions.mean(axis=1, keepdims=True), labels - labels.mean()
    mean_x, mean_y = _means(weights, x), _means(weights, y[None])
    covariance = _means(weights, x * y) - mean_x * mean_y
    variances = (_means(weights, x**2) - mean_x**2) * (_means(weights, y[None] ** 2) - mean_y**2)
    return _ratio(covariance, np.sqrt(np.maximum(variances, 0)))


def _spearman(weights: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # takes a second to import

    return _pearson(weights, rankdata(predictions, axis=1), rankdata(labels))


def _means(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of values (models, n) on each resample, (resamples, models)."""
    return weights @ values.T.astype(float) / values.shape[1]


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """The quotient, 0 where it is undefined, as the tasks' metrics have it."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


_METRICS = {"accuracy": _accuracy, "f1": _f1, "matthews": _matthews, "pearson": _pearson, "spearman": _spearman}
