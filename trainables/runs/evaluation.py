"""Evaluating a model: one full-depth pass, then the exit rule, and every other setting of it, on the stored outputs."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from msgspec import UNSET
from torch import Tensor

from trainables.atomic_files import write_atomically
from trainables.data.examples import Examples
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import Task
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import (
    ExitResult,
    ExitRule,
    LayerOutputs,
    Sampled,
    Threshold,
    apply_exit,
    exit_probabilities,
    rule_as_json,
    setting_of,
    sweep,
)
from trainables.runs.trial import LARGEST_CDF, EpochRow, Reported
from trainables.schema import Configuration

T = TypeVar("T")


@dataclass(frozen=True)
class Swept:
    """The score and mean layers under one setting of a model's exit."""

    rule: ExitRule
    score: float
    mean_layers: float


@dataclass(frozen=True)
class Evaluation:
    """A model's answers under its own exit rule, and their score."""

    outputs: LayerOutputs  # of all layers, on the CPU, in the order of the examples
    draws: tuple[ExitResult, ...]  # one, or as many as a sampled exit is repeated
    draw_metrics: tuple[dict[str, float], ...]  # of each draw
    metrics: dict[str, float]  # mean over the draws; spread and expectation of a sampled exit, LARGEST_CDF of Q-exit
    score: float  # mean over the draws
    exit_setting: Configuration = field(default_factory=dict)  # chosen among several; empty if there was no choice
    selection_score: float | None = None  # that the epoch is selected by, if not by the score

    @property
    def num_layers(self) -> int:
        """Depth of the model."""
        return len(self.outputs.logits)

    @property
    def mean_layers(self) -> float:
        """Layers run per example, mean over the draws."""
        return float(np.mean([draw.exit_layer.double().mean() for draw in self.draws]))

    @property
    def selected_by(self) -> float:
        """The number that an epoch is selected by."""
        return self.score if self.selection_score is None else self.selection_score

    @property
    def reported(self) -> Reported:
        """The numbers on the split that the examples are of."""
        return Reported(score=self.score, metrics=self.metrics, mean_layers=self.mean_layers)

    def row(self, **costs_and_place: Any) -> EpochRow:
        """Make the row of an epoch from this evaluation and its other fields."""
        return EpochRow(
            selection_score=self.selected_by,
            score=UNSET if self.selected_by == self.score else self.score,
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
    """Evaluate the answers under an exit rule.

    Args:
        outputs: of a full-depth pass over the labelled examples, finite.
        generator: of a sampled exit, on the CPU.
    """
    draws = tuple(apply_exit(rule, outputs, generator) for _ in range(rule.draws))
    draw_metrics = tuple(_compute_metrics(task, draw.logits, examples) for draw in draws)
    scores = [score(task, metrics) for metrics in draw_metrics]
    metrics = {name: float(np.mean([draw[name] for draw in draw_metrics])) for name in draw_metrics[0]}
    if isinstance(rule, Threshold):
        metrics |= {LARGEST_CDF: float(exit_probabilities(outputs)[:-1].sum(0).max())}
    if isinstance(rule, Sampled):
        deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
        metrics |= {"sample_std": deviation, **_compute_expectations(task, outputs, examples)}
    return Evaluation(outputs, draws, draw_metrics, metrics, float(np.mean(scores)))


def best_evaluation(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Choose the highest score, and of equals the fewest layers; a score may be NaN."""
    return max(
        evaluations, key=lambda each: (each.score if math.isfinite(each.score) else -math.inf, -each.mean_layers)
    )


def layer_score(outputs: LayerOutputs, layer: int, task: Task, examples: Examples) -> float:
    """Score the answers of one layer (from 1): what the model is worth if everyone leaves there."""
    return score(task, _compute_metrics(task, outputs.logits[layer - 1], examples))


def full_depth_outputs(model: EarlyExitModel, examples: Examples, batch_size: int) -> LayerOutputs:
    """Compute the outputs of all layers for all examples, on the CPU, in their order."""
    return result_of(full_depth_in_steps(model, examples, batch_size))


def full_depth_in_steps(
    model: EarlyExitModel, examples: Examples, batch_size: int
) -> Generator[None, None, LayerOutputs]:
    """Work as `full_depth_outputs`, with a pause after each batch."""
    batches, back = _sort_into_batches(examples, batch_size)
    parts = []
    with evaluating(model) as device:
        for rows in batches:
            parts.append(model.all_exits(examples.batch(rows, device)))
            yield
    names = _list_fields(parts[0])
    joined = {name: torch.cat([vars(part)[name] for part in parts], dim=1).cpu()[:, back] for name in names}
    return LayerOutputs(**joined)


def _list_fields(outputs: LayerOutputs) -> list[str]:
    """List the fields that the model gives: logits (layers, n, labels), and λ or u (layers, n)."""
    return [name for name, values in vars(outputs).items() if values is not None]


def result_of(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def swept(model: EarlyExitModel, task: Task, examples: Examples, outputs: LayerOutputs) -> list[Swept]:
    """Evaluate the model's answers under each setting of its exit, from the outputs of one pass."""
    evaluated = []
    for rule, result in sweep(model.sweep_rules(), outputs):
        metrics = _compute_metrics(task, result.logits, examples)
        evaluated.append(Swept(rule, score(task, metrics), result.exit_layer.double().mean().item()))
    return evaluated


def infer(model: EarlyExitModel, examples: Examples, batch_size: int, generator: torch.Generator) -> ExitResult:
    """Infer answers and exit layers of all examples, on the CPU, in their order, without the layers behind an exit."""
    batches, back = _sort_into_batches(examples, batch_size)
    with evaluating(model) as device:
        parts = [model.infer(examples.batch(rows, device), generator) for rows in batches]
    logits = torch.cat([part.logits for part in parts]).cpu()[back]
    return ExitResult(logits, torch.cat([part.exit_layer for part in parts]).cpu()[back])


def _sort_into_batches(examples: Examples, batch_size: int) -> tuple[list[np.ndarray], Tensor]:
    """Put rows of similar lengths into one batch, so that little is computed on padding; also, the way back.

    The longest come first, so that batches too large for memory fail at once.
    """
    order = np.argsort(-examples.lengths, kind="stable")
    return np.split(order, range(batch_size, len(order), batch_size)), torch.from_numpy(np.argsort(order))


@contextmanager
def evaluating(model: EarlyExitModel) -> Iterator[torch.device]:
    """Switch dropout off; gives the device."""
    was_training = model.training
    model.eval()
    yield next(model.parameters()).device
    model.train(was_training)


def write_predictions(
    path: Path, model: EarlyExitModel, task: Task, examples: Examples, evaluation: Evaluation
) -> None:
    """Write the model's answers for every example (npz, nothing pickled).

    Of n examples, with one draw of an exit that is not sampled:

    * `ids`, `split`, `labels`, `lengths` in tokens (n,); `logits` (draws, n, labels), float32; `exit_layers` (draws,
      n), uint8, from 1.
    * `layer_logits` (layers, n, labels): float16 of classes, see `as_stored`; scores float32. 1.9 MB for the 12 layers
      and 40,430 dev examples of QQP.
    * `lambdas` (layers, n), float32, of a model with a Λ head, `uncertainties` of one with BERxiT's: another 1.9 MB
      for QQP.
    * of each setting of the sweep, which is of the outputs as they are stored: `sweep_rule`, `sweep_rule_fields`
      (JSON), `sweep_field` (the one that is swept, or "") and `sweep_setting` (its number, or NaN), `sweep_score`,
      `sweep_mean_layers` (settings,).
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
        "sweep_setting": np.array([setting_of(setting.rule) for setting in settings], dtype=float),
        "sweep_score": np.array([setting.score for setting in settings]),
        "sweep_mean_layers": np.array([setting.mean_layers for setting in settings]),
    }
    heads = (name for name in _list_fields(outputs) if name != "logits")
    arrays |= {name: getattr(outputs, name).numpy().astype(np.float32) for name in heads}
    write_atomically(path, lambda file: _write_arrays(file, arrays))


def as_stored(logits: np.ndarray) -> np.ndarray:
    """Round logits of classes (layers, n, labels) to float16, so that the greatest stays the same; leave scores alone.

    If rounding makes another class as great, the greatest becomes the next number above: agreement of layers, and every
    layer's answer, are those of full precision. Rules that look at probabilities may differ near their thresholds.
    """
    if logits.shape[2] == 1:
        return logits
    half, best = np.clip(logits, -60_000, 60_000).astype(np.float16), logits.argmax(axis=2)[..., None]
    is_another = half.argmax(axis=2)[..., None] != best
    above = np.nextafter(half.max(axis=2, keepdims=True), np.float16(np.inf))
    np.put_along_axis(half, best, np.where(is_another, above, np.take_along_axis(half, best, axis=2)), axis=2)
    return half


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:  # by name, savez would append its own ending
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _compute_metrics(task: Task, logits: Tensor, examples: Examples) -> dict[str, float]:
    splits = examples.splits if examples.splits[0] in task.dev_splits else None  # None: a slice of train
    return compute_metrics(task, predictions_from_logits(task, logits.numpy()), examples.labels, splits)


def _compute_expectations(task: Task, outputs: LayerOutputs, examples: Examples) -> dict[str, float]:
    """Compute the expected layers run and, for classes, the expected accuracy over the sampled exit: exact, no draw."""
    probabilities = exit_probabilities(outputs)  # (layers, n)
    layers = torch.arange(1, len(probabilities) + 1, dtype=torch.float64)
    expected = {"expected_mean_layers": float((layers @ probabilities).mean())}
    if not task.is_regression:
        correct = outputs.logits.argmax(dim=2) == torch.tensor(examples.labels)
        expected["expected_accuracy"] = float((probabilities * correct).sum(0).mean())
    return expected
