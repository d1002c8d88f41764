"""Whether the statistics keep what they state: simulated studies of which the truth is known.

    python -m benchmarks.statistics                  # everything, about ten minutes
    python -m benchmarks.statistics search verdict   # these alone
    python -m benchmarks.statistics --quick          # a tenth of the repetitions

Each line is a rate with its Monte-Carlo standard error, beside the level that is stated. A rate counts as off beyond
three standard errors; exit status 1 if any is. Writes `benchmarks/results/statistics.json`.

    null          tables of five methods on eight tasks that are all alike: how often a table marks anything
    freedom       the t-test of a difference with two kinds of variance, at the level of the first of 32 comparisons
    unequal       two methods that are alike, one with 2 or 3 seeds, the other with 5 or 10: how often they differ
    drops         two methods that are alike, and a user who drops seeds that hide a difference: how often they differ
    search        methods that are alike, each searched afresh: how often their chosen configurations differ
    mean          coverage of the interval of a mean score, and of those of several methods' means over the tasks
    metrics       coverage of the interval of a mean score in the other metrics, also if some seeds failed to train
    differences   coverage of the interval of a difference, and marks among rows other than the baseline
    repeats       methods that are alike, each searched several times: level and coverage of the test over searches
    power         how often a study on RTE's 277 examples finds a true difference of the size that another study, which
                  found nothing, printed as found with 80 % power
    planned       how often a study finds the difference that the dry run predicts from the spread of another study
    verdict       coverage against a published median, and how often each word is wrong
    verdict-on-dev  the same, with models that answer the same dev examples
    searched      the same number searched and published afresh: how often it is called not reproduced
    looks         methods alike, in a study that grows by seeds, tasks, methods ... until one is marked: how often the
                  last table does, or any did
    epochs        two methods alike, of which dev chose the best epochs of many or of few: refused, and why
    chosen        coverage of the interval of a mean score, and of a difference, if each trial kept the best of 6 or 25
                  epochs by its score on the same dev rows, or on a holdout
    constant      models that are right as often as one answer for all examples: how often ° is left out
    curves        two methods alike over layers, one with 2 exit settings, one with 30: how often their curves differ
    gains         exits by the toss of a coin, and exits that know hard examples: coverage of the gain's interval,
                  and how often blind exits are called better than a coin
    rules         greatest probability against other exits of the same models, with no more layers: coverage of the
                  interval of the difference, and how often one is called better if none is
    safe          exits that are shown to lose few right answers: how often they lose more on new examples, if the model
                  or the rule was chosen on the same rows
    times         coverage of the interval of a ratio of two methods' times, and how often two methods that take equally
                  long differ
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from analysis.statistics import uncertainty
from analysis.statistics.budgets import compare_at_equal_layers, evaluate_on_halves
from analysis.statistics.comparisons import (
    POWER,
    Comparison,
    Repeats,
    compare,
    macro_test,
)
from analysis.statistics.curves import Settings, common_range, make_curves
from analysis.statistics.exit_settings import apply_setting
from analysis.statistics.gains import measure_gains
from analysis.statistics.power import Spread, measure_spread
from analysis.statistics.samples import Sample, Scored, weighted_scores
from analysis.statistics.searches import search_variance
from analysis.statistics.verdicts import MARGIN, Verdict, verdict
from analysis.studies.stored_predictions import Answers, Predictions, predictions_from
from benchmarks.rates import Rate, Relation
from benchmarks.results_file import write_results
from benchmarks.simulated_times import ratios_of_times
from study.launching.options import COMPARING_METHODS
from trainables.data.tasks import TASKS as GLUE
from trainables.models.answer_rules import SWEPT_PROBABILITIES, MaxProbability
from trainables.models.safe_exits import CONFIDENCE, find_safe_setting

SEEDS = 5
METHODS, TASKS, EXAMPLES = 5, 8, 277
RESAMPLES = 150
SEED_DEVIATION = 0.02  # of models' expected accuracy
WEIGHTS = np.random.default_rng(0).multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), size=RESAMPLES) / EXAMPLES
QUICK = 10
PILOTS = 50  # studies that measure the spread from which power is predicted


def main() -> int:
    options = build_parser().parse_args()
    rates: dict[str, list[Rate]] = {}
    for name in options.simulations or SIMULATIONS:
        print(f"{name}:", flush=True)
        rates[name] = []
        for rate in SIMULATIONS[name](QUICK if options.quick else 1):
            rates[name].append(rate)
            print(f"  {rate.describe()}", flush=True)
    facts = {name: [asdict(rate) | {"error": rate.error} for rate in own] for name, own in rates.items()}
    write_results("statistics", {"quick": options.quick, "rates": facts})
    return 0 if all(rate.holds for own in rates.values() for rate in own) else 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.statistics", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("simulations", nargs="*", metavar="NAME", help=", ".join(SIMULATIONS))
    parser.add_argument("--quick", action="store_true", help=f"repetitions divided by {QUICK}")
    return parser


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


def eases(rng: np.random.Generator, correlation: float, accuracy: float = 0.75) -> np.ndarray:
    """Chances of a right answer, by example, of models that agree so much on which examples are easy."""
    concentration = 1 / correlation - 1
    return rng.beta(accuracy * concentration, (1 - accuracy) * concentration, EXAMPLES)


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


def curves_of_exits(divisor: int) -> Iterator[Rate]:
    """Models that gain alike with every layer, so all settings lie on one line."""
    rng, repeats = np.random.default_rng(16), 400 // divisor
    few, many = np.array([2.0, 10.0]), np.linspace(2, 10, 30)
    rejected = 0
    for _ in range(repeats):
        labels, ease = rng.integers(2, size=EXAMPLES), rng.uniform(0.5, 0.85, EXAMPLES)
        curves = [
            make_curves([exit_settings(rng, labels, ease, layers) for _ in range(SEEDS)]) for layers in (few, many)
        ]
        one, other = (own.over(*common_range(curves)) for own in curves)
        test = uncertainty.welch_test(one.resampled, other.resampled, one.scores, other.scores)
        rejected += test.p_value < uncertainty.ALPHA
    yield Rate("curves that are alike: called different", rejected / repeats, repeats, "at most", uncertainty.ALPHA)


def exit_settings(rng: np.random.Generator, labels: np.ndarray, ease: np.ndarray, layers: np.ndarray) -> Settings:
    """A model under several settings, each at one number of layers; 1 point more for each layer."""
    examples = Answers(GLUE["rte"], np.arange(EXAMPLES), np.full(EXAMPLES, "dev"), labels, labels[None])
    luck, shift = rng.random(EXAMPLES), rng.normal(0, SEED_DEVIATION)
    is_right = luck < ease + shift + 0.01 * (layers[:, None] - 6)
    exit_layers = np.broadcast_to(layers[:, None], is_right.shape)
    return Settings(examples, np.where(is_right, labels, 1 - labels), exit_layers)


class Exiting(NamedTuple):
    """A kind of models, and where their examples exit."""

    name: str
    task: str
    heights: tuple[float, ...]  # by how much each layer is right more often than ease; twice as much for hard examples
    layers: tuple[int, int]  # at which examples exit
    knows_hard: bool  # whether the hard examples exit at the later layer, or half of all by a toss


EXITING = (
    Exiting("blind exits, layers on a line", "rte", (-0.1, -0.06, -0.02, 0.02, 0.06, 0.1), (3, 6), False),
    Exiting("blind exits, dead layers below", "rte", (-0.17, -0.17, -0.17, 0.0, 0.06, 0.08), (1, 4), False),
    Exiting("blind exits, a plateau", "rte", (-0.1, 0.0, 0.02, 0.03, 0.03, 0.03), (2, 5), False),
    Exiting("blind exits, Matthews", "cola", (-0.1, -0.06, -0.02, 0.02, 0.06, 0.1), (3, 6), False),
    Exiting("exits that know hard examples", "rte", (-0.1, -0.06, -0.02, 0.02, 0.06, 0.1), (3, 6), True),
)
POPULATION = 200_000


def gains_of_exits(divisor: int) -> Iterator[Rate]:
    """Gains on new dev examples with new seeds, beside the gain in the population."""
    rng, repeats = np.random.default_rng(17), 600 // divisor
    for kind in EXITING:
        true_gain = population_gain(kind, rng)
        covered = claimed = 0
        for _ in range(repeats):
            labels, ease = rng.integers(2, size=EXAMPLES), rng.uniform(0.5, 0.85, EXAMPLES)
            models = [exiting_model(kind, labels, ease, rng.normal(0, SEED_DEVIATION), rng) for _ in range(SEEDS)]
            setting = apply_setting(None, models)
            interval = measure_gains(models, [setting])[0].interval
            covered += interval.low <= true_gain <= interval.high
            claimed += interval.low > 0
        yield Rate(f"{kind.name}: gain covered", covered / repeats, repeats, "at least", uncertainty.LEVEL)
        level = (1 - uncertainty.LEVEL) / 2
        if not kind.knows_hard:
            yield Rate(f"{kind.name}: called better than a coin", claimed / repeats, repeats, "at most", level)
    for epochs in (6, 25):
        claimed, studies = 0, repeats // 2
        for _ in range(studies):
            labels, ease = rng.integers(2, size=EXAMPLES), rng.uniform(0.5, 0.85, EXAMPLES)
            models = [best_of_epochs(EXITING[0], labels, ease, epochs, rng) for _ in range(SEEDS)]
            claimed += measure_gains(models, [apply_setting(None, models)])[0].interval.low > 0
        name = f"{EXITING[0].name}, best of {epochs} epochs on the same dev rows: called better than a coin"
        yield Rate(name, claimed / studies, studies, "for comparison", None)


def rules_at_equal_layers(divisor: int) -> Iterator[Rate]:
    """Differences between exit rules on new dev examples with new seeds, beside what such studies find on average."""
    rng, repeats = np.random.default_rng(37), 400 // divisor
    sure = [MaxProbability(probability) for probability in SWEPT_PROBABILITIES]
    for height, name in ((0.0, "layers that answer equally well"), (0.04, "better layers above")):
        tests = []
        for _ in range(repeats):
            labels, ease = rng.integers(2, size=EXAMPLES), rng.uniform(0.5, 0.85, EXAMPLES)
            models = [unsure_model(height, labels, ease, rng) for _ in range(SEEDS)]
            compared = compare_at_equal_layers(evaluate_on_halves(models, [None, *sure]), sure, None)
            assert compared is not None
            tests.append(uncertainty.mean_test(compared.difference.resampled, compared.difference.scores))
        expected = float(np.mean([test.difference for test in tests])) if height else 0.0
        covered = float(np.mean([test.low <= expected <= test.high for test in tests]))
        yield Rate(f"{name}: difference covered", covered, repeats, "at least", uncertainty.LEVEL)
        if not height:
            differ = float(np.mean([test.p_value < uncertainty.ALPHA for test in tests]))
            yield Rate(f"{name}: called different", differ, repeats, "at most", uncertainty.ALPHA)


def unsure_model(height: float, labels: np.ndarray, ease: np.ndarray, rng: np.random.Generator) -> Predictions:
    """A model whose examples exit at layer 2 or 4 by a toss, but which is surer of easy examples.

    Each layer adds so much to the chance of a right answer on a hard example.
    """
    n, is_hard = len(labels), ease < np.median(ease)
    chances = ease + rng.normal(0, SEED_DEVIATION) + height * np.arange(-2, 4)[:, None] * is_hard  # (layers, n)
    layer_answers = np.where(rng.random(chances.shape) < chances, labels, 1 - labels)
    logits = np.eye(2)[layer_answers] * (rng.uniform(0, 3, chances.shape) + 2 * ~is_hard)[..., None]
    return made_predictions("rte", labels, logits, np.where(rng.random(n) < 0.5, 2, 4))


def exiting_model(
    kind: Exiting, labels: np.ndarray, ease: np.ndarray, shift: float, rng: np.random.Generator
) -> Predictions:
    """A model of this kind, with the answers of all layers and of its exits."""
    n, is_hard = len(labels), ease < np.median(ease)
    chances = ease + shift + np.array(kind.heights)[:, None] * 2 * is_hard  # (layers, n)
    layer_answers = np.where(rng.random(n) < chances, labels, 1 - labels)
    is_late = is_hard if kind.knows_hard else rng.random(n) < 0.5
    exit_layers = np.where(is_late, kind.layers[1], kind.layers[0])
    return made_predictions(kind.task, labels, np.eye(2)[layer_answers], exit_layers)


def made_predictions(task: str, labels: np.ndarray, logits: np.ndarray, exit_layers: np.ndarray) -> Predictions:
    """A model with these logits of all layers, (layers, n, labels), whose examples exit at these layers, (n,)."""
    n = len(labels)
    nothing = {f"sweep_{name}": np.array([]) for name in ("setting", "score", "mean_layers")}
    names = {f"sweep_{name}": np.array([], dtype=np.str_) for name in ("rule", "field", "rule_fields")}
    arrays = {
        "ids": np.arange(n),
        "split": np.full(n, "dev"),
        "labels": labels,
        "logits": logits[exit_layers - 1, np.arange(n)][None],
        "exit_layers": exit_layers[None],
        "layer_logits": logits,
    }
    return predictions_from(GLUE[task], arrays | nothing | names)


def best_of_epochs(
    kind: Exiting, labels: np.ndarray, ease: np.ndarray, epochs: int, rng: np.random.Generator
) -> Predictions:
    """The epoch of a trial that scores best on the dev rows of the gain."""
    shift = rng.normal(0, SEED_DEVIATION)
    trial = (exiting_model(kind, labels, ease, shift + rng.normal(0, SEED_DEVIATION), rng) for _ in range(epochs))
    return max(trial, key=lambda model: model.score)


def population_gain(kind: Exiting, rng: np.random.Generator) -> float:
    """The gain on very many examples, beside the best coin there, for a seed without luck."""
    labels, ease = rng.integers(2, size=POPULATION), rng.uniform(0.5, 0.85, POPULATION)
    model = exiting_model(kind, labels, ease, 0.0, rng)
    if not kind.knows_hard:  # a blind exit is a coin itself
        lower, upper = (counts_of(model.layer_answers[layer - 1], labels) for layer in kind.layers)
        own = score_of_counts(kind.task, (lower + upper) / 2)
    else:
        own = score_of_counts(kind.task, counts_of(model.answers[0], labels))
    layers, mean = [counts_of(answers, labels) for answers in model.layer_answers], sum(kind.layers) / 2
    coins = [
        score_of_counts(kind.task, ((high - mean) * layers[low - 1] + (mean - low) * layers[high - 1]) / (high - low))
        for low in range(1, len(layers))
        for high in range(low + 1, len(layers) + 1)
        if low <= mean <= high
    ]
    return own - max(coins)


def counts_of(answers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many examples have each label and answer, (2, 2)."""
    return np.bincount(2 * labels + answers, minlength=4).reshape(2, 2).astype(float)


