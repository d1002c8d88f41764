"""python -m pytest tests/analysis/test_pictures.py"""

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.made_studies import arm, predicted_study, record, write_study
from helpers.places import ROOT
from helpers.swept_studies import swept_study
from matplotlib.text import Annotation

from analysis.layouts.evidence import gather
from analysis.pictures import alt_texts
from analysis.pictures.exit_pictures import exits_picture
from analysis.pictures.panels import LABEL_GAP, metric_words, spread_apart, styles_of
from analysis.pictures.picture import svg
from analysis.pictures.score_pictures import fronts_picture, layers_picture, q_picture, seeds_picture, speed_up_picture
from analysis.pictures.search_pictures import curves_picture, hyperparameters_picture, prior_picture
from analysis.pictures.study_pictures import pictures
from analysis.pictures.subject import subject_of
from analysis.report import write_report
from analysis.studies.cells import Row
from analysis.studies.joined import rows_of
from analysis.studies.load import load_study
from trainables.data.tasks import TRAINABLE_TASKS

pytestmark = pytest.mark.slow

METHODS = ["albert", "palbert", "pabee", "pondernet"]
BY_LAYERS = (layers_picture, speed_up_picture)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return swept_study(tmp_path_factory.mktemp("runs") / "swept", METHODS, ["rte", "stsb"])


@pytest.fixture(scope="module")
def subject(study):
    return subject_of(rows_of([load_study(study)]))


@pytest.fixture(scope="module")
def drawn(study):
    return pictures(gather([load_study(study)]))


def panel(picture, title):
    (found,) = [axes for axes in picture.figure.axes if axes.get_title(loc="left").startswith(title)]
    return found


def lines(axes, style, *, marked):
    """The x and y of the lines in a row's colour: those that are a mark, or those that are a line."""
    own = [line for line in axes.get_lines() if line.get_color() == style.colour]
    return [line.get_xydata() for line in own if (line.get_linestyle() == "None") == marked]


@pytest.mark.parametrize("draw", BY_LAYERS)
@pytest.mark.parametrize("method", ["palbert", "pabee"])
def test_mark_lies_on_the_curve_of_its_method(subject, draw, method):
    for axes in draw(subject).figure.axes:
        (curve,) = lines(axes, subject.styles[method], marked=False)
        (((x, y),),) = lines(axes, subject.styles[method], marked=True)
        assert [x, y] in curve.tolist()


def test_mark_is_the_median_that_the_tables_give(subject):
    axes = panel(layers_picture(subject), "RTE")
    for row in subject.rows:
        (((_, y),),) = lines(axes, subject.styles[row.label], marked=True)
        assert y == pytest.approx(100 * row.cells["rte"].median)


def test_curve_is_the_median_over_seeds_within_a_band_from_the_lowest_to_the_highest(subject):
    axes = panel(layers_picture(subject), "RTE")
    (sweep,) = subject.exits["palbert", "rte"].sweeps
    (curve,) = lines(axes, subject.styles["palbert"], marked=False)
    assert curve[:, 1].tolist() == pytest.approx(100 * np.median(sweep.scores, axis=0))
    bands = [band.get_paths()[0].vertices[:, 1] for band in axes.collections]
    assert any(set(band) >= {*(100 * sweep.scores.min(axis=0)), *(100 * sweep.scores.max(axis=0))} for band in bands)


def test_speed_up_is_layers_of_the_model_over_mean_layers_run(subject):
    axes = panel(speed_up_picture(subject), "RTE")
    (((ratio, _),),) = lines(axes, subject.styles["pabee"], marked=True)
    layers = subject.exits["pabee", "rte"].mean_layers
    assert ratio == pytest.approx(np.median(12 / layers))


