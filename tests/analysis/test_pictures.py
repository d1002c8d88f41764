"""python -m pytest tests/analysis/test_pictures.py"""

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.made_studies import arm, write_study
from helpers.places import ROOT
from helpers.swept_studies import swept_study
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from analysis.layouts.evidence import gather
from analysis.pictures.picture import (
    LABEL_GAP,
    End,
    Style,
    choose_styles,
    compare_lines,
    describe_trend,
    label_ends,
    spread_apart,
    svg,
)
from analysis.pictures.study_pictures import (
    calibration_picture,
    exits_picture,
    forest_picture,
    layers_picture,
    pictures,
    search_picture,
    seeds_picture,
)
from analysis.report import write_report
from analysis.statistics.comparisons import by_task, marks
from analysis.studies.cells import Row
from analysis.studies.load import load_study
from trainables.data.tasks import TRAINABLE_TASKS

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
    """The x and y of the lines in a row's colour: those that are a mark, or those that are a line."""
    own = [line for line in axes.get_lines() if line.get_color() == style.colour]
    return [line.get_xydata() for line in own if (line.get_linestyle() == "None") == marked]


@pytest.mark.parametrize("method", ["palbert", "pabee"])
def test_mark_lies_on_the_curve_of_its_method(evidence, method, styles):
    for axes in layers_picture(evidence).figure.axes:
        (curve,) = lines(axes, styles[method], marked=False)
        (((x, y),),) = lines(axes, styles[method], marked=True)
        assert [x, y] in curve.tolist()


def test_mark_is_the_median_that_the_tables_give(evidence, styles):
    axes = panel(layers_picture(evidence), "RTE")
    for row in evidence.rows:
        (((_, y),),) = lines(axes, styles[row.label], marked=True)
        assert y == pytest.approx(100 * row.cells["rte"].median)


def test_curve_is_the_median_over_seeds_within_a_band_from_the_lowest_to_the_highest(evidence, styles):
    axes = panel(layers_picture(evidence), "RTE")
    (sweep,) = evidence.exits["palbert", "rte"].sweeps
    (curve,) = lines(axes, styles["palbert"], marked=False)
    assert curve[:, 1].tolist() == pytest.approx(100 * np.median(sweep.scores, axis=0))
    bands = [band.get_paths()[0].vertices[:, 1] for band in axes.collections]
    assert any(set(band) >= {*(100 * sweep.scores.min(axis=0)), *(100 * sweep.scores.max(axis=0))} for band in bands)


def test_a_point_is_as_high_in_every_panel_and_the_layers_are_shared(evidence):
    panels = layers_picture(evidence).figure.axes
    spans = [high - low for low, high in (axes.get_ylim() for axes in panels)]
    assert len(panels) == 2 and spans == pytest.approx([spans[0]] * 2)
    assert len({axes.get_xlim() for axes in panels}) == 1


def test_curves_that_are_missing_for_want_of_predictions_are_named(tmp_path):
    folder = swept_study(tmp_path / "s", ["palbert"], ["rte"])
    next((folder / "predictions").iterdir()).unlink()
    picture = layers_picture(evidence_in(folder))
    assert picture.caption.endswith("Without curves, because predictions are missing: palbert/rte.")


def test_study_without_predictions_has_no_pictures_of_exits(tmp_path):
    evidence = evidence_in(write_study(tmp_path, arm("palbert", "rte", [0.7] * 5)))
    assert [draw(evidence) for draw in (exits_picture, calibration_picture)] == [None] * 2


def test_strips_show_the_shares_of_examples_by_exit_layer_and_the_posterior_over_them(evidence):
    posterior = np.full((5, 12), 1 / 12)
    place = ("palbert", "rte")
    exits = {place: replace(evidence.exits[place], posterior=posterior)}
    picture = exits_picture(given(evidence, exits=exits))
    (axes,) = picture.figure.axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(100 * evidence.exits[place].shares.mean(axis=0))
    assert axes.get_lines()[0].get_ydata().tolist() == pytest.approx([100 / 12] * 12)
    assert "the posterior" in picture.caption and "its posterior is heaviest at layer 1, with 8 %" in picture.alt


def test_methods_that_never_leave_early_have_no_strip(evidence):
    assert "albert" not in exits_picture(evidence).alt.replace("palbert", "")


def test_seeds_picture_shows_every_confirm_score(evidence, study):
    axes = panel(seeds_picture(evidence), "RTE")
    shown = sorted(float(value) for line in axes.get_lines() for value in line.get_ydata())
    records = load_study(study).records
    scores = [100 * row.score for row in records if (row.task, row.phase) == ("rte", "confirm")]
    assert shown == pytest.approx(sorted(scores))


def test_calibration_has_a_mark_per_layer_that_examples_leave_at(evidence, styles):
    picture = calibration_picture(evidence)
    axes = panel(picture, "RTE")
    (curve,) = [line for line in axes.get_lines() if line.get_color() == styles["pabee"].colour]
    shares = evidence.exits["pabee", "rte"].shares.sum(axis=0)  # of five seeds with 200 examples each
    assert len(curve.get_xdata()) == sum(200 * shares >= 20)
    assert "pabee" in picture.alt and not re.search(r"\balbert", picture.alt)  # all of albert's leave at one layer


