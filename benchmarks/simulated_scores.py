"""Simulated scores of methods: level, coverage and power of the tests and intervals; `benchmarks.statistics`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from analysis.statistics import uncertainty
from analysis.statistics.comparisons import (
    POWER,
    Comparison,
    compare,
    macro_test,
)
from analysis.statistics.power import Spread, measure_spread
from analysis.statistics.samples import Sample, Scored, weighted_scores
from benchmarks.rates import Rate
from benchmarks.simulated_models import (
    EXAMPLES,
    METHODS,
    RESAMPLES,
    SEED_DEVIATION,
    SEEDS,
    TASKS,
    WEIGHTS,
    Models,
    compared,
    eases,
    sample,
)
from trainables.data.tasks import TASKS as GLUE

PILOTS = 50  # studies that measure the spread from which power is predicted


def null_tables(divisor: int) -> Iterator[Rate]:
    """Rows that are all alike, but each finds other examples difficult. The first row is the baseline."""
    rng, repeats = np.random.default_rng(1), 3_000 // divisor
    marked = {"over all pairs and tasks": 0, "over the tasks of each pair": 0}
    for _ in range(repeats):
        p_values = np.array([null_p_values(rng) for _ in range(TASKS)])  # (tasks, pairs)
        marked["over all pairs and tasks"] += min(uncertainty.holm(p_values.ravel().tolist())) < uncertainty.ALPHA
        by_pair = [min(uncertainty.holm(own.tolist())) < uncertainty.ALPHA for own in p_values.T]
        marked["over the tasks of each pair"] += any(by_pair)
    whole, each = marked
    yield Rate(f"tables with a mark, Holm {whole}", marked[whole] / repeats, repeats, "at most", uncertainty.ALPHA)
    yield Rate(f"tables with a mark, Holm {each}", marked[each] / repeats, repeats, "for comparison", None)


def null_p_values(rng: np.random.Generator) -> list[float]:
    """Of the baseline against each other method on one task."""
    return [test.p_value for test in null_tests(rng)]


def null_tests(rng: np.random.Generator) -> list[uncertainty.PairedTest]:
    """The baseline against each other method on one task."""
    ease = rng.uniform(0.5, 1.0, EXAMPLES)
    samples = [sample(rng, np.clip(ease + rng.normal(0, 0.1, EXAMPLES), 0, 1)) for _ in range(METHODS)]
    return [compared(samples[0], other) for other in samples[1:]]


def degrees_of_freedom(divisor: int) -> Iterator[Rate]:
    """A variance that is known, and one of either row that five seeds estimate; no difference."""
    rng, repeats = np.random.default_rng(8), 100_000 // divisor
    level = uncertainty.ALPHA / ((METHODS - 1) * TASKS)
    for known in (0.2, 0.5):
        differences = rng.normal(size=repeats).tolist()
        estimates = ((1 - known) / 2 * rng.chisquare(SEEDS - 1, (repeats, 2)) / (SEEDS - 1)).tolist()
        tests = [
            uncertainty.paired_test(
                difference,
                [uncertainty.Variance(known, np.inf), *(uncertainty.Variance(own, SEEDS - 1) for own in both)],
            )
            for difference, both in zip(differences, estimates, strict=True)
        ]
        rejected = np.mean([test.p_value < level for test in tests])
        yield Rate(f"rejected, {100 * known:.0f} % of the variance known", rejected, repeats, "at most", level)
        plain = np.array([satterthwaite(known, *both) for both in estimates])
        errors = (known + np.sum(estimates, axis=1)) ** 0.5
        rejected = np.mean(2 * stats.t.sf(np.abs(differences) / errors, plain) < level)
        yield Rate("the same, Satterthwaite's formula as it stands", rejected, repeats, "for comparison", None)


def satterthwaite(known: float, one: float, other: float) -> float:
    return (known + one + other) ** 2 / ((one**2 + other**2) / (SEEDS - 1))


def unequal_seeds(divisor: int) -> Iterator[Rate]:
    """Two methods that are alike, with unlike numbers of seeds; examples add much to the variance, or nothing."""
    rng, repeats = np.random.default_rng(11), 4_000 // divisor
    for few, many in ((2, 3), (2, 5), (2, 10), (3, 5), (3, 10), (5, 10)):
        noisy = exact = former = 0
        for _ in range(repeats):
            ease = rng.uniform(0.5, 1.0, EXAMPLES)
            chances = [np.clip(ease + rng.normal(0, 0.1, EXAMPLES), 0, 1) for _ in range(2)]
            test = compared(*(sample(rng, own, seeds=seeds) for own, seeds in zip(chances, (few, many), strict=True)))
            noisy += test.p_value < uncertainty.ALPHA
            one, other = (Models(rng.normal(size=seeds), np.zeros((2, seeds))) for seeds in (few, many))
            exact += compared(one, other).p_value < uncertainty.ALPHA
            variances = [
                uncertainty.Variance(float(np.var(own.scores, ddof=1)) / len(own.scores), len(own.scores) - 1)
                for own in (one, other)
            ]
            plain = uncertainty.paired_test(float(one.scores.mean() - other.scores.mean()), variances)
            former += plain.p_value < uncertainty.ALPHA
        name = f"{few} seeds against {many}: rejected"
        yield Rate(f"{name}, examples add noise", noisy / repeats, repeats, "at most", uncertainty.ALPHA)
        yield Rate(f"{name}, seeds alone add noise", exact / repeats, repeats, "at most", uncertainty.ALPHA)
        yield Rate(f"{name}, seeds alone, each with its own freedom", former / repeats, repeats, "for comparison", None)


def mean_scores(divisor: int) -> Iterator[Rate]:
    """The interval with seeds and examples in it; and tables of methods that are alike, by their means over tasks."""
    rng, repeats = np.random.default_rng(4), 4_000 // divisor
    for correlation in (0.0, 0.3, 0.9):
        covered = 0
        for _ in range(repeats):
            ease = np.full(EXAMPLES, 0.75) if not correlation else eases(rng, correlation)
            models = sample(rng, ease)
            interval = uncertainty.mean_interval(models.resampled, models.scores.tolist())
            covered += interval.low <= 0.75 <= interval.high
        name = f"seeds agree on examples by {correlation:g}: mean score covered"
        yield Rate(name, covered / repeats, repeats, "at least", uncertainty.LEVEL)
    excluded, level = 0, 1 - uncertainty.ALPHA / (METHODS - 1)
    for _ in range(tables := repeats // 4):
        tests = np.array([null_tests(rng) for _ in range(TASKS)], dtype=object)  # (tasks, methods)
        means = [uncertainty.at_level(macro_test([*own]), level) for own in tests.T]
        excluded += any(test.low > 0 or test.high < 0 for test in means)
    name = f"{METHODS - 1} means over tasks: any interval without 0"
    yield Rate(name, excluded / tables, tables, "at most", uncertainty.ALPHA)


class Scoring(NamedTuple):
    """A task, the size of its dev set, and the share of its labels that are 1."""

    task: str
    examples: int
    share: float


def other_metrics(divisor: int) -> Iterator[Rate]:
    """Mean scores in Matthews' correlation, F1 and Pearson's and Spearman's correlations, on new dev examples."""
    rng, repeats = np.random.default_rng(20), 1_500 // divisor
    for scoring in (Scoring("cola", 1_043, 0.69), Scoring("mrpc", 408, 0.68), Scoring("stsb", 1_500, 0.5)):
        truth = float(np.mean([score_models(rng, scoring._replace(examples=20_000), 20).scores for _ in range(10)]))
        weights = rng.multinomial(scoring.examples, np.full(scoring.examples, 1 / scoring.examples), size=RESAMPLES)
        whole = collapsed = 0
        for _ in range(repeats):
            models = score_models(rng, scoring, SEEDS, weights.astype(float))
            interval = uncertainty.mean_interval(models.resampled, models.scores.tolist())
            whole += interval.low <= truth <= interval.high
            trained = rng.random(SEEDS) > 0.2
            interval = uncertainty.mean_interval(models.resampled * trained, (models.scores * trained).tolist())
            collapsed += interval.low <= 0.8 * truth <= interval.high
        name = f"{' and '.join(GLUE[scoring.task].metrics)}: mean score covered"
        yield Rate(name, whole / repeats, repeats, "at least", 0.94)
        if scoring.task == "cola":
            name = "the same, a fifth of the seeds gives one answer to all examples; a note counts them"
            yield Rate(name, collapsed / repeats, repeats, "for comparison", None)