def test_q_picture_shows_the_methods_that_have_a_q_against_it(subject):
    axes = panel(q_picture(subject), "RTE")
    (curve,) = lines(axes, subject.styles["palbert"], marked=False)
    assert curve[:, 0].tolist() == pytest.approx([*np.arange(1, 20) * 0.05, 1.0])
    assert lines(axes, subject.styles["pabee"], marked=False) == []
    assert [mark[0][0] for mark in lines(axes, subject.styles["palbert"], marked=True)] == [0.5]


def test_a_point_is_as_high_in_every_panel_and_the_layers_are_shared(subject):
    panels = layers_picture(subject).figure.axes
    spans = [high - low for low, high in (axes.get_ylim() for axes in panels)]
    assert len(panels) == 2 and spans == pytest.approx([spans[0]] * 2)
    assert len({axes.get_xlim() for axes in panels}) == 1


def test_curves_that_are_missing_for_want_of_predictions_are_named(tmp_path):
    folder = swept_study(tmp_path / "s", ["palbert"], ["rte"])
    next((folder / "predictions").iterdir()).unlink()
    picture = layers_picture(subject_of(rows_of([load_study(folder)])))
    assert picture.caption.endswith("Without curves, because predictions are missing: palbert/rte.")


def test_study_without_sweeps_has_no_pictures_of_them(tmp_path):
    subject = subject_of(rows_of([load_study(write_study(tmp_path, arm("palbert", "rte", [0.7] * 5)))]))
    assert [draw(subject) for draw in (speed_up_picture, q_picture, fronts_picture, exits_picture)] == [None] * 4


def test_strips_show_the_shares_of_examples_by_exit_layer_and_the_posterior_over_them(subject):
    posterior = np.full((5, 12), 1 / 12)
    place = ("palbert", "rte")
    given = replace(subject, exits={place: replace(subject.exits[place], posterior=posterior)})
    picture = exits_picture(given)
    (axes,) = picture.figure.axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(100 * subject.exits[place].shares.mean(axis=0))
    assert axes.get_lines()[0].get_ydata().tolist() == pytest.approx([100 / 12] * 12)
    assert "the posterior" in picture.caption and "its posterior is heaviest at layer 1, with 8 %" in picture.alt


def test_methods_that_never_leave_early_have_no_strip(subject):
    assert "albert" not in exits_picture(subject).alt.replace("palbert", "")


def searched(folder, scores):
    """An arm with these search scores by λ of the prior."""
    records = [
        record("palbert", "rte", score, phase="search", seed=i, trial=i, config={"prior_lambda": prior})
        for i, (prior, score) in enumerate(scores)
    ]
    return subject_of(rows_of([load_study(write_study(folder, records))]))


def test_line_over_lambda_joins_the_best_trial_of_each_value(tmp_path):
    subject = searched(tmp_path, [(0.1, 0.7), (0.1, 0.8), (0.5, 0.6), (0.25, 0.75), (0.25, 0.5)])
    ((line,),) = [lines(axes, subject.styles["palbert"], marked=False) for axes in prior_picture(subject).figure.axes]
    assert line.ravel().tolist() == pytest.approx([0.1, 80, 0.25, 75, 0.5, 60])


def test_line_over_lambda_that_was_drawn_joins_the_best_trial_of_each_fifth_of_the_range(tmp_path):
    priors = np.geomspace(0.08, 0.5, 11)
    subject = searched(tmp_path, [(prior, 0.9 - prior) for prior in priors.tolist()])
    ((line,),) = [lines(axes, subject.styles["palbert"], marked=False) for axes in prior_picture(subject).figure.axes]
    assert line[:, 0].tolist() == pytest.approx(priors[::2][:5])


def test_search_of_one_lambda_has_no_picture_over_it(tmp_path):
    assert prior_picture(searched(tmp_path, [(0.1, 0.7), (0.1, 0.8)])) is None


def test_slices_fill_the_completed_trials_and_leave_the_stopped_open(subject):
    (row,) = [row for row in subject.rows if row.method == "palbert"]
    for axes in hyperparameters_picture(subject, row).figure.axes:
        points = {line.get_markerfacecolor(): len(line.get_xdata()) for line in axes.get_lines()}
        assert points == {"none": 6, subject.styles["palbert"].colour: 18}  # 3 and 9 on each of two tasks


