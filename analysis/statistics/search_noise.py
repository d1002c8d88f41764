"""How much of a method's score is the luck of its search: another search would have chosen another configuration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from analysis.statistics.uncertainty import SearchNoise, Variance

FEWEST_CONFIGURATIONS = 4  # below, the spread of the better half is a guess


def search_noise(search_scores: Sequence[float], seed_scores: Sequence[float]) -> SearchNoise | None:
    """From one search: the selection scores of its completed trials, and of several seeds of the chosen configuration.

    σ² is the variance of `seed_scores`. The spread of search scores is taken from the better half alone, as the mean
    square above the median, so that some failures do not widen it; Var(S) is that of the best of K normal values of
    this spread (an empirical bootstrap of a maximum is too sure of itself). None with fewer than 4 trials or 2 seeds.

    `python -m benchmarks.statistics search` prints how often a true null is rejected. Of searches over one and the same
    grid that holds on average over grids: of one where a configuration stands out it says too much, of one where chance
    decides among a few equals too little.
    """
    if len(search_scores) < FEWEST_CONFIGURATIONS or len(seed_scores) < 2:
        return None
    above = np.asarray(search_scores) - np.median(search_scores)
    upper = above[above >= 0]
    spread = float(np.sum(upper**2) / (len(upper) - 1))
    of_seeds = float(np.var(seed_scores, ddof=1))
    share = max(0.0, 1 - of_seeds / spread) if spread > 0 else 0.0
    best = share**2 * spread * variance_of_best(len(search_scores))
    return SearchNoise(given_best=share * of_seeds, of_best=Variance(best, len(search_scores) / 2))


@cache
def variance_of_best(number: int) -> float:
    """Variance of the greatest of so many independent standard normal values."""
    from scipy import integrate, special  # takes a second to import

    def moment(power: int) -> float:
        def density(x: float) -> float:
            return x**power * number * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * special.ndtr(x) ** (number - 1)

        return integrate.quad(density, -12, 12, points=[0, 2, 4])[0]

    return float(moment(2) - moment(1) ** 2)
