"""The gain of exits: an arm's score minus the score of a coin toss between two fixed layers, for equal mean layers.

The coin lets each example exit at one of two layers of the same model, whatever the example. A gain of 0 means that the
exits do not tell easy examples from hard ones. The coin's score follows from the expected counts of its answers. Except
for accuracy, it is not on a straight line between the scores of the two layers.

One half of each dev split chooses the two layers: the pair with the best score, as the mean over the seeds. The other
half measures them, and then the halves swap roles. The counts of both halves are added up, so a gain is the score in
the tables minus that of the coin. It is paired: arm and coin answer the same examples with the same models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.statistics.exit_settings import ExitSetting, apply_setting, find_only_layer, halves
from analysis.statistics.samples import (
    RESAMPLES,
    Metric,
    Scored,
    metrics_of_split,
    over_resamples,
    ratio,
)
from analysis.statistics.uncertainty import Interval, mean_interval
from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, read_cell_predictions
from trainables.data.tasks import Task
from trainables.models.fronts import ROUNDING

_SETTINGS_AT_ONCE = 4  # they share the resamples; more take too much memory on the largest tasks

Pair = tuple[int, int]  # two layers, from 1


@dataclass(frozen=True)
class Gain(Scored):
    """Gain of one exit setting, for each seed's model."""

    only_layer: int | None  # layer after which all examples of all models exit, from 1; None: they exit at several

    @property
    def mean(self) -> float:
        """Mean gain over the seeds."""
        return float(np.mean(self.scores))

    @property
    def interval(self) -> Interval:
        """95 % interval of the mean gain over seeds and dev examples."""
        return mean_interval(self.resampled, self.scores)

    @property
    def is_shown(self) -> bool:
        """Whether the exits are shown to tell easy examples from hard ones; a cut at one layer cannot."""
        return self.only_layer is None and self.interval.low > 0


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
        np.mean([split.coin(number, (layers, layers)).score() for split in splits])
        for (_, number), layers in np.ndenumerate(mean_layers)
    ]
    return np.reshape(scores, mean_layers.shape)


