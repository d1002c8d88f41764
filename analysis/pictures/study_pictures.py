"""Pictures of a study: one style, readable in print, colours that colour-blind readers can tell apart.

Every function returns a matplotlib figure, or None where the study has nothing to show in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.statistics import uncertainty
from analysis.statistics.costs import seconds_of_clock, seconds_on_gpu
from analysis.statistics.importance import importances, tuned_fields
from analysis.studies.cells import Cell, Row
from analysis.studies.joined import rows_of
from analysis.studies.load import Study
from analysis.studies.stored_predictions import Predictions, read_predictions
from study.facts.record import Record
from trainables.atomic_files import write_atomically
from trainables.data.tasks import TASKS

# Okabe and Ito, "Color universal design", 2008; without the yellow, which vanishes on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-")
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "svg.hashsalt": "study",  # the same picture is the same file
    "savefig.dpi": 150,
}
PANEL_INCHES = (2.9, 2.3)
PANELS_PER_ROW = 4


@dataclass(frozen=True)
class Picture:
    """A figure with the name of its files and the sentence that belongs below it."""

    name: str
    caption: str
    figure: Figure

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return picture_bytes(self.figure, "svg").decode()


def pictures(study: Study) -> list[Picture]:
    """Every picture that the study has something to show in."""
    rows = rows_of([study])
    with matplotlib.rc_context(STYLE):
        drawings: list[tuple[str, Callable[..., Figure | None], Figure | None]] = [
            ("seeds", seeds_picture, seeds_picture(rows)),
            ("score-against-layers", layers_picture, layers_picture(rows)),
            ("exit-layers", exits_picture, exits_picture(rows)),
            ("search-progress", progress_picture, progress_picture(rows)),
            *((f"learning-curves-{row.method}", curves_picture, curves_picture(row)) for row in rows),
            *((f"hyperparameters-{row.method}", hyperparameters_picture, hyperparameters_picture(row)) for row in rows),
            ("importance", importance_picture, importance_picture(rows)),
        ]
        for _, _, figure in drawings:
            if figure is not None:
                figure.draw_without_rendering()  # lays the panels out once, not again for every file format
                figure.set_layout_engine("none")
    return [Picture(name, _first_line(function), figure) for name, function, figure in drawings if figure is not None]


def write_pictures(pictures: list[Picture], folder: Path) -> list[Path]:
    """Writes every picture as NAME.svg and NAME.png; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for picture in pictures:
        for format in ("svg", "png"):
            path = folder / f"{picture.name}.{format}"
            content = picture_bytes(picture.figure, format)
            write_atomically(path, lambda file: file.write_bytes(content))
            files.append(path)
    return files


def picture_bytes(figure: Figure, format: str) -> bytes:
    """The picture as a file of this format, the same bytes every time."""
    metadata = {"Date": None} if format == "svg" else {"Software": None}
    buffer = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=format, metadata=metadata)
    return buffer.getvalue()


def seeds_picture(rows: list[Row]) -> Figure | None:
    """The confirm score of every seed as a dot, and the median as a bar, per task and method."""

    def draw(axes: Axes, cells: list[tuple[int, Cell]]) -> None:
        for place, (number, cell) in enumerate(cells):
            spread = place + np.linspace(-0.18, 0.18, len(cell.scores))
            axes.plot(spread, [100 * score for score in cell.scores], MARKERS[number], color=COLOURS[number], ms=4)
            axes.hlines(100 * cell.median, place - 0.3, place + 0.3, color=COLOURS[number], lw=2)
        axes.set_xticks(range(len(cells)), [cell.method for _, cell in cells], rotation=30, ha="right")
        axes.set_xlim(-0.6, len(cells) - 0.4)

    return _panels_per_task(rows, draw, ylabel="dev score (points)", has_legend=False)


def layers_picture(rows: list[Row]) -> Figure | None:
    """Score against mean layers: lines, every setting of an exit, mean of seeds; large marks, what was run, median."""

    def draw(axes: Axes, cells: list[tuple[int, Cell]]) -> None:
        for number, cell in cells:
            style: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[number]}
            for layers, scores in _sweeps(_stored_predictions(cell)):
                axes.plot(layers, 100 * scores, ls=LINES[number], ms=2.5, lw=1, **style)
            operating = float(np.median([record.mean_layers or np.nan for record in cell.records]))
            axes.plot(operating, 100 * cell.median, ms=8, mec="white", ls="", label=cell.method, **style)

    return _panels_per_task(rows, draw, xlabel="mean layers run", ylabel="dev score (points)")


