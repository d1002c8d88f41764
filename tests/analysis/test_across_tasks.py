"""python -m pytest tests/analysis/test_across_tasks.py"""

import numpy as np
import pytest
from helpers.made_studies import predicted_study

from analysis.statistics.across_tasks import by_task, forest, macro_test, probability_of_improvement
from analysis.statistics.comparisons import compare, samples_of
from analysis.statistics.uncertainty import Variance, paired_test
from analysis.studies.joined import rows_of
from analysis.studies.load import load_study


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


def test_forest_has_a_line_per_task_and_the_mean_last(tmp_path):
    rows = rows_of([load_study(predicted_study(tmp_path, {"albert": 0.6, "palbert": 0.8}, ["rte", "cola"]))])
    comparisons = compare(rows, samples_of(rows))
    lines = forest(by_task(comparisons, "palbert", "albert"))
    assert [line.name for line in lines] == ["rte", "cola", "macro"]
    assert all(0 < line.low < line.difference < line.high for line in lines)
    turned = forest(by_task(comparisons, "albert", "palbert"))
    assert [(line.low, line.high) for line in turned] == [(-line.high, -line.low) for line in lines]


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
