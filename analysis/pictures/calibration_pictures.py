"""Reliability diagrams: what exits claim against what they achieve."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib
import numpy as np

from analysis.pictures import alt_texts
from analysis.pictures.panels import End, label_ends, task_panels
from analysis.pictures.picture import STYLE, Picture, finished
from analysis.pictures.subject import Subject
from analysis.statistics.calibration import Calibration, LayerCalibration, calibration
from analysis.studies.cell_sources import predictions_of
from trainables.data.tasks import TASKS

FEWEST_EXAMPLES = 20  # of a layer; with fewer the share says nothing

Layers = tuple[LayerCalibration, ...]
Found = dict[tuple[str, str], Calibration]


def calibrations(subject: Subject) -> Found:
    """By row and task, where predictions of classes are stored.

    Raises:
        ValueError: a predictions file is broken.
    """
    read = {(label, cell.task): calibration(predictions_of(cell)) for label, cell in subject.cells}
    return {place: own for place, own in read.items() if own is not None}


@matplotlib.rc_context(STYLE)
def posterior_picture(subject: Subject, found: Found) -> Picture | None:
    """How sure Λ is at each layer that its answer will do, against how often it does."""
    return _reliability(
        "reliability-of-posterior",
        "What the posterior claims",
        subject,
        found,
        lambda own: own.posterior,
        xlabel="posterior: probability of leaving by this layer, %",
        ylabel="answers that are the last layer's, %",
        caption=(
            "One mark per layer, from the first to the last but one, all seeds together. On the grey line the "
            "posterior is as sure as it should be, below it too sure."
        ),
    )


@matplotlib.rc_context(STYLE)
def confidence_picture(subject: Subject, found: Found) -> Picture | None:
    """How probable a model calls its answers at each exit, against how often they are right."""
    early = {place: own for place, own in found.items() if len(own.exits) > 1}
    return _reliability(
        "reliability-of-exits",
        "What answers at exits claim",
        subject,
        early,
        lambda own: own.exits,
        xlabel="mean probability of the answers that leave at a layer, %",
        ylabel="of them right, %",
        caption=(
            f"One mark per layer at which at least {FEWEST_EXAMPLES} examples leave, all seeds together. On the grey "
            "line confidence is deserved, below it there is too much of it."
        ),
    )


def _reliability(
    name: str,
    title: str,
    subject: Subject,
    found: Found,
    layers_of: Callable[[Calibration], Layers | None],
    *,
    xlabel: str,
    ylabel: str,
    caption: str,
) -> Picture | None:
    shown = {place: layers for place, own in found.items() if (layers := _populated(layers_of(own)))}
    if not shown:
        return None
    figure, panels = task_panels({task for _, task in shown}, xlabel=xlabel, ylabel=ylabel)
    ends: dict[str, list[End]] = {task: [] for task in panels}
    seen: dict[str, list[str]] = {}
    for (label, task), layers in shown.items():
        style = subject.styles[label]
        claimed, true = (100 * np.array(values) for values in zip(*((each.confidence, each.share) for each in layers)))
        panels[task].plot(claimed, true, lw=1.0, ms=4, marker=style.marker, **style.stroke)
        ends[task].append(End(label, style, float(claimed[-1]), float(true[-1])))
        seen.setdefault(TASKS[task].title, []).append(_seen(label, claimed, true, layers))
    for task, axes in panels.items():
        axes.set_title(TASKS[task].title, loc="left")  # no score is shown
        low = min(*axes.get_xlim(), *axes.get_ylim())
        axes.axline((low, low), slope=1, color="0.6", lw=0.8, zorder=0)
        axes.set_xlim(right=102)
        axes.set_ylim(top=102)
        label_ends(axes, ends[task])
    alt = alt_texts.by_task({title: "; ".join(texts) for title, texts in seen.items()})
    return finished(name, title, caption, alt, figure)


def _populated(layers: Layers | None) -> Layers:
    return tuple(layer for layer in layers or () if layer.examples >= FEWEST_EXAMPLES)


def _seen(label: str, claimed: np.ndarray, true: np.ndarray, layers: Layers) -> str:
    worst = int(np.abs(claimed - true).argmax())
    return (
        f"{label} is farthest off at layer {layers[worst].layer}, where it claims {claimed[worst]:.0f} % and "
        f"{true[worst]:.0f} % hold"
    )
