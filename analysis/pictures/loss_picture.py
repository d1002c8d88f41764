"""The picture of the parts of the training loss. It answers how each arm trained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from analysis.layouts.evidence import Evidence
from analysis.pictures.picture import STYLE, Picture, add_legend, choose_rule_style, lay_out, make_panels
from analysis.statistics.samples import Place
from analysis.studies.epochs import LossPoint, list_loss_points, read_epochs
from trainables.data.tasks import TASKS

Curve = Mapping[float, list[float]]  # epochs done -> values of the trials


@matplotlib.rc_context(STYLE)
def losses_picture(evidence: Evidence) -> Picture | None:
    """Draw a panel for each method and task whose loss has parts, with a curve for each part.

    Return None if there is no such arm.
    """
    points = _read_points(evidence)
    curves = {
        place: own
        for place, cell in evidence.cells_by_place.items()
        if len(own := _collect_curves([points[record.key] for record in cell.records if record.key in points])) > 1
    }
    if not curves:
        return None
    places = sorted(curves, key=lambda place: [*TASKS].index(place[1]))
    titles = {(label, task): f"{label}, {TASKS[task].title}" for label, task in places}
    figure, panels = make_panels(titles, xlabel="epochs trained", ylabel="mean over training steps")
    styles = {name: choose_rule_style(number) for number, name in enumerate(_name_parts(curves))}
    trends: dict[str, list[str]] = {task: [] for _, task in places}
    for (label, task), axes in panels.items():
        ends = []
        for name, curve in curves[label, task].items():
            epochs, values = np.array([*curve]), [*curve.values()]
            means = np.array([np.mean(own) for own in values])
            axes.fill_between(
                epochs, [*map(min, values)], [*map(max, values)], color=styles[name].colour, alpha=0.12, lw=0
            )
            axes.plot(epochs, means, lw=1.3, **styles[name].stroke)
            ends.append(f"{name} from {means[0]:.3g} to {means[-1]:.3g}")
        trends[task].append(f"{label}: {', '.join(ends)}")
        axes.set_xlim(left=0)
    legend = add_legend(figure, styles)
    caption = (
        "Lines show the loss that training minimises and the parts that the method reports, as the mean over the "
        "confirm trials. Bands show the range over the trials. Each point is a mean over the training steps since the "
        "point before. A line ends with the shortest trial. Each panel has its own scale."
    )
    return lay_out("losses", "Parts of the loss in training", caption, trends, figure, legend=legend)


def _read_points(evidence: Evidence) -> dict[str, list[LossPoint]]:
    """Read the points of each trial's loss curves, by the trial's key."""
    points = defaultdict[str, list[LossPoint]](list)
    for study in evidence.studies:
        for event in read_epochs(study):
            points[event.key] += list_loss_points(event)
    return {key: own for key, own in points.items() if own}


def _collect_curves(trials: Sequence[Sequence[LossPoint]]) -> dict[str, Curve]:
    """Collect the values of each part at the points that all trials have; without parts, return {}."""
    found: dict[str, dict[float, list[float]]] = {}
    for point in (point for points in trials for point in points):
        for name, value in point.means.items():
            found.setdefault(name, {}).setdefault(point.epochs, []).append(value)
    curves = {
        name: {at: own for at, own in sorted(curve.items()) if len(own) == len(trials) and np.isfinite(own).all()}
        for name, curve in found.items()
    }
    return {name: curve for name, curve in curves.items() if curve}


def _name_parts(curves: Mapping[Place, Mapping[str, Curve]]) -> list[str]:
    """List the names of all parts; `loss`, their sum, is first."""
    names = dict.fromkeys(name for own in curves.values() for name in own)
    return sorted(names, key=lambda name: name != "loss")
