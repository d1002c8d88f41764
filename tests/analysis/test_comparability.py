"""python -m pytest tests/analysis/test_comparability.py"""

import numpy as np
import pytest
from helpers import made_studies
from helpers.journals import MadeJournal
from helpers.made_studies import (
    arm,
    predicted_study,
    read_table,
    record,
    rows_in,
    scores_of,
    store_predictions,
    write_study,
)
from helpers.made_studies import predictions as make_predictions
from helpers.messages import says
from msgspec.structs import replace

from analysis.layouts.evidence import gather
from analysis.statistics.comparisons import Repeats, compare, list_interim_analyses, over_tasks
from analysis.studies.load import load_study
from analysis.tables import IncompleteTablesError, write_tables

SCORES = [0.70, 0.71, 0.72, 0.73, 0.74]
OTHER = made_studies.CONFIG | {"learning_rate": 3e-5}
METHODS = {"albert": 0.6, "palbert": 0.8}


def texts_of(*folders, **options):
    """The dev table and the answer of these studies."""
    out = folders[0].parent / "out"
    write_tables([*folders], out, **options)
    return (out / "dev.md").read_text(), (out / "answer.md").read_text()


def compared(folder):
    return gather([load_study(folder)]).comparisons


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"epochs": 3}, ["best of 3 epochs"]),
        pytest.param({"select": "last"}, ["the last epoch"], marks=pytest.mark.long),
        pytest.param({"stop_after": 5}, ["at most 25 epochs, ", "after 5 epochs"], marks=pytest.mark.long),
    ],
)
def test_rows_whose_epochs_dev_chose_unalike_are_not_tested(tmp_path, monkeypatch, own, words):
    monkeypatch.setitem(made_studies.SETTINGS, "palbert", own)
    study = predicted_study(tmp_path / "s", METHODS, ["rte", "cola"], num_examples=60)
    assert compared(study) == []
    note = ["ot tested against each other ", "RTE and CoLA, ", "by different rules ", "--selection holdout"]
    for text in texts_of(study):
        assert says(text, *note, "albert: the best of 25 epochs; ", "palbert: ", *words)
        assert "↑ |" not in text


def test_unlike_epochs_are_tested_where_a_holdout_chose_them(tmp_path, monkeypatch):
    monkeypatch.setitem(made_studies.SETTINGS, "palbert", {"epochs": 3})
    study = predicted_study(tmp_path / "s", METHODS, ["rte"], protocol={"selection": "holdout"})
    assert [one.holds for one in compared(study)] == [True]


def test_caption_says_of_each_row_what_dev_chose(tmp_path, monkeypatch):
    monkeypatch.setitem(made_studies.SETTINGS, "palbert", {"select": "last"})
    dev, _ = texts_of(predicted_study(tmp_path / "s", METHODS, ["rte"]))
    albert, palbert = "albert: the configuration and ", "palbert: the configuration, "
    assert says(dev, "selection dev (", "dev set", albert, "25 epochs; ", palbert, "the last epoch)")


def test_caption_says_nothing_of_dev_where_nothing_was_chosen(tmp_path, monkeypatch):
    for method in METHODS:
        monkeypatch.setitem(made_studies.SETTINGS, method, {"select": "last"})
    monkeypatch.setattr(made_studies, "SPACE", {})
    dev, _ = texts_of(predicted_study(tmp_path / "s", METHODS, ["rte"]))
    assert says(dev, "selection dev (nothing was chosen", "last epoch); no search; profile paper;")
    assert "dev set that is reported" not in dev


def test_unlike_backbones_are_named_on_their_rows_and_not_tested(tmp_path):
    one = predicted_study(tmp_path / "one", {"albert": 0.6}, ["rte"], num_examples=60)
    two = predicted_study(tmp_path / "two", {"palbert": 0.8}, ["rte"], backbone="someone/else", num_examples=60)
    dev, answer = texts_of(one, two)
    note = ["not tested against each other ", "RTE, ", "backbones differ ", 'test_across = "backbones"']
    assert says(dev, *note, "albert: albert/albert-base-v2; palbert: someone/else")
    assert "No method is tested against albert" in answer
    lines = {row["method"]: row["backbone"] for row in read_table(tmp_path / "out" / "dev.csv")}
    assert lines["albert"] == "albert/albert-base-v2" and lines["palbert"] == "someone/else"
    for folder in (one, two):
        made_studies.write_plan_of(folder, plan := plan_across(folder))
        assert plan.request.test_across == "backbones"
    dev, _ = texts_of(one, two)
    assert "↑ |" in dev and "not tested against each other" not in dev