def score_models(rng: np.random.Generator, scoring: Scoring, seeds: int, weights: np.ndarray | None = None) -> Models:
    """Models of one method in the metric of a task; all find the same examples difficult."""
    n = scoring.examples
    hard, luck = 0.7**0.5 * rng.normal(size=n), 0.3**0.5 * rng.normal(size=(seeds, n))
    shift = SEED_DEVIATION * rng.normal(size=(seeds, 1))
    if GLUE[scoring.task].is_regression:
        labels = rng.uniform(0, 5, n)
        answers = labels + (1 - 3 * shift) * (hard + luck)
    else:
        labels = (rng.random(n) < scoring.share).astype(int)
        answers = np.where(hard + luck < special.ndtri(0.8 + shift), labels, 1 - labels)
    weights = np.ones((1, n)) if weights is None else weights
    scores = weighted_scores(GLUE[scoring.task], np.concatenate([np.ones((1, n)), weights]), answers, labels)
    return Models(scores[0], scores[1:])


def differences_of_methods(divisor: int) -> Iterator[Rate]:
    """Two methods of which one is better, and tables of methods that are alike, without their baseline."""
    rng, repeats = np.random.default_rng(21), 3_000 // divisor
    for difference in (0.0, 0.05):
        covered = 0
        for _ in range(repeats):
            test = compare_on_rte(rng, SEEDS, difference, 1).test
            covered += test.low <= difference <= test.high
        name = f"a difference of {100 * difference:.0f} points covered"
        yield Rate(name, covered / repeats, repeats, "at least", uncertainty.LEVEL)
    tables, marked = 300 // divisor, 0
    for _ in range(tables):
        p_values = []
        for _ in range(TASKS):
            ease = rng.uniform(0.5, 1.0, EXAMPLES)
            models = [sample(rng, np.clip(ease + rng.normal(0, 0.1, EXAMPLES), 0, 1)) for _ in range(METHODS - 1)]
            p_values += [compared(one, other).p_value for one, other in itertools.combinations(models, 2)]
        marked += min(uncertainty.holm(p_values)) < uncertainty.ALPHA
    yield Rate("tables without the baseline: any p, Holm, below 5 %", marked / tables, tables, "at most", 0.05)


