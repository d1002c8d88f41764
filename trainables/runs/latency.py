"""Measures latency, layers and FLOPs per example, by exit setting and batch size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from trainables.data.examples import Examples
from trainables.models.answer_rules import FixedLayer
from trainables.models.devices import device_name
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import HALVED_FROM, ExitRule, LastLayer, read_setting
from trainables.runs.evaluation import evaluating
from trainables.runs.trial import ExitLatency, Latency, TextFlops, Timing

ROUNDS = 3  # timed rounds; one untimed round precedes them


def timed_rules(model: EarlyExitModel) -> list[ExitRule]:
    """List the rules to time: the model's exit rule, the rule without early exit, and two of `sweep_rules`.

    Each rule is listed once.
    """
    swept = model.sweep_rules()
    some = [swept[len(swept) * third // 3] for third in (1, 2)] if swept else []
    return list(dict.fromkeys([model.exit_rule, LastLayer(), *some]))


def measure_latency(
    model: EarlyExitModel, examples: Examples, rules: Sequence[ExitRule], *, num_batches: Mapping[int, int]
) -> Latency:
    """Measure the latency under each exit rule.

    Each round runs every batch under every rule; the first round is not timed. The shortest time of a batch counts,
    because other work on the machine can only add time. The time per example is a mean over batches. For a
    model on a single CPU thread, only the CPU time of that thread counts.

    Args:
        num_batches: a map from batch size to the largest number of batches. A batch size above the number of examples
            is reduced to the number of examples.
    """
    sizes = {min(size, len(examples)): number for size, number in num_batches.items()}
    with evaluating(model) as device:
        runs = [
            _BatchRun(model, rule, examples.batch(rows, device), number)
            for size, most in sizes.items()
            for number, rows in enumerate(_choose_batches(len(examples), size, most))
            for rule in rules
        ]
        layers = [run().double().mean().item() for run in runs]
        clock = _choose_clock(device)
        rounds = [[_time(run, clock) for run in runs] for _ in range(ROUNDS)]
        seconds = [min(times) for times in zip(*rounds, strict=True)]
        timed = [_Timed(*each) for each in zip(runs, layers, seconds, strict=True)]
        exits = tuple(_summarise(rule, [batch for batch in timed if batch.run.rule == rule]) for rule in rules)
    return Latency(device=device_name(device), threads=torch.get_num_threads(), exits=exits)


@dataclass(frozen=True)
class _BatchRun:
    """A batch to run under one exit rule. A rule that samples exits draws the same numbers in each run."""

    model: EarlyExitModel
    rule: ExitRule
    batch: Batch
    seed: int

    @property
    def size(self) -> int:
        return len(self.batch["input_ids"])

    def __call__(self) -> Tensor:
        """Run the batch, and return its exit layers, (batch,), on the CPU.

        A call ends only after the GPU has finished, so the caller can time it.
        """
        return self.model.infer(self.batch, torch.Generator().manual_seed(self.seed), self.rule).exit_layer.cpu()


@dataclass(frozen=True)
class _Timed:
    run: _BatchRun
    mean_layers: float
    seconds: float  # time of the whole batch


def _summarise(rule: ExitRule, timed: list[_Timed]) -> ExitLatency:
    """Average one rule's times for each batch size, and count the FLOPs at the largest size."""
    by_size: dict[int, list[_Timed]] = {}
    for each in timed:
        by_size.setdefault(each.run.size, []).append(each)
    timings = [
        Timing(
            batch_size=size,
            examples=size * len(batches),
            mean_layers=mean(batch.mean_layers for batch in batches),
            milliseconds=1000 * mean(batch.seconds for batch in batches) / size,
        )
        for size, batches in by_size.items()
    ]
    flops = count_flops(by_size[max(by_size)][0].run) / max(by_size)
    return ExitLatency(rule=rule.name, setting=read_setting(rule), flops=flops, timings=tuple(timings))


def count_flops_of_texts(model: EarlyExitModel, examples: Examples) -> tuple[TextFlops, ...]:
    """Count the FLOPs of a few texts, for exits after layer 1, 2, ...

    Three lengths are counted: the shortest, the middle and the longest. They determine the FLOPs of all other lengths.
    A text of at least `HALVED_FROM` tokens skips about half of the layer at which it exits, unless the heads read the
    mean of all tokens, so three lengths below and three from `HALVED_FROM` are counted if both exist.
    """
    rows = {int(examples.lengths[row]): row for row in _choose_texts(examples.lengths)}
    rules = [FixedLayer(layer) for layer in range(1, model.encoder.num_layers + 1)]
    with evaluating(model) as device:
        batches = {tokens: examples.batch(np.array([row]), device) for tokens, row in rows.items()}
        flops = {
            tokens: [count_flops(_BatchRun(model, rule, batch, seed=0)) for rule in rules]
            for tokens, batch in batches.items()
        }
    return tuple(TextFlops(tokens=tokens, by_layer=tuple(map(float, counts))) for tokens, counts in flops.items())


def _choose_texts(lengths: np.ndarray) -> list[int]:
    """Choose a row with the shortest, the middle and the longest length, below and from `HALVED_FROM` tokens."""
    found, rows = np.unique(lengths, return_index=True)
    groups = (rows[found < HALVED_FROM], rows[found >= HALVED_FROM])
    return [int(row) for group in groups if len(group) for row in group[[0, len(group) // 2, -1]]]


def _choose_batches(num_examples: int, batch_size: int, num_batches: int) -> list[np.ndarray]:
    """Choose the rows of at most `num_batches` batches.

    Each batch has consecutive rows, and the batches are spread evenly over the examples.
    """
    starts = np.linspace(0, num_examples - batch_size, min(num_batches, num_examples // batch_size)).astype(int)
    return [np.arange(start, start + batch_size) for start in starts]


def _choose_clock(device: torch.device) -> Callable[[], float]:
    """Choose the clock: CPU time for a model on a single CPU thread, and wall time for all others.

    CPU time leaves out the work of other programs on the same CPU.
    """
    is_alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.thread_time if is_alone else time.perf_counter


def _time(run: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    run()
    return clock() - began


def count_flops(run: Callable[[], object]) -> int:
    """Call `run`, and count the FLOPs of its matrix products and convolutions.

    A multiplication and an addition count as two FLOPs. Attention runs without a fused kernel, because PyTorch does not
    count the FLOPs of fused kernels on every device.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()