def test_search_progress_never_falls_and_ends_at_the_best_trial(evidence, styles):
    axes = panel(search_picture(evidence), "RTE")
    for row in evidence.rows:
        (curve,) = lines(axes, styles[row.label], marked=False)
        records = [one for one in row.cells["rte"].arm_records if one.phase == "search"]
        assert (np.diff(curve[:, 1]) >= 0).all()
        assert curve[-1].tolist() == pytest.approx(
            [sum(one.gpu_seconds for one in records), 100 * max(one.selection_score for one in records)]
        )


def test_forest_has_the_tests_of_the_comparisons_and_fills_what_is_marked(evidence, styles):
    (axes,) = forest_picture(evidence).figure.axes
    style = styles["pondernet"]
    drawn = {
        round(float(line.get_xdata()[0]), 6): line.get_markerfacecolor() == style.colour
        for line in axes.get_lines()
        if line.get_color() == style.colour and line.get_marker() == style.marker and len(line.get_xdata())
    }
    tests = by_task(evidence.comparisons, "pondernet", "albert")
    arrows = marks(evidence.rows, evidence.comparisons)
    assert drawn == {round(100 * test.difference, 6): ("pondernet", task) in arrows for task, test in tests.items()}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["RTE", "STS-B", "mean"]


def test_no_forest_without_a_baseline_or_a_test(tmp_path, evidence):
    assert forest_picture(evidence_in(write_study(tmp_path, arm("palbert", "rte", [0.7] * 5)))) is None
    assert forest_picture(given(evidence, comparisons=[])) is None


def test_the_mean_is_of_methods_that_were_tested_on_all_tasks(evidence):
    comparisons = [one for one in evidence.comparisons if (one.other, one.task) != ("pabee", "rte")]
    alt = forest_picture(given(evidence, comparisons=comparisons)).alt
    texts = {text.partition(":")[0]: text for text in alt.split(". ")}
    assert "mean" in texts["pondernet"] and "mean" not in texts["pabee"]


def test_titles_of_outer_axes_lie_within_their_picture(drawn):
    for picture in drawn:
        picture.figure.draw_without_rendering()
        for text in picture.figure.texts:
            (left, bottom), (right, top) = text.get_window_extent().get_points()
            assert left >= 0 and bottom >= 0, (picture.name, text)
            assert right <= picture.figure.bbox.width and top <= picture.figure.bbox.height, (picture.name, text)


def test_every_question_has_its_picture(drawn):
    names = ["forest", "seeds", "score-against-layers", "exit-layers", "calibration", "search-progress"]
    assert [picture.name for picture in drawn] == names


def test_labels_lie_within_the_picture_and_not_on_each_other(drawn):
    for picture in drawn:
        figure = picture.figure
        for axes in figure.axes:
            labels = [text for text in axes.texts if isinstance(text, Annotation) and text.xycoords == "axes fraction"]
            boxes = [label.get_window_extent() for label in labels]
            assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes), picture.name
            middles = sorted((box.y0 + box.y1) / 2 for box in boxes)
            gaps = np.diff(middles) / axes.bbox.height
            assert (gaps > 0.99 * LABEL_GAP).all(), picture.name


@pytest.mark.parametrize(
    ("heights", "expected"),
    [
        ([0.2, 0.5], [0.2, 0.5]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.3, 0.34, 0.5], [0.27, 0.37, 0.5]),
        ([0.5, 0.52, 0.58], [0.4333, 0.5333, 0.6333]),
        ([-3.0, 0.0], [0.0, 0.1]),
        ([1.0, 7.0], [0.86, 0.96]),
    ],
)
def test_labels_are_moved_apart_as_little_as_they_must(heights, expected):
    assert spread_apart(heights, gap=0.1) == pytest.approx(expected, abs=1e-3)


def test_labels_beside_marks_at_the_same_place_do_not_overlap():
    axes = Figure().subplots()
    axes.set_xlim(1, 6)
    axes.set_ylim(0, 100)
    style = Style("black", "o", "-")
    label_ends(axes, [End(name, style, 1, score) for name, score in (("albert", 90), ("electra-small", 91))])
    axes.figure.draw_without_rendering()
    lower, upper = sorted(axes.texts, key=lambda text: text.get_window_extent().y0)
    assert lower.get_window_extent().y1 <= upper.get_window_extent().y0 + 1


def rows(*methods):
    return [Row(label=method, method=method.partition(" ")[0], cells={}) for method in methods]


def test_method_has_one_colour_whatever_else_a_study_holds():
    one, other = choose_styles(rows("palbert", "albert")), choose_styles(rows("pabee", "pondernet", "palbert"))
    assert one["palbert"] == other["palbert"]


