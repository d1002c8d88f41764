"""Score against layers: what a method scores for the layers it may run, and what it must run for a score.

Per trained model, on the Pareto front of all settings that were evaluated; then the median over the seeds. A front is
chosen on the same dev examples that it is measured on, so it flatters a method with many settings a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.statistics.exits import Exits

ROUNDING = 1e-9  # of a mean over examples


@dataclass(frozen=True)
class Spread:
    """A number over the seeds."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Front:
    """The settings of one trained model that no other setting beats in score with as few layers.

    Between two of them lies a straight line: whoever takes the one for some examples and the other for the rest, at
    random, runs a mixture of their layers and expects the same mixture of their accuracies (of other metrics about).
    """

    mean_layers: np.ndarray  # (points,), rising
    scores: np.ndarray  # (points,), rising, in [-1, 1]
    most_layers: float  # of any setting; between the last point and here more layers buy nothing

    def score_at(self, mean_layers: float) -> float | None:
        """The score for at most so many mean layers; None outside of what the settings run: nothing is extrapolated."""
        if not self.mean_layers[0] - ROUNDING <= mean_layers <= self.most_layers + ROUNDING:
            return None
        return float(np.interp(mean_layers, self.mean_layers, self.scores))

    def layers_for(self, score: float) -> float | None:
        """The fewest mean layers that give this score; None outside of what the front scores."""
        if not self.scores[0] - ROUNDING <= score <= self.scores[-1] + ROUNDING:
            return None
        return float(np.interp(score, self.scores, self.mean_layers))


@dataclass(frozen=True)
class TradeOff:
    """The fronts of a cell's models, one per seed."""

    fronts: tuple[Front, ...]

    def score_at(self, mean_layers: float) -> Spread | None:
        """The score at so many mean layers; None unless every seed's front reaches there."""
        return _spread([front.score_at(mean_layers) for front in self.fronts])

    def layers_for(self, score: float) -> Spread | None:
        """The mean layers for this score; None unless every seed's front reaches it: the best seeds alone flatter."""
        return _spread([front.layers_for(score) for front in self.fronts])


def pareto_front(mean_layers: np.ndarray, scores: np.ndarray) -> Front:
    """The front of a model's settings, from the mean layers and the score of each, (settings,) both."""
    order = np.lexsort((-scores, mean_layers))  # by layers; of equal layers the best score first
    layers, ordered = mean_layers[order], scores[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ordered)[:-1]])
    rises = ordered > before
    return Front(layers[rises], ordered[rises], most_layers=float(layers[-1]))


def trade_off(exits: Exits) -> TradeOff:
    """The trade-off of a cell: every setting of every rule that was swept, and the method's own exit."""
    layers = np.concatenate([exits.mean_layers[:, None], *(sweep.mean_layers for sweep in exits.sweeps)], axis=1)
    scores = np.concatenate([exits.scores[:, None], *(sweep.scores for sweep in exits.sweeps)], axis=1)
    return TradeOff(tuple(pareto_front(*points) for points in zip(layers, scores, strict=True)))


def _spread(values: Sequence[float | None]) -> Spread | None:
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None
    return Spread(float(np.median(numbers)), min(numbers), max(numbers))
