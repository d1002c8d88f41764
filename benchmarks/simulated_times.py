"""Simulated measurements of two methods' times, of which the true ratio is known; `benchmarks.statistics times`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.statistics.times import LayerCosts, Times, compare_times
from analysis.statistics.uncertainty import ALPHA, LEVEL, PairedTest
from benchmarks.rates import Rate
from trainables.models.exit_rules import Threshold
from trainables.runs.times import DETAIL_EVERY, TimedModel

TEXTS, ROUNDS = 200, 5
SEED_DEVIATION = 0.03  # of a model's expected time: models of different seeds leave at different layers
TEXT_DEVIATION = 0.3  # of a text's time, by its length, in all models alike
EXIT_DEVIATION = 0.4  # of a text's time in one method, by the layer at which the method's models tend to leave
MODEL_DEVIATION = 0.2  # of a text's time in one model, by where this model leaves
NOISE = 0.02  # of a model's time in one round
TRUTH = 0.9
LAYERS, EXAMPLES = 6, 277
LEAVING = (0.8, 0.3, 0.6)  # of the layers at which examples leave, in 1.5 layers: over examples, over seeds, and both
PLACE_DEVIATION = 0.01  # between models that take equally long


def ratios_of_times(divisor: int) -> Iterator[Rate]:
    """Two methods with the same seeds, other seeds, or one seed; equal times; and times computed from single layers."""
    rng, repeats = np.random.default_rng(30), 1_000 // divisor
    cases = {
        "5 seeds each": (range(5), range(5)),
        "2 seeds each": (range(2), range(2)),
        "10 seeds each": (range(10),) * 2,
    }
    cases |= {"5 other seeds": (range(5), range(5, 10)), "5 and 3 other seeds": (range(5), range(5, 8))}
    for name, (seeds, others) in cases.items():
        found = [compare_times(*_measure(rng, [*seeds], [*others], TRUTH)) for _ in range(repeats)]
        covered = float(np.mean([ratio.low <= TRUTH <= ratio.high for ratio in found]))
        yield Rate(f"{name}: true ratio covered", covered, repeats, "at least", LEVEL)
    alike = [compare_times(*_measure(rng, [*range(5)], [*range(5)], 1.0)) for _ in range(repeats)]
    differ = float(np.mean([ratio.differs for ratio in alike]))
    yield Rate("5 seeds each, equal times: called different", differ, repeats, "at most", ALPHA)
    copies = [compare_times(*_measure_copies(rng, seeds=5)) for _ in range(repeats)]
    differ = float(np.mean([ratio.differs for ratio in copies]))
    yield Rate("two copies of five models: called different", differ, repeats, "at most", ALPHA)
    copies = [compare_times(*_measure_copies(rng, seeds=1)) for _ in range(repeats)]
    differ = float(np.mean([ratio.differs for ratio in copies]))
    yield Rate("two copies of one model: called different", differ, repeats, "at most", ALPHA)
    tests = [_compare_computed(rng, seeds=5) for _ in range(repeats)]
    expected = float(np.mean([test.difference for test in tests]))
    covered = float(np.mean([test.low <= expected <= test.high for test in tests]))
    yield Rate("computed from single layers, 5 seeds: expected ratio covered", covered, repeats, "at least", LEVEL)


def _compare_computed(rng: np.random.Generator, *, seeds: int) -> PairedTest:
    """Compare times that follow from single layers of one model with those of plain models, on new dev examples."""
    of_examples, of_seeds, of_both = (rng.normal(0, deviation, (seeds, EXAMPLES)) for deviation in LEAVING)
    leaving = of_examples[:1] + of_seeds[:, :1] + of_both
    exit_layers = np.clip(np.rint(LAYERS / 2 + 1.5 * leaving), 1, LAYERS).astype(int)
    texts = _factors(rng, TEXT_DEVIATION, (1, TEXTS))
    plain = texts * (LAYERS + 1) * _factors(rng, PLACE_DEVIATION, (seeds, 1))
    detailed = texts[:, ::DETAIL_EVERY] * _factors(rng, MODEL_DEVIATION, (1, TEXTS // DETAIL_EVERY))
    detailed = detailed * _factors(rng, PLACE_DEVIATION, (1, 1))
    layers = {}
    for layer in range(1, LAYERS + 1):
        times = _observe(rng, [0], (layer + 1) * detailed)
        layers[layer] = TimedModel(
            key="timed",
            exit="layer",
            rule=Threshold.name,
            at=layer,
            batch_size=1,
            mean_layers=layer,
            texts=tuple(times.texts[0].tolist()),
            rounds=tuple(times.rounds[0].tolist()),
        )
    costs = LayerCosts(layers, {}, np.array([]), ())
    measured = _observe(rng, [*range(seeds)], plain)
    return costs.compare({Threshold(0.5): 1.0}, [*exit_layers[:, None]], measured.in_detail)


def _measure(rng: np.random.Generator, seeds: list[int], others: list[int], ratio: float) -> tuple[Times, Times]:
    """Measure two methods on new texts; `ratio` divides their expected times."""
    lengths = _factors(rng, TEXT_DEVIATION, (1, TEXTS))
    own, other = (
        mean
        * lengths
        * _factors(rng, EXIT_DEVIATION, (1, TEXTS))
        * _factors(rng, MODEL_DEVIATION, (len(chosen), TEXTS))
        * _factors(rng, SEED_DEVIATION, (len(chosen), 1))
        for mean, chosen in ((ratio, seeds), (1.0, others))
    )
    return _observe(rng, seeds, own), _observe(rng, others, other)


def _measure_copies(rng: np.random.Generator, *, seeds: int) -> tuple[Times, Times]:
    """Measure the same models twice in the same rounds."""
    texts = _factors(rng, TEXT_DEVIATION, (1, TEXTS)) * _factors(rng, MODEL_DEVIATION, (seeds, TEXTS))
    return _observe(rng, [*range(seeds)], texts), _observe(rng, [*range(seeds)], texts)


def _factors(rng: np.random.Generator, deviation: float, shape: tuple[int, int]) -> np.ndarray:
    """Draw factors with a mean of 1."""
    return np.exp(rng.normal(-(deviation**2) / 2, deviation, shape))


def _observe(rng: np.random.Generator, seeds: list[int], texts: np.ndarray) -> Times:
    """Add the noise of rounds; each text's time is the median over the rounds."""
    sizes = (len(seeds), ROUNDS, 1), (len(seeds), ROUNDS, texts.shape[1])
    noise = 1 + sum(NOISE * rng.normal(size=size) for size in sizes)
    rounds = texts[:, None] * noise
    return Times(seeds, np.median(rounds, axis=1), rounds.mean(axis=2))
