"""The gain of exits: an arm's score minus the score of a coin toss between two fixed layers, for equal mean layers.

The coin lets each example exit at one of two layers of the same model, whatever the example. Only exits that tell easy
examples from hard ones have a gain above 0. One of 0 does not show that they know nothing: the coin may toss between
better layers than those at which the examples leave. The coin's score follows from the expected counts of its answers.
Except for accuracy, it is not on a straight line between the scores of the two layers.

One half of each dev split chooses the two layers: the pair with the best score, as the mean over the seeds. The other
half of the examples exits at them, and then the halves swap roles. Many random halvings are averaged, so that a gain
does not depend on one of them: each example gets its mean chances to exit at the layers. A gain is the score in the
tables minus that of the coin. It is paired: arm and coin answer the same examples with the same models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.statistics.exit_settings import DIGITS, ExitSetting, apply_setting, find_only_layer, halvings
from analysis.statistics.samples import (
    RESAMPLES,
    Metric,
    Scored,
    metrics_of_split,
    over_resamples,
)
from analysis.statistics.uncertainty import ConfidenceInterval, mean_interval
from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, read_cell_predictions
from trainables.data.tasks import Task
from trainables.models.fronts import ROUNDING

# Less prints as 0.0 points, and is the chance of the coin's choice if nearly all exit at one layer.
LEAST_SHOWN = 0.0005
_SETTINGS_AT_ONCE = 4  # they share the resamples; more take too much memory on the largest tasks


@dataclass(frozen=True)
class Gain(Scored):
    """Gain of one exit setting, for each seed's model."""

    only_layer: int | None  # layer after which all examples of all models exit, from 1; None: they exit at several

    @property
    def mean(self) -> float:
        """Mean gain over the seeds."""
        return float(np.mean(self.scores))

    @property
    def interval(self) -> ConfidenceInterval:
        """95 % interval of the mean gain over seeds and dev examples."""
        return mean_interval(self.resampled, self.scores)

    @property
    def is_shown(self) -> bool:
        """Whether the exits are shown to tell easy examples from hard ones; a cut at one layer cannot."""
        return self.only_layer is None and self.interval.low > LEAST_SHOWN


def read_gain(cell: Cell) -> Gain | None:
    """Measure the gain of the exits of a cell's models, under the setting with which the trials ran.

    As in all tests, dropped final runs count.

    Returns:
        None if the cell has fewer than two seeds, if their predictions are missing or for different examples, or if the
        models have one layer, or never exit early and mix the answers of their layers.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    stored = read_cell_predictions(cell.with_dropped)
    if not can_measure(stored) or all(_mixes_layers(one) for one in stored):
        return None
    return measure_gains(stored, [apply_setting(None, stored)])[0]


def _mixes_layers(predictions: Predictions) -> bool:
    """Check whether all examples run all layers, but the last layer does not give the answers: no exits to judge."""
    last = predictions.layer_answers[-1]
    runs_all = (predictions.exit_layers == len(predictions.layer_answers)).all()
    return bool(runs_all and (predictions.answers != last).any())


def can_measure(stored: Sequence[Predictions]) -> bool:
    """Check whether these predictions of a cell's models give a gain with an interval, which takes two seeds."""
    return len(stored) > 1 and can_toss(stored)


def can_toss(stored: Sequence[Predictions]) -> bool:
    """Check whether these predictions of a cell's models are for the same examples, and the models have two layers."""
    return len({one.examples for one in stored}) == 1 and min(len(one.layer_answers) for one in stored) > 1


def measure_gains(stored: Sequence[Predictions], settings: Sequence[ExitSetting]) -> list[Gain]:
    """Measure the gain of each exit setting.

    Args:
        stored: predictions of every seed's model; see `can_measure`.
        settings: exit settings of these models.
    """
    splits = _list_splits(stored)
    gains = []
    for start in range(0, len(settings), _SETTINGS_AT_ONCE):
        group = settings[start : start + _SETTINGS_AT_ONCE]
        by_split = [split.measure(group, seed=number) for number, split in enumerate(splits)]
        gains += [*np.moveaxis(np.mean(by_split, axis=0), 1, 0)]  # each is (1 + resamples, seeds)
    return [
        Gain(own[0].tolist(), own[1:], stored[0].examples, find_only_layer(setting))
        for own, setting in zip(gains, settings, strict=True)
    ]


def score_coins(stored: Sequence[Predictions], mean_layers: np.ndarray) -> np.ndarray:
    """Score the coin of each model at each number of mean layers; both arrays are (points, seeds).

    Args:
        stored: predictions of every seed's model; see `can_toss`.
        mean_layers: from 1 to the number of layers.
    """
    splits = _list_splits(stored)
    scores = [
        np.mean([split.coin(number, float(layers)).score() for split in splits])
        for (_, number), layers in np.ndenumerate(mean_layers)
    ]
    return np.reshape(scores, mean_layers.shape)