def exits_picture(rows: list[Row]) -> Figure | None:
    """Share of dev examples that leave after each layer, mean over seeds, for methods that leave early at all."""

    def draw(axes: Axes, cells: list[tuple[int, Cell]]) -> None:
        for number, cell in cells:
            layers, depth = _exit_layers(cell), cell.records[0].num_layers or 0
            shares = 100 * np.bincount(layers, minlength=depth + 1)[1:] / len(layers)
            edges = np.arange(depth + 1) + 0.5
            axes.stairs(shares, edges, color=COLOURS[number], ls=LINES[number], lw=1.5, label=cell.method)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    leaving = [
        Row(row.label, row.method, {task: cell for task, cell in row.cells.items() if _leaves_early(cell)})
        for row in rows
    ]
    return _panels_per_task(leaving, draw, xlabel="exit layer", ylabel="dev examples (%)")


def progress_picture(rows: list[Row]) -> Figure | None:
    """The best search score so far against the compute spent, trials in the order in which they ended."""
    records = [record for row in rows for cell in row.cells.values() for record in cell.arm_records]
    on_gpu = any(record.gpu_seconds > 0 for record in records)
    seconds = seconds_on_gpu if on_gpu else seconds_of_clock

    def draw(axes: Axes, cells: list[tuple[int, Cell]]) -> None:
        for number, cell in cells:
            ended = sorted(_scored_search(cell), key=lambda record: record.ended)
            costs, best = uncertainty.incumbents(
                [seconds(record) for record in ended], [100 * (record.selection_score or 0.0) for record in ended]
            )
            axes.step(costs, best, where="post", color=COLOURS[number], ls=LINES[number], label=cell.method)
            axes.plot(costs[-1:], best[-1:], MARKERS[number], color=COLOURS[number], ms=4)

    unit = "GPU" if on_gpu else "wall-clock"
    return _panels_per_task(
        rows, draw, xlabel=f"{unit} seconds of search trials", ylabel="best search score", wants=_scored_search
    )


def curves_picture(row: Row) -> Figure | None:
    """Selection score by epoch: search trials grey, a cross where ASHA stopped one, confirm trials in colour."""

    def draw(axes: Axes, cells: list[tuple[int, Cell]]) -> None:
        for _, cell in cells:
            confirmed = {record.key for record in cell.records}
            for key, (epochs, scores) in _curves(cell).items():
                colour, width = (COLOURS[0], 1.2) if key in confirmed else ("#999999", 0.7)
                axes.plot(epochs, scores, color=colour, lw=width, zorder=2 + (key in confirmed))
                if cell.studies[0].facts.trials[key].stopped_at is not None:
                    axes.plot(epochs[-1], scores[-1], "x", color=COLOURS[1], ms=5, zorder=4)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    figure = _panels_per_task([row], draw, xlabel="epoch", ylabel="selection score", has_legend=False, wants=_curves)
    if figure is not None:
        figure.suptitle(row.label, fontsize=9)
    return figure


def hyperparameters_picture(row: Row) -> Figure | None:
    """Slices: points below the arm's best against each tuned field, all tasks together; open where ASHA stopped."""
    fields = tuned_fields(row)
    if not fields:
        return None
    figure, panels = _panel_grid(len(fields))
    for axes, field in zip(panels, fields, strict=False):
        _draw_slice(axes, row, field)
    figure.suptitle(row.label, fontsize=9)
    figure.supylabel("points below the best", fontsize=9)
    return figure


def importance_picture(rows: list[Row]) -> Figure | None:
    """How much of the search score's variation each tuned field explains, mean over the arms of a method."""
    importance_by_row = {row.label: importances(row) for row in rows}
    shown = {label: values for label, values in importance_by_row.items() if values}
    if not shown:
        return None
    figure = Figure(figsize=(PANEL_INCHES[0] * 2, 0.5 + 0.28 * sum(map(len, shown.values()))), layout="constrained")
    axes = figure.subplots()
    bars = [
        (f"{field} ({label})", value, i) for i, (label, own) in enumerate(shown.items()) for field, value in own.items()
    ]
    for place, (name, value, number) in enumerate(reversed(bars)):
        axes.barh(place, value, color=COLOURS[number % len(COLOURS)])
    axes.set_yticks(range(len(bars)), [name for name, _, _ in reversed(bars)])
    axes.set_xlabel("importance (random forest, shares of 1)")
    return figure


def _first_line(function: Callable[..., Any]) -> str:
    """A picture's caption is the first line of its docstring."""
    return (function.__doc__ or "").splitlines()[0]


