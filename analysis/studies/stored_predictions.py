"""Stored dev predictions of confirm trials: `predictions/KEY.npz`, nothing pickled."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.studies.load import Study
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from trainables.data.tasks import TASKS, compute_metrics, predictions_from_logits, score

TOLERANCE = 1e-6  # of a score that is recomputed: far below the 0.1 point that tables show
_PER_EXAMPLE = ("ids", "split", "labels", "logits", "exit_layers")
_SWEEP = ("sweep_rule", "sweep_setting", "sweep_score", "sweep_mean_layers")


@dataclass(frozen=True)
class Predictions:
    """What a confirm model said on dev at the selected epoch, under its exit and under every setting of the sweep."""

    task: str
    ids: np.ndarray  # (n,)
    split: np.ndarray  # (n,) names
    labels: np.ndarray  # (n,)
    logits: np.ndarray  # (n, labels), the first draw's where the exit is sampled
    exit_layers: np.ndarray  # (n,) from 1
    sweep_rule: np.ndarray  # (settings,)
    sweep_setting: np.ndarray  # (settings,)
    sweep_score: np.ndarray  # (settings,)
    sweep_mean_layers: np.ndarray  # (settings,)
    draw_scores: np.ndarray | None  # (draws,) of a sampled exit
    draw_mean_layers: np.ndarray | None  # (draws,)

    @cached_property
    def examples(self) -> str:
        """Tells which examples were answered: a digest of their ids, splits and labels."""
        arrays = (self.ids.astype(str), self.split, self.labels.astype(float))
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

    @property
    def answers(self) -> np.ndarray:
        """Predicted classes or scores, (n,)."""
        return predictions_from_logits(TASKS[self.task], self.logits)

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the task, recomputed."""
        return compute_metrics(TASKS[self.task], self.answers, self.labels, self.split)

    @property
    def score(self) -> float:
        """The task's score, recomputed."""
        return score(TASKS[self.task], self.metrics)


def read_predictions(study: Study, record: Record) -> Predictions | None:
    """The predictions of a confirm trial; None where no file was stored.

    Raises:
        ValueError: the file is broken.
    """
    path = predictions_file(study.folder, record.key)
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not a predictions file: {error}") from None
    missing = [name for name in (*_PER_EXAMPLE, *_SWEEP) if name not in arrays]
    if missing:
        raise ValueError(f"{path} lacks the array(s) {', '.join(missing)}")
    lengths = {len(arrays[name]) for name in _PER_EXAMPLE}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"{path}: arrays of one example each differ in length: {sorted(lengths)}")
    return Predictions(
        task=record.task,
        **{name: arrays[name] for name in (*_PER_EXAMPLE, *_SWEEP)},
        draw_scores=arrays.get("draw_scores"),
        draw_mean_layers=arrays.get("draw_mean_layers"),
    )


def disagreements(record: Record, predictions: Predictions) -> list[str]:
    """How the stored predictions and the record differ, one line each; empty where they belong together."""
    expected = TASKS[record.task].num_labels
    if predictions.logits.ndim != 2 or predictions.logits.shape[1] != expected:
        return [f"logits have shape {predictions.logits.shape}; {record.task} has {expected} label(s)"]
    pairs = _sampled_pairs(record, predictions) if predictions.draw_scores is not None else _pairs(record, predictions)
    return [
        f"{name} is {told} in the record and {found:.6f} from the predictions"
        for name, told, found in pairs
        if told is None or abs(told - found) > TOLERANCE
    ]


def _pairs(record: Record, predictions: Predictions) -> list[tuple[str, float | None, float]]:
    metrics = [(name, record.metrics.get(name), value) for name, value in predictions.metrics.items()]
    layers = ("mean_layers", record.mean_layers, float(predictions.exit_layers.mean()))
    return [("score", record.score, predictions.score), *metrics, layers]


def _sampled_pairs(record: Record, predictions: Predictions) -> list[tuple[str, float | None, float]]:
    """A sampled exit's record holds means over its draws; the logits are those of the first."""
    assert predictions.draw_scores is not None and predictions.draw_mean_layers is not None
    return [
        ("score", record.score, float(predictions.draw_scores.mean())),
        ("mean_layers", record.mean_layers, float(predictions.draw_mean_layers.mean())),
        ("score of the first draw", float(predictions.draw_scores[0]), predictions.score),
    ]
