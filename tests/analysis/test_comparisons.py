"""python -m pytest tests/analysis/test_comparisons.py"""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers.made_studies import arm, predicted_study, record, rows_in, scores_of, store_predictions, write_study
from helpers.made_studies import predictions as make_predictions
from scipy import stats

from analysis.layouts.notes import comparison_notes, marks_in_words
from analysis.statistics.comparisons import (
    Comparison,
    by_task,
    compare,
    detectable_difference,
    macro_test,
    marks,
    probability_of_improvement,
)
from analysis.statistics.samples import draw_samples, resampled_scores, weighted_scores
from analysis.statistics.uncertainty import Variance, holm, paired_test
from analysis.studies.cells import rows_of
from analysis.studies.load import load_studies, load_study
from analysis.tables import write_tables
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    methods = {"albert": 0.6, "palbert": 0.8, "pabee": 0.61}
    return rows_in(predicted_study(tmp_path_factory.mktemp("s"), methods, ["rte", "cola", "stsb"]))


@pytest.fixture(scope="module")
def comparisons(rows):
    return compare(rows, draw_samples(rows))


@pytest.mark.parametrize("name", ["rte", "cola", "mrpc", "mnli", "qqp", "stsb"])
def test_scores_with_equal_weights_are_those_of_the_tasks_own_metrics(name):
    arrays = make_predictions("palbert", name, 0.7, seed=1, num_examples=300, salt=0)
    answers = predictions_from_logits(TASKS[name], arrays["logits"][0])
    found = weighted_scores(TASKS[name], np.ones((1, 300)), answers[None], arrays["labels"])
    metrics = compute_metrics(TASKS[name], answers, arrays["labels"])
    assert found == pytest.approx(score(TASKS[name], metrics))


def test_every_pair_of_methods_is_compared_on_every_task(comparisons):
    pairs = {(comparison.row, comparison.other, comparison.task) for comparison in comparisons}
    assert len(pairs) == 3 * 3


def test_only_the_difference_that_holds_is_marked(rows, comparisons):
    found = marks(rows, comparisons)
    assert {place: mark for place, mark in found.items() if place[0] == "palbert"} == {
        ("palbert", task): "↑" for task in ("rte", "cola", "stsb")
    }
    assert not any(row == "pabee" for row, _ in found)


def test_marks_compare_with_the_baseline_that_the_plan_names(tmp_path):
    methods = {"albert": 0.6, "palbert": 0.8, "pabee": 0.61}
    rows = rows_in(predicted_study(tmp_path, methods, ["rte"], baseline="palbert"))
    assert marks(rows, compare(rows, draw_samples(rows))) == {("albert", "rte"): "↓", ("pabee", "rte"): "↓"}


def test_nothing_is_marked_where_the_plan_names_no_baseline_and_the_caption_says_so(tmp_path):
    study = predicted_study(tmp_path, {"albert": 0.6, "palbert": 0.8}, ["rte"], baseline=None)
    write_tables([study], tmp_path / "tables")
    text = (tmp_path / "tables" / "dev.md").read_text()
    assert "No difference is tested: the plans do not name one baseline; --baseline names one." in text
    assert "↑ |" not in text and "↓ |" not in text


def test_what_a_mark_means_stands_only_where_there_is_one(tmp_path):
    captions = {}
    for name, accuracy in {"marked": 0.8, "equal": 0.6}.items():
        study = predicted_study(tmp_path / name, {"albert": 0.6, "palbert": accuracy}, ["rte"])
        write_tables([study], tmp_path / name / "tables")
        captions[name] = (tmp_path / name / "tables" / "dev.md").read_text()
    told = "with a search each still get a mark in 4 to 60 % of comparisons", "notes below say which marks hold"
    assert all(words in captions["marked"] for words in ("↑ |", "of 1 mark, ", *told))
    assert not any(words in captions["equal"] for words in ("↑ |", "marks, ", *told))
    assert "↑ and ↓: mean score above or below albert" in captions["equal"]


def test_nothing_is_marked_where_two_plans_name_different_baselines_and_the_caption_says_so(tmp_path):
    one = predicted_study(tmp_path / "one", {"albert": 0.6}, ["rte"], baseline="albert")
    two = predicted_study(tmp_path / "two", {"palbert": 0.8}, ["rte"], baseline="palbert")
    write_tables([one, two], tmp_path / "tables")
    text = (tmp_path / "tables" / "dev.md").read_text()
    assert "No difference is tested: the plans do not name one baseline; --baseline names one." in text
    assert "↑ |" not in text and "↓ |" not in text