def plan_across(folder):
    (row,) = rows_in(folder)
    cell = row.cells["rte"]
    return made_studies.plan_of([row.method], ["rte"], backbone=cell.arm.backbone, test_across="backbones")


def test_rows_of_one_backbone_have_no_column_for_it(tmp_path):
    texts_of(predicted_study(tmp_path / "s", METHODS, ["rte"]))
    assert "backbone" not in (tmp_path / "out" / "dev.csv").read_text().splitlines()[0]


def test_a_winner_replaced_with_its_confirm_scores_known_is_told(tmp_path):
    former = [record("palbert", "rte", 0.6, config=OTHER, seed=42 + i, trial=i) for i in range(3)]
    search = record("palbert", "rte", 0.6, phase="search", seed=9, trial=1, config=OTHER)
    study = write_study(tmp_path / "s", [*former, search, *arm("palbert", "rte", SCORES)], samples=2)
    note = ["inner was replaced ", "confirm scores", "palbert on RTE (3 scores, "]
    assert all(says(text, *note) for text in texts_of(study))


def test_unfinished_search_is_told_and_refused_if_strict(tmp_path):
    study = write_study(tmp_path / "s", arm("palbert", "rte", SCORES), samples=4)
    with pytest.raises(IncompleteTablesError, match="palbert/rte: 1 of 4 search trials"):
        texts_of(study, strict=True)


def test_search_no_better_than_constant_is_told(tmp_path):
    study = predicted_study(tmp_path / "s", {"albert": 0.3, "palbert": 0.8}, ["rte"])
    for text in texts_of(study):
        assert says(text, "o search trial ", "constant answer: ", "albert on RTE (constant: ")


def test_unlike_numbers_of_searched_fields_are_told(tmp_path, monkeypatch):
    one = write_study(tmp_path / "one", arm("palbert", "rte", SCORES))
    monkeypatch.setattr(made_studies, "SPACE", {})
    two = write_study(tmp_path / "two", arm("albert", "rte", SCORES))
    assert says(texts_of(one, two)[0], "different numbers of fields: ", "palbert 1, albert 0")


@pytest.mark.long
@pytest.mark.slow
def test_a_table_seen_with_fewer_seeds_pays_for_the_look(tmp_path):
    methods = {"albert": 0.6, "palbert": 0.64}
    tasks = ["rte", "cola", "mrpc"]
    once = predicted_study(tmp_path / "once", methods, tasks, num_examples=60, seeds=6)
    twice = predicted_study(tmp_path / "twice", methods, tasks, num_examples=60, seeds=6, seen_with={"seeds": 5})
    for first, second in zip(compared(once), compared(twice), strict=True):
        assert second.adjusted_p_value == pytest.approx(min(1.0, 2 * first.adjusted_p_value))
        assert second.test.low < first.test.low < first.test.high < second.test.high
        assert second.detectable_difference > first.detectable_difference
    means = [over_tasks(compared(study))["palbert"] for study in (once, twice)]
    assert means[1].adjusted_p_value == pytest.approx(min(1.0, 2 * means[0].adjusted_p_value))
    assert means[1].test.low < means[0].test.low
    assert "esults were analysed with" not in texts_of(once)[0]
    note = ["esults were analysed with ", "5 seeds, then 6 seeds; ", "multiplied by 2"]
    assert all(says(text, *note) for text in texts_of(twice))


def test_a_table_seen_with_fewer_tasks_pays_for_the_look(tmp_path):
    methods, tasks = {"albert": 0.6, "palbert": 0.64}, ["rte", "cola"]
    once = predicted_study(tmp_path / "once", methods, tasks, num_examples=60)
    twice = predicted_study(tmp_path / "twice", methods, tasks, num_examples=60, seen_with={"tasks": ("rte",)})
    for first, second in zip(compared(once), compared(twice), strict=True):
        assert second.adjusted_p_value == pytest.approx(min(1.0, 2 * first.adjusted_p_value))
        assert second.test.low < first.test.low
    note = ["esults were analysed with ", "RTE, then RTE and CoLA; ", "multiplied by 2"]
    assert all(says(text, *note) for text in texts_of(twice))


