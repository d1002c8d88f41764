"""The summary of scores: pytest tests/study/facts/test_record.py"""

import statistics

import pytest

from study.facts.record import summarise


def test_summary_is_that_of_the_standard_library():
    scores = [0.1, 0.4, 0.2, 0.3, 0.5]
    assert summarise(scores) == pytest.approx(
        {
            "mean": statistics.mean(scores),
            "standard_deviation": statistics.stdev(scores),
            "median": statistics.median(scores),
            "lowest": 0.1,
            "highest": 0.5,
        }
    )


def test_a_single_score_has_no_deviation():
    assert "standard_deviation" not in summarise([0.5])
