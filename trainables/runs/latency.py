"""How long an example takes, with the model's exits and without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from trainables.data.examples import Examples
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitRule, LastLayer


@dataclass(frozen=True)
class Latency:
    """Medians over the batches, in milliseconds per example."""

    with_exits: float
    all_layers: float  # the same model, heads included, where nobody leaves


def measure_latency(
    model: EarlyExitModel, examples: Examples, batch_size: int, generator: torch.Generator, *, num_batches: int
) -> Latency:
    """Latency over batches spread over the examples, each answered both ways in turn, after one that is not counted.

    Args:
        num_batches: at most.
    """
    rule, device = model.exit_rule, next(model.parameters()).device
    ways: tuple[ExitRule, ...] = (rule, LastLayer())
    milliseconds: list[list[float]] = []
    batches = _spread_batches(len(examples), batch_size, num_batches)
    for rows in (batches[0], *batches):
        batch = examples.batch(rows, device)
        milliseconds.append([1000 * _seconds(_answering(model, way, batch, generator)) / len(rows) for way in ways])
    model.exit_rule = rule
    return Latency(*(statistics.median(times) for times in zip(*milliseconds[1:], strict=True)))


def _spread_batches(num_examples: int, batch_size: int, num_batches: int) -> list[np.ndarray]:
    """Row numbers of at most so many batches, in the order of the rows; the last row may be in none."""
    size = min(batch_size, num_examples)
    starts = np.linspace(0, num_examples - size, min(num_batches, num_examples // size)).astype(int)
    return [np.arange(start, start + size) for start in starts]


def _answering(model: EarlyExitModel, way: ExitRule, batch: Batch, generator: torch.Generator) -> Callable[[], object]:
    model.exit_rule = way
    return lambda: model.infer(batch, generator).logits.cpu()  # on a GPU this waits for the answers


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