def test_field_with_and_without_a_number_is_drawn_as_words(tmp_path):
    scores = [
        record("palbert", "rte", 0.7, phase="search", seed=i, trial=i, config={"rate": rate})
        for i, rate in enumerate([1e-5, None])
    ]
    subject = subject_of(rows_of([load_study(write_study(tmp_path, scores))]))
    (axes,) = hyperparameters_picture(subject, subject.rows[0]).figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1e-05", "None"]


def test_slices_of_a_search_that_completed_no_trial_say_so(tmp_path):
    stopped = [
        record("palbert", "rte", 0.7, phase="search", trial=i, config={"rate": rate}, status="stopped")
        for i, rate in enumerate([1e-5, 2e-5])
    ]
    subject = subject_of(rows_of([load_study(write_study(tmp_path, stopped))]))
    assert hyperparameters_picture(subject, subject.rows[0]).alt == "rate: no search trial is completed."


def test_learning_curves_mark_the_trials_that_asha_stopped(tmp_path):
    folder = predicted_study(tmp_path, {"palbert": 0.8}, ["rte", "stsb"], num_examples=60)
    subject = subject_of(rows_of([load_study(folder)]))
    picture = curves_picture(subject, subject.rows[0])
    crosses = [line for axes in picture.figure.axes for line in axes.get_lines() if line.get_marker() == "x"]
    assert len(crosses) == 2  # one trial on each of two tasks
    assert all(line.get_xdata()[0] == 2 for line in crosses)
    assert picture.alt.count("1 of 9 trials were stopped") == 2


def test_seeds_picture_shows_every_confirm_score(study, subject):
    axes = panel(seeds_picture(subject), "RTE")
    shown = sorted(float(value) for line in axes.get_lines() for value in line.get_ydata())
    records = load_study(study).records
    scores = [100 * row.score for row in records if (row.task, row.phase) == ("rte", "confirm")]
    assert shown == pytest.approx(sorted(scores))


def test_titles_of_outer_axes_lie_within_their_picture(drawn):
    for picture in drawn:
        picture.figure.draw_without_rendering()
        for text in picture.figure.texts:
            (left, bottom), (right, top) = text.get_window_extent().get_points()
            assert left >= 0 and bottom >= 0, (picture.name, text)
            assert right <= picture.figure.bbox.width and top <= picture.figure.bbox.height, (picture.name, text)


def test_every_question_has_its_picture(drawn):
    of_methods = [f"{name}-{method}" for name in ("learning-curves", "hyperparameters") for method in METHODS]
    assert [picture.name for picture in drawn] == [
        "forest",
        "seeds",
        "fronts",
        "score-against-layers",
        "score-against-speed-up",
        "score-against-q",
        "exit-layers",
        "reliability-of-posterior",
        "reliability-of-exits",
        "score-against-budget",
        "search-progress",
        "score-against-prior",
        *of_methods,
        "importance",
    ]


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


def rows(*methods):
    return [Row(label=method, method=method.partition(" ")[0], cells={}) for method in methods]


def test_method_has_one_colour_whatever_else_a_study_holds():
    one, other = styles_of(rows("palbert", "albert")), styles_of(rows("pabee", "pondernet", "palbert"))
    assert one["palbert"] == other["palbert"]


def test_methods_are_told_apart():
    names = ["albert", "electra-small", "alectra-small", "pabee", "palbert", "pondernet"]
    styles = styles_of(rows(*names)).values()
    assert len({style.colour for style in styles}) == len({style.marker for style in styles}) == 6
    assert [style.colour for style in styles] == [styles_of(rows(name))[name].colour for name in names]


def test_rows_of_one_method_share_its_colour_and_differ_in_their_lines():
    styles = styles_of(rows("palbert (one)", "palbert (two)"))
    one, two = styles.values()
    assert one.colour == two.colour and one.line != two.line


