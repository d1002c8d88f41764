"""Where the spread of a cell's score comes from: the seed, the dev examples, or which configuration was found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.statistics.comparisons import Sample


@dataclass(frozen=True)
class VarianceComponents:
    """Standard deviations of one model's score, had one thing alone been different; scores in [-1, 1].

    The parts are independent: their squares add up to the variance of one trial on a new dev set after a new search.
    """

    seed: float  # another seed, the same dev examples
    dev_examples: float  # other dev examples, beyond what they change from seed to seed
    search: float | None  # another search: the expected score of what it would have chosen; None where it cannot tell

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        return asdict(self)


def variance_components(sample: Sample) -> VarianceComponents:
    """From a cell's scores on the dev set and its resamples, seeds x dev examples, and the luck of its search.

    The bootstrap's variance of the mean over seeds, less the part that differs from seed to seed, is that of the dev
    examples: models that err alike err on the same examples.
    """
    seeds = sample.resampled.shape[1]
    of_mean = float(np.var(sample.resampled.mean(axis=1), ddof=1))
    deviations = sample.resampled - sample.resampled.mean(axis=1, keepdims=True)
    differing = float(np.var(deviations, axis=0, ddof=1).sum() / (seeds - 1))  # of one seed
    return VarianceComponents(
        seed=float(np.std(sample.scores, ddof=1)),
        dev_examples=max(0.0, of_mean - differing / seeds) ** 0.5,
        search=None if sample.search is None else sample.search.value**0.5,
    )
