"""python -m pytest tests/analysis/test_statistics.py"""

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import stats

from analysis.statistics import uncertainty as statistics
from analysis.statistics.samples import resample, resampled_scores
from analysis.studies.stored_predictions import Answers
from trainables.data.metrics import compute_metrics, score
from trainables.data.tasks import TASKS


def test_bootstrap_interval_equals_scipys_percentile_method():
    values = np.random.default_rng(2).normal(size=200)
    resampled = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=999, rng=3)
    interval = statistics.bootstrap_interval(resampled.bootstrap_distribution)
    assert (interval.low, interval.high) == pytest.approx(tuple(resampled.confidence_interval))


def test_bootstrap_interval_of_an_accuracy_covers_as_often_as_it_says():
    task, rng = TASKS["rte"], np.random.default_rng(2)
    answers = (rng.random((1_000, 250)) < 0.8).astype(int)  # 1,000 dev sets on which 1 is always right
    resampled = resampled_scores(task, answers, np.ones(250, int), np.full(250, "dev"), seed=0)
    intervals = [statistics.bootstrap_interval(column) for column in resampled.T]
    covered = np.mean([interval.low <= 0.8 <= interval.high for interval in intervals])
    assert covered == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 1_000))


def test_holm_equals_the_example_of_the_definition():
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, made monotone.
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_never_exceeds_one():
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]


def predictions_and_labels(task, models=3, n=300, seed=3):
    rng = np.random.default_rng(seed)
    if task.is_regression:
        labels = rng.uniform(0, 5, n)
        return labels + rng.normal(size=(models, n)), labels
    labels = rng.integers(task.num_labels, size=n)
    return np.where(rng.random((models, n)) < 0.7, labels, rng.integers(task.num_labels, size=(models, n))), labels


MACRO_F1 = replace(TASKS["mnli"], name="own", metrics=("accuracy", "f1_macro"), dev_splits=("dev",))


@pytest.mark.parametrize("task", [TASKS["rte"], TASKS["cola"], TASKS["mrpc"], TASKS["mnli"], MACRO_F1], ids=str)
def test_resampled_scores_are_the_scores_of_the_drawn_examples(task):
    predictions, labels = predictions_and_labels(task)
    splits = np.array([task.dev_splits[i % len(task.dev_splits)] for i in range(300)])
    found = resampled_scores(task, predictions, labels, splits, seed=7)[:4]
    order = np.argsort(splits, kind="stable")
    drawn = []
    for i, split in enumerate(np.unique(splits)):
        members = np.flatnonzero(splits == split)
        drawn.append(members[np.random.default_rng(7 + i).integers(len(members), size=(4, len(members)))])
    examples = np.concatenate(drawn, axis=1)
    assert len(order) == examples.shape[1]
    for row, index in zip(found, examples, strict=True):
        expected = [
            score(task, compute_metrics(task, model[index], labels[index], splits[index])) for model in predictions
        ]
        assert row == pytest.approx(expected)


def test_resampled_correlations_are_close_to_those_of_the_drawn_examples():
    task = TASKS["stsb"]
    predictions, labels = predictions_and_labels(task, models=1)
    found = resampled_scores(task, predictions, labels, np.full(300, "dev"), seed=7)[:5]
    drawn = np.random.default_rng(7).integers(300, size=(5, 300))
    expected = [score(task, compute_metrics(task, predictions[0, index], labels[index])) for index in drawn]
    assert found[:, 0] == pytest.approx(expected, abs=1e-2)  # Spearman keeps the ranks of the whole set


@pytest.mark.slow
def test_welch_without_seed_noise_is_paired_t():
    rng = np.random.default_rng(4)
    correct, other = rng.random((2, 2_000)) < [[0.8], [0.78]]
    weights = rng.multinomial(2_000, np.full(2_000, 1 / 2_000), size=4_000) / 2_000
    columns = [np.repeat((weights @ values)[:, None], 5, axis=1) for values in (correct, other)]
    found = statistics.welch_test(*columns, [correct.mean()] * 5, [other.mean()] * 5)
    expected = stats.ttest_rel(correct.astype(float), other.astype(float))
    assert found.p_value == pytest.approx(expected.pvalue, abs=0.02)
    assert found.difference == pytest.approx(correct.mean() - other.mean())