def _list_splits(stored: Sequence[Predictions]) -> list[_Split]:
    one = stored[0]
    parts = halvings(one.split)
    return [
        _Split(
            task=one.task,
            rows=rows,
            halves=parts[..., rows].reshape(-1, len(rows)).astype(float),
            labels=one.labels[rows],
            layer_answers=np.stack([own.layer_answers[:, rows] for own in stored]),
        )
        for rows in (np.flatnonzero(one.split == name) for name in np.unique(one.split))
    ]


@dataclass(frozen=True)
class _Values:
    """Values of examples whose means decide the score of several answers."""

    metrics: list[Metric]
    numbers: list[int]  # of values, for each metric
    values: np.ndarray  # (values, answers, n)

    def score(self, means: np.ndarray) -> np.ndarray:
        """Compute scores from means (values, ...) over the examples."""
        parts = np.split(means, np.cumsum(self.numbers)[:-1])
        return np.asarray(
            np.mean([metric.compute(*own) for metric, own in zip(self.metrics, parts, strict=True)], axis=0)
        )


def _list_values(
    task: Task, answers: np.ndarray, labels: np.ndarray, rank: Callable[[np.ndarray], np.ndarray] | None = None
) -> _Values:
    """List the values of answers (answers, n); `rank` replaces the ranks of each row by others."""
    metrics = metrics_of_split(task)
    lists = [
        metric.list_values(
            rank(answers) if rank and metric.is_of_ranks else metric.rank(answers), metric.rank(labels[None])[0]
        )
        for metric in metrics
    ]
    values = [np.broadcast_to(own, answers.shape) for own_list in lists for own in own_list]
    return _Values(metrics, [len(own_list) for own_list in lists], np.array(values, dtype=float))