def power_on_rte(divisor: int) -> Iterator[Rate]:
    """Studies that find nothing print a difference; other studies of methods that differ so much look for it.

    All models find the same examples difficult.
    """
    rng, repeats = np.random.default_rng(3), 1_000 // divisor
    for seeds, comparisons in ((3, 1), (5, 1), (10, 1), (5, 32)):
        printed: list[float] = []
        found = 0
        while len(printed) < repeats:
            missed = compare_on_rte(rng, seeds, 0.0, comparisons).missed_difference
            if missed is not None:
                printed.append(missed)
                found += compare_on_rte(rng, seeds, missed, comparisons).holds
        name = f"{seeds} seeds, as the first of {comparisons}, {100 * np.median(printed):.1f} points (median)"
        yield Rate(f"{name}: found", found / repeats, repeats, "about", POWER)


def compare_on_rte(rng: np.random.Generator, seeds: int, difference: float, comparisons: int) -> Comparison:
    """Compare two methods, one of them better by so much, as the first of several comparisons."""
    ease = eases(rng, 0.3)  # 0.75 on average
    better = ease + min(difference / 0.25, 1) * (1 - ease)  # by so much on average, and no chance above 1
    models = {("better", "rte"): sample(rng, better, seeds=seeds), ("baseline", "rte"): sample(rng, ease, seeds=seeds)}
    samples = {place: Scored(own.scores.tolist(), own.resampled, "RTE") for place, own in models.items()}
    (comparison,) = compare(samples, "baseline", num_analyses=comparisons)
    return comparison


def planned_power(divisor: int) -> Iterator[Rate]:
    """Studies whose methods differ by what was predicted from pilot studies, with other seeds and examples."""
    rng, repeats = np.random.default_rng(35), 2_000 // divisor
    for seeds, comparisons, disagreement in ((3, 1, 0.1), (5, 3, 0.1), (10, 1, 0.05)):
        pilots = [
            measure_spread([*methods_apart(rng, 20, 0.0, disagreement).values()], rows=EXAMPLES, source="pilot")
            for _ in range(PILOTS)
        ]
        means = np.mean([(one.over_seeds, one.interaction, one.over_examples) for one in pilots if one], axis=0)
        difference = Spread(EXAMPLES, *means.tolist(), source="pilots").predict(seeds, comparisons=comparisons)
        found = 0
        for _ in range(repeats):
            samples = methods_apart(rng, seeds, difference, disagreement)
            (comparison,) = compare(samples, "baseline", num_analyses=comparisons)
            found += comparison.holds
        name = f"{seeds} seeds, as the first of {comparisons}, {100 * difference:.1f} points predicted"
        yield Rate(f"{name}: found", found / repeats, repeats, "about", POWER)


def methods_apart(
    rng: np.random.Generator, seeds: int, difference: float, disagreement: float
) -> dict[tuple[str, str], Scored]:
    """Two methods that differ by so much on average; `disagreement`: deviation of their chances on an example."""
    ease = rng.uniform(0.4, 0.7, EXAMPLES)
    chances = {"better": ease + difference, "baseline": ease}
    models = {
        row: sample(rng, own + rng.normal(0, disagreement, EXAMPLES), seeds=seeds) for row, own in chances.items()
    }
    return {(row, "rte"): Scored(own.scores.tolist(), own.resampled, "RTE") for row, own in models.items()}


def as_good_as_a_constant(divisor: int) -> Iterator[Rate]:
    """Two classes, one of them of 53 % of the labels, as in RTE; models that read something, and are right as often."""
    rng, repeats = np.random.default_rng(15), 4_000 // divisor
    share, shown, alone = 0.53, 0, 0
    for _ in range(repeats):
        models = sample(rng, eases(rng, 0.3, share))
        labels = (rng.random(EXAMPLES) < share).astype(float)
        constant = WEIGHTS @ max(labels, 1 - labels, key=np.mean)
        made = Sample(models.scores.tolist(), models.resampled, "", [], constant)
        shown += made.is_above_constant
        interval = uncertainty.bootstrap_interval(models.resampled.mean(axis=1))
        alone += interval.low > max(labels.mean(), 1 - labels.mean())
    level = (1 - uncertainty.LEVEL) / 2
    yield Rate("as good as a constant answer: shown to be better", shown / repeats, repeats, "at most", level)
    yield Rate("the same, by the interval of the score alone", alone / repeats, repeats, "for comparison", None)
