"""python -m pytest tests/analysis/test_empty_cells.py"""

from helpers.launched_studies import launch, mini_plan

from analysis.layouts.notes import seed_notes
from analysis.studies.joined import rows_of
from analysis.studies.load import load_study
from study.status import read_progress


def test_empty_cell_says_what_it_waits_for_in_the_words_of_the_status(tmp_path):
    plan = mini_plan(methods=("albert", "pondernet"), tasks=("rte",))
    launch(tmp_path, plan, broken=dict.fromkeys(range(3), "method"))
    assert read_progress(tmp_path).missing == {"albert/rte": "no search trial completed"}
    (note,) = seed_notes(rows_of([load_study(tmp_path)]))
    assert note == "albert/rte: missing: no search trial completed"


def test_cells_of_a_launch_that_was_killed_before_them_have_not_begun(tmp_path):
    launch(tmp_path, mini_plan(tasks=("rte",)), killed_after=3)
    notes = seed_notes(rows_of([load_study(tmp_path)]))
    assert notes == ["albert/rte: missing: search 1 of 3", "pondernet/rte: missing: not begun"]
