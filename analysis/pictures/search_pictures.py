"""What a search tried, what it cost and what came of it."""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from analysis.pictures import alt_texts
from analysis.pictures.panels import (
    PANEL_INCHES,
    End,
    Style,
    label_ends,
    panel_grid,
    share_height,
    share_x,
    task_panels,
)
from analysis.pictures.picture import STYLE, Picture, finished
from analysis.pictures.subject import Subject
from analysis.statistics import uncertainty
from analysis.statistics.costs import seconds_of_clock, seconds_on_gpu
from analysis.statistics.importance import Importance, importances, tuned_fields
from analysis.studies.cells import Cell, Row
from study.facts.plain_words import joined
from study.facts.record import Record
from study.facts.study_facts import TrialFacts
from trainables.data.tasks import TASKS

PRIOR_TICKS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)
GROUPS = 5  # of a range that a search drew from, equally wide on a logarithmic axis
OTHER_TRIALS = "#999999"

Curve = tuple[list[float], list[float]]  # epochs, selection scores in points


@matplotlib.rc_context(STYLE)
def prior_picture(subject: Subject) -> Picture | None:
    """Search score against the prior's λ: figure 5 of arXiv:2204.03276, where each λ had a search of its own."""
    points = {(label, cell.task): _prior_points(cell) for label, cell in subject.cells}
    shown = {place: own for place, own in points.items() if len({prior for prior, _ in own}) > 1}
    if not shown:
        return None
    figure, panels = task_panels({task for _, task in shown}, xlabel="λ of the prior", ylabel="search score, points")
    ends: dict[str, list[End]] = {task: [] for task in panels}
    seen: dict[str, list[str]] = {}
    for (label, task), own in shown.items():
        style, (priors, scores) = subject.styles[label], zip(*_best_of_groups(own), strict=True)
        panels[task].plot(*zip(*own, strict=True), ms=4, alpha=0.5, **style.mark)
        panels[task].plot(priors, scores, lw=1.3, **style.stroke)
        ends[task].append(End(label, style, priors[-1], scores[-1]))
        seen.setdefault(TASKS[task].title, []).append(alt_texts.trend(label, priors, scores, at="λ {:.2f}"))
    for axes in panels.values():
        _draw_priors(axes)
    share_x(panels.values())
    share_height(panels.values())
    _label(panels, ends)
    caption = (
        "Marks: completed search trials, whatever their other settings. Line: the best of each λ, or of each fifth of "
        "the range that λ was drawn from."
    )
    alt = alt_texts.by_task({title: "best trials: " + "; ".join(texts) for title, texts in seen.items()})
    return finished("score-against-prior", "Search score against the prior λ", caption, alt, figure)


@matplotlib.rc_context(STYLE)
def progress_picture(subject: Subject) -> Picture | None:
    """What a search has found after how much compute."""
    searched = {(label, cell.task): _scored_search(cell) for label, cell in subject.cells if _scored_search(cell)}
    if not searched:
        return None
    on_gpu = any(record.gpu_seconds > 0 for _, cell in subject.cells for record in cell.arm_records)
    seconds, unit = (seconds_on_gpu, "GPU") if on_gpu else (seconds_of_clock, "wall-clock")
    figure, panels = task_panels(
        {task for _, task in searched},
        xlabel=f"{unit} seconds of search trials",
        ylabel="best search score so far, points",
    )
    ends: dict[str, list[End]] = {task: [] for task in panels}
    seen: dict[str, list[str]] = {}
    for (label, task), records in searched.items():
        ended, style = sorted(records, key=lambda record: record.ended), subject.styles[label]
        costs, best = uncertainty.incumbents(
            *zip(*((seconds(record), _points(record)) for record in ended), strict=True)
        )
        panels[task].step(costs, best, where="post", lw=1.3, **style.stroke)
        panels[task].plot(costs[-1:], best[-1:], ms=5, **style.mark)
        ends[task].append(End(label, style, costs[-1], best[-1]))
        seen.setdefault(TASKS[task].title, []).append(alt_texts.trend(label, costs, best, at="{:.0f} s"))
    _label(panels, ends)
    caption = "Trials in the order in which they ended. Each panel has its own scale: tasks differ in size."
    alt = alt_texts.by_task({title: "; ".join(texts) for title, texts in seen.items()})
    return finished("search-progress", "Best search score against compute", caption, alt, figure)


