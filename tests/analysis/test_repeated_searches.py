"""Methods whose search was repeated: pytest tests/analysis/test_repeated_searches.py"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
import pytest
from helpers.edited_studies import has
from helpers.launched_studies import launch, launched_study, mini_plan
from helpers.made_studies import write_records

from analysis import load
from analysis.layouts.answer import completeness, summary_table
from analysis.layouts.certainty_tables import search_repeats_table
from analysis.layouts.checklist import answers
from analysis.layouts.evidence import gather
from analysis.pictures.study_pictures import differences_picture
from analysis.statistics import uncertainty
from analysis.statistics.comparisons import Repeats, compare
from analysis.statistics.costs import row_ledger
from analysis.studies.load import load_study
from analysis.tables import write_tables
from analysis.verify import verify
from study import drop
from study.facts.study_facts import read_facts


def repeats(*scores: list[float], resampled: np.ndarray | None = None) -> Repeats:
    stored = np.zeros((2, len(scores))) if resampled is None else resampled
    return Repeats([float(np.mean(own)) for own in scores], stored, "the same", list(scores))


def difference(one: Repeats, other: Repeats) -> uncertainty.PairedTest:
    (comparison,) = compare({("palbert", "rte"): one, ("albert", "rte"): other}, "albert")
    return comparison.test


def test_what_the_seeds_account_for_is_not_of_the_search():
    found = repeats([0.5, 0.7], [0.6, 0.8], [0.4, 0.6])
    assert found.deviation == pytest.approx(stdev([0.6, 0.7, 0.5]))
    assert found.search_deviation == pytest.approx(max(0.0, 0.01 - 0.02 / 2) ** 0.5, abs=1e-7)
    assert repeats([0.6, 0.6], [0.8, 0.8]).search_deviation == pytest.approx(0.02**0.5)


def test_of_single_seeds_the_part_of_the_search_is_not_known():
    assert repeats([0.5], [0.7]).search_deviation is None


def test_a_difference_is_held_against_the_spread_between_searches():
    apart = [[0.80, 0.82], [0.70, 0.72]]
    alike = [[0.76, 0.78], [0.66, 0.68]]
    test = difference(repeats(*apart), repeats(*alike))
    assert test.difference == pytest.approx(0.04)
    assert test.standard_error == pytest.approx((0.005 / 2 + 0.005 / 2) ** 0.5)
    assert test.freedom == pytest.approx(2)


def test_what_examples_leave_open_is_added():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.05, (500, 1)) + np.zeros((500, 3))
    steady = repeats([0.7, 0.7], [0.71, 0.71], [0.69, 0.69], resampled=np.full((500, 3), 0.7))
    shaken = repeats([0.7, 0.7], [0.71, 0.71], [0.69, 0.69], resampled=0.7 + noise)
    assert difference(shaken, steady).standard_error > 0.04 > difference(steady, steady).standard_error


def test_all_comparisons_with_the_baseline_are_one_family():
    found = {
        ("albert", "rte"): repeats([0.5, 0.52], [0.51, 0.53]),
        ("palbert", "rte"): repeats([0.6, 0.62], [0.61, 0.63]),
        ("pabee", "rte"): repeats([0.5, 0.53], [0.52, 0.54]),
    }
    compared = [one for one in compare(found, "albert") if one.family == "baseline"]
    assert [(one.row, one.other) for one in compared] == [("palbert", "albert"), ("pabee", "albert")]
    assert [one.adjusted_p_value for one in compared] == uncertainty.holm([one.test.p_value for one in compared])
    assert {one.family for one in compare(found, None)} == {"others"}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "s"
    return launched_study(folder, mini_plan(tasks=("rte",), search_repeats=3, baseline="albert"))


@pytest.mark.slow
def test_the_table_has_every_search(study):
    table = json.loads((study / "tables" / "search_repeats.json").read_text())
    records = read_facts(study).records
    for own in table["lines"]:
        names = [own["arm"], f"{own['arm']}@2", f"{own['arm']}@3"]
        scores = [[100 * r.score for r in records if r.arm == name and r.phase == "confirm"] for name in names]
        assert own["first"] == pytest.approx(median(scores[0]))
        assert own["all"] == pytest.approx(mean(mean(each) for each in scores))
        assert own["spread"] == pytest.approx(stdev(mean(each) for each in scores))
    assert [own["arm"] for own in table["lines"] if "difference" in own] == ["pondernet/rte"]
    with (study / "tables" / "search_repeats.csv").open(newline="") as file:
        assert {row["unit"] for row in csv.DictReader(file)} == {"points; number_of_searches: searches"}


def test_the_other_tables_show_the_first_search_and_say_so(study, tmp_path):
    once = launched_study(tmp_path / "once", mini_plan(tasks=("rte",), baseline="albert"))
    dev, alone = (json.loads((folder / "tables" / "dev.json").read_text()) for folder in (study, once))
    assert [cell["scores"] for cell in dev["cells"]] == [cell["scores"] for cell in alone["cells"]]
    note = (
        'numbers are from the first of 3 searches, unless a caption says "over all searches"; table search_repeats has'
    )
    assert note in (study / "tables" / "dev.md").read_text()
    assert note not in (once / "tables" / "dev.md").read_text()
    assert not (once / "tables" / "search_repeats.md").exists()


def test_the_answer_is_about_methods_if_searches_were_repeated(study, tmp_path):
    once = launched_study(tmp_path / "once", mini_plan(tasks=("rte",), baseline="albert"))
    words = "These tests compare the methods: each method was searched 3 times (table search_repeats)."
    assert words in (study / "tables" / "answer.md").read_text()
    assert words not in (once / "tables" / "answer.md").read_text()
    evidence = gather([load_study(study)])
    (of_methods,) = evidence.comparisons_of_methods
    (line,) = [line for line in summary_table(evidence).lines if line.label == f"{of_methods.row}/rte"]
    assert line.entries["difference"].values[""] == 100 * of_methods.test.difference
    assert of_methods.test != evidence.comparisons[0].test
    assert "the mean scores (over all searches)" in (study / "tables" / "answer.md").read_text()


def test_compute_and_budget_are_of_all_searches(study):
    evidence, records = gather([load_study(study)]), read_facts(study).records
    for entry in row_ledger(evidence.rows):
        own = [record for record in records if record.method == entry.row]
        assert sum(spent.wall_seconds for spent in entry.spent) == pytest.approx(sum(one.wall_seconds for one in own))
        searched = sum(record.phase == "search" for record in own)
        assert f"{entry.row} {searched}" in answers(evidence, [])["trials"].evidence
    assert "Numbers are from the first of 3 searches" in (study / "tables" / "answer.md").read_text()
    assert completeness(evidence).startswith("Nothing is missing: all 6 cells")


def test_first_picture_shows_the_test_over_searches(study):
    evidence = gather([load_study(study)])
    picture = differences_picture(evidence)
    (of_methods,) = evidence.comparisons_of_methods
    marks = [
        line.get_ydata()[0] for axes in picture.figure.axes for line in axes.get_lines() if line.get_marker() != "None"
    ]
    assert marks == [100 * of_methods.test.difference] != [100 * evidence.comparisons[0].test.difference]
    assert picture.caption.startswith("Each mark is the mean score over all searches minus that of albert")


def test_trials_of_later_searches_do_not_count_in_the_frame(study):
    frame = load(study).records
    assert set(frame[frame["counts"]]["repeat"]) == {0}
    assert set(frame["repeat"]) == {0, 1, 2}


def test_a_changed_number_of_a_later_search_is_found(tmp_path, study):
    launch(tmp_path / "s", mini_plan(tasks=("rte",), search_repeats=2, baseline="albert"))
    path = tmp_path / "s" / "tables" / "search_repeats.json"
    path.write_text(path.read_text().replace('"spread": ', '"spread": 1', 1))
    assert has(verify(tmp_path / "s"), "search_repeats.json differs from what")


def test_an_unfinished_repeat_is_left_out_and_named(tmp_path, study):
    launch(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), search_repeats=3))
    kept = [row for row in read_facts(tmp_path / "s").records if (row.seed, row.phase) != (243, "confirm")]
    write_records(tmp_path / "s", kept)
    table = search_repeats_table(gather([load_study(tmp_path / "s")]))
    assert table.lines[0].entries["number_of_searches"].text == "2"
    assert (
        "some searches are left out: albert/rte@3: fewer seeds: found seeds 242; the protocol asks for seeds 242, 243"
        in table.notes
    )


def test_a_table_that_is_not_written_is_not_referred_to(tmp_path):
    launch(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), search_repeats=2))
    kept = [row for row in read_facts(tmp_path / "s").records if (row.seed, row.phase) != (143, "confirm")]
    write_records(tmp_path / "s", kept)
    evidence = gather([load_study(tmp_path / "s")])
    assert search_repeats_table(evidence) is None
    (note,) = [note for note in evidence.limits if "from the first of 2 searches" in note]
    assert "search_repeats" not in note


def test_median_of_the_first_search_is_that_of_the_dev_table(tmp_path):
    launch(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), search_repeats=2))
    (key,) = [one.key for one in read_facts(tmp_path / "s").records if (one.seed, one.phase) == (42, "confirm")]
    assert drop.main([str(tmp_path / "s"), key, "--because", "a bad disk"]) == 0
    evidence = gather([load_study(tmp_path / "s")])
    (line,), (row,) = search_repeats_table(evidence).lines, evidence.rows
    assert line.entries["first"].values[""] == 100 * row.cells["rte"].median
    first, both = row.cells["rte"].with_dropped.scores, evidence.repeats["albert", "rte"].confirmed[0]
    assert first == both and len(both) == 2


def test_several_studies_join_their_repeats(tmp_path, study):
    other = launched_study(
        tmp_path / "other", mini_plan(methods=("albert",), tasks=("mrpc",), search_repeats=2, baseline="albert")
    )
    written = write_tables([study, other], tmp_path / "tables")
    table = next(table for table in written if table.name == "search_repeats")
    found = {line.label: line.entries["number_of_searches"].text for line in table.lines}
    assert found == {"albert/rte": "3", "pondernet/rte": "3", "albert/mrpc": "2"}
