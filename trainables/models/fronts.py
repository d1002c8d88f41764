"""Fronts of exit settings: the scores of one trained model for the mean layers that it may run. NumPy alone.

The front has the settings that no other setting beats in score with as few layers. Between two of them lies a straight
line: whoever takes the one for some examples and the other for the rest, at random, runs a mixture of their layers and
expects the same mixture of their accuracies (of other metrics about). Above the last one more layers buy nothing.
"""

from __future__ import annotations

import numpy as np

ROUNDING = 1e-9  # of a mean over examples


def pareto_places(mean_layers: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Find the places of the front's settings, (points,), by layers, from those of all settings, (settings,) both."""
    order = np.lexsort((-scores, mean_layers))  # of equal layers the best score first
    ordered = scores[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ordered)[:-1]])
    return np.asarray(order[ordered > before])


def shares_in_mean(mean_layers: np.ndarray, fewest: float, most: float) -> np.ndarray:
    """Weigh each point of a front in its mean score over a range of layers: its area, over the range's width.

    Args:
        mean_layers: of the points, (points,), rising.
        fewest: end of the range; it may be the other end too, which gives the score there.
    """
    inside = mean_layers[(mean_layers > fewest) & (mean_layers < most)]
    grid = np.concatenate([[fewest], inside, [most]])
    shares = np.stack([np.interp(grid, mean_layers, unit) for unit in np.eye(len(mean_layers))])  # (points, grid)
    if most - fewest < ROUNDING:
        return np.asarray(shares[:, 0])
    return np.asarray((shares[:, 1:] + shares[:, :-1]) @ np.diff(grid) / 2 / (most - fewest))
