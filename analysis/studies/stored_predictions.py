"""Read the stored dev predictions of confirm trials from `predictions/KEY.npz`, without pickle."""

from __future__ import annotations

import hashlib
import shlex
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
from trainables.models.answer_rules import read_rule
from trainables.models.exit_rules import ExitRule, LayerOutputs, apply_exit, exit_probabilities, stored_outputs

_PER_EXAMPLE = ("ids", "split", "labels", "logits", "exit_layers")
_SWEEP = ("sweep_rule", "sweep_field", "sweep_rule_fields", "sweep_setting", "sweep_score", "sweep_mean_layers")


@dataclass(frozen=True)
class Answers:
    """Predictions of one model for n examples. If its exit is random, there are several draws per example."""

    task: Task
    ids: np.ndarray  # (n,)
    split: np.ndarray  # (n,) names
    labels: np.ndarray  # (n,)
    answers: np.ndarray  # (draws, n) predicted classes or scores

    @cached_property
    def examples(self) -> str:
        """Digest of the ids, splits and labels of the examples. Equal digests mean the same examples."""
        arrays = (self.ids.astype(str), self.split, self.labels.astype(float))
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

    @property
    def draws(self) -> int:
        """Number of draws per example; 1 if the exit is not random."""
        return len(self.answers)

    def score_answers(self, answers: np.ndarray) -> float:
        """Compute the score of `answers` (n,) on these examples."""
        return score(self.task, compute_metrics(self.task, answers, self.labels, self.split))

    def scored(self, logits: np.ndarray) -> float:
        """Compute the score of `logits` (n, labels) on these examples."""
        return self.score_answers(predictions_from_logits(self.task, logits))

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the task, recomputed from the answers and averaged over the draws."""
        of_draws = [compute_metrics(self.task, own, self.labels, self.split) for own in self.answers]
        return {name: float(np.mean([metrics[name] for metrics in of_draws])) for name in of_draws[0]}

    @property
    def score(self) -> float:
        """The task's score, recomputed from the answers and averaged over the draws."""
        return score(self.task, self.metrics)


@dataclass(frozen=True)
class Predictions(Answers):
    """Dev outputs of a confirm trial at its selected epoch, and the results of its sweep over exit settings."""

    logits: np.ndarray  # (draws, n, labels)
    exit_layers: np.ndarray  # (draws, n) counted from 1
    layer_answers: np.ndarray  # (layers, n) classes or scores
    exit_probabilities: np.ndarray | None  # (layers, n) if the model has a Λ head; columns sum to 1
    outputs: LayerOutputs  # of all layers
    lengths: np.ndarray | None  # (n,) in tokens; None in older files
    sweep_rule: np.ndarray  # (settings,)
    sweep_field: np.ndarray  # (settings,) parameter of the rule that is swept
    sweep_rule_fields: np.ndarray  # (settings,) JSON
    sweep_setting: np.ndarray  # (settings,)
    sweep_score: np.ndarray  # (settings,)
    sweep_mean_layers: np.ndarray  # (settings,)

    @property
    def mean_layers(self) -> float:
        """Number of layers run, averaged over examples and draws."""
        return float(self.exit_layers.mean())

    @cached_property
    def sweep_rules(self) -> list[ExitRule | None]:
        """Exit rule of each swept setting; None if this package does not define the rule.

        Raises:
            ValueError: if the stored fields of a rule are wrong.
        """
        pairs = zip(self.sweep_rule.tolist(), self.sweep_rule_fields.tolist(), strict=True)
        return [read_rule(name, fields) for name, fields in pairs]


def read_predictions(study: Study, record: Record) -> Predictions | None:
    """Read the predictions of a confirm trial, or return None if they are not stored.

    Raises:
        ValueError: if the file is damaged.
    """
    path = predictions_file(study.folder, record.key)
    if not path.exists():
        return None
    if record.task not in TASKS:  # a task of the user, which the plan no longer has
        raise ValueError(f"{path} has predictions for {record.task}, which is not a task of the study's plan")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile):
        remedy = f"to repair it, if the model is kept: python -m study.rebuild {shlex.quote(str(study.folder))}"
        raise ValueError(f"{path}: the file is damaged, or has no predictions; {remedy}") from None
    if missing := [name for name in (*_PER_EXAMPLE, "layer_logits", *_SWEEP) if name not in arrays]:
        raise ValueError(f"{path} has no {', '.join(missing)}")
    task = TASKS[record.task]
    if wrong := _wrong_shapes(task.num_labels, arrays):
        raise ValueError(f"{path}: {wrong}")
    return predictions_from(task, arrays)