def test_welch_without_example_noise_is_welchs_test_of_the_seeds():
    scores, other = [0.70, 0.72, 0.71, 0.74, 0.69], [0.75, 0.74, 0.77, 0.73, 0.75]
    found = statistics.welch_test(np.zeros((10, 5)), np.zeros((10, 5)), scores, other)
    expected = stats.ttest_ind(scores, other, equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_noise_of_seeds_is_no_variance_over_examples():
    rng = np.random.default_rng(14)
    shared, noise = rng.normal(size=(4_000, 1)), rng.normal(size=(2, 4_000, 5))
    assert statistics.variance_over_examples(shared + noise[0], noise[1]) == pytest.approx(1.0, abs=0.1)
    of_examples, _ = statistics.mean_variances(shared + noise[0], [0.5] * 5)
    assert of_examples.value == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("agreement", [0.0, 0.9])
def test_mean_interval_covers_over_seeds_and_examples(agreement):
    """Models that err alike spread over examples, models that err apart over seeds: the interval has both parts."""
    rng, covered, repeats = np.random.default_rng(12), 0, 300
    for _ in range(repeats):
        shared = rng.random(EXAMPLES)
        draws = np.where(rng.random((5, EXAMPLES)) < agreement, shared, rng.random((5, EXAMPLES)))
        correct = (draws < 0.75 + rng.normal(0, 0.02, (5, 1))).astype(float)
        interval = statistics.mean_interval(WEIGHTS @ correct.T, correct.mean(axis=1))
        covered += interval.low <= 0.75 <= interval.high
    assert covered / repeats >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / repeats)


def test_mean_interval_is_wider_than_seeds_or_examples_alone():
    rng = np.random.default_rng(13)
    draws = np.where(rng.random((5, EXAMPLES)) < 0.9, rng.random(EXAMPLES), rng.random((5, EXAMPLES)))
    correct = (draws < 0.75 + rng.normal(0, 0.02, (5, 1))).astype(float)
    scores, resampled = correct.mean(axis=1), WEIGHTS @ correct.T
    both, seeds = (statistics.mean_interval(own, scores) for own in (resampled, np.zeros_like(resampled)))
    examples = statistics.bootstrap_interval(resampled.mean(axis=1))
    assert both.high - both.low > max(seeds.high - seeds.low, examples.high - examples.low)


@pytest.mark.parametrize(("task", "bounds"), [("rte", (0.0, 1.0)), ("cola", (-1.0, 1.0))])
def test_interval_of_a_mean_ends_where_the_scale_ends(task, bounds):
    labels = np.array([0, 1] * 20)
    seeds = [Answers(TASKS[task], np.arange(40), np.full(40, "dev"), labels, own[None]) for own in (labels, 1 - labels)]
    (sample,) = resample({("palbert", task): seeds}).values()
    assert (sample.mean_interval.low, sample.mean_interval.high) == bounds


def test_interval_at_a_higher_level_is_wider_around_the_same_difference():
    test = statistics.paired_test(0.04, [statistics.Variance(0.0004, 8)])
    wider = statistics.at_level(test, 0.99)
    assert wider.low < test.low < 0.04 < test.high < wider.high
    assert (wider.low + wider.high) / 2 == pytest.approx(0.04)


EXAMPLES = 250
WEIGHTS = np.random.default_rng(8).multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), size=150) / EXAMPLES


def simulated_table(rng, *, tasks=8, seeds=5, effect=0.0):
    """p-values, adjusted over the tasks, of two methods whose expected accuracies differ by `effect`.

    Every example has a difficulty that both methods share; every seed shifts its model's accuracy by 2 points.
    """
    p_values = []
    for _ in range(tasks):
        ease = rng.uniform(0.4, 1.0, EXAMPLES)
        chances = [ease + shift + rng.normal(0, 0.02, (seeds, 1)) for shift in (effect, 0.0)]
        correct = [(rng.random((seeds, EXAMPLES)) < chance).astype(float) for chance in chances]
        resampled = [WEIGHTS @ values.T for values in correct]
        test = statistics.welch_test(*resampled, *(values.mean(axis=1) for values in correct))
        p_values.append(test.p_value)
    return statistics.holm(p_values)


@pytest.mark.slow
def test_paired_test_keeps_level_in_1000_tables():
    rng = np.random.default_rng(5)
    marked = [min(simulated_table(rng)) < statistics.ALPHA for _ in range(1_000)]
    assert np.mean(marked) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1_000)


