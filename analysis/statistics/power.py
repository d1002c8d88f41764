"""What the paired test can find: its power, and the smallest difference that it finds four times in five."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from analysis.statistics import uncertainty

POWER = 0.8
_NORMAL_FROM = 1e4  # degrees of freedom; scipy's noncentral t is unsure of itself far beyond


def power(
    difference: float,
    *,
    n_examples: int,
    seeds: int,
    seed_standard_deviation: float,
    accuracy: float,
    example_correlation: float = 0.0,
    comparisons: int = 1,
) -> float:
    """How often the paired test finds a true difference of two methods' accuracies, both shares of 1.

    Noncentral t with 2 (seeds - 1) degrees of freedom; `python -m benchmarks.statistics power` holds it against the
    test itself. A model's score varies with its seed, and with the examples that it happens to get right:
    (1 - ρ) a (1 - a) / n, for methods that find the same examples difficult. The test is then sure of the examples
    that both have in common; where methods differ in what they find difficult, the power is less.

    Args:
        seed_standard_deviation: of models' expected accuracy on new examples.
        accuracy: a, of either method, roughly.
        example_correlation: ρ, of two models' being right on the same example; 0 gives the least power.
        comparisons: of the table: the power for one of them, were it the first that Holm looks at.
    """
    of_examples = (1 - example_correlation) * accuracy * (1 - accuracy) / n_examples
    error = (2 * (seed_standard_deviation**2 + of_examples) / seeds) ** 0.5
    freedom = 2 * (seeds - 1)
    critical = float(special.stdtrit(freedom, 1 - uncertainty.ALPHA / comparisons / 2))
    shift = difference / error
    beyond = 1 - special.nctdtr(freedom, shift, critical) + special.nctdtr(freedom, shift, -critical)
    return float(beyond)


def detectable_difference(standard_error: float, freedom: float, *, comparisons: int = 1) -> float | None:
    """The smallest true difference that a test with this standard error finds with 80 % power, in the score's unit.

    None where the error is 0: scores that are all alike say nothing of how they spread.

    Args:
        freedom: degrees of freedom of the standard error.
        comparisons: of the table; the first that Holm looks at is tested at the level divided by their number.
    """
    if standard_error == 0:
        return None
    level = 1 - uncertainty.ALPHA / comparisons / 2
    if freedom > _NORMAL_FROM:
        return standard_error * float(special.ndtri(level) + special.ndtri(POWER))
    return standard_error * float(special.nctdtrinc(freedom, 1 - POWER, special.stdtrit(freedom, level)))


def detectable_from_spread(scores: Sequence[float], *, comparisons: int = 1) -> float | None:
    """The same for two methods that both spread over their seeds as these scores do: without stored predictions."""
    error = float(np.std(scores, ddof=1)) * (2 / len(scores)) ** 0.5
    return detectable_difference(error, 2 * (len(scores) - 1), comparisons=comparisons)