def predictions_from(task: Task, arrays: Mapping[str, np.ndarray]) -> Predictions:
    """Make predictions from the arrays of a predictions file."""
    outputs = stored_outputs(arrays)
    return Predictions(
        task=task,
        answers=np.stack([predictions_from_logits(task, logits) for logits in arrays["logits"]]),
        layer_answers=np.stack([predictions_from_logits(task, logits) for logits in outputs.logits]),
        exit_probabilities=None if outputs.lambdas is None else exit_probabilities(outputs),
        outputs=outputs,
        lengths=arrays.get("lengths"),
        **{name: arrays[name] for name in (*_PER_EXAMPLE, *_SWEEP)},
    )


def read_cell_predictions(cell: Cell) -> list[Predictions]:
    """Read the predictions of every seed of the cell; return an empty list if any seed has no stored predictions.

    Raises:
        ValueError: if a file is damaged.
    """
    read = [read_predictions(cell.find_study(record), record) for record in cell.records]
    stored = [predictions for predictions in read if predictions is not None]
    return stored if len(stored) == len(read) else []


def disagreements(record: Record, predictions: Predictions) -> list[str]:
    """List the differences between a record and its stored predictions, with one line for each.

    Also list the differences between the stored sweep over exit settings and `recomputed_sweep`.
    """
    metrics = [(name, record.metrics.get(name), value) for name, value in predictions.metrics.items()]
    pairs = [("score", record.score, predictions.score), ("mean_layers", record.mean_layers, predictions.mean_layers)]
    lines = [
        f"{name} is {recorded} in the record and {found:.6f} according to the predictions"
        for name, recorded, found in (*pairs, *metrics)
        if recorded is None or abs(recorded - found) > TOLERANCE
    ]
    stored = np.stack([predictions.sweep_score, predictions.sweep_mean_layers], axis=1)
    names = zip(predictions.sweep_rule, predictions.sweep_setting, strict=True)
    for (rule, setting), one, again in zip(names, stored, recomputed_sweep(predictions), strict=True):
        if (abs(one - again) > TOLERANCE).any():  # False for NaN: not recomputable
            lines.append(
                f"{rule} at {setting:g}: the sweep has score {one[0]:.6f} and {one[1]:.3f} layers, but the stored "
                f"outputs of all layers give score {again[0]:.6f} and {again[1]:.3f} layers"
            )
    return lines


def recomputed_sweep(predictions: Predictions) -> np.ndarray:
    """Recompute the score and the mean layers of each swept exit setting; the shape is (settings, 2).

    The result is NaN for exit rules that this package does not define.
    """
    recomputed = np.full((len(predictions.sweep_rule), 2), np.nan)
    for i, rule in enumerate(predictions.sweep_rules):
        if rule is not None:
            result = apply_exit(rule, predictions.outputs)
            recomputed[i] = predictions.scored(result.logits), result.exit_layer.mean()
    return recomputed


def _wrong_shapes(num_labels: int, arrays: dict[str, np.ndarray]) -> str | None:
    """Describe the first array that has a wrong shape, or return None if all shapes are right."""
    sizes = (arrays[name].shape for name in ("ids", "exit_layers", "layer_logits"))
    n, draws, layers = (size[0] if size else 0 for size in sizes)
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("ids", "split", "labels", "lengths"), (n,)),
        "exit_layers": (draws, n),
        "logits": (draws, n, num_labels),
        "layer_logits": (layers, n, num_labels),
        **dict.fromkeys(("lambdas", "uncertainties"), (layers, n)),
    }
    for name, shape in shapes.items():
        if name in arrays and (arrays[name].shape != shape or 0 in shape):
            return f"{name} has shape {arrays[name].shape}; allowed: {shape}, with at least one element on each axis"
    return None
