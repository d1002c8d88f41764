"""python -m pytest tests/analysis/test_comparisons.py"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.made_studies import (
    arm,
    plan_of,
    predicted_study,
    read_table,
    record,
    rows_in,
    scores_of,
    store_predictions,
    write_plan_of,
    write_records,
    write_study,
)
from helpers.made_studies import predictions as make_predictions
from helpers.messages import says
from msgspec.structs import replace as structs_replace
from scipy import stats

from analysis.layouts.certainty_tables import tabulate_comparisons
from analysis.layouts.comparison_notes import explain_marks, format_detectable, power_notes, sign_notes
from analysis.layouts.model_notes import sampled_exit_notes
from analysis.layouts.paper_tables import ON_THESE_ROWS
from analysis.statistics.comparisons import (
    Comparison,
    adjust,
    compare,
    detectable_difference,
    find_baseline_row,
    macro_test,
    over_tasks,
)
from analysis.statistics.samples import Scored, draw_samples, resampled_scores, weighted_scores
from analysis.statistics.uncertainty import Variance, holm, paired_test
from analysis.studies.cells import make_rows
from analysis.studies.load import load_studies
from analysis.tables import write_tables
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    methods = {"albert": 0.6, "palbert": 0.8, "pabee": 0.61}
    return rows_in(predicted_study(tmp_path_factory.mktemp("s"), methods, ["rte", "cola", "stsb"]))


@pytest.fixture(scope="module")
def comparisons(rows):
    return compare(draw_samples(rows), find_baseline_row(rows))


@pytest.mark.parametrize("name", ["rte", "cola", "mrpc", "mnli", "qqp", "stsb"])
def test_scores_with_equal_weights_are_those_of_the_tasks_own_metrics(name):
    arrays = make_predictions("palbert", name, 0.7, seed=1, num_examples=300, salt=0)
    answers = predictions_from_logits(TASKS[name], arrays["logits"][0])
    found = weighted_scores(TASKS[name], np.ones((1, 300)), answers[None], arrays["labels"])
    metrics = compute_metrics(TASKS[name], answers, arrays["labels"])
    assert found == pytest.approx(score(TASKS[name], metrics))


def arrows_of(comparisons):
    return {(one.row, one.task): one.arrow for one in comparisons if one.arrow}


def test_every_pair_of_methods_is_compared_on_every_task(comparisons):
    pairs = {(comparison.row, comparison.other, comparison.task) for comparison in comparisons}
    assert len(pairs) == 3 * 3


def test_only_the_difference_that_holds_is_marked(rows, comparisons):
    found = arrows_of(comparisons)
    assert {place: mark for place, mark in found.items() if place[0] == "palbert"} == {
        ("palbert", task): "↑" for task in ("rte", "cola", "stsb")
    }
    assert not any(row == "pabee" for row, _ in found)


def test_marks_compare_with_the_baseline_that_the_plan_names(tmp_path):
    methods = {"albert": 0.6, "palbert": 0.8, "pabee": 0.61}
    rows = rows_in(predicted_study(tmp_path, methods, ["rte"], baseline="palbert"))
    baseline = find_baseline_row(rows)
    found = arrows_of(compare(draw_samples(rows), baseline))
    assert found == {("albert", "rte"): "↓", ("pabee", "rte"): "↓"}


def test_no_baseline_in_plan_means_no_marks(tmp_path):
    study = predicted_study(tmp_path, {"albert": 0.6, "palbert": 0.8}, ["rte"], baseline=None)
    write_tables([study], tmp_path / "tables")
    text = (tmp_path / "tables" / "dev.md").read_text()
    assert says(text, "No difference from a baseline is tested: ", "different baselines or none; ", "--baseline.")
    assert "The table comparisons has the tests of other pairs." in text
    assert "↑ |" not in text and "↓ |" not in text


@pytest.mark.slow
def test_what_a_mark_means_stands_only_where_there_is_one(tmp_path):
    captions = {}
    for name, accuracy in {"marked": 0.8, "equal": 0.6}.items():
        study = predicted_study(tmp_path / name, {"albert": 0.6, "palbert": accuracy}, ["rte"])
        write_tables([study], tmp_path / name / "tables")
        captions[name] = (tmp_path / name / "tables" / "dev.md").read_text()
    told = "in up to 60 % of comparisons"
    assert all(words in captions["marked"] for words in ("↑ |", told))
    assert not any(words in captions["equal"] for words in ("↑ |", told))
    assert says(captions["equal"], "↑ and ↓: the mean score ", "that of albert")


def test_two_baselines_in_plans_mean_no_marks(tmp_path):
    one = predicted_study(tmp_path / "one", {"albert": 0.6}, ["rte"], baseline="albert")
    two = predicted_study(tmp_path / "two", {"palbert": 0.8}, ["rte"], baseline="palbert")
    write_tables([one, two], tmp_path / "tables")
    text = (tmp_path / "tables" / "dev.md").read_text()
    assert says(text, "No difference from a baseline is tested: ", "different baselines or none; ", "--baseline.")
    assert "↑ |" not in text and "↓ |" not in text


def test_a_caption_says_how_many_rows_of_the_baseline_have_numbers(tmp_path):
    alone = predicted_study(tmp_path / "alone", {"palbert": 0.8}, ["rte"], baseline="albert")
    two = [predicted_study(tmp_path / name, {"albert": 0.6, "palbert": 0.8}, ["rte"]) for name in ("one", "two")]
    for folders, number in ([alone], "no row"), (two, "2 rows"):
        rows = make_rows(load_studies(folders), separate=len(folders) > 1)
        said = explain_marks(rows, compare(draw_samples(rows), find_baseline_row(rows)))
        assert says(said, f"the baseline, albert, has {number} ", "choose another ", "--baseline.")


def test_only_searched_configurations_are_said_to_be_chosen_by_searches(tmp_path):
    folder = predicted_study(tmp_path / "s", {"albert": 0.5, "palbert": 0.9}, ["rte"], baseline="albert")
    rows = make_rows(load_studies([folder]))
    compared = compare(draw_samples(rows), find_baseline_row(rows))
    assert says(explain_marks(rows, compared), "↑ and ↓: ", "that the searches chose")
    for row in rows:
        row.cells["rte"] = replace(cell := row.cells["rte"], arm=structs_replace(cell.arm, space={}))
    assert says(explain_marks(rows, compared), "↑ and ↓: ") and "searches chose" not in explain_marks(rows, compared)


def test_detectable_difference_is_one_number_in_points(comparisons):
    (note,) = power_notes(comparisons)
    assert re.fullmatch(r"a difference of about \d+\.\d points .* 80 % power", note)
    missed = {one.task for one in comparisons if one.family == "baseline" and not one.holds}
    assert {task for task in ("rte", "cola", "stsb") if TASKS[task].title in note} == missed


def test_the_difference_is_that_of_the_mean_scores(rows, comparisons):
    comparison = next(c for c in comparisons if (c.row, c.other, c.task) == ("palbert", "albert", "rte"))
    by_label = {row.label: np.mean(row.cells["rte"].scores) for row in rows}
    assert comparison.test.difference == pytest.approx(by_label["palbert"] - by_label["albert"])
    assert comparison.test.low < comparison.test.difference < comparison.test.high


def test_without_predictions_nothing_is_marked_and_the_caption_says_why(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", [0.9] * 5) + arm("albert", "rte", [0.5] * 5))], tmp_path)
    text = (tmp_path / "dev.md").read_text()
    assert says(text, "No difference from albert is tested, ", "no comparable row ", "for at least two seeds.")
    assert "↑ |" not in text


def test_predictions_that_do_not_belong_to_their_record_stop_the_tables(tmp_path):
    rows = arm("palbert", "rte", [0.123, 0.123])
    for row in rows[1:]:
        store_predictions(tmp_path, row.key, make_predictions("palbert", "rte", 0.8, seed=1, num_examples=50, salt=0))
    with pytest.raises(ValueError, match=r"npz do not belong .* 0\.\d+, .* 0.123"):
        write_tables([write_study(tmp_path, rows)], tmp_path / "tables")


def test_spread_of_a_sampled_exit_is_named_apart_from_the_seeds(tmp_path):
    study = predicted_study(tmp_path, {"pondernet": 0.7}, ["rte"])
    write_tables([study], tmp_path / "tables")
    (row,) = rows_in(study)
    spreads = [record.metrics["sample_std"] for record in row.cells["rte"].records]
    within, over = 100 * np.sqrt(np.mean(np.square(spreads))), 100 * np.std(row.cells["rte"].scores, ddof=1)
    note = "pondernet draws exit layers at random; the standard deviations of its score over draws / over seeds are RTE"
    assert f"{note} {within:.1f} / {over:.1f}" in (tmp_path / "tables" / "dev.md").read_text()
    for one in row.cells["rte"].records:
        one.metrics["sample_std"] = 0.0  # of a single draw
    assert sampled_exit_notes([row]) == [f"{note} - / {over:.1f}"]


def test_a_sampled_exits_score_and_test_are_of_all_its_draws(tmp_path):
    methods = {"albert": 0.7, "pondernet": 0.7}
    rows = rows_in(predicted_study(tmp_path, methods, ["rte"]))
    samples = draw_samples(rows)
    sample, (comparison,) = samples["pondernet", "rte"], compare(samples, "albert")
    printed = [row.cells["rte"].scores for row in rows]
    assert sample.scores == pytest.approx(printed[1])
    assert comparison.test.difference == pytest.approx(np.mean(printed[1]) - np.mean(printed[0]))
    labels, split = sample.answers[0].labels, sample.answers[0].split
    assert sample.scores != pytest.approx([np.mean(own.answers[0] == labels) for own in sample.answers])
    every = [
        resampled_scores(TASKS["rte"], found.answers, labels, split, seed=0).mean(axis=1) for found in sample.answers
    ]
    assert sample.resampled == pytest.approx(np.stack(every, axis=1))


def test_marks_are_adjusted_over_baseline_comparisons(comparisons):
    families = {
        family: [comparison for comparison in comparisons if comparison.family == family]
        for family in ("baseline", "others")
    }
    assert {(c.row, c.other) for c in families["baseline"]} == {("palbert", "albert"), ("pabee", "albert")}
    assert {(c.row, c.other) for c in families["others"]} == {("palbert", "pabee")}
    for family in families.values():
        assert [c.adjusted_p_value for c in family] == pytest.approx(holm([c.test.p_value for c in family]))
    assert len(families["baseline"]) == 6


def test_without_a_baseline_all_comparisons_are_one_family(tmp_path):
    methods = {"albert": 0.6, "palbert": 0.8, "pabee": 0.61}
    rows = rows_in(predicted_study(tmp_path, methods, ["rte"], baseline=None))
    assert {comparison.family for comparison in compare(draw_samples(rows), find_baseline_row(rows))} == {"others"}


def test_hand_made_predictions_agree_with_their_records():
    arrays = make_predictions("palbert", "rte", 0.7, seed=1, num_examples=300, salt=0)
    correct = arrays["logits"][0].argmax(axis=1) == arrays["labels"]
    assert scores_of("rte", arrays)["score"] == pytest.approx(correct.mean())


def test_macro_difference_has_error_of_independent_tasks():
    tests = [paired_test(0.04, [Variance(0.0004, 8)]), paired_test(0.0, [Variance(0.0001, 8)])]
    found = macro_test(tests)
    assert found.difference == pytest.approx(0.02)
    assert found.standard_error == pytest.approx(np.sqrt(0.0005) / 2)
    assert 8 < found.freedom < 16
    assert found.low < 0.02 < found.high


def test_no_mean_is_over_fewer_than_three_tasks(comparisons):
    assert over_tasks([one for one in comparisons if one.task != "stsb"]) == {}


def test_arrow_stands_beside_the_mean_that_is_tested(tmp_path):
    study = write_study_of_scores(tmp_path, {"albert": [50, 51, 52, 53, 54], "palbert": [80, 81, 82, 83, 84]})
    write_tables([study], tmp_path / "tables")
    lines = json.loads((tmp_path / "tables" / "dev.json").read_text())["lines"]
    mean = f"mean, {ON_THESE_ROWS}"
    marks = {line["method"]: line.get("rte_mark") for line in lines if line["source"] != "published"}
    assert marks == {"albert": None, f"albert, {mean}": "°", "palbert": None, f"palbert, {mean}": "↑"}


def test_means_over_tasks_are_one_family_and_their_intervals_cover_together(rows, comparisons):
    found = over_tasks(comparisons)
    assert found.keys() == {"palbert", "pabee"} and {own.task for own in found.values()} == {"mean over 3 tasks"}
    alone = {
        label: macro_test([one.test for one in comparisons if (one.row, one.other) == (label, "albert")])
        for label in found
    }
    assert [own.adjusted_p_value for own in found.values()] == holm([test.p_value for test in alone.values()])
    assert all(found[label].test.low < test.low < test.high < found[label].test.high for label, test in alone.items())


def test_opposite_signs_of_medians_and_means_are_told(tmp_path):
    """Medians say palbert, 0.8 against 0.7; means, which are tested, say albert."""
    study = write_study_of_scores(tmp_path, {"albert": [90, 90, 70, 69, 68], "palbert": [82, 81, 80, 40, 40]})
    write_tables([study], tmp_path / "tables")
    told = ["the means are tested: ", "palbert on RTE: median +10.0, mean -12.8 points ", "albert"]
    assert says((tmp_path / "tables" / "dev.md").read_text(), *told)
    answer = (tmp_path / "tables" / "answer.md").read_text()  # has only means
    assert (
        re.search(r"^\| palbert/rte +\| +64\.6° \| +[\d.]+ \| +-12\.8 \(", answer, re.MULTILINE)
        and "+10.0" not in answer
    )
    (one,) = [
        row
        for row in read_table(tmp_path / "tables" / "dev.csv")
        if row["source"] == "mean" and row["method"] == f"palbert, mean, {ON_THESE_ROWS}"
    ]
    assert (one["rte"], float(one["rte_low"]) < 64.6 < float(one["rte_high"])) == ("64.6", True)


def test_equal_medians_point_in_no_direction(tmp_path):
    """In floating point, the mean of 0.1 and 0.2 is more than 0.15."""
    scores = {"albert": [0.05, 0.15, 0.15, 0.4], "palbert": [0.05, 0.1, 0.2, 0.3]}
    rows = rows_in(write_study(tmp_path, [row for method, own in scores.items() for row in arm(method, "rte", own)]))
    test = paired_test(-0.025, [Variance(0.01, 3)])
    assert not sign_notes(rows, adjust("baseline", {("palbert", "albert", "rte"): test}, 1))


def write_study_of_scores(folder, percents):
    """A study on RTE whose models are right on these shares of 100 examples, by seed."""
    made = plan_of(list(percents), ["rte"])
    records = []
    for method, shares in percents.items():
        confirmed = []
        for seed, share in zip(range(42, 47), shares, strict=True):
            arrays = make_predictions(method, "rte", 0.5, seed=seed, num_examples=100, salt=0)
            right = np.arange(100) < share
            answers = np.where(right, arrays["labels"], 1 - arrays["labels"])
            arrays["logits"] = (seed * np.eye(2)[answers])[None].astype("f4")
            row = record(method, "rte", 0.0, seed=seed, trial=seed - 42, protocol_hash=made.protocol_hash)
            confirmed.append(structs_replace(row, **scores_of("rte", arrays)))
            store_predictions(folder, row.key, arrays)
        best = max(row.score for row in confirmed)
        records += [record(method, "rte", best, seed=1, phase="search", protocol_hash=made.protocol_hash), *confirmed]
    write_plan_of(folder, made)
    write_records(folder, records)
    return folder


def test_macro_finds_what_no_single_task_does():
    tests = [paired_test(0.02, [Variance(0.0002, 8)]) for _ in range(8)]
    assert all(test.p_value > 0.05 for test in tests)
    assert macro_test(tests).p_value < 0.01


@pytest.mark.parametrize("comparisons", [1, 32])
@pytest.mark.parametrize("freedom", [4, 8, 18])
def test_detectable_difference_is_found_with_80_percent(freedom, comparisons):
    """The difference that a study prints that finds nothing, in another study; each estimates its standard error."""
    rng = np.random.default_rng(0)
    critical = stats.t.ppf(1 - 0.05 / comparisons / 2, freedom)
    printed, other = np.sqrt(rng.chisquare(freedom, (2, 100_000)) / freedom)
    finds_nothing = np.abs(rng.normal(size=100_000)) / printed < critical
    shift = detectable_difference(1.0, freedom, comparisons=comparisons) * printed
    found = ((rng.normal(size=100_000) + shift) / other > critical)[finds_nothing]
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_detectable_difference_of_many_degrees_of_freedom_is_the_normal_one():
    expected = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert detectable_difference(1.0, 1e6) == pytest.approx(expected)
    assert detectable_difference(1.0, 9_999) == pytest.approx(expected, rel=1e-3)


def test_equal_scores_give_no_detectable_difference():
    assert detectable_difference(0.0, 8) is None


def test_the_note_is_about_tasks_on_which_nothing_was_found():
    alike, apart = paired_test(0.0, []), paired_test(0.5, [Variance(0.0001, 8)])
    unknown, found, small, large = (
        Comparison("palbert", "albert", task, "baseline", test, p_value, size)
        for task, test, p_value, size in [
            ("rte", alike, 1.0, None),
            ("cola", apart, 0.001, 0.03),
            ("sst2", alike, 1.0, 0.0128),
            ("mrpc", alike, 1.0, 0.507),
        ]
    )
    assert power_notes([unknown, found]) == []
    some = "a difference of about 1.3 points on SST-2 would have been found with 80 % power"
    nothing = "nothing could have been found with this data"
    assert power_notes([found, small]) == [some]
    assert power_notes([unknown, found, small]) == [f"{some} (unknown for palbert on RTE)"]
    assert power_notes([large]) == [nothing]
    assert power_notes([small, large]) == [f"{some}; {nothing} on MRPC"]


@pytest.mark.parametrize(
    ("difference", "words"),
    [(0.0128, "about 1.3 points"), (0.0654, "about 6.5 points"), (0.126, "about 13 points"), (0.5, ""), (5.65, "")],
)
def test_detectable_difference_is_one_number_within_reason(difference, words):
    assert format_detectable(difference) == words


@pytest.mark.parametrize(("seeds", "is_known"), [(2, False), (3, True)])
def test_two_seeds_do_not_say_what_would_have_been_found(seeds, is_known):
    scores = np.array([0.7, 0.71, 0.73])[:seeds]
    resampled = np.random.default_rng(0).normal(scores, 0.02, (50, seeds))
    samples = {
        (row, task): Scored((scores + 0.001 * len(row)).tolist(), resampled, task)
        for row in ("albert", "palbert")
        for task in ("rte", "cola", "sst2")
    }
    compared = compare(samples, "albert")
    means = over_tasks(compared).values()
    assert [one.missed_difference is not None for one in (*compared, *means)] == [is_known] * 4
    assert bool(power_notes(compared)) == is_known
    texts = [line.entries.get("detectable_difference") for line in tabulate_comparisons(compared, "albert").lines]
    assert [text is not None for text in texts] == [is_known] * 4


def test_a_found_difference_has_no_detectable_one(comparisons):
    table = tabulate_comparisons(comparisons, "albert")
    assert any(line.entries["difference"].mark for line in table.lines)
    for line in table.lines:
        if "mean over" not in line.label:
            assert bool(line.entries["difference"].mark) == ("detectable_difference" not in line.entries)
