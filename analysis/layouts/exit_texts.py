"""Texts that leave the models first or last, and those that leave early with a wrong answer; for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.layouts.evidence import Evidence
from analysis.layouts.table import HUNDREDTHS, Block, Line, Table
from analysis.studies.stored_predictions import Predictions, read_cell_predictions
from analysis.studies.texts import read_texts
from study.terminal.text import counted
from trainables.data.tasks import TASKS, Task

MOST_TEXTS = 10  # in each of the three lists of an arm
LONGEST_TEXT = 400  # characters; the rest of a text is cut


@dataclass(frozen=True)
class ExitTexts:
    """A table for each arm with exits, and the reasons why texts cannot be read."""

    tables: list[Table]
    faults: list[str]


def read_exit_texts(evidence: Evidence) -> ExitTexts | None:
    """Read the texts of all arms whose examples leave after different layers; None if there is no such arm.

    They are read from the data of the study now, so they are missing if the data are elsewhere.
    """
    tables, faults, has_exits = list[Table](), dict[str, None](), False
    for label, cell in evidence.cells:
        stored = read_cell_predictions(cell)
        if not stored or len({own.examples for own in stored}) > 1 or np.ptp(_mean_layers(stored)) == 0:
            continue
        has_exits = True
        try:
            texts = read_texts(cell.studies[0], cell.task).select(stored[0])
        except (ValueError, OSError) as error:
            faults[f"{TASKS[cell.task].title}: {error}"] = None
            continue
        tables.append(_make_table(label, TASKS[cell.task], stored, texts))
    return ExitTexts(tables, [*faults]) if has_exits else None


def _mean_layers(stored: Sequence[Predictions]) -> np.ndarray:
    """Compute the mean exit layer of each example over seeds and draws, (examples,)."""
    layers: np.ndarray = np.mean([own.exit_layers.mean(axis=0) for own in stored], axis=0)
    return layers


def _make_table(label: str, task: Task, stored: Sequence[Predictions], texts: Sequence[str]) -> Table:
    layers, order = _mean_layers(stored), np.arange(len(texts))
    answers, labels = np.concatenate([own.answers for own in stored]), stored[0].labels  # (seeds x draws, examples)
    lists = {"Leave first": np.lexsort((order, layers)), "Leave last": np.lexsort((order, -layers))}
    if task.is_regression:
        answer = answers.mean(axis=0)
    else:
        answer = np.array([np.bincount(own).argmax() for own in answers.T.astype(int)])
        early = np.flatnonzero((layers < layers.mean()) & (answer != labels))
        lists["Leave before the mean layer with a wrong answer"] = early[np.lexsort((early, layers[early]))]

    def make_line(place: int) -> Line:
        text = texts[place] if len(texts[place]) <= LONGEST_TEXT else f"{texts[place][:LONGEST_TEXT]} ..."
        named = {"label": _format_answer(task, labels[place]), "answer": _format_answer(task, answer[place])}
        return Line.from_texts(HUNDREDTHS.text(layers[place]), {**named, "text": text})

    blocks = [
        Block(title, [make_line(place) for place in places[:MOST_TEXTS].tolist()]) for title, places in lists.items()
    ]
    caption = (
        f"The layer is the mean over {counted(len(stored), 'seed')}; over all examples, it is "
        f"{HUNDREDTHS.text(layers.mean())} of {len(stored[0].layer_answers)}. "
        f"The answer is {'the mean over the seeds' if task.is_regression else 'the most frequent one'}."
    )
    if not task.is_regression and not blocks[-1].lines:
        caption += " No text that leaves before the mean layer has a wrong answer."
    return Table(
        name=f"texts-{label}-{task.name}",
        title=f"{label} on {task.title}",
        columns={name: name for name in ("label", "answer", "text")},
        heading=blocks[0].title,
        lines=blocks[0].lines,
        blocks=[block for block in blocks[1:] if block.lines],
        caption=caption,
        first_column="layer",
        unit="",
        is_prose=True,
    )


def _format_answer(task: Task, value: float) -> str:
    return HUNDREDTHS.text(float(value)) if task.is_regression else task.labels[int(value)]
