"""What a search of each size can be expected to find."""

from __future__ import annotations

import matplotlib
import numpy as np

from analysis.pictures import alt_texts
from analysis.pictures.panels import End, label_ends, task_panels
from analysis.pictures.picture import STYLE, Picture, finished
from analysis.pictures.subject import Subject
from analysis.statistics.equal_compute import BudgetCurve, expected_best_curve
from trainables.data.tasks import TASKS


@matplotlib.rc_context(STYLE)
def budget_picture(subject: Subject) -> Picture | None:
    """The expected best search score against the epochs spent to find it (arXiv:1909.03004)."""
    curves: dict[tuple[str, str], BudgetCurve] = {
        (label, cell.task): curve
        for label, cell in subject.cells
        if len((curve := expected_best_curve(cell.arm_records, "epochs")).scores) > 1
    }
    if not curves:
        return None
    figure, panels = task_panels(
        {task for _, task in curves}, xlabel="epochs of search trials", ylabel="expected best search score, points"
    )
    ends: dict[str, list[End]] = {task: [] for task in panels}
    seen: dict[str, list[str]] = {}
    for (label, task), curve in curves.items():
        style, scores = subject.styles[label], 100 * np.array(curve.scores)
        panels[task].plot(curve.budgets, scores, lw=1.3, ms=3.5, marker=style.marker, **style.stroke)
        ends[task].append(End(label, style, curve.budgets[-1], float(scores[-1])))
        seen.setdefault(TASKS[task].title, []).append(alt_texts.trend(label, curve.budgets, scores, at="{:.0f} epochs"))
    for task, axes in panels.items():
        label_ends(axes, ends[task])
    caption = (
        "Each mark: what a search of so many completed trials can be expected to find, drawn from those that were run; "
        "stopped and failed trials are part of the cost. Biased downwards at the right end. Panels have own scales."
    )
    alt = alt_texts.by_task({title: "; ".join(texts) for title, texts in seen.items()})
    return finished("score-against-budget", "Expected best search score against epochs", caption, alt, figure)
