"""python -m pytest tests/analysis/test_empty_cells.py"""

import pytest
from helpers.launched_studies import launch, mini_plan
from helpers.made_studies import CONFIG, arm, record, write_study

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


def test_search_that_another_study_ended_is_not_unfinished(tmp_path):
    searches = [
        record(
            "palbert", "rte", 0.6, phase="search", seed=9, trial=trial, config=CONFIG | {"learning_rate": trial * 1e-5}
        )
        for trial in (2, 3)
    ]
    ran = arm("palbert", "rte", [0.7] * 5)  # one search trial and all seeds
    names = ("begun", "continued", "whole", "without seeds")
    parts = (ran, [*ran, searches[0]], [*ran, *searches], [ran[0], *searches])
    studies = {
        name: load_study(write_study(tmp_path / name, records, samples=3))
        for name, records in zip(names, parts, strict=True)
    }

    def read(*names):
        (row,) = make_rows([studies[name] for name in names])
        return row.cells["rte"]

    assert read("begun").unfinished.startswith("1 of 3 search trials ended; ")
    assert read("begun", "continued").unfinished.startswith("2 of 3 search trials ended; ")
    assert not read("begun", "continued").is_finished
    assert read("begun", "whole").unfinished == "" and read("whole", "begun").is_finished
    begun = load_study(write_study(tmp_path / "searching", ran[:1], samples=3))
    (row,) = make_rows([begun, studies["without seeds"]])
    assert row.cells["rte"].shortfall == "missing: 0 of 5 confirm trials completed"


def test_searches_of_two_copies_count_together(tmp_path):
    first = record("palbert", "rte", 0.7, phase="search", seed=1, config=CONFIG)
    second = record("palbert", "rte", 0.6, phase="search", seed=2, trial=1, config=CONFIG | {"learning_rate": 2e-5})
    halves = [load_study(write_study(tmp_path / str(half.seed), [half], samples=2)) for half in (first, second)]
    (row,) = make_rows(halves)
    assert row.cells["rte"].unfinished == ""