@matplotlib.rc_context(STYLE)
def curves_picture(subject: Subject, row: Row) -> Picture | None:
    """How the trials of a method learned, by epoch."""
    curves = {task: own for task, cell in row.cells.items() if (own := _curves(cell))}
    if not curves:
        return None
    figure, panels = task_panels(curves, xlabel="epoch", ylabel="selection score, points")
    seen = {}
    for task, axes in panels.items():
        confirmed, stopped = {record.key for record in row.cells[task].records}, _stopped(row.cells[task])
        _draw_curves(axes, curves[task], confirmed, stopped, row.label, subject.styles[row.label].colour)
        best = [max(scores) for key, (_, scores) in curves[task].items() if key in confirmed]
        texts = [f"{len(stopped & curves[task].keys())} of {len(curves[task])} trials were stopped"]
        if best:
            texts.insert(0, f"the best epochs of the confirm trials score {min(best):.1f} to {max(best):.1f}")
        seen[TASKS[task].title] = "; ".join(texts)
    share_x(panels.values())
    _legend(figure, panels.values())
    caption = f"Selection score of {row.label}, one line per trial. Each panel has its own scale."
    return finished(
        f"learning-curves-{row.label}", f"Learning curves of {row.label}", caption, alt_texts.by_task(seen), figure
    )


@matplotlib.rc_context(STYLE)
def hyperparameters_picture(subject: Subject, row: Row) -> Picture | None:
    """Slices of a method's search: what each tuned field was set to, and what that scored."""
    fields = tuned_fields(row)
    if not fields:
        return None
    figure, panels = panel_grid(len(fields))
    for axes, field in zip(panels, fields, strict=True):
        _draw_slice(axes, row, field, subject.styles[row.label])
    figure.supylabel("points below\nthe best trial of a task", fontsize=9)
    caption = f"Search trials of {row.label}, all tasks together. Filled: completed; open: stopped by ASHA."
    alt = " ".join(_slice_seen(row, field) for field in fields)
    return finished(f"hyperparameters-{row.label}", f"Search of {row.label} by hyperparameter", caption, alt, figure)


@matplotlib.rc_context(STYLE)
def importance_picture(subject: Subject) -> Picture | None:
    """Which tuned fields the search score depends on."""
    found = {row.label: own for row in subject.rows if (own := importances(row))}
    if not found:
        return None
    bars = [(label, field, importance) for label, own in found.items() for field, importance in own.items()][::-1]
    figure = Figure(figsize=(2 * PANEL_INCHES[0] + 0.3, 0.6 + 0.22 * len(bars)), layout="constrained")
    axes = figure.subplots()
    for place, (label, _, importance) in enumerate(bars):
        bounds = [[100 * (importance.share - importance.low)], [100 * (importance.high - importance.share)]]
        bounds = [[max(0.0, bound)] for (bound,) in bounds]
        axes.barh(place, 100 * importance.share, color=subject.styles[label].colour)
        axes.errorbar(100 * importance.share, place, xerr=bounds, color="0.2", linewidth=0.8, capsize=2)
    axes.set_yticks(range(len(bars)), [f"{label}: {field}" for label, field, _ in bars])
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of what tells the better quarter of the trials from all, %")
    caption = (
        "PED-ANOVA (Optuna) over the search trials, stopped ones with the score they had reached; mean over the tasks. "
        "Whiskers: 90 % of the bootstrap over trials."
    )
    seen = {label: [_importance_seen(*item) for item in own.items()] for label, own in found.items()}
    texts = [f"{label}: {joined(fields)}." for label, fields in seen.items()]
    return finished("importance", "Hyperparameters that mattered", caption, " ".join(texts), figure)


def _importance_seen(field: str, importance: Importance) -> str:
    return f"{field} {100 * importance.share:.0f} % ({100 * importance.low:.0f} to {100 * importance.high:.0f})"


def _label(panels: dict[str, Axes], ends: dict[str, list[End]]) -> None:
    for task, axes in panels.items():
        label_ends(axes, ends[task])


def _legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """One legend for all panels, each name once."""
    pairs = [pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {name: handle for handle, name in pairs}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles))


def _prior_points(cell: Cell) -> list[tuple[float, float]]:
    """λ and search score of every completed search trial that has one, by λ."""
    records = [record for record in _scored_search(cell) if record.status == "completed"]
    priors = [(record.config.get("prior_lambda"), _points(record)) for record in records]
    return sorted((prior, score) for prior, score in priors if isinstance(prior, float))