def test_a_difference_without_any_spread_is_not_tested():
    test = statistics.paired_test(0.1, [statistics.Variance(0.0, 1), statistics.Variance(0.0, 1)])
    assert (test.p_value, test.low, test.high) == (1.0, -2.0, 2.0)


def test_the_same_answers_do_not_differ():
    alike = np.full((10, 5), 0.5)
    test = statistics.welch_test(alike, alike, [0.5] * 5, [0.5] * 5)
    assert (test.p_value, test.low, test.high) == (1.0, 0.0, 0.0)


def test_rounding_errors_are_neither_a_difference_nor_a_deviation():
    equal = [statistics.Variance(float(np.var([230 / 277] * seeds, ddof=1)), seeds - 1) for seeds in (3, 4, 6)]
    assert any(variance.value for variance in equal), "the scores have no rounding errors: this test proves nothing"
    for variance in equal:
        assert statistics.paired_test(5.6e-17, [variance]).p_value == 1
        assert statistics.paired_test(0.04, [variance]).low == -2


def test_paired_test_finds_a_large_difference():
    rng = np.random.default_rng(6)
    marked = [max(simulated_table(rng, tasks=4, effect=0.12)) < statistics.ALPHA for _ in range(20)]
    assert np.mean(marked) > 0.8


@pytest.mark.slow
def test_known_variance_part_keeps_level():
    """At the level of the first of 32 comparisons, with a fifth of the variance known and five seeds for the rest."""
    rng, level, repeats = np.random.default_rng(9), 0.05 / 32, 100_000
    estimates = 0.4 * rng.chisquare(4, (repeats, 2)) / 4
    rejected = 0
    for difference, (one, other) in zip(rng.normal(size=repeats), estimates, strict=True):
        parts = [statistics.Variance(0.2, np.inf), statistics.Variance(one, 4), statistics.Variance(other, 4)]
        rejected += statistics.paired_test(difference, parts).p_value < level
    assert rejected / repeats / level < 1.2  # 1.45 with Satterthwaite's formula as it stands


@pytest.mark.slow
def test_five_equal_methods_are_marked_in_5_percent():
    """Holm over all 32 comparisons with the baseline; over each method's eight alone it is one in six, which 150 tables
    tell from one in twenty with a chance of 99 %."""
    rng, repeats = np.random.default_rng(10), 150

    def row(ease):
        correct = (rng.random((5, EXAMPLES)) < ease + rng.normal(0, 0.02, (5, 1))).astype(float)
        return WEIGHTS @ correct.T, correct.mean(axis=1)

    marked = 0
    for _ in range(repeats):
        p_values = []
        for _ in range(8):
            ease = rng.uniform(0.4, 1.0, EXAMPLES)
            baseline, *others = [row(ease) for _ in range(5)]
            tests = [statistics.welch_test(baseline[0], own, baseline[1], scores) for own, scores in others]
            p_values += [test.p_value for test in tests]
        marked += min(statistics.holm(p_values)) < statistics.ALPHA
    assert marked / repeats <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / repeats)


@pytest.mark.parametrize("answer", [0, 1])
@pytest.mark.parametrize("name", ["cola", "mrpc", "stsb"])
def test_constant_model_resamples_without_warning(name, answer):
    for n in range(200, 330, 7):
        labels, constant = (np.arange(n) % 3 == 0).astype(int), np.full((3, n), answer)
        resampled = resampled_scores(TASKS[name], constant, labels, np.full(n, "dev"), seed=1)
        if name == "mrpc":
            assert (resampled == resampled[:, :1]).all()
        else:
            assert not resampled.any()


def test_few_seeds_against_many_get_the_freedom_of_the_few():
    nothing = {seeds: np.zeros((10, seeds)) for seeds in (2, 3, 4, 10)}
    for few, freedom in ((2, 1), (3, 2)):
        test = statistics.welch_test(nothing[few], nothing[10], np.arange(few) / 50, np.arange(10) / 50)
        assert test.freedom == pytest.approx(freedom)
    assert statistics.welch_test(nothing[4], nothing[10], np.arange(4) / 50, np.arange(10) / 50).freedom > 3
    assert statistics.welch_test(nothing[3], nothing[3], np.arange(3) / 50, np.arange(3) / 40).freedom > 2