def test_methods_are_told_apart():
    names = ["albert", "electra-small", "alectra-small", "pabee", "palbert", "pondernet"]
    styles = choose_styles(rows(*names)).values()
    assert len({style.colour for style in styles}) == len({style.marker for style in styles}) == 6
    assert [style.colour for style in styles] == [choose_styles(rows(name))[name].colour for name in names]


def test_rows_of_one_method_share_its_colour_and_differ_in_their_lines():
    styles = choose_styles(rows("palbert (one)", "palbert (two)"))
    one, two = styles.values()
    assert one.colour == two.colour and one.line != two.line


def test_axes_say_their_units(drawn):
    labels = {picture.name: (picture.figure.get_supxlabel(), picture.figure.get_supylabel()) for picture in drawn}
    assert labels["score-against-layers"] == ("mean layers run per example", "score, points")
    assert labels["search-progress"] == ("GPU seconds of search trials", "best search score so far, points")
    assert labels["exit-layers"] == ("layer after which an example leaves", "dev examples, %")


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([74.0, 78.3], "palbert rises from 74.0 at 5.2 layers to 78.3 at 9.1 layers"),
        ([78.3, 74.0], "palbert falls from 78.3 at 5.2 layers to 74.0 at 9.1 layers"),
        ([78.3, 78.3], "palbert stays at 78.3 from 5.2 layers to 9.1 layers"),
        ([78.3, 78.1], "palbert stays between 78.1 and 78.3 from 5.2 layers to 9.1 layers"),
        (
            [74.0, 78.3, 77.0],
            "palbert rises from 74.0 at 5.2 layers to 78.3 at 9.1 layers, then falls to 77.0 at 12.0 layers",
        ),
        (
            [78.0, 70.0, 77.0],
            "palbert falls from 78.0 at 5.2 layers to 70.0 at 9.1 layers, then rises to 77.0 at 12.0 layers",
        ),
    ],
)
def test_trend_in_words(y, expected):
    assert describe_trend("palbert", [5.2, 9.1, 12.0][: len(y)], y, at="{:.1f} layers") == expected


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([70, 70], "pabee lies below palbert from 6.0 to 9.0"),
        ([80.2, 80.2], "pabee lies within 0.5 of palbert from 6.0 to 9.0"),
        ([70, 90], "pabee lies below palbert from 6.0 to 7.4 and above it from 7.6 to 9.0"),
    ],
)
def test_which_line_lies_above_in_words(y, expected):
    assert compare_lines("pabee", ([6, 9], y), "palbert", ([5, 12], [80, 80])) == expected


def test_lines_without_a_common_stretch_are_not_compared():
    assert compare_lines("pabee", ([6, 9], [1, 2]), "albert", ([12], [3])) == ""


def test_alt_text_says_what_is_seen_with_the_numbers_of_the_data(evidence):
    alt = layers_picture(evidence).alt
    palbert = evidence.exits["palbert", "rte"]
    low, high = (100 * np.median(palbert.sweeps[0].scores[:, place]) for place in (0, -1))
    layers = np.median(palbert.sweeps[0].mean_layers[:, 0])
    assert f"palbert rises from {low:.1f} at {layers:.1f} layers to {high:.1f} at 12.0 layers" in alt
    assert f"albert is marked at {100 * np.median(evidence.exits['albert', 'rte'].scores):.1f}, 12.0 layers" in alt
    assert re.search(r"pabee lies (above|below) palbert from \d+\.\d layers to \d+\.\d layers", alt)


def test_every_picture_has_a_caption_and_another_alt_text_with_numbers(drawn):
    for picture in drawn:
        assert picture.caption.endswith(".") and picture.alt.endswith(".")
        assert picture.caption != picture.alt and re.search(r"\d", picture.alt), picture.name


def test_alt_texts_change_with_the_data_and_captions_do_not(tmp_path):
    better, worse = (
        evidence_in(swept_study(tmp_path / str(by), ["palbert"], ["rte"], better_by=by)) for by in (0.0, -0.2)
    )
    for draw in (seeds_picture, layers_picture, calibration_picture):
        assert draw(better).caption == draw(worse).caption
        assert draw(better).alt != draw(worse).alt


@pytest.mark.long
@pytest.mark.slow
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
    assert svg(drawn[1].figure) == svg(drawn[1].figure)


def test_files_tell_neither_date_nor_version(drawn):
    written = svg(drawn[0].figure)
    assert b"<dc:date>" not in written and b"Matplotlib v" not in written


@pytest.mark.parametrize("draw", [layers_picture, exits_picture])
def test_nine_tasks_fit_on_a_printed_page_with_text_of_seven_points(evidence, draw):
    own = {label: evidence.exits[label, "rte"] for label in METHODS}
    exits = {(label, task): own[label] for task in TRAINABLE_TASKS for label in METHODS}
    width, height = draw(given(evidence, exits=exits)).figure.get_size_inches()
    shrunk = min(1.0, 7.2 / width)  # to the width of A4 within margins
    assert 9 * shrunk >= 7 and height * shrunk <= 10.6
