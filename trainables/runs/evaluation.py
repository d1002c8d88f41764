"""Evaluates a model: runs all layers once, scores the outputs under each exit setting, and chooses a setting."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from trainables.configuration.schema import Configuration
from trainables.data.examples import Examples
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import Task
from trainables.files.atomic_files import write_atomically
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import (
    ExitResult,
    ExitRule,
    LayerOutputs,
    Sampled,
    Threshold,
    apply_exit,
    exit_probabilities,
    read_setting,
    rule_as_json,
    with_setting,
)
from trainables.models.fronts import ROUNDING, front_weights, pareto_places
from trainables.runs.trial import LARGEST_CDF, EpochRow, Reported, read_most_layers

T = TypeVar("T")


@dataclass(frozen=True)
class Swept:
    """The score and the mean number of layers per example under one setting of a model's exit rule."""

    rule: ExitRule
    score: float
    mean_layers: float


@dataclass(frozen=True)
class Evaluation:
    """A model's predictions under one exit rule, and their score."""

    outputs: LayerOutputs  # outputs of all layers, on the CPU, in the order of the examples
    draws: tuple[ExitResult, ...]  # several for a sampled exit, otherwise one
    metrics: dict[str, float]  # by name; means over the draws
    score: float  # mean over the draws
    selection_score: float  # number by which epochs are compared: the score, unless `select_exit` changed it
    exit_setting: Configuration = field(default_factory=dict)  # values of the fields in `post_hoc`

    @property
    def num_layers(self) -> int:
        """Number of layers of the model."""
        return len(self.outputs.logits)

    @property
    def mean_layers(self) -> float:
        """Mean number of layers run, over all examples and draws."""
        return float(np.mean([draw.exit_layer.double().mean() for draw in self.draws]))

    @property
    def reported(self) -> Reported:
        """The score, metrics and mean layers of this evaluation."""
        return Reported(score=self.score, metrics=self.metrics, mean_layers=self.mean_layers)

    def row(self, **costs_and_place: Any) -> EpochRow:
        """Make an epoch's row from this evaluation.

        Args:
            costs_and_place: the remaining fields of the row, such as the epoch and the seconds.
        """
        return EpochRow(
            selection_score=self.selection_score,
            score=UNSET if self.selection_score == self.score else self.score,
            metrics=self.metrics,
            mean_layers=self.mean_layers,
            num_layers=self.num_layers,
            exit_setting=self.exit_setting,
            **costs_and_place,
        )


def evaluate(
    rule: ExitRule,
    outputs: LayerOutputs,
    task: Task,
    examples: Examples,
    *,
    generator: torch.Generator,
) -> Evaluation:
    """Apply an exit rule to a model's outputs, and score the resulting predictions.

    Args:
        outputs: outputs of all layers for the labelled examples; every number must be finite.
        generator: random generator on the CPU, for rules that sample exits.
    """
    draws = tuple(apply_exit(rule, outputs, generator) for _ in range(rule.draws))
    draw_metrics = tuple(_compute_metrics(task, draw.logits, examples) for draw in draws)
    scores = [score(task, metrics) for metrics in draw_metrics]
    metrics = {name: float(np.mean([draw[name] for draw in draw_metrics])) for name in draw_metrics[0]}
    if isinstance(rule, Threshold):
        metrics |= {LARGEST_CDF: float(exit_probabilities(outputs)[:-1].sum(0).max())}
    if isinstance(rule, Sampled):
        metrics |= {"sample_std": float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0}
    mean_score = float(np.mean(scores))
    return Evaluation(outputs, draws, metrics, mean_score, selection_score=mean_score)