def test_a_caption_says_how_many_rows_of_the_baseline_have_numbers(tmp_path):
    alone = predicted_study(tmp_path / "alone", {"palbert": 0.8}, ["rte"], baseline="albert")
    two = [predicted_study(tmp_path / name, {"albert": 0.6, "palbert": 0.8}, ["rte"]) for name in ("one", "two")]
    for folders, number in ([alone], "no row"), (two, "2 rows"):
        rows = rows_of(load_studies(folders), separate=len(folders) > 1)
        wanted = f"tested: the baseline, albert, has {number} with numbers here; --baseline names another."
        assert wanted in marks_in_words(rows, compare(rows, draw_samples(rows)))


def test_the_smallest_difference_that_would_be_marked_is_in_points(comparisons):
    assert comparison_notes(comparisons)[-1].startswith(
        "the smallest true difference that would get a mark four times in five: RTE "
    )
    assert " points" in comparison_notes(comparisons)[-1]


def test_the_difference_is_that_of_the_mean_scores(rows, comparisons):
    comparison = next(c for c in comparisons if (c.row, c.other, c.task) == ("albert", "palbert", "rte"))
    by_label = {row.label: np.mean(row.cells["rte"].scores) for row in rows}
    assert comparison.test.difference == pytest.approx(by_label["albert"] - by_label["palbert"])
    assert comparison.test.low < comparison.test.difference < comparison.test.high


def test_mcnemar_is_given_for_each_pair_of_seeds_and_not_for_regression(comparisons):
    lengths = {comparison.task: len(comparison.mcnemar) for comparison in comparisons}
    assert lengths == {"rte": 5, "cola": 5, "stsb": 0}


def test_marks_and_the_floor_of_five_seeds_stand_in_the_table(tmp_path):
    study = predicted_study(tmp_path, {"albert": 0.6, "palbert": 0.8}, ["rte"])
    write_tables([study], tmp_path / "tables")
    text = (tmp_path / "tables" / "dev.md").read_text()
    assert "↑ |" in text
    assert "With 5 seeds a sign test over the seeds alone could not fall below p = 0.0625." in text
    assert "↑" not in (tmp_path / "tables" / "dev.csv").read_text()
    (comparison,) = json.loads((tmp_path / "tables" / "dev.json").read_text())["comparisons"]
    assert comparison["holds"] is True


def test_intervals_are_the_range_over_seeds_and_a_bootstrap_over_examples(tmp_path):
    study = predicted_study(tmp_path, {"palbert": 0.8}, ["rte"])
    scores = load_study(study).by_arm["palbert/rte"][:5]
    write_tables([study], tmp_path / "tables")
    found = json.loads((tmp_path / "tables" / "intervals.json").read_text())
    (seeds,), (examples,) = found["over_seeds"], found["over_examples"]
    assert (seeds["low"], seeds["high"]) == (min(r.score for r in scores), max(r.score for r in scores))
    assert seeds["coverage"] == 0.9375
    mean, deviation = np.mean([r.score for r in scores]), np.sqrt(0.8 * 0.2 / 400)
    assert mean - 2 * deviation < examples["low"] < mean < examples["high"] < mean + 2 * deviation
    assert "with 93.75 %" in (tmp_path / "tables" / "intervals.md").read_text()


