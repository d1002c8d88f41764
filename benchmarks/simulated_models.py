"""Simulated models of methods with known chances to be right, for the simulations of `benchmarks.statistics`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.statistics import uncertainty

SEEDS = 5
METHODS, TASKS, EXAMPLES = 5, 8, 277
RESAMPLES = 150
SEED_DEVIATION = 0.02  # of models' expected accuracy
WEIGHTS = np.random.default_rng(0).multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), size=RESAMPLES) / EXAMPLES


@dataclass(frozen=True)
class Models:
    """Five models of a method, by accuracy."""

    scores: np.ndarray  # (seeds,)
    resampled: np.ndarray  # (resamples, seeds)


def sample(rng: np.random.Generator, chances: np.ndarray, *, seeds: int = SEEDS) -> Models:
    """Models of a method that has these chances to be right on the examples, (n,)."""
    shifts = rng.normal(0, SEED_DEVIATION, (seeds, 1))
    correct = (rng.random((seeds, len(chances))) < chances + shifts).astype(float)
    return Models(correct.mean(axis=1), WEIGHTS @ correct.T)


def compared(one: Models, other: Models) -> uncertainty.PairedTest:
    """The paired test as tables make it."""
    return uncertainty.welch_test(one.resampled, other.resampled, one.scores, other.scores)


def eases(rng: np.random.Generator, correlation: float, accuracy: float = 0.75) -> np.ndarray:
    """Chances of a right answer, by example, of models that agree so much on which examples are easy."""
    concentration = 1 / correlation - 1
    return rng.beta(accuracy * concentration, (1 - accuracy) * concentration, EXAMPLES)