@dataclass(frozen=True)
class _Split:
    """Answers of all layers of every seed's model on one dev split."""

    task: Task
    rows: np.ndarray  # (n,) places of the examples in the predictions
    halves: np.ndarray  # (halves, n), 1 if the half contains the example; both halves of a halving are neighbours
    labels: np.ndarray  # (n,)
    layer_answers: np.ndarray  # (seeds, layers, n)

    def measure(self, settings: Sequence[ExitSetting], *, seed: int) -> np.ndarray:
        """Compute the gains on all examples and then on each resample, (1 + resamples, settings, seeds)."""
        tosses = [
            self._toss(number, answers[:, self.rows], layers[:, self.rows].mean(axis=0))
            for setting in settings
            for number, (answers, layers) in enumerate(zip(setting.answers, setting.exit_layers, strict=True))
        ]
        values = np.concatenate([toss.values for toss in tosses]).T
        ends = np.cumsum([len(toss.values) for toss in tosses])[:-1]
        n = len(self.labels)

        def compute_gains(weights: np.ndarray) -> np.ndarray:
            means = np.split(weights @ values / n, ends, axis=1)
            return np.stack([toss.gain(own.T) for toss, own in zip(tosses, means, strict=True)], axis=1)

        gains = [compute_gains(np.ones((1, n))), over_resamples(compute_gains, n, seed=seed)]
        return np.concatenate(gains).reshape(1 + RESAMPLES, len(settings), -1)

    def _toss(self, number: int, answers: np.ndarray, exit_layers: np.ndarray) -> _Toss:
        """Set answers (draws, n) of model `number`, with exit layers (n,), beside the coin for their mean layers."""
        own = _list_values(self.task, answers, self.labels)
        return _Toss(exit_layers, own, self.coin(number, float(exit_layers.mean())))

    def coin(self, number: int, mean_layers: float) -> _Coin:
        """Make the coin of model `number` for these mean layers."""
        layers, constant, slope = self._list_chances(mean_layers)
        chances = constant + mean_layers * slope
        answers = self.layer_answers[number][layers - 1]
        values = _list_values(self.task, answers, self.labels, rank=lambda own: _rank_weighted(own, chances))
        expected = (np.einsum("vln,ln->vn", values.values, part) for part in (constant, slope))
        return _Coin(mean_layers, values, *expected)

    def _list_chances(self, mean_layers: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """List the chance of each example to exit at each layer: a constant, and a slope over the coin's mean layers.

        Of two layers `lower` and `upper`, the chance of the lower one is (upper - mean) / (upper - lower).

        Returns:
            the layers of the coin (layers,), the constants (layers, n) and the slopes (layers, n).
        """
        lower, upper = self._choose(mean_layers)
        layers = np.unique([lower, upper])
        is_lower, is_upper = layers[:, None] == lower, layers[:, None] == upper  # (layers, halves)
        constant = (is_lower * upper - is_upper * lower) / (upper - lower)
        slope = (is_upper.astype(int) - is_lower) / (upper - lower)
        return layers, constant @ self._shares, slope @ self._shares

    @cached_property
    def _shares(self) -> np.ndarray:
        """For each half, the shares of the halvings in which it chooses for each example, (halves, n)."""
        by_halving = self.halves.reshape(-1, 2, len(self.labels))
        return np.asarray(by_halving[:, ::-1].reshape(self.halves.shape) / len(by_halving))

    def _choose(self, mean_layers: float) -> tuple[np.ndarray, np.ndarray]:
        """Choose the pair of layers whose coin scores best on each half; between equal pairs, the nearest layers win.

        The models of all seeds have the same pair, so each number of mean layers is looked at only once.

        Returns:
            the lower and the upper layers, (halves,).
        """
        if mean_layers not in self._chosen:
            self._chosen[mean_layers] = self._find_best_pairs(mean_layers)
        return self._chosen[mean_layers]

    @cached_property
    def _chosen(self) -> dict[float, tuple[np.ndarray, np.ndarray]]:
        return {}

    def _find_best_pairs(self, mean_layers: float) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = np.array(_list_pairs(self.layer_answers.shape[1], mean_layers)).T
        share = (mean_layers - lower) / (upper - lower)
        values, means = self._means_on_halves
        scores = values.score((1 - share) * means[..., lower - 1] + share * means[..., upper - 1])
        best = scores.mean(axis=1).round(DIGITS).argmax(axis=1)  # of (halves, seeds, pairs)
        return lower[best], upper[best]

    @cached_property
    def _means_on_halves(self) -> tuple[_Values, np.ndarray]:
        """The means (values, halves, seeds, layers) that decide the score of each layer on each half."""
        seeds, layers, n = self.layer_answers.shape
        values = _list_values(self.task, self.layer_answers.reshape(seeds * layers, n), self.labels)
        sums = self.halves @ np.swapaxes(values.values, 1, 2)
        means = sums / self.halves.sum(axis=1, keepdims=True)
        return values, means.reshape(len(means), len(self.halves), seeds, layers)


def _list_pairs(num_layers: int, mean_layers: float) -> list[tuple[int, int]]:
    """List the pairs of layers with `mean_layers` between them, the nearest pairs first."""
    layers = range(1, num_layers + 1)
    lower = [layer for layer in layers if layer <= mean_layers + ROUNDING]
    upper = [layer for layer in layers if layer >= mean_layers - ROUNDING]
    return sorted(((one, two) for one in lower for two in upper if one < two), key=lambda pair: pair[1] - pair[0])


@dataclass(frozen=True)
class _Coin:
    """A coin that lets each example exit at one of some layers of a model."""

    mean_layers: float
    layer_values: _Values  # of the answers of these layers
    constant: np.ndarray  # (values, n): the expected values are constant + slope * mean layers
    slope: np.ndarray  # (values, n)

    def score(self) -> float:
        """Compute the coin's expected score on all examples."""
        return float(self.score_means(self.constant.mean(axis=1), self.slope.mean(axis=1), self.mean_layers))

    def score_means(self, constant: np.ndarray, slope: np.ndarray, mean_layers: np.ndarray | float) -> np.ndarray:
        """Compute the coin's expected score from means (values, ...) over the examples, for these mean layers (...)."""
        return self.layer_values.score(constant + mean_layers * slope)


@dataclass(frozen=True)
class _Toss:
    """Exits of a model under an exit setting, beside those of the coin."""

    exit_layers: np.ndarray  # (n,), means over the draws
    own: _Values  # of the answers of each draw
    coin: _Coin

    @cached_property
    def values(self) -> np.ndarray:
        """Values whose means decide the gain, (values, n): exit layers, then those of the setting and of the coin."""
        own = self.own.values.reshape(-1, len(self.exit_layers))
        return np.concatenate([self.exit_layers[None], own, self.coin.constant, self.coin.slope])

    def gain(self, means: np.ndarray) -> np.ndarray:
        """Compute the gain on each resample, (resamples,), from the means of `values`, (values, resamples)."""
        (number, draws, _), of_coin = self.own.values.shape, len(self.coin.constant)
        mean_layers, own, constant, slope = np.split(means, np.cumsum([1, number * draws, of_coin]))
        scores = self.own.score(own.reshape(number, draws, -1)).mean(axis=0)
        return np.asarray(scores - self.coin.score_means(constant, slope, mean_layers[0]))


def _rank_weighted(numbers: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Replace numbers by their expected ranks if each is drawn with its chance; equal numbers share the mean rank."""
    _, places = np.unique(numbers, return_inverse=True)
    sizes = np.bincount(places.ravel(), weights=chances.ravel())
    return np.reshape((sizes.cumsum() - sizes / 2)[places], numbers.shape)