def score_of_counts(task: str, counts: np.ndarray) -> float:
    """Accuracy, or Matthews' correlation on CoLA."""
    if task != "cola":
        return float(np.trace(counts) / counts.sum())
    sums = np.prod(counts.sum(axis=0)) * np.prod(counts.sum(axis=1))
    return float(np.linalg.det(counts) / sums**0.5)


RISK, ACCURACY, LABELLED = 0.02, 0.85, 872  # SST-2's dev rows
SAFE_LOSSES = np.geomspace(0.002, 0.1, 60)  # shares of examples that settings lose; the slowest setting comes first


def safe_exits(divisor: int) -> Iterator[Rate]:
    """Models and exit rules that are alike. The truth is the share that a setting loses in the population."""
    rng, repeats = np.random.default_rng(19), 4_000 // divisor
    for models in (1, SEEDS, 25 * SEEDS):
        broken = float(np.mean([breaks_guarantee(rng, models) for _ in range(repeats)]))
        if models == 1:
            yield Rate("a model, a rule: more is lost", broken, repeats, "at most", 1 - CONFIDENCE)
        else:
            name = f"the best of {models} models by the dev score of their exits: more is lost"
            yield Rate(name, broken, repeats, "for comparison", None)
    for rules in (2, 3, 7):
        broken = float(np.mean([fastest_breaks_guarantee(rng, rules) for _ in range(repeats)]))
        yield Rate(f"the fastest of {rules} rules: more is lost", broken, repeats, "for comparison", None)


