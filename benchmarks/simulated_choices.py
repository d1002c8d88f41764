"""Simulated choices of configurations, epochs, seeds and tables, and what they do to tests; `benchmarks.statistics`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from analysis.statistics import uncertainty
from analysis.statistics.comparisons import (
    Comparison,
    Repeats,
    compare,
)
from analysis.statistics.searches import search_variance
from analysis.statistics.verdicts import MARGIN, Verdict, verdict
from benchmarks.rates import Rate, Relation
from benchmarks.simulated_models import EXAMPLES, SEED_DEVIATION, SEEDS, WEIGHTS, Models, compared, eases, sample
from study.launching.options import COMPARING_METHODS


def dropped_seeds(divisor: int) -> Iterator[Rate]:
    """Two methods that are alike. The user drops the seeds of one of them that most reduce the p-value."""
    rng, repeats, seeds = np.random.default_rng(12), 1_000 // divisor, 2 * SEEDS
    rejected = np.zeros(3)  # by number of dropped seeds
    for _ in range(repeats):
        ease = rng.uniform(0.5, 1.0, EXAMPLES)
        chances = [np.clip(ease + rng.normal(0, 0.1, EXAMPLES), 0, 1) for _ in range(2)]
        one, other = (sample(rng, own, seeds=seeds) for own in chances)
        for dropped in range(len(rejected)):
            kept = [[*places] for places in itertools.combinations(range(seeds), seeds - dropped)]
            choices = [Models(one.scores[places], one.resampled[:, places]) for places in kept]
            rejected[dropped] += min(compared(choice, other).p_value for choice in choices) < uncertainty.ALPHA
    yield Rate("all scored seeds are tested", rejected[0] / repeats, repeats, "at most", uncertainty.ALPHA)
    for dropped in (1, 2):
        name = f"the test leaves out the {dropped} most helpful of {seeds}"
        yield Rate(name, rejected[dropped] / repeats, repeats, "for comparison", None)


def some_fail(rng: np.random.Generator, number: int) -> np.ndarray:
    return np.where(rng.random((2, number)) < 1 / 3, -20.0, rng.normal(size=(2, number)))


def one_grid(rng: np.random.Generator, number: int) -> np.ndarray:
    """Both methods try the same configurations, other ones in each simulated study."""
    return np.repeat(rng.normal(size=(1, number)), 2, axis=0)


Population = Callable[[np.random.Generator, int], np.ndarray]  # expected scores of either method, (2, configurations)


POPULATIONS: dict[str, Population] = {
    "all alike": lambda rng, number: np.zeros((2, number)),
    "spread 0.5": lambda rng, number: 0.5 * rng.normal(size=(2, number)),
    "spread 1": lambda rng, number: rng.normal(size=(2, number)),
    "spread 3": lambda rng, number: 3 * rng.normal(size=(2, number)),
    "a third fails": some_fail,
    "one grid": one_grid,
}


def searched_once(divisor: int) -> Iterator[Rate]:
    """Two methods whose searches draw from one population; scores in standard deviations over seeds."""
    rng, repeats = np.random.default_rng(2), 4_000 // divisor
    for configurations in (12, 36):
        for population, draw in POPULATIONS.items():
            p_values = [chosen_p_value(rng, configurations, draw) for _ in range(repeats)]
            rejected = float(np.mean(np.array(p_values) < uncertainty.ALPHA))
            yield Rate(
                f"{configurations} configurations, {population}: marked", rejected, repeats, "for comparison", None
            )


def chosen_p_value(rng: np.random.Generator, configurations: int, draw: Population) -> float:
    """Of the configurations that two searches chose."""
    sides = []
    for expected in draw(rng, configurations):
        searched = expected + rng.normal(size=configurations)
        sides.append((expected[searched.argmax()] + rng.normal(size=SEEDS)).tolist())
    nothing = np.zeros((2, SEEDS))  # examples leave nothing open here
    return uncertainty.welch_test(nothing, nothing, *sides).p_value


def repeats_of_searches(divisor: int) -> Iterator[Rate]:
    """Two methods, whole searches repeated; in standard deviations over seeds. The last is --compare methods."""
    rng, repeats = np.random.default_rng(9), 1_000 // divisor
    preset = Searches(*(COMPARING_METHODS[name] for name in ("search_repeats", "samples", "seeds")))
    for searches in (Searches(2, 12, SEEDS), Searches(3, 12, SEEDS), Searches(5, 12, SEEDS), preset):
        for population, draw in POPULATIONS.items():
            tests = [over_searches(rng, searches, draw, is_fixed=population == "one grid") for _ in range(repeats)]
            rejected = float(np.mean([test.p_value < uncertainty.ALPHA for test in tests]))
            name = f"{searches}, {population}: rejected, the interval without the truth"
            yield Rate(name, rejected, repeats, "at most", uncertainty.ALPHA)
        tests = [over_searches(rng, searches, POPULATIONS["spread 1"], difference=3.0) for _ in range(repeats)]
        found = float(np.mean([test.p_value < uncertainty.ALPHA for test in tests]))
        yield Rate(f"{searches}, spread 1: a difference of 3 found", found, repeats, "for comparison", None)
    for searches in (Searches(3, 12, SEEDS), preset):
        rejected = float(np.mean([over_searches_on_dev(rng, searches).holds for _ in range(repeats)]))
        yield Rate(f"{searches}, on dev examples: rejected", rejected, repeats, "at most", uncertainty.ALPHA)


class Searches(NamedTuple):
    """The searches of a method on a task."""

    number: int
    configurations: int
    seeds: int

    def __str__(self) -> str:
        return f"{self.number} searches of {self.configurations} and {self.seeds} seeds"


def over_searches(
    rng: np.random.Generator, searches: Searches, draw: Population, *, difference: float = 0.0, is_fixed: bool = False
) -> uncertainty.PairedTest:
    """The test as tables make it; `is_fixed`: all searches are over the same configurations."""
    number, configurations, seeds = searches
    drawn = [draw(rng, configurations)] * number if is_fixed else [draw(rng, configurations) for _ in range(number)]
    sides = []
    for method, advantage in enumerate((difference, 0.0)):
        expected = np.array([own[method] for own in drawn]) + advantage  # (searches, configurations)
        best = (expected + rng.normal(size=expected.shape)).argmax(axis=1)
        confirmed = expected[np.arange(number), best, None] + rng.normal(size=(number, seeds))
        sides.append(Repeats(confirmed.mean(axis=1).tolist(), np.zeros((2, number)), "all alike", confirmed.tolist()))
    (comparison,) = compare({("better", "task"): sides[0], ("baseline", "task"): sides[1]}, "baseline")
    return comparison.test


def over_searches_on_dev(rng: np.random.Generator, searches: Searches) -> Comparison:
    """The test of two methods that are alike, whose models answer the same dev examples."""
    ease, sides = rng.uniform(0.5, 1.0, EXAMPLES), {}
    for row in ("better", "baseline"):
        chances, models = ease + rng.normal(0, 0.1, EXAMPLES), []
        for _ in range(searches.number):
            expected = SEED_DEVIATION * rng.normal(size=searches.configurations)
            best = (expected + 2 * SEED_DEVIATION * rng.normal(size=searches.configurations)).argmax()
            models.append(sample(rng, np.clip(chances + expected[best], 0, 1), seeds=searches.seeds))
        means = np.stack([own.resampled.mean(axis=1) for own in models], axis=1)
        scores = [float(own.scores.mean()) for own in models]
        sides[row, "rte"] = Repeats(scores, means, "RTE", [own.scores.tolist() for own in models])
    (comparison,) = compare(sides, "baseline")
    return comparison


def verdicts(divisor: int) -> Iterator[Rate]:
    """Published and ours from one distribution, or a margin apart; seeds spread by 0.3 points."""
    rng, repeats = np.random.default_rng(5), 4_000 // divisor
    for distribution in ("normal", "lognormal"):
        draw: Callable[..., np.ndarray] = getattr(rng, distribution)
        for statistic, printed in (("median", False), ("mean", True)):
            covered = wrong = same = 0
            for _ in range(repeats):
                ours, published = 0.5 + 0.003 * draw(size=(2, SEEDS))
                value = float(np.median(published) if statistic == "median" else np.mean(published))
                deviation = float(np.std(published, ddof=1)) if printed else None
                text = f"{statistic} of {SEEDS}"
                alike = verdict(ours.tolist(), value, text, deviation)
                apart = verdict((ours + MARGIN).tolist(), value, text, deviation)
                assert alike is not None and apart is not None
                covered += alike.low <= 0 <= alike.high
                wrong += alike.word.startswith("not ")
                same += apart.word == "reproduced"
            name = f"{distribution} seeds, {text}, {'its' if printed else 'our'} deviation"
            level: Relation = "about" if distribution == "normal" else "at least"
            stated = uncertainty.LEVEL if distribution == "normal" else 0.93  # skewed seeds: a little less than stated
            yield Rate(f"{name}: covered", covered / repeats, repeats, level, stated)
            yield Rate(f"{name}: the same, called not reproduced", wrong / repeats, repeats, "at most", 0.05)
            allowed = 0.05 if distribution == "normal" else 0.06  # as the docstring of `verdict` states
            yield Rate(f"{name}: a margin apart, called reproduced", same / repeats, repeats, "at most", allowed)


def verdicts_on_dev(divisor: int) -> Iterator[Rate]:
    """Published and ours from one method: models that answer the same dev examples."""
    rng, repeats = np.random.default_rng(22), 4_000 // divisor
    for statistic in ("median", "mean"):
        covered = wrong = 0
        for _ in range(repeats):
            ease = eases(rng, 0.3)
            ours, published = (sample(rng, ease).scores for _ in range(2))
            value = float(np.median(published) if statistic == "median" else np.mean(published))
            found = verdict(ours.tolist(), value, f"{statistic} of {SEEDS}", None)
            assert found is not None
            covered += found.low <= 0 <= found.high
            wrong += found.word.startswith("not ")
        name = f"on dev examples, {statistic} of {SEEDS}, our deviation"
        yield Rate(f"{name}: covered", covered / repeats, repeats, "at least", 0.93)
        yield Rate(f"{name}: the same, called not reproduced", wrong / repeats, repeats, "at most", 0.06)


def searched_and_published(divisor: int) -> Iterator[Rate]:
    """Both numbers are of winners of their own searches in one population; seeds spread by one margin."""
    rng, repeats = np.random.default_rng(12), 2_000 // divisor
    for configurations in (4, 12, 60):
        for population, draw in POPULATIONS.items():
            found = [searched_verdicts(rng, configurations, draw) for _ in range(repeats)]
            wrong, forgetful = (
                float(np.mean([word == own.word for own in verdicts]))
                for word, verdicts in zip(
                    ("not reproduced", "not by this configuration"), zip(*found, strict=True), strict=True
                )
            )
            name = f"{configurations} configurations, {population}: called not reproduced"
            yield Rate(name, wrong, repeats, "at most", uncertainty.ALPHA)
            yield Rate("the same, called not by this configuration", forgetful, repeats, "for comparison", None)


def searched_verdicts(rng: np.random.Generator, configurations: int, draw: Population) -> tuple[Verdict, Verdict]:
    """The verdict that knows what another search would change, and the one that does not."""
    sides = []
    for expected in MARGIN * draw(rng, configurations):
        searched = expected + MARGIN * rng.normal(size=configurations)
        sides.append((searched, expected[searched.argmax()] + MARGIN * rng.normal(size=SEEDS)))
    (searched, ours), (_, published) = sides
    rest = (ours.tolist(), float(np.clip(np.median(published), -1, 1)), f"median of {SEEDS}", None)
    knowing = verdict(*rest, search=search_variance(searched.tolist(), ours.tolist()))
    forgetful = verdict(*rest)
    assert knowing is not None and forgetful is not None
    return knowing, forgetful


def looks_at_tables(divisor: int) -> Iterator[Rate]:
    """Methods that are alike; a study is extended as long as no table marks anything."""
    rng, repeats = np.random.default_rng(13), 2_000 // divisor
    for what, look in EXTENSIONS.items():
        for looks in (2, 3, 6):
            p_values = np.array([look(rng, looks) for _ in range(repeats)])  # (repeats, looks)
            last = float(np.mean(p_values[:, -1] * looks < uncertainty.ALPHA))
            paid = float(np.mean((p_values * np.arange(1, looks + 1) < uncertainty.ALPHA).any(axis=1)))
            free = float(np.mean((p_values < uncertainty.ALPHA).any(axis=1)))
            most = uncertainty.ALPHA * sum(1 / number for number in range(1, looks + 1))
            name = f"{looks} looks, {what}"
            yield Rate(f"{name}: marked in the last table", last, repeats, "at most", uncertainty.ALPHA)
            yield Rate(f"{name}: in any table, each paying for those before", paid, repeats, "at most", most)
            yield Rate(f"{name}: in any, if none paid", free, repeats, "for comparison", None)


def more_seeds(rng: np.random.Generator, looks: int) -> list[float]:
    """The p-values of the same pair with 5, 10, ... seeds."""
    one, other = rng.normal(size=(2, SEEDS * looks))
    return [p_of_seeds(one[: SEEDS * number], other[: SEEDS * number]) for number in range(1, looks + 1)]


def more_seeds_on_dev(rng: np.random.Generator, looks: int) -> list[float]:
    """The same, if all seeds answer the same dev examples."""
    ease = rng.uniform(0.5, 1.0, EXAMPLES)
    chances = [np.clip(ease + rng.normal(0, 0.1, EXAMPLES), 0, 1) for _ in range(2)]
    one, other = (sample(rng, own, seeds=SEEDS * looks) for own in chances)
    numbers = [SEEDS * number for number in range(1, looks + 1)]
    parts = ([Models(own.scores[:n], own.resampled[:, :n]) for own in (one, other)] for n in numbers)
    return [compared(*pair).p_value for pair in parts]


def p_of_seeds(one: np.ndarray, other: np.ndarray) -> float:
    """The p-value of scores by seed; examples leave nothing open."""
    nothing = np.zeros((2, len(one)))
    return uncertainty.welch_test(nothing, nothing, one.tolist(), other.tolist()).p_value


def more_tasks(rng: np.random.Generator, looks: int) -> list[float]:
    """The lowest p-value of a table with one pair and 1, 2, ... tasks."""
    p_values = rng.random(looks).tolist()
    return [min(uncertainty.holm(p_values[:number])) for number in range(1, looks + 1)]


def more_methods(rng: np.random.Generator, looks: int) -> list[float]:
    """The lowest of a table with 1, 2, ... methods beside the baseline."""
    baseline, *others = rng.normal(size=(looks + 1, SEEDS))
    p_values = [p_of_seeds(other, baseline) for other in others]
    return [min(uncertainty.holm(p_values[:number])) for number in range(1, looks + 1)]


def other_baselines(rng: np.random.Generator, looks: int) -> list[float]:
    """The lowest of a table of so many methods, each of which is the baseline once."""
    rows = rng.normal(size=(looks, SEEDS))
    p_values = np.array([[p_of_seeds(one, other) for other in rows] for one in rows])
    return [min(uncertainty.holm(np.delete(own, number).tolist())) for number, own in enumerate(p_values)]


def other_winners(rng: np.random.Generator, looks: int) -> list[float]:
    """The p-values of a pair whose configurations are replaced at each look."""
    return [float(p_value) for p_value in rng.random(looks)]


EXTENSIONS: dict[str, Callable[[np.random.Generator, int], list[float]]] = {
    "more seeds": more_seeds,
    "more seeds, on the same dev examples": more_seeds_on_dev,
    "a task more": more_tasks,
    "a method more": more_methods,
    "another baseline": other_baselines,
    "a winner replaced": other_winners,
}


def chosen_epochs(divisor: int) -> Iterator[Rate]:
    """Two methods that are alike, whose scores jump from epoch to epoch by as much as from seed to seed."""
    rng, repeats = np.random.default_rng(14), 4_000 // divisor
    nothing = np.zeros((2, SEEDS))
    for epochs, others, jumps in ((25, 25, 1), (25, 3, 1), (25, 1, 1), (25, 25, 2)):
        rejected = 0
        for _ in range(repeats):
            sides = [
                (rng.normal(size=SEEDS) + far * rng.normal(size=(number, SEEDS)).max(axis=0)).tolist()
                for number, far in ((epochs, jumps), (others, 1))
            ]
            rejected += uncertainty.welch_test(nothing, nothing, *sides).p_value < uncertainty.ALPHA
        if jumps > 1:
            name = f"best of {epochs} epochs both, one jumps twice as far: marked; table sources shows why"
            yield Rate(name, rejected / repeats, repeats, "for comparison", None)
        elif epochs == others:
            yield Rate(f"best of {epochs} epochs both", rejected / repeats, repeats, "at most", uncertainty.ALPHA)
        else:
            name = f"best of {epochs} epochs beside best of {others}: would be marked; tables refuse it"
            yield Rate(name, rejected / repeats, repeats, "for comparison", None)


def best_epochs(divisor: int) -> Iterator[Rate]:
    """Methods that are alike. Each trial keeps the epoch with the best score on dev, or on as many rows of a holdout.

    The truth is the mean accuracy of the kept models on new examples, over many trials.
    """
    rng, repeats = np.random.default_rng(18), 2_000 // divisor
    for epochs, jumps, on_dev in itertools.product((6, 25), (0.0, SEED_DEVIATION), (True, False)):
        intervals, true_accuracies, rejected = [], [], 0
        for _ in range(repeats):
            (one, accuracy), (other, _) = (kept_epochs(rng, epochs, jumps, on_dev=on_dev) for _ in range(2))
            intervals.append(uncertainty.mean_interval(one.resampled, one.scores.tolist()))
            true_accuracies.append(accuracy)
            rejected += compared(one, other).p_value < uncertainty.ALPHA
        truth = np.mean(true_accuracies)
        covered = float(np.mean([interval.low <= truth <= interval.high for interval in intervals]))
        rows = "the same dev rows" if on_dev else "a holdout"
        name = f"best of {epochs} epochs on {rows}, models that {'differ' if jumps else 'are alike'}"
        if on_dev:
            yield Rate(f"{name}: mean score covered", covered, repeats, "for comparison", None)
        else:
            yield Rate(f"{name}: mean score covered", covered, repeats, "at least", 0.94)
        yield Rate("the same, two methods: marked", rejected / repeats, repeats, "at most", uncertainty.ALPHA)


def kept_epochs(rng: np.random.Generator, epochs: int, jumps: float, *, on_dev: bool) -> tuple[Models, float]:
    """The epochs that five trials keep, and their mean accuracy on new examples.

    All models are right on the same easy examples, and the epochs of a trial agree more than different trials.

    Args:
        jumps: standard deviation of the accuracy on new examples between the epochs of a trial.
    """
    accuracies = 0.75 + SEED_DEVIATION * rng.normal(size=(SEEDS, 1)) + jumps * rng.normal(size=(SEEDS, epochs))
    dev, holdout = (are_right(rng, accuracies) for _ in range(2))  # (seeds, epochs, n)
    best = (dev if on_dev else holdout).mean(axis=2).argmax(axis=1)
    seeds = np.arange(SEEDS)
    correct = dev[seeds, best]
    return Models(correct.mean(axis=1), WEIGHTS @ correct.T), float(accuracies[seeds, best].mean())


def are_right(rng: np.random.Generator, accuracies: np.ndarray) -> np.ndarray:
    """Whether models of these accuracies (seeds, epochs) are right on each of some examples, (seeds, epochs, n)."""
    seeds, epochs = accuracies.shape
    shares = {"of all trials": 0.5, "of a trial": 0.3, "of an epoch": 0.2}  # of the variance of how hard an example is
    of_all, of_trial, of_epoch = np.sqrt([*shares.values()])
    hardness = of_all * rng.normal(size=EXAMPLES) + of_trial * rng.normal(size=(seeds, 1, EXAMPLES))
    hardness = hardness + of_epoch * rng.normal(size=(seeds, epochs, EXAMPLES))
    return np.asarray(hardness < special.ndtri(accuracies)[..., None], dtype=float)