def _best_of_groups(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The best point of each value of x, or of each fifth of its logarithmic range where there are more values."""
    values = np.array([x for x, _ in points])
    groups = np.unique(values, return_inverse=True)[1]
    if groups.max() >= GROUPS:
        edges = np.geomspace(values[0], values[-1], GROUPS + 1)[1:-1]
        groups = np.searchsorted(edges, values, side="right")
    best: dict[int, tuple[float, float]] = {}
    for group, point in zip(groups.tolist(), points, strict=True):
        best[group] = max(best.get(group, point), point, key=lambda one: one[1])
    return list(best.values())


def _draw_priors(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(PRIOR_TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda prior, _: f"{prior:g}"))


def _draw_curves(
    axes: Axes, curves: dict[str, Curve], confirmed: set[str], stopped: set[str], label: str, colour: str
) -> None:
    for key, (epochs, scores) in curves.items():
        if key in confirmed:
            axes.plot(epochs, scores, color=colour, lw=1.2, zorder=3, label=f"confirm trial of {label}")
        else:
            axes.plot(epochs, scores, color=OTHER_TRIALS, lw=0.7, zorder=2, label="search trial")
        if key in stopped:
            axes.plot(epochs[-1], scores[-1], "kx", ms=4, zorder=4, label="stopped by ASHA")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_slice(axes: Axes, row: Row, field: str, style: Style) -> None:
    points = _slice(row, field)
    numbers = [value for value, _, _ in points if not isinstance(value, str)]
    are_numbers = len(numbers) == len(points)
    for is_completed, face in ((False, "none"), (True, style.colour)):
        chosen = [point for point in points if (point[2].status == "completed") == is_completed]
        values = [value if are_numbers else str(value) for value, _, _ in chosen]
        axes.plot(
            values, [below for _, below, _ in chosen], style.marker, ms=3.5, mec=style.colour, mfc=face, alpha=0.7
        )
    if are_numbers:
        if min(numbers) > 0 and max(numbers) >= 4 * min(numbers) and any(isinstance(n, float) for n in numbers):
            _log_ticks(axes, min(numbers), max(numbers))
        else:
            integers = all(isinstance(number, int) for number in numbers)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=integers))
            axes.ticklabel_format(axis="x", style="sci", scilimits=(-2, 4))
    axes.invert_yaxis()
    axes.set_xlabel(field)


def _log_ticks(axes: Axes, low: float, high: float) -> None:
    """A logarithmic axis with numbers at 1, 2 and 5 of every power of ten in the range."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if 0.9 * low <= tick <= 1.1 * high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _slice(row: Row, field: str) -> list[tuple[float | str, float, Record]]:
    """The field's value in each search trial, and how far the trial is below the best of its task, in points."""
    points: list[tuple[float | str, float, Record]] = []
    for cell in row.cells.values():
        records = _scored_search(cell)
        best = max(map(_points, records), default=0.0)
        for record in records:
            value = record.config[field]
            place = value if isinstance(value, int | float) else str(value)
            points.append((place, best - _points(record), record))
    return points


def _slice_seen(row: Row, field: str) -> str:
    """The field's values in the best quarter of the completed trials, and in all."""
    points = sorted((p for p in _slice(row, field) if p[2].status == "completed"), key=lambda point: point[1])
    values = [value for value, _, _ in points]
    if not values:
        return f"{field}: no search trial is completed."
    good = values[: max(1, len(values) // 4)]
    return f"{field}: the best quarter of trials has {_extent(good)}, all have {_extent(values)}."


def _extent(values: list[float | str]) -> str:
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        return joined(sorted({str(value) for value in values}))
    low, high = f"{min(numbers):.3g}", f"{max(numbers):.3g}"
    return low if low == high else f"{low} to {high}"


def _points(record: Record) -> float:
    """The selection score of a trial that has one, in points."""
    assert record.selection_score is not None
    return 100 * record.selection_score


def _scored_search(cell: Cell) -> list[Record]:
    return [record for record in cell.arm_records if record.phase == "search" and record.selection_score is not None]


def _trials(cell: Cell) -> list[TrialFacts]:
    """Every trial of the arm that the journal tells of. The one place where pictures read journals."""
    return [trial for study in cell.studies for trial in study.facts.arm(cell.name).trials]


def _curves(cell: Cell) -> dict[str, Curve]:
    """Epochs and selection scores of every ended trial of the arm, by key."""
    return {
        trial.key: ([*trial.scores], [100 * score for score in trial.scores.values()])
        for trial in _trials(cell)
        if trial.ended and trial.scores
    }


def _stopped(cell: Cell) -> set[str]:
    """Keys of the trials that ASHA stopped."""
    return {trial.key for trial in _trials(cell) if trial.stopped_at is not None}
