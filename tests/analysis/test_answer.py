"""The first screen of a study, in `answer.md` and at the top of the report: pytest tests/analysis/test_answer.py"""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest
from helpers.made_studies import arm, evidence_of, predicted_study, write_study
from helpers.places import ROOT
from helpers.swept_studies import swept_study
from helpers.timed_studies import timed_study
from msgspec.structs import replace

from analysis import report
from analysis.layouts import answer as layouts_answer
from analysis.layouts.answer import answer, caveats, completeness, headline, summary_table
from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.exit_tables import exits_table, explain_difference
from analysis.layouts.model_notes import full_run_notes
from analysis.statistics.comparisons import Comparison
from analysis.statistics.exits import read_exits, read_full_run
from analysis.statistics.uncertainty import PairedTest
from analysis.studies.load import load_study
from study.facts.study_folder import predictions_file

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pdf")]

KEPT = ROOT / "benchmarks" / "results" / "real" / "cpu"


def lines_of(evidence: Evidence):
    return {line.label: line.entries for line in summary_table(evidence).lines}


@pytest.fixture(scope="module")
def kept() -> Evidence:
    return evidence_of(KEPT / "cpu-cola", KEPT / "cpu-sst2")


def test_first_screen_has_line_per_method_and_task(kept):
    table = summary_table(kept)
    assert list(table.shown) == ["score", "mean_layers", "difference", "gain", "fewest_layers"]
    texts = {label: [entry.text for entry in entries.values()] for label, entries in lines_of(kept).items()}
    assert texts["albert/cola"] == ["29.5", "6.0", "-1.5 (-4.2 to +1.2)"]
    assert texts["palbert/cola"] == ["30.9", "6.0", "runs all layers", "30.9 at 5.0"]
    assert texts["pondernet/sst2"] == ["79.7", "4.2", "-6.8 (-8.4 to -5.2)", "-3.6 (-4.0 to -3.1)", "-"]
    assert len(texts) == 8


def test_answer_of_the_kept_studies_is_whole(kept, snapshot):
    assert answer(kept).replace(str(KEPT), "KEPT") == snapshot


@pytest.fixture(scope="module")
def first_screen(study) -> str:
    """Of the report of the study of all tests."""
    return report.write_report(study).read_text().partition('id="contents"')[0]


def test_no_number_of_the_first_screen_is_an_average_over_tasks(evidence, first_screen):
    assert set(lines_of(evidence)) == {f"{label}/{cell.task}" for label, cell in evidence.cells}
    for text in (answer(evidence), first_screen):
        assert set(re.findall(r"mean over \d+ (\w+)", text)) == {"seeds"}


def test_first_screen_has_the_numbers_of_table_exits(kept):
    exits = {line.label: line.entries for line in exits_table(kept).lines}
    for label, entries in lines_of(kept).items():
        assert entries.get("gain") == exits[label].get("gain")
        assert entries["difference"].values == exits[label]["difference"].values if "difference" in entries else True


def test_fewest_layers_stand_with_their_own_score(kept):
    """The score at the beginning of the line is that of the trials, at other layers."""
    for place, saving in kept.savings.items():
        text = lines_of(kept)["/".join(place)]["fewest_layers"].text
        if saving.own is None:
            assert text == "-"
        else:
            assert text == f"{100 * np.mean(saving.own.scores):.1f} at {np.mean(saving.own.mean_layers):.1f}"


def test_layers_of_reported_score_stand_beside_it(kept):
    lines = lines_of(kept)
    assert summary_table(kept).columns["mean_layers"] == "layers of 6"
    for place, exits in kept.exits.items():
        assert lines["/".join(place)]["mean_layers"].text == f"{exits.mean_layers.mean():.1f}"


def test_unlike_depths_stand_in_the_cells(kept, monkeypatch):
    exits = dict(kept.exits)
    exits["palbert", "cola"] = dataclasses.replace(exits["palbert", "cola"], num_layers=12)
    monkeypatch.setitem(vars(kept), "exits", exits)
    assert summary_table(kept).columns["mean_layers"] == "layers"
    assert lines_of(kept)["palbert/cola"]["mean_layers"].text == "6.0 of 12"


def test_arrow_stands_on_the_tested_difference_of_means(kept):
    marks = {label: entries["difference"].mark for label, entries in lines_of(kept).items() if "difference" in entries}
    assert {label for label, mark in marks.items() if mark} == {"pondernet/cola", "pondernet/sst2"}
    for place, one in kept.differences.items():
        assert marks["/".join(place)] == one.arrow


def test_report_begins_with_the_lines_of_the_answer(evidence, first_screen):
    assert 'id="table-summary"' in first_screen
    for label, entries in lines_of(evidence).items():
        row = first_screen.partition(f">{label}</th>")[2].partition("</tr>")[0]
        shown = re.sub(r"<[^>]*>|\s", "", row).replace("−", "-")  # a value and its interval have cells of their own
        assert [entry.text for entry in entries.values() if re.sub(r"\s", "", entry.text) not in shown] == []