def breaks_guarantee(rng: np.random.Generator, models: int) -> bool:
    """Whether the safe exit of the best model loses more than it may. Each model's own exit loses the share at risk."""
    is_right = rng.random((models, LABELLED)) < ACCURACY  # at the last layer
    luck = rng.random((models, LABELLED))
    best = (is_right & (luck > RISK / ACCURACY)).mean(axis=1).argmax()
    lost = is_right[best] & (luck[best] < SAFE_LOSSES[:, None] / ACCURACY)
    return loses_more(find_safe_setting(lost, RISK))


def fastest_breaks_guarantee(rng: np.random.Generator, rules: int) -> bool:
    """Whether the fastest of several rules' safe exits on one model loses more than it may."""
    is_right = rng.random(LABELLED) < ACCURACY
    hardness = 0.6**0.5 * rng.normal(size=LABELLED) + 0.4**0.5 * rng.normal(size=(rules, LABELLED))
    limits = special.ndtri(SAFE_LOSSES / ACCURACY)
    safe = [find_safe_setting(is_right & (own < limits[:, None]), RISK) for own in hardness]
    speeds = [-1 if place is None else place for place in safe]
    return loses_more(max(speeds))


def loses_more(place: int | None) -> bool:
    return place is not None and place >= 0 and bool(SAFE_LOSSES[place] > RISK)


SIMULATIONS: dict[str, Callable[[int], Iterator[Rate]]] = {
    "null": null_tables,
    "freedom": degrees_of_freedom,
    "unequal": unequal_seeds,
    "drops": dropped_seeds,
    "search": searched_once,
    "mean": mean_scores,
    "metrics": other_metrics,
    "differences": differences_of_methods,
    "repeats": repeats_of_searches,
    "power": power_on_rte,
    "planned": planned_power,
    "verdict": verdicts,
    "verdict-on-dev": verdicts_on_dev,
    "searched": searched_and_published,
    "looks": looks_at_tables,
    "epochs": chosen_epochs,
    "chosen": best_epochs,
    "constant": as_good_as_a_constant,
    "curves": curves_of_exits,
    "gains": gains_of_exits,
    "rules": rules_at_equal_layers,
    "safe": safe_exits,
    "times": ratios_of_times,
}


if __name__ == "__main__":
    sys.exit(main())
