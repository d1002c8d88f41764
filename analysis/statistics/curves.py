"""Compare curves of score over mean layers, or over FLOPs; a curve goes through a model's best exit settings.

The settings are chosen on one half of dev and measured on the other half. Then the halves swap roles. Each number is
the mean of the two measurements. With one set of examples, methods with many settings would score too high. Only the
mean over a range of costs is compared; `budgets.py` has scores at a number of layers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.statistics.exit_settings import halves
from analysis.statistics.samples import Scored, resampled_scores
from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Answers, Predictions, read_cell_predictions
from trainables.data.metrics import predictions_from_logits
from trainables.models.exit_rules import apply_exit
from trainables.models.fronts import front_weights, pareto_places


@dataclass(frozen=True)
class Settings:
    """Predictions and exit layers of one model under each of its exit settings."""

    examples: Answers  # with their labels and splits
    answers: np.ndarray  # (settings, n) classes or scores
    exit_layers: np.ndarray  # (settings, n) layers run, from 1; or another cost

    def of(self, rows: np.ndarray) -> Settings:
        """Keep only the examples with the indices `rows`."""
        own = self.examples
        parts = {name: getattr(own, name)[rows] for name in ("ids", "split", "labels")}
        taken = Answers(own.task, **parts, answers=own.answers[:, rows])
        return Settings(taken, self.answers[:, rows], self.exit_layers[:, rows])

    def at_cost(self, costs: np.ndarray) -> Settings:
        """Replace the number of layers by another cost.

        Args:
            costs: cost of exiting after each layer, (layers, n), or (layers, 1) if all examples have equal costs.
        """
        of_examples = np.broadcast_to(costs, (len(costs), self.exit_layers.shape[1]))
        return Settings(self.examples, self.answers, np.take_along_axis(of_examples, self.exit_layers - 1, axis=0))

    @cached_property
    def mean_layers(self) -> np.ndarray:
        """Mean layers (or another cost) per example at each setting, (settings,)."""
        return np.asarray(self.exit_layers.mean(axis=1))

    @cached_property
    def scores(self) -> np.ndarray:
        """Score of each setting, (settings,)."""
        return np.array([self.examples.score_answers(answers) for answers in self.answers])


@dataclass(frozen=True)
class MeasuredSettings(Settings):
    """Exit settings, chosen on one half of dev and measured on the other half. They are sorted by mean layers."""

    most_layers: float  # of the most expensive setting, chosen or not; the curve is flat from its last point to here

    def shares(self, fewest: float, most: float) -> np.ndarray:
        """Compute the weight of each setting in the mean score from `fewest` to `most` mean layers, (settings,)."""
        return front_weights(self.mean_layers, fewest, most)


@dataclass(frozen=True)
class Curves:
    """Curves of score over mean layers, one per model of a cell."""

    halves: tuple[tuple[MeasuredSettings, ...], ...]  # (2, seeds)
    models: tuple[Settings, ...]  # (seeds,): all settings on all examples

    @property
    def fewest_layers(self) -> float:
        """Fewest mean layers at which every model has a score."""
        return max(float(own.mean_layers[0]) for half in self.halves for own in half)

    @property
    def most_layers(self) -> float:
        """Most mean layers at which every model has a score."""
        return min(own.most_layers for half in self.halves for own in half)

    def over(self, fewest: float, most: float) -> Scored:
        """Compute each model's mean score between `fewest` and `most` mean layers."""
        resampled = []
        for seed, half in enumerate(self.halves):
            means = [
                scores @ measured.shares(fewest, most)
                for scores, measured in zip(_resampled(half, seed), half, strict=True)
            ]
            resampled.append(np.stack(means, axis=1))
        found = [[float(own.shares(fewest, most) @ own.scores) for own in half] for half in self.halves]
        scores = [float(mean) for mean in np.mean(found, axis=0)]
        return Scored(scores, np.mean(resampled, axis=0), self.models[0].examples.examples)

    def at_cost(self, costs: np.ndarray) -> Curves:
        """Replace the number of layers by another cost; see `Settings.at_cost`."""
        return make_curves([own.at_cost(costs) for own in self.models])


def _resampled(models: Sequence[Settings], seed: int) -> list[np.ndarray]:
    """Score all settings of all models on the same resamples; return one array (resamples, settings) per model."""
    own, ends = models[0].examples, np.cumsum([len(model.answers) for model in models])
    answers = np.concatenate([model.answers for model in models])
    scores = resampled_scores(own.task, answers, own.labels, own.split, seed=seed)
    return np.split(scores, ends[:-1], axis=1)


def read_curves(cell: Cell) -> Curves | None:
    """Make the curves of a cell's models from their stored predictions. Dropped final runs count.

    Returns:
        None if the models have no early exit, predictions are missing, or this package does not define the exit rule.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    stored = read_cell_predictions(cell.with_dropped)
    if len({own.examples for own in stored}) != 1:
        return None
    models = [settings for own in stored if (settings := swept_settings(own)) is not None]
    if len(models) < len(stored):
        return None
    return make_curves(models)


def make_curves(models: Sequence[Settings]) -> Curves:
    """Make one curve per seed, through the exit settings of each seed's model, all evaluated on the same examples."""
    one, two = halves(models[0].examples.split)
    chosen_and_measured = ((one, two), (two, one))
    measured = tuple(
        tuple(_measure(own.of(choosing), own.of(measuring)) for own in models)
        for choosing, measuring in chosen_and_measured
    )
    return Curves(measured, tuple(models))


def shared_ranges(curves: Mapping[tuple[str, str], Curves]) -> dict[str, tuple[float, float]]:
    """Find the range of mean layers (or another cost) that the curves of all rows cover, for each task.

    Tasks without a common range are left out. So are tasks with a single row, or with a row that has one seed.

    Args:
        curves: (row label, task) -> curves.
    """
    by_task: dict[str, list[Curves]] = {}
    for (_, task), own in curves.items():
        by_task.setdefault(task, []).append(own)
    several = {task: own for task, own in by_task.items() if len(own) > 1 and min(len(one.models) for one in own) > 1}
    return {task: (low, high) for task, own in several.items() for low, high in [common_range(own)] if low < high}


def common_range(curves: Collection[Curves]) -> tuple[float, float]:
    """Find the range of mean layers (or another cost) that all curves cover."""
    return max(own.fewest_layers for own in curves), min(own.most_layers for own in curves)


def swept_settings(predictions: Predictions) -> Settings | None:
    """Compute a model's predictions at the exit setting of its trial and at all swept settings.

    Each draw of a random exit counts as a setting.

    Returns:
        None if no setting was swept, or if this package does not define the exit rule.
    """
    rules = predictions.sweep_rules
    known = [rule for rule in rules if rule is not None]
    if not rules or len(known) < len(rules):
        return None
    results = [apply_exit(rule, predictions.outputs) for rule in known]
    answers = [predictions_from_logits(predictions.task, result.logits) for result in results]
    return Settings(
        predictions,
        np.stack([*predictions.answers, *answers]),
        np.stack([*predictions.exit_layers, *(result.exit_layer for result in results)]),
    )


def _measure(choosing: Settings, measuring: Settings) -> MeasuredSettings:
    """Choose the settings that are Pareto-optimal on one half of dev, and measure them on the other half."""
    places = pareto_places(choosing.mean_layers, choosing.scores)
    places = places[np.argsort(measuring.mean_layers[places], kind="stable")]
    most_layers = float(measuring.mean_layers.max())
    return MeasuredSettings(measuring.examples, measuring.answers[places], measuring.exit_layers[places], most_layers)