def best_evaluation(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Choose the evaluation with the highest score. Between equal scores, fewer mean layers win.

    Scores that are not finite rank last.
    """
    return max(
        evaluations, key=lambda each: (each.score if math.isfinite(each.score) else -math.inf, -each.mean_layers)
    )


def layer_score(outputs: LayerOutputs, layer: int, task: Task, examples: Examples) -> float:
    """Compute the score of layer `layer` (counted from 1), as if every example exited there."""
    return score(task, _compute_metrics(task, outputs.logits[layer - 1], examples))


def full_depth_outputs(model: EarlyExitModel, examples: Examples, batch_size: int) -> LayerOutputs:
    """Compute the outputs of all layers for all examples, on the CPU, in the order of the examples."""
    return run_to_end(full_depth_in_steps(model, examples, batch_size))


def full_depth_in_steps(
    model: EarlyExitModel, examples: Examples, batch_size: int
) -> Generator[None, None, LayerOutputs]:
    """Do the same as `full_depth_outputs`, but yield after each batch."""
    batches, back = _sort_into_batches(examples, batch_size)
    parts = []
    with evaluating(model) as device:
        for rows in batches:
            parts.append(model.all_exits(examples.batch(rows, device)))
            yield
    names = parts[0].present
    joined = {name: torch.cat([vars(part)[name] for part in parts], dim=1).cpu()[:, back] for name in names}
    return LayerOutputs(**joined)


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def swept(model: EarlyExitModel, task: Task, examples: Examples, outputs: LayerOutputs) -> list[Swept]:
    """Compute score and mean layers for each exit rule that the model lists in `sweep_rules`.

    Args:
        outputs: outputs of all layers for `examples`.
    """
    rules = model.sweep_rules()
    results = [apply_exit(rule, outputs) for rule in rules]
    scores = [score(task, _compute_metrics(task, result.logits, examples)) for result in results]
    layers = [result.exit_layer.double().mean().item() for result in results]
    return [Swept(*each) for each in zip(rules, scores, layers, strict=True)]


def select_exit(
    evaluations: Sequence[Evaluation],
    select_by: str | UnsetType,
    *,
    model: EarlyExitModel,
    task: Task,
    examples: Examples,
) -> Evaluation:
    """Choose the exit setting of an epoch, and return the evaluation under this setting, with the selection score.

    By default, the setting with the best score is chosen, and the selection score is this score. `select_by` can have
    two other values:

    * `at:6`: of the settings that run at most 6 layers on average, the one with the best score is chosen. The selection
      score is this score. If all settings run more layers, the setting with the fewest layers is chosen. The selection
      score is then the score of layer 6, as if every example exited there.
    * `area`: the setting with the best score is chosen. The selection score is the mean score over the Pareto front,
      from one layer to all layers. The front is computed from all exit settings and all single layers.
      (castorini/berxit at 1fb2162, plotting/auc.py:57-95, compares two curves by the area between them.)

    If the model cannot exit early, the selection score is always the model's score.

    Args:
        evaluations: evaluations of the same outputs, one for each setting of the model's exit rule.
    """
    best, depth = best_evaluation(evaluations), evaluations[0].num_layers
    rules = [with_setting(model.exit_rule, evaluation.exit_setting) for evaluation in evaluations]
    if select_by is UNSET or all(rule.earliest(depth) == depth for rule in rules):
        return best
    most = read_most_layers(select_by)
    if most is None:
        return replace(best, selection_score=_compute_area(evaluations, model, task, examples))
    within = [evaluation for evaluation in evaluations if evaluation.mean_layers <= most + ROUNDING]
    if within:
        return best_evaluation(within)
    fewest = min(evaluations, key=lambda evaluation: (evaluation.mean_layers, -evaluation.score))
    return replace(fewest, selection_score=layer_score(fewest.outputs, math.floor(most), task, examples))


def _compute_area(evaluations: Sequence[Evaluation], model: EarlyExitModel, task: Task, examples: Examples) -> float:
    outputs, depth = evaluations[0].outputs, evaluations[0].num_layers
    points = [(setting.mean_layers, setting.score) for setting in evaluations]
    points += [(setting.mean_layers, setting.score) for setting in swept(model, task, examples, outputs)]
    points += [(layer, layer_score(outputs, layer, task, examples)) for layer in range(1, depth + 1)]
    layers, scores = np.array([point for point in points if math.isfinite(point[1])]).T
    front = pareto_places(layers, scores)
    return float(front_weights(layers[front], 1, depth) @ scores[front])


def infer(model: EarlyExitModel, examples: Examples, batch_size: int, generator: torch.Generator) -> ExitResult:
    """Predict examples. No example runs the layers after its exit.

    The resulting logits and exit layers are on the CPU, in the order of the examples.
    """
    batches, back = _sort_into_batches(examples, batch_size)
    with evaluating(model) as device:
        parts = [model.infer(examples.batch(rows, device), generator) for rows in batches]
    logits = torch.cat([part.logits for part in parts]).cpu()[back]
    return ExitResult(logits, torch.cat([part.exit_layer for part in parts]).cpu()[back])


def _sort_into_batches(examples: Examples, batch_size: int) -> tuple[list[np.ndarray], Tensor]:
    """Make batches of rows with similar lengths. Also return the indices that restore the original order.

    The longest rows come first, so that a batch too large for memory fails at once.
    """
    order = np.argsort(-examples.lengths, kind="stable")
    return np.split(order, range(batch_size, len(order), batch_size)), torch.from_numpy(np.argsort(order))


@contextmanager
def evaluating(model: EarlyExitModel) -> Iterator[torch.device]:
    """Put the model into evaluation mode (without dropout) inside the context, and yield its device."""
    was_training = model.training
    model.eval()
    try:
        yield next(model.parameters()).device
    finally:
        model.train(was_training)


def write_predictions(
    path: Path, model: EarlyExitModel, task: Task, examples: Examples, evaluation: Evaluation
) -> None:
    """Write the model's predictions for every example to an npz file, which contains no pickled objects.

    The file has these arrays for n examples (`draws` is 1 unless exits are sampled):

    * `ids`, `split`, `labels` and `lengths` (in tokens): (n,). `logits`: (draws, n, labels), float32. `exit_layers`:
      (draws, n), uint8, counted from 1.
    * `layer_logits`: (layers, n, labels), float16 for classes (see `as_stored`) and float32 for scores. For 12 layers,
      QQP's 40,430 dev examples take 1.9 MB.
    * `lambdas` (models with Λ) or `uncertainties` (BERxiT): (layers, n), float32; another 1.9 MB for QQP.
    * Results under other exit settings, computed from `layer_logits`: `sweep_rule`, `sweep_rule_fields` (JSON),
      `sweep_field` (name of the field that varies, or ""), `sweep_setting` (value of this field, or NaN), `sweep_score`
      and `sweep_mean_layers`, all (settings,).
    """
    outputs, draws = evaluation.outputs, evaluation.draws
    layer_logits = as_stored(outputs.logits.numpy())
    stored = replace(outputs, logits=torch.from_numpy(layer_logits.astype(np.float32)))
    settings = swept(model, task, examples, stored)
    arrays: dict[str, np.ndarray] = {
        "ids": examples.ids,
        "split": examples.splits,
        "labels": examples.labels,
        "lengths": examples.lengths.astype(np.uint16),
        "logits": np.stack([draw.logits.numpy() for draw in draws]).astype(np.float32),
        "exit_layers": np.stack([draw.exit_layer.numpy() for draw in draws]).astype(np.uint8),
        "layer_logits": layer_logits,
        "sweep_rule": np.array([setting.rule.name for setting in settings], dtype=np.str_),
        "sweep_rule_fields": np.array([rule_as_json(setting.rule) for setting in settings], dtype=np.str_),
        "sweep_field": np.array([setting.rule.field or "" for setting in settings], dtype=np.str_),
        "sweep_setting": np.array([read_setting(setting.rule) for setting in settings], dtype=float),
        "sweep_score": np.array([setting.score for setting in settings]),
        "sweep_mean_layers": np.array([setting.mean_layers for setting in settings]),
    }
    heads = {name: values for name, values in outputs.present.items() if name != "logits"}
    arrays |= {name: values.numpy().astype(np.float32) for name, values in heads.items()}
    write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def as_stored(logits: np.ndarray) -> np.ndarray:
    """Round the logits of a classification, (layers, n, labels), to float16 without changing any predicted class.

    The scores of a regression are not rounded. If rounding would change a predicted class, the logit of this class is
    raised slightly above all others. Exit rules that use probabilities may still decide differently near a threshold.
    """
    if logits.shape[2] == 1:
        return logits
    half, best = np.clip(logits, -60_000, 60_000).astype(np.float16), logits.argmax(axis=2)[..., None]
    is_another = half.argmax(axis=2)[..., None] != best
    above = np.nextafter(half.max(axis=2, keepdims=True), np.float16(np.inf))
    np.put_along_axis(half, best, np.where(is_another, above, np.take_along_axis(half, best, axis=2)), axis=2)
    return half


def _compute_metrics(task: Task, logits: Tensor, examples: Examples) -> dict[str, float]:
    splits = examples.splits if examples.splits[0] in task.dev_splits else None  # None: a slice of train
    return compute_metrics(task, predictions_from_logits(task, logits.numpy()), examples.labels, splits)
