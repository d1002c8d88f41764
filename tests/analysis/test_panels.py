"""python -m pytest tests/analysis/test_panels.py"""

from matplotlib.figure import Figure

from analysis.pictures.panels import End, Style, label_ends


def test_labels_beside_marks_at_the_same_place_do_not_overlap():
    axes = Figure().subplots()
    axes.set_xlim(1, 6)
    axes.set_ylim(0, 100)
    style = Style("black", "o", "-")
    label_ends(axes, [End(name, style, 1, score) for name, score in (("albert", 90), ("electra-small", 91))])
    axes.figure.draw_without_rendering()
    lower, upper = sorted(axes.texts, key=lambda text: text.get_window_extent().y0)
    assert lower.get_window_extent().y1 <= upper.get_window_extent().y0 + 1