@pytest.mark.parametrize(
    ("task", "expected"),
    [("rte", "accuracy"), ("mnli", "accuracy"), ("cola", "Matthews correlation"), ("qqp", "mean of accuracy and F1")],
)
def test_panels_say_what_a_score_is(task, expected):
    assert metric_words(task) == expected


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
    assert alt_texts.trend("palbert", [5.2, 9.1, 12.0][: len(y)], y, at="{:.1f} layers") == expected


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([70, 70], "pabee lies below palbert from 6.0 to 9.0"),
        ([80.2, 80.2], "pabee lies within 0.5 of palbert from 6.0 to 9.0"),
        ([70, 90], "pabee lies below palbert from 6.0 to 7.4 and above it from 7.6 to 9.0"),
    ],
)
def test_which_line_lies_above_in_words(y, expected):
    assert alt_texts.beside("pabee", ([6, 9], y), "palbert", ([5, 12], [80, 80])) == expected


def test_lines_without_a_common_stretch_are_not_compared():
    assert alt_texts.beside("pabee", ([6, 9], [1, 2]), "albert", ([12], [3])) == ""


def test_alt_text_says_what_is_seen_with_the_numbers_of_the_data(subject):
    alt = layers_picture(subject).alt
    palbert = subject.exits["palbert", "rte"]
    low, high = (100 * np.median(palbert.sweeps[0].scores[:, place]) for place in (0, -1))
    layers = np.median(palbert.sweeps[0].mean_layers[:, 0])
    assert f"palbert rises from {low:.1f} at {layers:.1f} layers to {high:.1f} at 12.0 layers" in alt
    assert f"albert is marked at {100 * np.median(subject.exits['albert', 'rte'].scores):.1f}, 12.0 layers" in alt
    assert re.search(r"pabee lies (above|below) palbert from \d+\.\d layers to \d+\.\d layers", alt)


def test_alt_text_of_fronts_has_the_scores_at_equal_layers(subject):
    assert re.search(
        r"at 6 layers palbert \d\d\.\d, pabee \d\d\.\d and pondernet \d\d\.\d", fronts_picture(subject).alt
    )


def test_every_picture_has_a_caption_and_another_alt_text_with_numbers(drawn):
    for picture in drawn:
        assert picture.caption.endswith(".") and picture.alt.endswith(".")
        assert picture.caption != picture.alt and re.search(r"\d", picture.alt), picture.name


def test_alt_texts_change_with_the_data_and_captions_do_not(tmp_path):
    better, worse = (
        subject_of(rows_of([load_study(swept_study(tmp_path / str(by), ["palbert"], ["rte"], better_by=by))]))
        for by in (0.0, -0.2)
    )
    for draw in (seeds_picture, fronts_picture, layers_picture, speed_up_picture, q_picture):
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
    assert written_in(folder) == here and {"report.html", "fronts.svg"} <= here.keys()


def written_in(folder):
    return {path.name: path.read_bytes() for path in (folder / "report.html", *(folder / "pictures").iterdir())}


def test_writing_a_picture_twice_gives_the_same_bytes(drawn):
    assert svg(drawn[1].figure) == svg(drawn[1].figure)


def test_files_tell_neither_date_nor_version(drawn):
    written = svg(drawn[0].figure)
    assert b"<dc:date>" not in written and b"Matplotlib v" not in written


@pytest.mark.parametrize("draw", [layers_picture, exits_picture])
def test_nine_tasks_fit_on_a_printed_page_with_text_of_seven_points(subject, draw):
    own = {label: subject.exits[label, "rte"] for label in METHODS}
    exits = {(label, task): own[label] for task in TRAINABLE_TASKS for label in METHODS}
    width, height = draw(replace(subject, exits=exits)).figure.get_size_inches()
    shrunk = min(1.0, 7.2 / width)  # to the width of A4 within margins
    assert 9 * shrunk >= 7 and height * shrunk <= 10.6
