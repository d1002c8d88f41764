"""Where the spread of a cell's score comes from: the seed, the dev examples, or which configuration was found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.statistics.comparisons import Sample


@dataclass(frozen=True)
class VarianceComponents:
    """Standard deviations of one model's score, had one thing alone been different; scores in [-1, 1].

    Seed and dev examples overlap: models of several seeds err on the same dev examples, and differ on these examples.
    """

    seed: float  # another seed, the same dev examples
    dev_examples: float  # other dev examples, as many and of the same kind; the same model
    search: float | None  # another search: the expected score of what it would have chosen; None where it cannot tell

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        return asdict(self)


def variance_components(sample: Sample) -> VarianceComponents:
    """From a cell's scores on the dev set and its resamples, seeds x dev examples, and the luck of its search.

    That of the dev examples is the bootstrap's variance of each model's score, mean over the seeds.
    """
    of_one_model = float(np.var(sample.resampled, axis=0, ddof=1).mean())
    return VarianceComponents(
        seed=float(np.std(sample.scores, ddof=1)),
        dev_examples=of_one_model**0.5,
        search=None if sample.search is None else sample.search.value**0.5,
    )
