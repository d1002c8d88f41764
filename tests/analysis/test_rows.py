"""What may share a table, what is marked and what is refused: pytest tests/analysis/test_rows.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.made_studies import CONFIG, arm, read_table, record, write_plan_of, write_study
from helpers.messages import says
from msgspec.structs import replace

from analysis.layouts.search_notes import shared_start_notes
from analysis.studies.cells import make_rows
from analysis.studies.load import load_studies, load_study
from analysis.tables import IncompleteTablesError, write_tables
from study.facts.plan_file import require_plan
from study.plans.plan import First

SCORES = [0.72, 0.725, 0.73, 0.74, 0.69]
OTHER = CONFIG | {"learning_rate": 3e-5}


def dev_line(folder: Path) -> list[str]:
    return [line for line in (folder / "dev.md").read_text().splitlines() if line.startswith("| albert")]


def test_studies_join_by_arm_into_one_row_per_method(tmp_path):
    one = write_study(tmp_path / "one", arm("albert", "rte", SCORES) + arm("palbert", "rte", SCORES))
    two = write_study(tmp_path / "two", arm("palbert", "cola", SCORES))
    write_tables([one, two], tmp_path / "out")
    rows = {row["method"]: row for row in read_table(tmp_path / "out" / "dev.csv")}
    assert (rows["palbert"]["rte"], rows["palbert"]["cola"], rows["albert"]["cola"]) == ("72.5", "72.5", "")
    text = (tmp_path / "out" / "dev.md").read_text()
    assert "- study one covers albert, palbert on rte" in text and "- study two covers palbert on cola" in text


def test_arm_of_two_studies_is_one_cell(tmp_path):
    records = arm("albert", "rte", SCORES)
    one = write_study(tmp_path / "one", records[:4])
    two = write_study(tmp_path / "two", records)
    (row,) = make_rows(load_studies([one, two]))
    assert row.cells["rte"].scores == SCORES
    assert [study.name for study in row.cells["rte"].studies] == ["one", "two"]


def test_a_trial_that_failed_in_one_study_is_read_in_the_other(tmp_path):
    records = arm("albert", "rte", SCORES)
    failed = record("albert", "rte", None, seed=records[-1].seed, trial=records[-1].trial)
    one = write_study(tmp_path / "one", [*records[:-1], failed])
    two = write_study(tmp_path / "two", records)
    (row,) = make_rows(load_studies([one, two]))
    cell = row.cells["rte"]
    assert [cell.find_study(own).name for own in cell.records] == ["one"] * 4 + ["two"]
    (row,) = make_rows(load_studies([two, one]))
    assert row.cells["rte"].scores == cell.scores == SCORES


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one")])
def test_a_trial_dropped_in_one_study_is_dropped_in_their_joint_row(tmp_path, names):
    records = arm("albert", "rte", SCORES)
    write_study(tmp_path / "one", [*records[:-1], replace(records[-1], status="dropped")])
    write_study(tmp_path / "two", records)
    (row,) = make_rows(load_studies([tmp_path / name for name in names]))
    cell = row.cells["rte"]
    assert cell.scores == SCORES[:-1] and cell.with_dropped.scores == SCORES
    assert cell.shortfall.endswith("dropped seeds: 46")


def test_one_trial_with_two_results_is_refused_in_one_line(tmp_path):
    records = arm("albert", "rte", SCORES)
    one = write_study(tmp_path / "one", records)
    two = write_study(tmp_path / "two", [*records[:-1], replace(records[-1], score=0.5, metrics={"accuracy": 0.5})])
    with pytest.raises(ValueError, match=rf"{one} and {two}: score 0.69 -> 0.5") as refused:
        make_rows(load_studies([one, two]))
    assert "\n" not in str(refused.value)


def test_unlike_ranges_are_printed_as_search_takes_them(tmp_path):
    one = write_study(tmp_path / "one", arm("albert", "rte", SCORES))
    two = write_study(tmp_path / "two", arm("albert", "rte", SCORES))
    plan = require_plan(two).plan
    arms = [replace(own, space={"learning_rate": (1e-5, 3e-5)}) for own in plan.arms]
    write_plan_of(two, replace(plan, arms=tuple(arms)))
    unlike = r"albert/rte .*: learning_rate 2e-06\.\.5e-05:log -> 1e-05,3e-05; --separate gives"
    with pytest.raises(ValueError, match=unlike):
        make_rows(load_studies([one, two]))


def test_studies_of_unlike_seed_plans_are_refused(tmp_path):
    one = write_study(tmp_path / "one", arm("albert", "rte", SCORES))
    two = write_study(tmp_path / "two", arm("palbert", "rte", SCORES[:2]), seeds=2)
    with pytest.raises(ValueError, match=f"{one} .* --seeds 5, {two} .* 2; .*the same --seeds"):
        write_tables([one, two], tmp_path / "out")


def test_row_with_fewer_seeds_is_marked_and_not_strict(tmp_path):
    one = write_study(tmp_path / "one", arm("palbert", "rte", SCORES))
    two = write_study(tmp_path / "two", arm("albert", "rte", SCORES[:2]), seeds=2)
    write_tables([one, two], tmp_path / "out", separate=True)
    assert "median over at most 5 seeds" in (tmp_path / "out" / "dev.md").read_text()
    (line,) = dev_line(tmp_path / "out")
    assert "(n=2)" in line
    with pytest.raises(
        IncompleteTablesError,
        match=r"albert/rte: fewer seeds: .* 42, 43; .* 42, 43, 44",
    ):
        write_tables([one, two], tmp_path / "strict", strict=True, separate=True)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    ("task", "data", "said"),
    [
        (
            "rte",
            {"data_fingerprint": "beef"},
            ["RTE has data fingerprint f00d ", "{one} (--data hub), ", "beef in {two}"],
        ),
        (
            "sst2",
            {"data": "mini"},
            ["generated data", "{one} (--data hub) and {two} (--data mini); allowed: "],
        ),
    ],
)
def test_data_sets_share_no_column(tmp_path, separate, task, data, said):
    one = write_study(tmp_path / "one", arm("palbert", "rte", SCORES))
    two = write_study(tmp_path / "two", arm("palbert", task, SCORES), **data)
    with pytest.raises(ValueError) as refused:
        make_rows(load_studies([one, two]), separate=separate)
    assert says(str(refused.value), *(part.format(one=one, two=two) for part in said))


def test_a_record_of_other_data_than_its_arm_s_is_refused(tmp_path):
    records = [*arm("albert", "rte", SCORES), record("albert", "rte", 0.7, seed=47, data_fingerprint="beef")]
    with pytest.raises(ValueError, match=r"data_fingerprint is beef, .* f00d; "):
        load_study(write_study(tmp_path, records))


def test_a_row_of_two_backbones_is_refused(tmp_path):
    one = write_study(tmp_path / "one", arm("albert", "rte", SCORES))
    two = write_study(tmp_path / "two", arm("albert", "cola", SCORES), backbone="someone/else")
    with pytest.raises(ValueError, match=r"albert .*backbone_fingerprint .*someone/else"):
        make_rows(load_studies([one, two]))


def test_studies_of_equal_names_are_told_apart_by_their_folders(tmp_path):
    one = write_study(tmp_path / "a" / "same", arm("albert", "rte", SCORES), name="same")
    two = write_study(tmp_path / "b" / "same", arm("albert", "rte", [0.5] * 5), name="same")
    rows = make_rows(load_studies([one, two]), separate=True)
    assert [row.label for row in rows] == [f"albert ({one})", f"albert ({two})"]
    assert [row.cells["rte"].median for row in rows] == [0.725, 0.5]


def test_a_study_given_twice_is_refused(tmp_path):
    one = write_study(tmp_path / "one", arm("albert", "rte", SCORES))
    with pytest.raises(ValueError, match=r"one and .*one are the same study; "):
        load_studies([one, one])


def test_the_exits_table_has_the_layers_of_each_study(tmp_path):
    one = write_study(tmp_path / "one", arm("palbert", "rte", SCORES, mean_layers=7.5))
    two = write_study(tmp_path / "two", arm("palbert", "rte", SCORES, mean_layers=3.0), settings={"q": 0.2})
    write_tables([one, two], tmp_path / "out", separate=True)
    found = {row["arm"]: row["mean_layers"] for row in read_table(tmp_path / "out" / "exits.csv")}
    assert found == {"palbert (one)/rte": "7.50", "palbert (two)/rte": "3.00"}


def test_rows_chosen_from_unlike_numbers_of_configurations_say_so(tmp_path):
    more = [record("palbert", "rte", 0.1, phase="search", seed=2 + i, trial=1 + i, config=OTHER) for i in range(2)]
    one = write_study(tmp_path / "one", arm("palbert", "rte", SCORES) + more, samples=3)
    two = write_study(tmp_path / "two", arm("albert", "rte", SCORES))
    write_tables([one, two], tmp_path / "out")
    text = (tmp_path / "out" / "dev.md").read_text()
    assert says(text, "different numbers of configurations ", "palbert 3, albert 1")


def test_unlike_searches_of_one_total_are_told(tmp_path):
    numbers = {("palbert", "sst2"): 6, ("albert", "sst2"): 2, ("palbert", "cola"): 2, ("albert", "cola"): 6}
    records = [row for place, number in numbers.items() for row in _searched(*place, number)]
    study = write_study(tmp_path / "s", records, samples=6)
    tables = {table.name: table for table in write_tables([study], tmp_path / "out")}
    unlike = "; ".join(("palbert 6, albert 2 on SST-2", "palbert 2, albert 6 on CoLA"))
    assert any(says(note, "different numbers of configurations ", unlike) for note in tables["dev"].notes)
    seventh = next(line for line in tables["checklist"].lines if line.label == "AutoRL 7").entries
    assert (seventh["answer"].text, seventh["evidence"].text) == ("No", f"search trials: {unlike}")


def test_a_search_that_began_with_winners_of_another_study_says_so(tmp_path):
    study = write_study(tmp_path / "s", arm("palbert", "rte", SCORES) + arm("albert", "rte", SCORES))
    plan = require_plan(study).plan
    values = {"learning_rate": 3e-5}
    request = replace(plan.request, first={"palbert/rte": (First(origin="runs/other, palbert/rte", values=values),)})
    arms = tuple(replace(one, first=(values,)) if one.method == "palbert" else one for one in plan.arms)
    write_plan_of(study, replace(plan, request=request, arms=arms))
    tables = {table.name: table for table in write_tables([study], tmp_path / "out")}
    (note,) = [note for note in tables["dev"].notes if "runs/other" in note]
    assert says(note, "palbert's search on RTE ", "winners of another study")
    seventh = next(line for line in tables["checklist"].lines if line.label == "AutoRL 7").entries
    assert (seventh["answer"].text, seventh["evidence"].text) == ("No", f"search trials: palbert 1, albert 1; {note}")


def _searched(method, task, number):
    """Records of an arm with so many search trials."""
    others = [record(method, task, 0.1, phase="search", seed=i, trial=i, config=OTHER) for i in range(2, number + 1)]
    return arm(method, task, SCORES) + others


def test_shared_start_of_all_seeds_is_noted(tmp_path):
    records = arm("albert", "rte", SCORES) + arm("deebert", "rte", SCORES)
    rows = make_rows(load_studies([write_study(tmp_path / "s", records, start_from={"deebert/rte": "albert/rte"})]))
    (note,) = shared_start_notes(rows)
    assert says(note, "all seeds of deebert on RTE ", "one trained model of albert, the best of its seeds on dev, ")
    assert shared_start_notes(make_rows(load_studies([write_study(tmp_path / "t", records)]))) == []
