"""python -m pytest tests/analysis/test_empty_cells.py"""

import pytest
from helpers.launched_studies import launch, mini_plan
from helpers.made_studies import write_study

from analysis.layouts.search_notes import seed_notes
from analysis.studies.cells import make_rows
from analysis.studies.load import load_study
from analysis.tables import write_tables
from study.decisions.progress import read_progress


def test_empty_cell_gives_reason_of_status(tmp_path):
    plan = mini_plan(methods=("albert", "pondernet"), tasks=("rte",))
    launch(tmp_path, plan, broken=dict.fromkeys(range(3), "method"))
    assert read_progress(tmp_path).missing == {"albert/rte": "no search trial completed"}
    (note,) = seed_notes(make_rows([load_study(tmp_path)]))
    assert note == "albert/rte: missing: no search trial completed"


def test_cells_of_early_killed_launch_have_not_begun(tmp_path):
    launch(tmp_path, mini_plan(tasks=("rte",)), killed_after=3)
    notes = seed_notes(make_rows([load_study(tmp_path)]))
    assert notes == ["albert/rte: missing: 1 of 3 search trials ended", "pondernet/rte: missing: not begun"]


def test_empty_cells_share_a_note_also_as_error(tmp_path):
    study = write_study(tmp_path / "s", [], methods=["albert", "palbert"], tasks=["rte", "cola", "mrpc"])
    notes = [f"{method} on all 3 tasks: missing: not begun" for method in ("albert", "palbert")]
    assert write_tables([study], tmp_path)[0].sidecar["incomplete"] == notes
    with pytest.raises(ValueError, match=f"--strict: {'; '.join(notes)}$"):
        write_tables([study], tmp_path, strict=True)
