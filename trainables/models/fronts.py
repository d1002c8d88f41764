"""Pareto fronts of one trained model's exit settings: score against mean number of layers run. Needs only NumPy.

A setting is on the front if all other settings with at most as many layers score lower. Between two settings, the front
is a straight line. Choosing one of the two settings at random for each example gives the scores on this line. For
metrics other than accuracy, this is approximate. Outside the range of the settings, the score stays constant.
"""

from __future__ import annotations

import numpy as np

ROUNDING = 1e-9  # tolerance for a mean over examples


def pareto_places(mean_layers: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Find the indices of the settings on the Pareto front, fewest layers first. Both arguments are (settings,)."""
    order = np.lexsort((-scores, mean_layers))  # with equal layers, the best score first
    ordered = scores[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ordered)[:-1]])
    return np.asarray(order[ordered > before])


def front_weights(mean_layers: np.ndarray, fewest: float, most: float) -> np.ndarray:
    """Compute the weight of each setting in a front's score, which is averaged over `fewest` to `most` layers.

    The weights have shape (settings,), and the average is `weights @ scores`.

    Args:
        mean_layers: mean layers of the front's settings, (settings,), ascending.
        fewest: if it equals `most`, the mean is the score at this number of layers.
    """
    inside = mean_layers[(mean_layers > fewest) & (mean_layers < most)]
    grid = np.concatenate([[fewest], inside, [most]])
    shares = np.stack([np.interp(grid, mean_layers, unit) for unit in np.eye(len(mean_layers))])  # (points, grid)
    if most - fewest < ROUNDING:
        return np.asarray(shares[:, 0])
    return np.asarray((shares[:, 1:] + shares[:, :-1]) @ np.diff(grid) / 2 / (most - fewest))