@pytest.mark.parametrize(
    ("former", "words"),
    [
        ({"methods": ("albert",)}, "albert, baseline albert"),
        ({"baseline": "palbert"}, "albert and palbert, baseline palbert"),
    ],
)
def test_other_methods_and_baselines_of_earlier_tables_are_named(tmp_path, former, words):
    study = predicted_study(tmp_path / "s", METHODS, ["rte"], num_examples=60, seen_with=former)
    assert [one.num_analyses for one in compared(study)] == [1]
    note = ["esults were analysed earlier ", f"{words}; ", "not corrected"]
    assert all(says(text, *note) for text in texts_of(study))


@pytest.mark.parametrize("is_replaced", [True, False])
def test_more_search_trials_are_a_look_if_they_replaced_a_winner(tmp_path, is_replaced):
    plan = made_studies.plan_of(["palbert"], ["rte"], samples=2)
    made_studies.write_plan_of(tmp_path, replace(plan, request=replace(plan.request, samples=2)))
    journal = MadeJournal(tmp_path)
    journal.begin(plan=plan)
    former = [record("palbert", "rte", 0.6, config=OTHER, seed=42 + i, trial=i) for i in range(3)]
    for row in former * is_replaced:
        journal.take(row)
    journal.end()
    for row in arm("palbert", "rte", SCORES):
        journal.take(row)
    journal.end()
    assert list_interim_analyses(rows_in(tmp_path)) == (
        ["1 search trial", "2 search trials"] if is_replaced else ["5 seeds"]
    )


def test_caption_of_a_holdout_does_not_count_looks_at_dev(tmp_path):
    held_out = {"protocol": {"selection": "holdout"}, "num_examples": 60}
    dev, _ = texts_of(predicted_study(tmp_path / "s", METHODS, ["rte"], **held_out, seen_with={"seeds": 3}))
    assert says(dev, "selection holdout (", "slice of train, not on dev: ", "the configuration")


def test_the_same_number_of_seeds_seen_again_is_one_look(tmp_path):
    study = predicted_study(tmp_path / "s", METHODS, ["rte"], seen_with={"seeds": 5})
    assert "esults were analysed with" not in texts_of(study)[0]


def test_two_seeds_with_the_same_predictions_are_an_error(tmp_path):
    arrays = make_predictions("albert", "rte", 0.6, seed=42, num_examples=400, salt=0)
    rows = [replace(row, **scores_of("rte", arrays)) for row in arm("albert", "rte", [0.0, 0.0])]
    for row in rows[1:]:
        store_predictions(tmp_path / "s", row.key, arrays)
    study = write_study(tmp_path / "s", rows)
    with pytest.raises(ValueError, match=r"albert/rte: seeds 42 and 43 .* same predictions"):
        write_tables([study], tmp_path / "out")


def test_searches_repeated_after_a_look_pay_for_it(tmp_path):
    """With 2 searches, then 3; a look at single searches is none at the repeats."""
    plan = made_studies.plan_of([*METHODS], ["rte"])
    made_studies.write_plan_of(tmp_path, plan)
    journal = MadeJournal(tmp_path)
    for launch, number in enumerate((1, 2, 3), start=1):
        journal.begin(launch, plan=replace(plan, request=replace(plan.request, search_repeats=number)))
        journal.end(launch)
    rows = rows_in(tmp_path)
    assert list_interim_analyses(rows, at_searches=True) == ["2 searches of 5 seeds", "3 searches of 5 seeds"]
    assert list_interim_analyses(rows) == ["5 seeds"]
    one, other = (Repeats([0.6, 0.62], resampled, "examples", [[0.6], [0.62]]) for resampled in np.zeros((2, 10, 2)))
    found = {("albert", "rte"): one, ("palbert", "rte"): other}
    once, twice = (compare(found, "albert", num_analyses=number)[0] for number in (1, 2))
    assert twice.test.low < once.test.low and twice.adjusted_p_value >= once.adjusted_p_value
    assert compare(found, "albert", are_comparable=lambda *_: False) == []