def test_without_predictions_nothing_is_marked_and_the_caption_says_why(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", [0.9] * 5) + arm("albert", "rte", [0.5] * 5))], tmp_path)
    text = (tmp_path / "dev.md").read_text()
    assert "No difference is tested, because albert and no other row have predictions of the same examples." in text
    assert "↑ |" not in text


def test_predictions_that_do_not_belong_to_their_record_stop_the_tables(tmp_path):
    rows = arm("palbert", "rte", [0.123, 0.123])
    for row in rows[1:]:
        store_predictions(tmp_path, row.key, make_predictions("palbert", "rte", 0.8, seed=1, num_examples=50, salt=0))
    with pytest.raises(ValueError, match=r"npz does not belong to its record: its score is 0\.\d+, the record's 0.123"):
        write_tables([write_study(tmp_path, rows)], tmp_path / "tables")


def test_spread_of_a_sampled_exit_is_named_apart_from_the_seeds(tmp_path):
    study = predicted_study(tmp_path, {"pondernet": 0.7}, ["rte"])
    write_tables([study], tmp_path / "tables")
    (row,) = rows_in(study)
    spreads = [record.metrics["sample_std"] for record in row.cells["rte"].records]
    within, over = 100 * np.sqrt(np.mean(np.square(spreads))), 100 * np.std(row.cells["rte"].scores, ddof=1)
    note = "pondernet: sampled exit, standard deviation over draws of one model / over seeds: RTE"
    assert f"{note} {within:.1f} / {over:.1f}" in (tmp_path / "tables" / "dev.md").read_text()


def test_a_sampled_exits_score_and_test_are_of_all_its_draws(tmp_path):
    methods = {"albert": 0.7, "pondernet": 0.7}
    rows = rows_in(predicted_study(tmp_path, methods, ["rte"]))
    samples = draw_samples(rows)
    sample, (comparison,) = samples["pondernet", "rte"], compare(rows, samples)
    printed = [row.cells["rte"].scores for row in rows]
    assert sample.scores == pytest.approx(printed[1])
    assert comparison.test.difference == pytest.approx(np.mean(printed[0]) - np.mean(printed[1]))
    labels, split = sample.predictions[0].labels, sample.predictions[0].split
    assert sample.scores != pytest.approx([np.mean(own.answers[0] == labels) for own in sample.predictions])
    every = [
        resampled_scores(TASKS["rte"], found.answers, labels, split, resamples=1_000, seed=0).mean(axis=1)
        for found in sample.predictions
    ]
    assert sample.resampled == pytest.approx(np.stack(every, axis=1))


def test_mcnemar_is_left_out_where_an_exit_is_sampled(tmp_path):
    rows = rows_in(predicted_study(tmp_path, {"albert": 0.7, "pondernet": 0.7}, ["rte"]))
    (comparison,) = compare(rows, draw_samples(rows))
    assert comparison.mcnemar == []


def test_marks_are_adjusted_over_all_comparisons_with_the_baseline_and_no_other(comparisons):
    families = {
        family: [comparison for comparison in comparisons if comparison.family == family]
        for family in ("baseline", "others")
    }
    assert {(c.row, c.other) for c in families["baseline"]} == {("albert", "palbert"), ("albert", "pabee")}
    assert {(c.row, c.other) for c in families["others"]} == {("palbert", "pabee")}
    for family in families.values():
        assert [c.adjusted_p_value for c in family] == pytest.approx(holm([c.test.p_value for c in family]))
    assert len(families["baseline"]) == 6


def test_without_a_baseline_all_comparisons_are_one_family(tmp_path):
    methods = {"albert": 0.6, "palbert": 0.8, "pabee": 0.61}
    rows = rows_in(predicted_study(tmp_path, methods, ["rte"], baseline=None))
    assert {comparison.family for comparison in compare(rows, draw_samples(rows))} == {"others"}


def searched_rows(folder, spread):
    """Two methods, each with twelve search trials whose scores are this far apart."""
    study = predicted_study(folder, {"albert": 0.6, "palbert": 0.75}, ["rte"])
    loaded = load_study(study)
    for method in ("albert", "palbert"):
        best = max(row.selection_score for row in loaded.by_arm[f"{method}/rte"] if row.phase == "search")
        loaded.by_arm[f"{method}/rte"] += [
            record(method, "rte", best - spread * number, phase="search", seed=100 + number, trial=100 + number)
            for number in range(1, 12)
        ]
    return rows_of([loaded])


def test_the_test_of_the_methods_adds_the_luck_of_their_searches(tmp_path):
    rows = searched_rows(tmp_path, spread=0.04)
    (comparison,) = compare(rows, draw_samples(rows))
    assert comparison.test_with_search.difference == comparison.test.difference
    searches = sum(sample.search.value for sample in draw_samples(rows).values())
    expected = comparison.test.standard_error**2 + searches
    assert comparison.test_with_search.standard_error**2 == pytest.approx(expected)
    assert comparison.adjusted_p_value < 0.05 < comparison.adjusted_p_value_with_search
    assert comparison.holds and not comparison.holds_with_search
    assert comparison.to_json()["with_search"]["p_value"] == comparison.test_with_search.p_value


def test_without_enough_search_trials_nothing_is_said_of_the_methods(comparisons):
    assert {comparison.adjusted_p_value_with_search for comparison in comparisons} == {None}
    assert json.dumps([comparison.to_json() for comparison in comparisons])


def test_hand_made_predictions_agree_with_their_records():
    arrays = make_predictions("palbert", "rte", 0.7, seed=1, num_examples=300, salt=0)
    correct = arrays["logits"][0].argmax(axis=1) == arrays["labels"]
    assert scores_of("rte", arrays)["score"] == pytest.approx(correct.mean())


def test_macro_difference_is_the_mean_and_its_error_that_of_independent_tasks():
    tests = {
        "rte": paired_test(0.04, [Variance(0.0004, 8)]),
        "sst2": paired_test(0.0, [Variance(0.0001, 8)]),
    }
    found = macro_test(tests)
    assert found.difference == pytest.approx(0.02)
    assert found.standard_error == pytest.approx(np.sqrt(0.0005) / 2)
    assert 8 < found.freedom < 16
    assert found.low < 0.02 < found.high


def test_no_task_has_no_mean():
    with pytest.raises(ValueError, match="no task is there to take a mean over"):
        macro_test({})


def test_macro_finds_what_no_single_task_does():
    tests = {str(i): paired_test(0.02, [Variance(0.0002, 8)]) for i in range(8)}
    assert all(test.p_value > 0.05 for test in tests.values())
    assert macro_test(tests).p_value < 0.01


def test_tests_by_task_are_turned_for_the_other_row(comparisons):
    tests, turned = by_task(comparisons, "palbert", "albert"), by_task(comparisons, "albert", "palbert")
    assert list(tests) == ["rte", "cola", "stsb"]
    assert all(0 < test.low < test.difference < test.high for test in tests.values())
    assert [(test.low, test.high) for test in turned.values()] == [(-test.high, -test.low) for test in tests.values()]


def test_probability_of_improvement_counts_pairs_with_ties_half():
    found = probability_of_improvement(
        {"rte": [0.7, 0.8], "cola": [0.5]}, {"rte": [0.7, 0.6], "cola": [0.6], "qqp": [0]}
    )
    assert found.probability == pytest.approx((3.5 / 4 + 0) / 2)
    assert found.tasks == ("rte", "cola")


def test_probability_of_improvement_of_equals_is_one_half_and_mostly_covered():
    rng = np.random.default_rng(0)
    tables = [[{str(task): rng.normal(size=5).tolist() for task in range(8)} for _ in "ab"] for _ in range(100)]
    found = [probability_of_improvement(*table) for table in tables]
    assert np.mean([improvement.probability for improvement in found]) == pytest.approx(0.5, abs=0.03)
    assert np.mean([improvement.low <= 0.5 <= improvement.high for improvement in found]) > 0.85


def test_rows_without_a_task_in_common_are_refused():
    with pytest.raises(ValueError, match="no task in common: rte and cola"):
        probability_of_improvement({"rte": [1.0]}, {"cola": [1.0]})


@pytest.mark.parametrize("comparisons", [1, 32])
def test_detectable_difference_is_found_with_80_percent(comparisons):
    error = np.sqrt(2 * (0.02**2 + 0.75 * 0.25 / 277) / 5)
    shift = detectable_difference(error, 8, comparisons=comparisons) / error
    critical = stats.t.ppf(1 - 0.05 / comparisons / 2, 8)
    found = stats.nct.sf(critical, 8, shift) + stats.nct.cdf(-critical, 8, shift)
    assert found == pytest.approx(0.8, abs=1e-3)


def test_detectable_difference_of_many_degrees_of_freedom_is_the_normal_one():
    expected = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert detectable_difference(1.0, 1e6) == pytest.approx(expected)
    assert detectable_difference(1.0, 9_999) == pytest.approx(expected, rel=1e-3)


def test_scores_that_are_all_alike_say_nothing_of_what_would_be_found():
    assert detectable_difference(0.0, 8) is None


def test_the_table_says_that_it_is_not_known():
    alike = paired_test(0.0, [])
    comparison = Comparison("palbert", "albert", "rte", "baseline", alike, 1.0, None, None, None, [])
    assert comparison_notes([comparison])[-1].endswith("four times in five: RTE not known")
    known = replace(comparison, detectable_difference=0.12)
    assert comparison_notes([comparison, known])[-1].endswith("four times in five: RTE 12.0 points")