def test_better_and_worse_methods_are_those_that_the_tables_mark(evidence, snapshot):
    marked = [one for one in evidence.comparisons if one.arrow]
    assert {(one.row, one.other, one.task) for one in marked} == {("palbert", "albert", "rte")}
    assert headline(evidence) == snapshot


MEANS = {"albert": 10.0, "palbert": 13.0, "pabee": 10.0}


def timed(folder, *methods: str, **plan):
    records = [row for method in methods for row in arm(method, "rte", [0.7] * 5)]
    return evidence_of(timed_study(write_study(folder, records, **plan), lambda record, size: MEANS[record.method]))


def test_time_is_relative_to_the_model_without_exits_whatever_the_baseline(tmp_path):
    for baseline in ("albert", "palbert"):
        found = timed(tmp_path / baseline, "albert", "palbert", baseline=baseline)
        assert lines_of(found)["palbert/rte"]["time_ratio"].text.startswith("1.30 (1.")
        assert "time_ratio" not in lines_of(found)["albert/rte"]
        assert "divided by that of albert, which has no exits, with its 95 % interval." in summary_table(found).caption


def test_without_a_model_without_exits_there_is_no_time(tmp_path):
    found = timed(tmp_path / "s", "palbert", "pabee", baseline="palbert")
    assert "time_ratio" not in lines_of(found)["pabee/rte"]
    assert "Time:" not in summary_table(found).caption


def test_answer_and_report_say_which_method_is_faster(tmp_path):
    found = timed(tmp_path / "s", "albert", "palbert", "pabee")
    page = report.write_report(tmp_path / "s").read_text().partition('id="contents"')[0]
    for text in (answer(found), page):
        assert "palbert takes 1.30 times (95 % CI 1." in text and "as long as albert" in text
        assert "no difference in time was found between pabee and albert (ratio 1.00, 95 % CI 1.00 to 1.00" in text


def test_words_say_what_an_interval_is_corrected_for(snapshot):
    test = PairedTest(0.01, -0.01, 0.03, 0.1, 0.005, 9.0)
    once, twice = (Comparison("palbert", "albert", "rte", "baseline", test, 0.1, None, number) for number in (1, 2))
    assert [explain_difference([once]), explain_difference([once, twice])] == snapshot


def test_study_without_times_names_the_command(tmp_path):
    found = evidence_of(write_study(tmp_path / "s", arm("albert", "rte", [0.7] * 5)))
    assert f"Times were not measured. To measure them: python -m study.time {tmp_path / 's'}" in answer(found)


def test_without_any_mark_no_method_is_called_better_or_worse(tmp_path, snapshot):
    folder = predicted_study(tmp_path / "s", {"albert": 0.7, "palbert": 0.7}, ["rte"], num_examples=60)
    assert headline(evidence_of(folder)) == snapshot


def test_many_differences_among_other_methods_are_counted(kept, monkeypatch, snapshot):
    monkeypatch.setattr(layouts_answer, "MOST_PAIRS", 1)
    assert headline(kept) == snapshot


def test_no_difference_from_the_baseline_is_not_no_difference(tmp_path, snapshot):
    scores = {"albert": 0.7, "palbert": 0.7, "pabee": 0.7}
    evidence = evidence_of(predicted_study(tmp_path / "s", scores, ["rte"], num_examples=60))

    def headline_if(p_value: float) -> str:
        """With this p-value for palbert against pabee; albert differs from neither."""
        vars(evidence)["comparisons"] = [
            dataclasses.replace(one, adjusted_p_value=p_value if one.family == "others" else 0.9)
            for one in evidence.comparisons
        ]
        return headline(evidence)

    (other,) = (one for one in evidence.comparisons if one.family == "others")
    better, worse = (other.row, other.other) if other.test.difference > 0 else (other.other, other.row)
    assert headline_if(0.003) == snapshot
    assert headline_if(0.003).endswith(f" {better} is better than {worse} on RTE.")
    assert "Among the other methods" not in headline_if(0.2)


@pytest.mark.parametrize("sizes", [(0.013, 0.126), (0.5, 0.5), (0.013, 0.5)])
def test_unmarked_first_screen_tells_detectable_difference(tmp_path, sizes, snapshot):
    folder = predicted_study(tmp_path / "s", {"albert": 0.7, "palbert": 0.7}, ["rte", "cola"], num_examples=60)
    evidence = evidence_of(folder)
    compared = zip(evidence.comparisons, sizes, strict=True)
    sized = [dataclasses.replace(one, detectable_difference=size) for one, size in compared]
    vars(evidence)["comparisons"] = sized  # as if the property had been computed
    assert headline(evidence) == snapshot