Draw = Callable[[Axes, list[tuple[int, Cell]]], None]


def _panels_per_task(
    rows: list[Row],
    draw: Draw,
    *,
    ylabel: str,
    xlabel: str = "",
    has_legend: bool = True,
    wants: Callable[[Cell], object] = lambda cell: cell.records,
) -> Figure | None:
    """One panel per task; `draw` gets the cells that have what the picture `wants`, each with its row's number."""
    numbered = [(i % len(COLOURS), cell) for i, row in enumerate(rows) for cell in row.cells.values() if wants(cell)]
    tasks = [task for task in TASKS if any(cell.task == task for _, cell in numbered)]
    if not tasks:
        return None
    figure, panels = _panel_grid(len(tasks))
    for axes, task in zip(panels, tasks, strict=False):
        draw(axes, [(number, cell) for number, cell in numbered if cell.task == task])
        axes.set_title(TASKS[task].title)
    figure.supxlabel(xlabel, fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    if has_legend:
        _shared_legend(figure, panels)
    return figure


def _panel_grid(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, at most four side by side."""
    lines = -(-count // PANELS_PER_ROW)
    columns = -(-count // lines)
    size = (max(PANEL_INCHES[0] * columns, 4.0), PANEL_INCHES[1] * lines + 0.3)
    figure = Figure(figsize=size, layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).ravel())
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, panels[:count]


def _shared_legend(figure: Figure, panels: list[Axes]) -> None:
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=max(1, len(handles)))


def _draw_slice(axes: Axes, row: Row, field: str) -> None:
    for cell in row.cells.values():
        records = _scored_search(cell)
        best = max((record.selection_score or 0.0 for record in records), default=0.0)
        for record in records:
            below = 100 * (best - (record.selection_score or 0.0))
            face = COLOURS[0] if record.status == "completed" else "none"
            value = record.config[field]
            place = value if isinstance(value, int | float) else str(value)
            axes.plot(place, below, "o", ms=3.5, mec=COLOURS[0], mfc=face, alpha=0.7)
    values = [record.config[field] for cell in row.cells.values() for record in _scored_search(cell)]
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        if min(numbers) > 0 and max(numbers) > 5 * min(numbers) and any(isinstance(n, float) for n in numbers):
            axes.set_xscale("log")
        else:
            only_integers = all(isinstance(number, int) for number in numbers)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=only_integers))
            axes.ticklabel_format(axis="x", style="sci", scilimits=(-2, 4))
    axes.invert_yaxis()
    axes.set_xlabel(field)


def _scored_search(cell: Cell) -> list[Record]:
    return [record for record in cell.arm_records if record.phase == "search" and record.selection_score is not None]


def _stored_predictions(cell: Cell) -> list[Predictions]:
    read = [read_predictions(cell.study_of(record), record) for record in cell.records]
    return [predictions for predictions in read if predictions is not None]


def _sweeps(stored: list[Predictions]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Mean layers and mean score over seeds of each rule's settings, ordered by layers."""
    if not stored or len({len(predictions.sweep_rule) for predictions in stored}) > 1:
        return
    layers = np.mean([predictions.sweep_mean_layers for predictions in stored], axis=0)
    scores = np.mean([predictions.sweep_score for predictions in stored], axis=0)
    for rule in dict.fromkeys(stored[0].sweep_rule.tolist()):
        of_rule = stored[0].sweep_rule == rule
        order = np.argsort(layers[of_rule], kind="stable")
        yield layers[of_rule][order], scores[of_rule][order]


def _exit_layers(cell: Cell) -> np.ndarray:
    """Exit layers of all dev examples of all seeds, one after another; empty where none were stored."""
    stored = _stored_predictions(cell)
    return np.concatenate([predictions.exit_layers for predictions in stored]) if stored else np.array([], dtype=int)


def _leaves_early(cell: Cell) -> bool:
    layers = _exit_layers(cell)
    return len(layers) > 0 and bool((layers < (cell.records[0].num_layers or 0)).any())


def _curves(cell: Cell) -> dict[str, tuple[list[int], list[float]]]:
    """Epochs and selection scores in points of every trial of the arm, from the journal."""
    rows = {
        trial.key: [event.report.row for event in trial.reports]
        for trial in cell.studies[0].facts.arm(cell.name).trials
        if trial.ended and trial.reports
    }
    return {key: ([row.epoch for row in own], [100 * row.selection_score for row in own]) for key, own in rows.items()}