def _list_splits(stored: Sequence[Predictions]) -> list[_Split]:
    one = stored[0]
    in_half = [np.isin(np.arange(len(one.labels)), rows) for rows in halves(one.split)]
    return [
        _Split(
            task=one.task,
            rows=rows,
            halves=tuple(np.flatnonzero(half[rows]) for half in in_half),
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
    halves: tuple[np.ndarray, ...]  # places of the examples of each half, among `rows`
    labels: np.ndarray  # (n,)
    layer_answers: np.ndarray  # (seeds, layers, n)

    def measure(self, settings: Sequence[ExitSetting], *, seed: int) -> np.ndarray:
        """Compute the gains on all examples and then on each resample, (1 + resamples, settings, seeds)."""
        tosses = [
            self._toss(number, answers[:, self.rows], layers[:, self.rows].mean(axis=0))
            for setting in settings
            for number, (answers, layers) in enumerate(zip(setting.answers, setting.exit_layers, strict=True))
        ]
        ends = np.cumsum([len(toss.values) for toss in tosses])
        by_half = [np.concatenate([toss.values[:, rows] for toss in tosses]).T for rows in self.halves]

        def compute_gains(weights: np.ndarray) -> np.ndarray:
            sums = [weights[:, rows] @ values for rows, values in zip(self.halves, by_half, strict=True)]
            parts = zip(tosses, *(np.split(own, ends[:-1], axis=1) for own in sums), strict=True)
            return np.stack([toss.gain(own) for toss, *own in parts], axis=1)

        n = len(self.labels)
        gains = [compute_gains(np.ones((1, n))), over_resamples(compute_gains, n, resamples=RESAMPLES, seed=seed)]
        return np.concatenate(gains).reshape(1 + RESAMPLES, len(settings), -1)

    def _toss(self, number: int, answers: np.ndarray, exit_layers: np.ndarray) -> _Toss:
        """Set answers (draws, n) of model `number`, with exit layers (n,), beside the coin for their mean layers."""
        coin = self.coin(number, [float(exit_layers[rows].mean()) for rows in self.halves])
        return _Toss(exit_layers, _list_values(self.task, answers, self.labels), coin)

    def coin(self, number: int, mean_layers: Sequence[float]) -> _Coin:
        """Make the coin of model `number` for these mean layers on each half."""
        pairs = tuple(self._choose(1 - half, layers) for half, layers in enumerate(mean_layers))
        answers = np.empty((2, len(self.labels)), dtype=self.layer_answers.dtype)  # of the lower and the upper layer
        chances = np.empty(answers.shape)
        for rows, pair, layers in zip(self.halves, pairs, mean_layers, strict=True):
            answers[:, rows] = self.layer_answers[number][np.array(pair)[:, None] - 1, rows]
            chances[:, rows] = [[1 - _share(pair, layers)], [_share(pair, layers)]]
        values = _list_values(self.task, answers, self.labels, rank=lambda own: _rank_weighted(own, chances))
        return _Coin(self.halves, values, pairs, tuple(mean_layers))

    def _choose(self, half: int, mean_layers: float) -> Pair:
        """Choose the pair of layers whose coin scores best on one half; between equal pairs, the nearest layers win."""
        lower, upper = np.array(_list_pairs(self.layer_answers.shape[1], mean_layers)).T
        share = (mean_layers - lower) / (upper - lower)
        values, means = self._means_on_halves[half]
        scores = values.score((1 - share) * means[..., lower - 1] + share * means[..., upper - 1])  # (seeds, pairs)
        best = int(scores.mean(axis=0).argmax())
        return int(lower[best]), int(upper[best])

    @cached_property
    def _means_on_halves(self) -> list[tuple[_Values, np.ndarray]]:
        """For each half, the means (values, seeds, layers) that decide the score of each layer."""
        seeds, layers, _ = self.layer_answers.shape
        found = []
        for rows in self.halves:
            answers = self.layer_answers[:, :, rows].reshape(seeds * layers, len(rows))
            values = _list_values(self.task, answers, self.labels[rows])
            found.append((values, values.values.mean(axis=2).reshape(-1, seeds, layers)))
        return found


def _list_pairs(num_layers: int, mean_layers: float) -> list[Pair]:
    """List the pairs of layers with `mean_layers` between them, the nearest pairs first."""
    layers = range(1, num_layers + 1)
    lower = [layer for layer in layers if layer <= mean_layers + ROUNDING]
    upper = [layer for layer in layers if layer >= mean_layers - ROUNDING]
    return sorted(((one, two) for one in lower for two in upper if one < two), key=lambda pair: pair[1] - pair[0])


@dataclass(frozen=True)
class _Coin:
    """A coin that lets each example of a half exit at one of two layers of a model."""

    halves: tuple[np.ndarray, ...]
    values: _Values  # of two answers: the lower and the upper layer of each example's half
    pairs: tuple[Pair, ...]  # layers of each half
    mean_layers: tuple[float, ...]  # on each half

    def score(self) -> float:
        """Compute the coin's expected score on all examples."""
        sums = [self.values.values[:, :, rows].sum(axis=2) for rows in self.halves]
        return float(self.score_sums(sums, self.mean_layers))

    def score_sums(self, sums: Sequence[np.ndarray], mean_layers: Sequence[np.ndarray | float]) -> np.ndarray:
        """Compute the coin's expected score.

        Args:
            sums: for each half, the sums of both layers' values over its examples, (values, 2, ...).
            mean_layers: for each half, the mean layers that the coin runs, (...).
        """
        total = np.zeros_like(sums[0][:, 0])
        for own, pair, layers in zip(sums, self.pairs, mean_layers, strict=True):
            share = _share(pair, layers)
            total += (1 - share) * own[:, 0] + share * own[:, 1]
        return self.values.score(total / sum(map(len, self.halves)))


@dataclass(frozen=True)
class _Toss:
    """Exits of a model under an exit setting, beside those of the coin."""

    exit_layers: np.ndarray  # (n,), means over the draws
    own: _Values  # of the answers of each draw
    coin: _Coin

    @cached_property
    def values(self) -> np.ndarray:
        """Values whose sums decide the gain, (values, n): ones, exit layers, then those of the setting and the coin."""
        lists = (self.own.values, self.coin.values.values)
        ones = np.ones_like(self.exit_layers)
        return np.concatenate([ones[None], self.exit_layers[None], *(own.reshape(-1, len(ones)) for own in lists)])

    def gain(self, sums: Sequence[np.ndarray]) -> np.ndarray:
        """Compute the gain on each resample, (resamples,), from the sums of `values` on each half."""
        n, (number, draws, _) = len(self.exit_layers), self.own.values.shape
        of_own, of_coin = zip(*(np.split(own.T[2:], [number * draws]) for own in sums), strict=True)
        scores = self.own.score((of_own[0] + of_own[1]).reshape(number, draws, -1) / n).mean(axis=0)
        mean_layers = [ratio(own[:, 1], own[:, 0]) for own in sums]
        return np.asarray(
            scores - self.coin.score_sums([own.reshape(-1, 2, len(scores)) for own in of_coin], mean_layers)
        )


def _share(pair: Pair, mean_layers: np.ndarray | float) -> np.ndarray:
    """Compute the share of examples that exit at the upper layer of `pair`."""
    lower, upper = pair
    return np.asarray((mean_layers - lower) / (upper - lower))


def _rank_weighted(numbers: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Replace numbers by their expected ranks if each is drawn with its chance; equal numbers share the mean rank."""
    _, places = np.unique(numbers, return_inverse=True)
    sizes = np.bincount(places.ravel(), weights=chances.ravel())
    return np.reshape((sizes.cumsum() - sizes / 2)[places], numbers.shape)