@pytest.mark.parametrize(
    ("methods", "baseline"),
    [
        (["palbert"], None),
        (["albert"], "albert"),
        (["palbert", "pabee"], None),
        (["palbert", "pabee"], "albert"),
        (["albert", "palbert"], "albert"),
    ],
)
def test_untested_first_screen_says_why(tmp_path, methods, baseline, snapshot):
    records = [row for method in methods for row in arm(method, "rte", [0.7, 0.71, 0.72, 0.73, 0.74])]
    evidence = evidence_of(write_study(tmp_path, records, baseline=baseline))
    assert headline(evidence) == snapshot
    for entries in lines_of(evidence).values():
        assert entries["score"].text == "72.0" and "difference" not in entries


def test_cells_without_a_test_are_named_on_the_first_screen(tmp_path, snapshot):
    folder = predicted_study(tmp_path / "s", {"albert": 0.7, "palbert": 0.7}, ["rte", "cola"], num_examples=60)
    record = next(row for row in load_study(folder).records if row.arm == "palbert/rte" and row.phase == "confirm")
    predictions_file(folder, record.key).unlink()
    evidence = evidence_of(folder)
    assert [one.text for one in caveats(evidence) if one.text.startswith("Not tested")] == snapshot
    lines = lines_of(evidence)
    assert lines["palbert/rte"]["difference"].text == "–" and "(" in lines["palbert/cola"]["difference"].text


def test_a_method_without_any_test_is_named_on_the_first_screen(tmp_path):
    scores = {"albert": 0.7, "palbert": 0.7, "pabee": 0.7}
    folder = predicted_study(tmp_path / "s", scores, ["rte"], num_examples=60)
    for record in load_study(folder).records:
        if record.arm == "pabee/rte":
            predictions_file(folder, record.key).unlink(missing_ok=True)
    with pytest.warns(UserWarning, match="pabee/rte: 5 of 5 predictions are missing, so this cell is not tested"):
        evidence = gather([load_study(folder)])
        texts = [one.text for one in caveats(evidence)]
    assert "Not tested against albert, because predictions or seeds are missing: pabee on RTE." in texts


def test_an_unfinished_search_is_missing(tmp_path):
    records = [row for method in ("albert", "palbert") for row in arm(method, "rte", [0.7] * 5)]
    evidence = evidence_of(write_study(tmp_path, records, samples=8))
    assert completeness(evidence) == "2 of 2 cells have an unfinished search."


# Models that run all layers although they have exits.


def test_models_running_all_layers_name_exiting_setting(kept):
    """Every example of PALBERT on CoLA runs all layers with the published q."""
    assert set(kept.full_runs) == {("palbert", "cola")}
    run = kept.full_runs["palbert", "cola"]
    (sweep,) = kept.exits["palbert", "cola"].sweeps
    layers = sweep.mean_layers.mean(axis=0)
    place = np.flatnonzero(sweep.settings == run.mildest.setting).item()
    assert run.mildest.field == "q" and layers[place] == max(layers[layers < 5.995])
    assert run.mildest.score == pytest.approx(sweep.scores[:, place].mean())
    (note,) = full_run_notes(kept.full_runs)
    assert f" is q {run.mildest.setting:g}, which runs {layers[place]:.2f} " in note
    assert f"- A{note[1:]}." in answer(kept)


def test_patience_near_depth_runs_all_layers(tmp_path, snapshot):
    """With patience 11 of 12 layers, an example exits at layer 12 at the earliest, so patience 10 is the mildest."""
    evidence = evidence_of(swept_study(tmp_path / "s", ["pabee"], ["rte"]))
    (cell,), (exits,) = evidence.cells_by_place.values(), evidence.exits.values()
    assert read_full_run(cell, exits) is None
    full = dataclasses.replace(exits, mean_layers=np.full_like(exits.mean_layers, 12.0))
    run = read_full_run(cell, full)
    assert (run.mildest.field, run.mildest.setting) == ("patience", 10) and not run.exits_some
    almost = dataclasses.replace(exits, mean_layers=np.full_like(exits.mean_layers, 11.999))
    runs = (run, read_full_run(cell, almost))
    assert [full_run_notes({("pabee", "rte"): each}) for each in runs] == snapshot


def test_exits_that_cannot_fire_say_why(tmp_path, snapshot):
    evidence = evidence_of(swept_study(tmp_path / "s", ["palbert"], ["rte"]))
    (cell,), (exits,) = evidence.cells_by_place.values(), evidence.exits.values()
    full = dataclasses.replace(exits, mean_layers=np.full_like(exits.mean_layers, 12.0))

    def note_for(*largest: float) -> str:
        pairs = zip(cell.records, itertools.cycle(largest))
        records = tuple(replace(one, metrics={"largest_cdf": value}) for one, value in pairs)
        return full_run_notes({("palbert", "rte"): read_full_run(dataclasses.replace(cell, records=records), full)})[0]

    assert [note_for(0.9), note_for(0.2)] == snapshot
    assert note_for(0.1, 0.2) == note_for(0.2)


def test_models_without_exits_are_not_said_to_run_all_layers(kept):
    cell = kept.cells_by_place["albert", "cola"]
    assert read_full_run(cell, read_exits(cell)) is None
