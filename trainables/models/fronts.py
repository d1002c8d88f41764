"""Fronts of exit settings: what one trained model scores for the mean layers that it may run. NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-9  # of a mean over examples


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
        """The score for at most so many mean layers; None beyond the layers of the settings (no extrapolation)."""
        if not self.mean_layers[0] - ROUNDING <= mean_layers <= self.most_layers + ROUNDING:
            return None
        return float(np.interp(mean_layers, self.mean_layers, self.scores))

    def mean_score(self, fewest: float, most: float) -> float:
        """The mean score over a range of mean layers within the layers of the settings: the area under the front."""
        inside = self.mean_layers[(self.mean_layers > fewest) & (self.mean_layers < most)]
        layers = np.concatenate([[fewest], inside, [most]])
        scores = np.interp(layers, self.mean_layers, self.scores)
        return float(np.sum(np.diff(layers) * (scores[1:] + scores[:-1]) / 2) / (most - fewest))


def pareto_front(mean_layers: np.ndarray, scores: np.ndarray) -> Front:
    """The front of a model's settings, from the mean layers and the score of each: (settings,) both."""
    order = np.lexsort((-scores, mean_layers))  # by layers; of equal layers the best score first
    layers, ordered = mean_layers[order], scores[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ordered)[:-1]])
    rises = ordered > before
    return Front(layers[rises], ordered[rises], most_layers=float(layers[-1]))
