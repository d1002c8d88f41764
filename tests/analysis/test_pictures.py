"""python -m pytest tests/analysis/test_pictures.py"""

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.made_studies import (
    arm,
    evidence_of,
    predicted_study,
    record,
    store_predictions,
    write_records,
    write_study,
)
from helpers.places import ROOT
from helpers.swept_studies import swept_study
from helpers.timed_studies import timed_study
from msgspec.structs import replace as structs_replace

from analysis.layouts.answer import summary_table
from analysis.layouts.evidence import gather
from analysis.pictures.picture import COLOURS, DARK, PANEL_HEIGHT, RULE_COLOURS, choose_styles, inline_svg, render_image
from analysis.pictures.study_pictures import (
    differences_picture,
    exits_picture,
    layers_picture,
    pictures,
    rules_picture,
    search_picture,
    seeds_picture,
)
from analysis.pictures.time_picture import time_picture
from analysis.report import run_tables, write_report
from analysis.statistics.exits import Exits
from analysis.statistics.gains import score_coins
from analysis.statistics.times import find_scale
from analysis.studies.cells import Row
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_cell_predictions
from study.facts.study_folder import predictions_file
from trainables.data.tasks import GLUE_TASKS

pytestmark = pytest.mark.slow

METHODS = ["albert", "palbert", "pabee", "pondernet"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return swept_study(tmp_path_factory.mktemp("runs") / "swept", METHODS, ["rte", "stsb"])


@pytest.fixture(scope="module")
def evidence(study):
    return evidence_in(study)


@pytest.fixture(scope="module")
def styles(evidence):
    return choose_styles(evidence.rows)


@pytest.fixture(scope="module")
def drawn(evidence):
    return pictures(evidence)


def evidence_in(folder):
    return gather([load_study(folder)])


def given(evidence, **facts):
    """The evidence with these facts in place of what it would read."""
    changed = replace(evidence)
    vars(changed).update(facts)
    return changed


def panel(picture, title):
    (found,) = [axes for axes in picture.figure.axes if axes.get_title(loc="left").startswith(title)]
    return found


def lines(axes, style, *, marked):
    """The x and y of the lines in a row's colour: those that are a mark, or those that are a line, but for coins."""
    own = [line for line in axes.get_lines() if line.get_color() == style.colour and line.get_linewidth() > 0.5]
    return [line.get_xydata() for line in own if (line.get_linestyle() == "None") == marked]


@pytest.mark.parametrize("method", ["palbert", "pabee"])
def test_mark_lies_on_the_curve_of_its_method(evidence, method, styles):
    for axes in layers_picture(evidence).figure.axes:
        (curve,) = lines(axes, styles[method], marked=False)
        (((x, y),),) = lines(axes, styles[method], marked=True)
        assert np.isclose(curve, [x, y]).all(axis=1).any()


def test_mark_is_the_mean_that_the_first_screen_gives(evidence, styles):
    axes = panel(layers_picture(evidence), "RTE")
    for row in evidence.rows:
        (((_, y),),) = lines(axes, styles[row.label], marked=True)
        assert y == pytest.approx(100 * np.mean(row.cells["rte"].scores))


def test_mark_has_the_range_of_the_seeds(evidence):
    axes = panel(layers_picture(evidence), "RTE")
    ends = {tuple(sorted(segment[:, 1])) for lines in axes.collections for segment in segments_of(lines)}
    for label in METHODS:
        scores = 100 * evidence.exits[label, "rte"].scores
        assert any(ends_of == pytest.approx((scores.min(), scores.max())) for ends_of in ends), label


def segments_of(collection):
    return collection.get_segments() if hasattr(collection, "get_segments") else []


def test_curve_is_mean_within_band_of_seeds(evidence, styles):
    axes = panel(layers_picture(evidence), "RTE")
    (sweep,) = evidence.exits["palbert", "rte"].sweeps
    (curve,) = lines(axes, styles["palbert"], marked=False)
    assert curve[:, 1].tolist() == pytest.approx(100 * np.mean(sweep.scores, axis=0))
    bands = [band.get_paths()[0].vertices[:, 1] for band in axes.collections]
    assert any(set(band) >= {*(100 * sweep.scores.min(axis=0)), *(100 * sweep.scores.max(axis=0))} for band in bands)


def test_a_thin_line_shows_the_best_coins_of_the_same_models(evidence, styles):
    picture = layers_picture(evidence)
    axes = panel(picture, "RTE")
    thin = {line.get_color(): line.get_xydata() for line in axes.get_lines() if line.get_linewidth() == 0.5}
    assert set(thin) == {styles[row.label].colour for row in evidence.rows if row.label != "albert"}
    coins = evidence.score_coins(("palbert", "rte"), np.full((1, 5), 6.5))
    assert [6.5, pytest.approx(100 * np.mean(coins))] in thin[styles["palbert"].colour].tolist()
    assert "Thin lines show the best coin toss" in picture.caption


def test_points_share_height_and_layer_axis(evidence):
    panels = layers_picture(evidence).figure.axes
    spans = [high - low for low, high in (axes.get_ylim() for axes in panels)]
    assert len(panels) == 2 and spans == pytest.approx([spans[0]] * 2)
    assert len({axes.get_xlim() for axes in panels}) == 1


def test_curves_that_are_missing_for_want_of_predictions_are_named(tmp_path):
    folder = swept_study(tmp_path / "s", ["palbert"], ["rte"])
    next((folder / "predictions").iterdir()).unlink()
    picture = layers_picture(evidence_in(folder))
    assert picture.note == "These have no curves, because predictions are missing: palbert/rte."


def test_study_without_predictions_has_no_pictures_of_exits(tmp_path):
    evidence = evidence_in(write_study(tmp_path, arm("palbert", "rte", [0.7] * 5)))
    assert exits_picture(evidence) is None


def test_strips_show_exit_shares_and_posterior(evidence):
    posterior = np.full((5, 12), 1 / 12)
    place = ("palbert", "rte")
    exits = {place: replace(evidence.exits[place], posterior=posterior)}
    picture = exits_picture(given(evidence, exits=exits))
    (axes,) = picture.figure.axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(100 * evidence.exits[place].shares.mean(axis=0))
    assert axes.get_lines()[0].get_ydata().tolist() == pytest.approx([100 / 12] * 12)
    assert "mean posterior" in picture.caption and "its posterior is heaviest at layer 1, with 8 %" in picture.alt


def test_strips_reach_the_last_layer_of_the_deepest_models(evidence):
    deep, shallow = (evidence.exits[method, "rte"] for method in ("palbert", "pabee"))
    six = {"num_layers": 6, "mean_layers": shallow.mean_layers / 2, "shares": shallow.shares[:, :6]}
    exits = {("palbert", "rte"): deep, ("pabee", "rte"): replace(shallow, **six)}
    strips = exits_picture(given(evidence, exits=exits)).figure.axes
    assert [axes.get_xlim() for axes in strips] == [(0.4, 12.6)] * 2


def test_method_has_a_strip_on_tasks_on_which_it_runs_all_layers(tmp_path):
    methods, tasks = ("palbert", "pabee"), ("rte", "stsb")
    places = [(method, task) for method in methods for task in tasks]
    folder = write_study(tmp_path / "s", [row for place in places for row in arm(*place, [0.7] * 5)])
    shares = dict.fromkeys(places, np.full((5, 12), 1 / 12)) | {("palbert", "stsb"): np.eye(12)[[11] * 5]}
    facts = {"num_layers": 12, "scores": np.full(5, 0.7), "sweeps": (), "posterior": None}
    exits = {place: Exits(mean_layers=own @ np.arange(1, 13), shares=own, **facts) for place, own in shares.items()}
    picture = exits_picture(given(evidence_of(folder), exits=exits))
    assert [axes.get_title(loc="right") for axes in picture.figure.axes] == ["palbert", "palbert", "pabee", "pabee"]
    assert "STS-B: palbert exits 100 % of examples after layer 12" in picture.alt


def test_methods_that_never_leave_early_have_no_strip(evidence):
    assert "albert" not in exits_picture(evidence).alt.replace("palbert", "")


def test_seeds_picture_shows_every_confirm_score(evidence, study):
    axes = panel(seeds_picture(evidence), "RTE")
    shown = sorted(float(value) for line in axes.get_lines() for value in line.get_xdata())
    records = load_study(study).records
    scores = [100 * row.score for row in records if (row.task, row.phase) == ("rte", "confirm")]
    assert shown == pytest.approx(sorted(scores))


def test_dropped_runs_are_hollow_and_in_the_table_of_runs(tmp_path):
    records = arm("palbert", "rte", [0.6, 0.7, 0.8])
    records[1] = structs_replace(records[1], status="dropped")
    evidence = evidence_of(write_study(tmp_path / "s", records, seeds=3))
    picture = seeds_picture(evidence)
    marks = [line for line in panel(picture, "RTE").get_lines() if line.get_linestyle() == "None"]
    assert [line.get_xdata().tolist() for line in marks] == [pytest.approx([70, 80]), pytest.approx([60])]
    assert marks[1].get_markerfacecolor() == "white" and "Hollow marks" in picture.caption
    (table,) = run_tables(evidence)
    first, *others = [line.entries["score"].text for line in table.lines]
    assert first.startswith("60.0; dropped: ") and others == ["70.0", "80.0"]


def test_dropped_runs_count_in_curves_coins_and_marks(tmp_path):
    folder = swept_study(tmp_path / "s", ["pabee"], ["rte"])
    records = load_study(folder).records
    lowest = min((one for one in records if one.phase == "confirm"), key=lambda one: one.score)
    write_records(folder, [structs_replace(one, status="dropped") if one is lowest else one for one in records])
    evidence = evidence_in(timed_study(folder, lambda record, size: 10.0))
    place, style = ("pabee", "rte"), choose_styles(evidence.rows)["pabee"]
    stored = read_cell_predictions(evidence.cells_by_place[place].with_dropped)
    score = 100 * np.mean([one.score for one in stored])
    for picture in (layers_picture(evidence), time_picture(evidence)):
        (((_, y),),) = lines(panel(picture, "RTE"), style, marked=True)
        (curve,) = lines(panel(picture, "RTE"), style, marked=False)
        assert y == pytest.approx(score) and np.isclose(curve[:, 1], score).any()
    layers, coins = evidence.coins[place]
    assert coins[layers == 6.5].tolist() == pytest.approx(score_coins(stored, np.full((1, 5), 6.5)))
    (strip,) = exits_picture(evidence).figure.axes
    shares = [np.mean([one.exit_layers == layer for one in stored]) for layer in range(1, 13)]
    assert [bar.get_height() for bar in strip.patches] == pytest.approx([100 * share for share in shares])
    (summary,) = summary_table(evidence).lines
    assert summary.entries["score"].values[""] == pytest.approx(score)


def test_search_progress_never_falls_and_ends_at_the_best_trial(evidence, styles):
    axes = panel(search_picture(evidence), "RTE")
    for row in evidence.rows:
        (curve,) = lines(axes, styles[row.label], marked=False)
        records = [one for one in row.cells["rte"].arm_records if one.phase == "search"]
        assert (np.diff(curve[:, 1]) >= 0).all()
        assert curve[-1].tolist() == pytest.approx(
            [sum(one.gpu_seconds for one in records), 100 * max(one.selection_score for one in records)]
        )


def test_search_progress_counts_the_time_of_failed_trials(tmp_path):
    failed = record("palbert", "rte", None, seed=2, trial=1, phase="search", ended="2026-01-01T00:01:00.000000+00:00")
    evidence = evidence_of(write_study(tmp_path / "s", [failed, *arm("palbert", "rte", [0.6, 0.6])], samples=2))
    (curve,) = lines(panel(search_picture(evidence), "RTE"), choose_styles(evidence.rows)["palbert"], marked=False)
    assert curve.tolist() == [[240.0, 60.0]]


def test_search_progress_counts_the_time_of_a_failed_trial_that_ran_again(tmp_path):
    searched, *confirmed = arm("palbert", "rte", [0.6, 0.6])
    ended = "2026-01-01T00:01:00.000000+00:00"
    failed = record("palbert", "rte", None, seed=1, phase="search", gpu_seconds=50.0, ended=ended)
    evidence = evidence_of(write_study(tmp_path / "s", [failed, searched, *confirmed]))
    (curve,) = lines(panel(search_picture(evidence), "RTE"), choose_styles(evidence.rows)["palbert"], marked=False)
    assert failed.key == searched.key and curve.tolist() == [[170.0, 60.0]]


def test_search_progress_is_wall_clock_unless_all_searches_used_gpus(tmp_path):
    records = arm("palbert", "rte", [0.6, 0.6]) + arm("albert", "rte", [0.6, 0.6], gpu_seconds=0.0, wall_seconds=90.0)
    picture = search_picture(evidence_of(write_study(tmp_path / "s", records)))
    assert picture.figure.get_supxlabel() == "wall-clock seconds of search trials"
    assert "palbert begins at 60.0 and ends at 60.0 after 120 s" in picture.alt and "after 90 s" in picture.alt


def test_differences_use_layers_without_times(evidence, styles):
    picture = differences_picture(evidence)
    for task, title in (("rte", "RTE"), ("stsb", "STS-B")):
        (mark,) = [line for line in panel(picture, title).get_lines() if line.get_color() == styles["palbert"].colour]
        compared = evidence.differences["palbert", task]
        layers = np.median(evidence.exits["palbert", task].mean_layers) / 12
        assert mark.get_xydata().tolist() == [pytest.approx([layers, 100 * compared.test.difference])]
        assert (mark.get_markerfacecolor() == styles["palbert"].colour) == bool(compared.arrow)
    assert picture.figure.get_supxlabel() == "layers relative to albert"


def test_differences_stand_at_the_measured_time_with_its_interval(tmp_path):
    folder = predicted_study(tmp_path / "s", {"albert": 0.6, "palbert": 0.8}, ["rte"], num_examples=60)
    found = evidence_in(timed_study(folder, lambda record, size: {"albert": 10.0, "palbert": 13.0}[record.method]))
    picture = differences_picture(found)
    assert picture.figure.get_supxlabel() == "time per text in batches of 1, relative to albert"
    colour = choose_styles(found.rows)["palbert"].colour
    (mark,) = [line for line in panel(picture, "RTE").get_lines() if line.get_color() == colour]
    assert mark.get_xdata() == pytest.approx([1.3], abs=0.01)
    assert "Horizontal lines are 95 % intervals of the time." in picture.caption


def test_differences_use_times_of_all_measurements_and_none_of_a_busy_machine(tmp_path):
    methods = {"albert": 0.6, "palbert": 0.8, "pabee": 0.7}
    folder = predicted_study(tmp_path / "s", methods, ["rte"], num_examples=60)
    timed_study(folder, lambda record, size: 10.0, host="node-1")
    assert "in layers" not in differences_picture(evidence_in(folder)).caption
    newer = predicted_study(tmp_path / "newer", {"albert": 0.6}, ["rte"], num_examples=60)
    timed_study(newer, lambda record, size: 10.0, host="node-2")
    studies = [load_study(one) for one in (folder, newer)]
    assert "in layers" not in differences_picture(gather(studies)).caption
    busy = predicted_study(tmp_path / "busy", methods, ["rte"], num_examples=60)
    timed_study(busy, lambda record, size: 10.0, others=0.9)
    missing = "Cost is in layers, because undisturbed times of some models are missing."
    assert missing in differences_picture(evidence_in(busy)).caption


def test_score_against_time_has_curves_cuts_and_marks(tmp_path):
    folder = swept_study(tmp_path / "s", ["albert", "palbert"], ["rte"])
    means = {"albert": 10.0, "palbert": 13.0}
    found = evidence_in(timed_study(folder, lambda record, size: means[record.method]))
    picture = time_picture(found)
    colour = choose_styles(found.rows)["palbert"].colour
    lines = [line for line in panel(picture, "RTE").get_lines() if line.get_color() == colour]
    curve, cuts, mark = sorted(lines, key=lambda line: -len(line.get_xdata()))
    assert (np.diff(curve.get_xdata()) >= 0).all()
    (made,) = found.measurements
    scale = find_scale([made.read(cell, 1) for cell in found.cells_by_place.values()])
    assert 1 < scale < 1.03 and cuts.get_xdata() == pytest.approx(scale * 0.8 * 13 * np.arange(1, 13) / 12)
    assert mark.get_xdata() == pytest.approx([13.0], abs=0.1)
    assert "palbert scores " in picture.alt and " in 13 ms" in picture.alt
    assert pictures(found)[0].name == "score-against-time"
    first, *_ = write_report(folder).read_text().partition('id="contents"')
    assert "Score against time per text" in first and 'id="picture-differences"' not in first


def test_score_against_time_has_the_tasks_of_all_studies(tmp_path):
    """Each study has been measured by itself."""
    folders = [predicted_study(tmp_path / task, {"albert": 0.6}, [task], num_examples=60) for task in ("rte", "mrpc")]
    studies = [load_study(timed_study(folder, lambda record, size: 10.0)) for folder in folders]
    picture = time_picture(gather(studies))
    assert [len(panel(picture, title).get_lines()) for title in ("RTE", "MRPC")] == [1, 1]


def test_legend_takes_no_height_from_panels_and_covers_no_words(tmp_path):
    folder = swept_study(tmp_path / "s", ["albert", "pabee", "palbert"], ["rte"])
    figure = layers_picture(evidence_in(folder)).figure
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.get_position().height * figure.get_figheight() > 0.6 * PANEL_HEIGHT
    assert not any(legend.get_window_extent().overlaps(words.get_window_extent()) for words in figure.texts)


def test_score_against_time_names_methods_that_were_not_timed(tmp_path):
    timed, untimed = (
        predicted_study(tmp_path / method, {method: 0.6}, ["rte"], num_examples=60) for method in ("albert", "palbert")
    )
    studies = [load_study(timed_study(timed, lambda record, size: 10.0)), load_study(untimed)]
    note = "These are left out, because these measurements lack their models: palbert/rte."
    assert time_picture(gather(studies)).note == note


def test_score_against_time_computes_settings_that_a_seed_did_not_sweep(tmp_path):
    folder = swept_study(tmp_path / "s", ["palbert"], ["rte"])
    timed_study(folder, lambda record, size: 10.0)
    whole = time_picture(evidence_in(folder)).alt
    last = [record for record in load_study(folder).records if record.phase == "confirm"][-1]
    with np.load(predictions_file(folder, last.key)) as file:
        arrays = dict(file)
    sweep = {name: array[3:] for name, array in arrays.items() if name.startswith("sweep_")}
    store_predictions(folder, last.key, arrays | sweep)
    curve, *_ = panel(time_picture(evidence_in(folder)), "RTE").get_lines()
    assert len(curve.get_xdata()) == len(arrays["sweep_rule"]) and time_picture(evidence_in(folder)).alt == whole


def test_no_differences_without_a_baseline_or_a_test(tmp_path, evidence):
    assert differences_picture(evidence_in(write_study(tmp_path, arm("palbert", "rte", [0.7] * 5)))) is None
    assert differences_picture(given(evidence, comparisons=[])) is None


def test_titles_of_outer_axes_lie_within_their_picture(drawn):
    for picture in drawn:
        picture.figure.draw_without_rendering()
        for text in picture.figure.texts:
            (left, bottom), (right, top) = text.get_window_extent().get_points()
            assert left >= 0 and bottom >= 0, (picture.name, text)
            assert right <= picture.figure.bbox.width and top <= picture.figure.bbox.height, (picture.name, text)


def test_every_question_has_its_picture(drawn):
    names = ["differences", "seeds", "score-against-layers", "exit-rules", "exit-layers", "search-progress"]
    assert [picture.name for picture in drawn] == names


def rows(*methods):
    return [Row(label=method, method=method.partition(" ")[0], cells={}) for method in methods]


def test_method_has_one_colour_whatever_else_a_study_holds():
    one, other = choose_styles(rows("palbert", "albert")), choose_styles(rows("pabee", "pondernet", "palbert"))
    assert one["palbert"] == other["palbert"]


def test_exit_rules_have_no_colour_of_a_method():
    assert not {*COLOURS} & {*RULE_COLOURS} and len({*DARK.values()}) == len(DARK)


@pytest.mark.parametrize("colour", [*COLOURS, *RULE_COLOURS])
def test_colours_are_seen_on_the_dark_page(colour):
    assert contrast(DARK[colour], "#15181C") >= 4.5


def contrast(one, other):
    """The contrast of two colours by WCAG 2.2."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_methods_are_told_apart():
    names = ["albert", "electra-small", "alectra-small", "pabee", "palbert", "pondernet"]
    styles = choose_styles(rows(*names)).values()
    assert len({style.colour for style in styles}) == len({style.marker for style in styles}) == 6
    assert [style.colour for style in styles] == [choose_styles(rows(name))[name].colour for name in names]


def test_methods_without_a_free_colour_have_other_markers_and_lines():
    styles = choose_styles(rows(*(f"palbert:beta={number}" for number in range(12)))).values()
    assert len({(style.colour, style.marker) for style in styles}) == 12
    assert len({(style.colour, style.line) for style in styles}) == 12


def test_rows_of_one_method_share_colour():
    styles = choose_styles(rows("palbert (one)", "palbert (two)"))
    one, two = styles.values()
    assert one.colour == two.colour and one.line != two.line


def test_axes_say_their_units(drawn):
    labels = {picture.name: (picture.figure.get_supxlabel(), picture.figure.get_supylabel()) for picture in drawn}
    assert labels["score-against-layers"] == ("mean layers run per example", "score, points")
    assert labels["search-progress"] == ("GPU seconds of search trials", "best search score so far, points")
    assert labels["exit-layers"] == ("layer after which an example exits", "dev examples, %")


def test_rules_of_one_training_are_curves_of_one_panel_with_bands(evidence):
    picture = rules_picture(evidence)
    axes = panel(picture, "palbert, RTE")
    sweeps = evidence.rules["palbert", "rte"]
    bands = [band for band in axes.collections if not band.get_gid()]  # what has a name are the tips of points
    assert len(axes.get_lines()) == len(bands) == len(sweeps) == 8
    fixed = axes.get_lines()[1].get_xydata()
    assert fixed[:, 0].tolist() == list(range(1, 13))
    assert fixed[5, 1] == pytest.approx(100 * np.mean(sweeps[1].scores[:, 5]))
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.get_lines()}) == 8
    (low, least), (high, most) = (fixed[int(place)] for place in (fixed[:, 1].argmin(), fixed[:, 1].argmax()))
    assert f"palbert, fixed: from {least:.1f} at {low:.1f} layers to {most:.1f} at {high:.1f}" in picture.alt


def test_alt_text_has_numbers_of_data(evidence):
    alt = layers_picture(evidence).alt
    palbert = evidence.exits["palbert", "rte"]
    means = 100 * np.mean(palbert.sweeps[0].scores, axis=0)
    layers = np.mean(palbert.sweeps[0].mean_layers, axis=0)
    low, high = means.argmin(), means.argmax()
    start = f"{means[low]:.1f} at {layers[low]:.1f} layers"
    assert f"its means range from {start} to {means[high]:.1f} at {layers[high]:.1f}" in alt
    assert f"albert is marked at {100 * np.mean(evidence.exits['albert', 'rte'].scores):.1f}, 12.0 layers" in alt


def test_every_picture_has_a_caption_and_another_alt_text_with_numbers(drawn):
    for picture in drawn:
        assert picture.caption.endswith(".") and picture.alt.endswith(".")
        assert picture.caption != picture.alt and re.search(r"\d", picture.alt), picture.name


def test_alt_texts_change_with_the_data_and_captions_do_not(tmp_path):
    better, worse = (
        evidence_in(swept_study(tmp_path / str(by), ["palbert"], ["rte"], better_by=by)) for by in (0.0, -0.2)
    )
    for draw in (seeds_picture, layers_picture):
        assert draw(better).caption == draw(worse).caption
        assert draw(better).alt != draw(worse).alt


@pytest.mark.long
def test_same_study_gives_the_same_bytes_in_another_process(tmp_path, monkeypatch):
    folder = swept_study(tmp_path / "s", ["palbert", "pabee"], ["rte"])
    write_report(folder)
    here = written_in(folder)
    monkeypatch.setenv("PYTHONHASHSEED", "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2")
    subprocess.run([sys.executable, "-m", "analysis.report", str(folder)], check=True, cwd=ROOT)
    assert written_in(folder) == here and {"report.html", "exit-layers.svg"} <= here.keys()


def written_in(folder):
    return {path.name: path.read_bytes() for path in (folder / "report.html", *(folder / "pictures").iterdir())}


def test_writing_a_picture_twice_gives_the_same_bytes(drawn):
    for ending in ("svg", "pdf"):
        assert render_image(drawn[1].figure, ending) == render_image(drawn[1].figure, ending)


def test_each_point_tells_its_setting_seed_or_trial(evidence):
    images = {picture.name: render_image(picture.figure, "svg").decode() for picture in pictures(evidence)}
    tips = {name: re.findall(r"<use [^>]*><title>([^<]*)</title></use>", image) for name, image in images.items()}
    records = evidence.cells_by_place["palbert", "rte"].records
    assert {f"palbert, seed {one.seed}: {100 * one.score:.1f}" for one in records} <= {*tips["seeds"]}
    assert any(
        re.match(r"palbert, q 0\.5: [\d.]+ \([\d.]+ to [\d.]+\) at [\d.]+ layers", tip)
        for tip in tips["score-against-layers"]
    )
    assert any(re.match(r"palbert [+−-]", tip) for tip in tips["differences"])
    assert not any("¦" in image for image in images.values())


def test_pictures_of_a_page_share_no_name_of_a_part(drawn):
    ids = [re.findall(r' id="([^"]*)"', inline_svg(render_image(one.figure, "svg"), one.name)) for one in drawn]
    names = [name for own in ids for name in own]
    assert len(drawn) > 3 and len({*names}) == len(names)


def test_files_tell_neither_date_nor_version(drawn):
    written = render_image(drawn[0].figure, "svg") + render_image(drawn[0].figure, "pdf")
    assert not any(word in written for word in (b"<dc:date>", b"Matplotlib v", b"CreationDate", b"Producer"))


def test_pictures_have_the_width_of_a_column_or_a_page(drawn):
    assert {round(72 * picture.figure.get_figwidth()) for picture in drawn} <= {219, 455}


@pytest.mark.long
@pytest.mark.parametrize("draw", [layers_picture, exits_picture])
def test_nine_tasks_fit_on_printed_page(evidence, draw):
    own = {label: evidence.exits[label, "rte"] for label in METHODS}
    exits = {(label, task): own[label] for task in GLUE_TASKS for label in METHODS}
    width, height = draw(given(evidence, exits=exits, exits_with_dropped=exits, coins={})).figure.get_size_inches()
    shrunk = min(1.0, 7.2 / width)  # to the width of A4 within margins
    assert 9 * shrunk >= 7 and height * shrunk <= 10.6
