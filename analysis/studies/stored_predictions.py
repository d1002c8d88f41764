"""Stored dev predictions of confirm trials: `predictions/KEY.npz`, nothing pickled."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.studies.cells import Cell
from analysis.studies.load import TOLERANCE, Study
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS, Task

_PER_EXAMPLE = {"ids": 0, "split": 0, "labels": 0, "logits": 1, "exit_layers": 1, "layer_answers": 1}  # axis of n
_SWEEP = ("sweep_rule", "sweep_setting", "sweep_score", "sweep_mean_layers")


@dataclass(frozen=True)
class Answers:
    """What one model answered to n examples; one draw of an exit that is not sampled."""

    task: Task
    ids: np.ndarray  # (n,)
    split: np.ndarray  # (n,) names
    labels: np.ndarray  # (n,)
    answers: np.ndarray  # (draws, n) predicted classes or scores

    @cached_property
    def examples(self) -> str:
        """Tells which examples were answered: a digest of their ids, splits and labels."""
        arrays = (self.ids.astype(str), self.split, self.labels.astype(float))
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

    @property
    def draws(self) -> int:
        """How often the exit was drawn: once, unless it is sampled."""
        return len(self.answers)

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the task, recomputed, mean over the draws."""
        of_draws = [compute_metrics(self.task, own, self.labels, self.split) for own in self.answers]
        return {name: float(np.mean([metrics[name] for metrics in of_draws])) for name in of_draws[0]}

    @property
    def score(self) -> float:
        """The task's score, recomputed, mean over the draws: a score is linear in its metrics."""
        return score(self.task, self.metrics)


@dataclass(frozen=True)
class Predictions(Answers):
    """What a confirm model said on dev at the selected epoch, under its exit and under every setting of the sweep."""

    logits: np.ndarray  # (draws, n, labels)
    exit_layers: np.ndarray  # (draws, n) from 1
    layer_answers: np.ndarray  # (layers, n) classes or scores
    exit_probabilities: np.ndarray | None  # (layers, n) of a model with a Λ head; each column sums to 1
    sweep_rule: np.ndarray  # (settings,)
    sweep_setting: np.ndarray  # (settings,)
    sweep_score: np.ndarray  # (settings,)
    sweep_mean_layers: np.ndarray  # (settings,)

    @property
    def mean_layers(self) -> float:
        """Layers run per example, mean over the draws."""
        return float(self.exit_layers.mean())


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
    task = TASKS[record.task]
    if wrong := _wrong_shapes(task.num_labels, arrays):
        raise ValueError(f"{path}: {wrong}")
    return predictions_from(task, arrays)


def predictions_from(task: Task, arrays: Mapping[str, np.ndarray]) -> Predictions:
    """The predictions in the arrays of a file."""
    return Predictions(
        task=task,
        answers=np.stack([predictions_from_logits(task, logits) for logits in arrays["logits"]]),
        **{name: arrays[name] for name in (*_PER_EXAMPLE, *_SWEEP)},
        exit_probabilities=arrays.get("exit_probabilities"),
    )


def predictions_of(cell: Cell) -> list[Predictions]:
    """The predictions of every seed of the cell; empty if one of them is missing.

    Raises:
        ValueError: a file is broken.
    """
    read = [read_predictions(cell.study_of(record), record) for record in cell.records]
    stored = [predictions for predictions in read if predictions is not None]
    return stored if len(stored) == len(read) else []


def disagreements(record: Record, predictions: Predictions) -> list[str]:
    """How the stored predictions and the record differ, one line each; empty where they belong together.

    The sweep is held against the layers' answers where these decide it, see `recomputed_sweep`.
    """
    metrics = [(name, record.metrics.get(name), value) for name, value in predictions.metrics.items()]
    pairs = [("score", record.score, predictions.score), ("mean_layers", record.mean_layers, predictions.mean_layers)]
    lines = [
        f"{name} is {told} in the record and {found:.6f} from the predictions"
        for name, told, found in (*pairs, *metrics)
        if told is None or abs(told - found) > TOLERANCE
    ]
    threshold = record.config.get("regression_threshold")
    found = recomputed_sweep(predictions, threshold if isinstance(threshold, float) else None)
    names = zip(predictions.sweep_rule, predictions.sweep_setting, strict=True)
    for (rule, setting), told, again in zip(names, predictions.sweep_score, found, strict=True):
        if abs(told - again) > TOLERANCE:  # False for NaN, which is not recomputable
            lines.append(
                f"{rule} at {setting:g} scores {told:.6f} in the sweep and {again:.6f} from the layers' answers"
            )
    return lines


def recomputed_sweep(predictions: Predictions, regression_threshold: float | None) -> np.ndarray:
    """The sweep's scores from the layers' answers alone, (settings,); NaN where these do not decide them.

    They decide every patience (of a regression, given the trial's `regression_threshold`) and the threshold 1, which is
    the last layer. Other thresholds need the posterior as exactly as the model had it, and it is stored in float16.
    """
    task, answers = predictions.task, predictions.layer_answers
    unknown = task.is_regression and regression_threshold is None
    scores = np.full(len(predictions.sweep_rule), np.nan)
    for i, (rule, setting) in enumerate(zip(predictions.sweep_rule, predictions.sweep_setting, strict=True)):
        if rule == "patience" and not unknown:
            layers = _patience_layers(answers, int(setting), regression_threshold)
        elif rule == "threshold" and setting == 1:
            layers = np.full(answers.shape[1], len(answers))
        else:
            continue
        chosen = answers[layers - 1, np.arange(answers.shape[1])]
        scores[i] = score(task, compute_metrics(task, chosen, predictions.labels, predictions.split))
    return scores


def _patience_layers(answers: np.ndarray, patience: int, regression_threshold: float | None) -> np.ndarray:
    """The exit layers, (n,): the first after `patience` agreements in a row with the layer before, else the last."""
    agreements, layers = np.zeros(answers.shape[1], dtype=int), np.full(answers.shape[1], len(answers))
    for layer in range(2, len(answers)):
        before, now = answers[layer - 2], answers[layer - 1]
        agree = before == now if regression_threshold is None else np.abs(before - now) < regression_threshold
        agreements = np.where(agree, agreements + 1, 0)
        layers = np.where((agreements == patience) & (layers == len(answers)), layer, layers)
    return layers


def _wrong_shapes(num_labels: int, arrays: dict[str, np.ndarray]) -> str | None:
    """What is wrong with the shapes of a file's arrays, one line; None where nothing is."""
    logits, n = arrays["logits"], len(arrays["ids"])
    dimensions = {name: axis + 1 + (name == "logits") for name, axis in _PER_EXAMPLE.items()}
    for name, axis in _PER_EXAMPLE.items():
        if arrays[name].ndim != dimensions[name] or arrays[name].shape[axis] != n or n == 0:
            return f"{name} has shape {arrays[name].shape}; allowed: {n} examples, at least one, on axis {axis}"
    if logits.shape[2] != num_labels or len(logits) != len(arrays["exit_layers"]):
        draws = len(arrays["exit_layers"])
        return f"logits have shape {logits.shape}; allowed: {draws} draw(s), {n} examples, {num_labels} label(s)"
    probabilities = arrays.get("exit_probabilities")
    if probabilities is not None and probabilities.shape != arrays["layer_answers"].shape:
        return f"exit_probabilities have shape {probabilities.shape}; allowed: {arrays['layer_answers'].shape}"
    return None
