"""python -m pytest tests/analysis/test_forest.py"""

import pytest
from helpers.made_studies import arm, write_study
from helpers.swept_studies import swept_study

from analysis.layouts.evidence import gather
from analysis.pictures.forest_picture import forest_picture
from analysis.pictures.subject import subject_of
from analysis.statistics.across_tasks import by_task
from analysis.statistics.comparisons import marks
from analysis.studies.joined import rows_of
from analysis.studies.load import load_study

pytestmark = pytest.mark.slow


def test_forest_has_the_tests_of_the_comparisons_and_fills_what_is_marked(tmp_path):
    evidence = gather([load_study(swept_study(tmp_path / "s", ["albert", "pondernet"], ["rte", "stsb"], examples=80))])
    subject = subject_of(evidence.rows)
    (axes,) = forest_picture(subject, evidence.comparisons, "albert").figure.axes
    own = by_task(evidence.comparisons, "pondernet", "albert")
    style = subject.styles["pondernet"]
    drawn = {
        round(float(line.get_xdata()[0]), 6): line.get_markerfacecolor() == style.colour
        for line in axes.get_lines()
        if line.get_color() == style.colour and line.get_marker() == style.marker and len(line.get_xdata())
    }
    arrows = marks(evidence.rows, evidence.comparisons)
    assert drawn == {round(100 * test.difference, 6): ("pondernet", task) in arrows for task, test in own.items()}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["RTE", "STS-B", "mean"]


def test_no_forest_without_a_baseline(tmp_path):
    subject = subject_of(rows_of([load_study(write_study(tmp_path, arm("albert", "rte", [0.7] * 5)))]))
    assert forest_picture(subject, [], None) is None
    assert forest_picture(subject, [], "albert") is None


def test_the_mean_is_of_methods_that_were_tested_on_all_tasks(tmp_path):
    folder = swept_study(tmp_path / "s", ["albert", "pondernet", "pabee"], ["rte", "stsb"], examples=80)
    evidence = gather([load_study(folder)])
    comparisons = [one for one in evidence.comparisons if (one.other, one.task) != ("pabee", "rte")]
    alt = forest_picture(subject_of(evidence.rows), comparisons, "albert").alt
    assert "mean" in alt.partition("pabee:")[0] and "mean" not in alt.partition("pabee:")[2]
