"""Exit layers of easy and of hard examples, on generated tasks whose difficulty is known.

Difficulty is not stored with the predictions: the data are generated again. A study on generated data of another
version of this program therefore has no exit layers by difficulty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.statistics.gains import can_measure
from analysis.statistics.samples import over_resamples, ratio
from analysis.statistics.uncertainty import ConfidenceInterval, mean_interval
from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, read_cell_predictions
from trainables.data import mini_glue
from trainables.data.glue import fingerprint
from trainables.data.tasks import TASKS


@dataclass(frozen=True)
class LayersByDifficulty:
    """Mean exit layers of easy and of hard examples, as means over the seeds."""

    easy: float
    hard: float
    interval: ConfidenceInterval  # 95 % interval of `hard` - `easy`, over seeds and dev examples


def read_layers_by_difficulty(cell: Cell) -> LayersByDifficulty | None:
    """Measure the exit layers of a cell's models by difficulty, under the setting with which the trials ran.

    Returns:
        None if the difficulty is not known, if all examples are alike, or if the cell has fewer than two seeds with
        predictions for the same examples.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    task = TASKS[cell.task]
    hard_by_split = {split: hard for split in task.dev_splits if (hard := mini_glue.list_hard(task, split)) is not None}
    if not hard_by_split or not all(cell.find_study(record).is_mini for record in cell.tested):
        return None
    if {record.data_fingerprint for record in cell.tested} != {fingerprint(task, "mini")}:
        return None
    stored = read_cell_predictions(cell.with_dropped)
    if not can_measure(stored):
        return None
    places = zip(stored[0].split.tolist(), stored[0].ids.tolist(), strict=True)
    return compare_difficulties(stored, np.array([hard_by_split[split][row] for split, row in places]))


def compare_difficulties(stored: Sequence[Predictions], hard: np.ndarray) -> LayersByDifficulty | None:
    """Compare the exit layers of hard and of easy examples. Return None if all examples are alike.

    Args:
        stored: predictions of every seed's model, for the same examples; see `can_measure`.
        hard: whether each example is hard, (n,).
    """
    if hard.all() or not hard.any():
        return None
    layers = np.array([one.exit_layers.mean(axis=0) for one in stored])  # (seeds, n)

    def mean_layers(weights: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        own = weights * chosen  # (resamples, n)
        return ratio(own @ layers.T, np.broadcast_to(own.sum(axis=1, keepdims=True), (len(own), len(layers))))

    once = np.ones((1, len(hard)))
    easy_layers, hard_layers = (mean_layers(once, chosen)[0] for chosen in (~hard, hard))
    resampled = over_resamples(
        lambda weights: mean_layers(weights, hard) - mean_layers(weights, ~hard), len(hard), seed=0
    )
    interval = mean_interval(resampled, (hard_layers - easy_layers).tolist())
    return LayersByDifficulty(float(easy_layers.mean()), float(hard_layers.mean()), interval)
