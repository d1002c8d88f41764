"""The latency of an example by exit setting and batch size, beside layers and FLOPs."""

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
from trainables.devices import device_name
from trainables.models.answer_rules import FixedLayer
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitRule, LastLayer, setting_of
from trainables.runs.evaluation import evaluating
from trainables.runs.trial import ExitLatency, Latency, TextFlops, Timing

ROUNDS = 3  # that are timed


def timed_rules(model: EarlyExitModel) -> list[ExitRule]:
    """List the model's own exit, all layers, and the settings a third and two thirds along its sweep, each once."""
    swept = model.sweep_rules()
    some = [swept[len(swept) * third // 3] for third in (1, 2)] if swept else []
    return list(dict.fromkeys([model.exit_rule, LastLayer(), *some]))


def measure_latency(
    model: EarlyExitModel, examples: Examples, rules: Sequence[ExitRule], *, num_batches: Mapping[int, int]
) -> Latency:
    """Measure the latency under each rule, in batches spread over the examples.

    Every batch is answered under all rules in turn, round after round, the first one uncounted. A batch's time is that
    of its fastest round, since other work on the machine only adds to it; an example's is the mean over the batches.
    On one thread of a CPU only the thread's computing time counts.

    Args:
        num_batches: by batch size, at most. A batch has no more examples than there are.
    """
    sizes = {min(size, len(examples)): number for size, number in num_batches.items()}
    with evaluating(model) as device:
        answers = [
            _Answer(model, rule, examples.batch(rows, device), number)
            for size, most in sizes.items()
            for number, rows in enumerate(_choose_batches(len(examples), size, most))
            for rule in rules
        ]
        layers = [answer().double().mean().item() for answer in answers]
        timed = [
            _Timed(*pair)
            for pair in zip(answers, layers, _time_fastest_rounds(answers, _choose_clock(device)), strict=True)
        ]
        exits = tuple(_summarise(rule, [batch for batch in timed if batch.answer.rule == rule]) for rule in rules)
    return Latency(device=device_name(device), threads=torch.get_num_threads(), exits=exits)


@dataclass(frozen=True)
class _Answer:
    """One batch under one rule. A sampled exit draws the same numbers each time."""

    model: EarlyExitModel
    rule: ExitRule
    batch: Batch
    seed: int

    @property
    def size(self) -> int:
        return len(self.batch["input_ids"])

    def __call__(self) -> Tensor:
        """Compute the exit layers (batch,), on the CPU: on a GPU this waits for the answers."""
        own, self.model.exit_rule = self.model.exit_rule, self.rule
        try:
            return self.model.infer(self.batch, torch.Generator().manual_seed(self.seed)).exit_layer.cpu()
        finally:
            self.model.exit_rule = own


@dataclass(frozen=True)
class _Timed:
    answer: _Answer
    mean_layers: float
    seconds: float  # of the batch


def _summarise(rule: ExitRule, timed: list[_Timed]) -> ExitLatency:
    """Summarise all batches under one rule by their sizes."""
    by_size: dict[int, list[_Timed]] = {}
    for each in timed:
        by_size.setdefault(each.answer.size, []).append(each)
    timings = [
        Timing(
            batch_size=size,
            examples=size * len(batches),
            mean_layers=mean(batch.mean_layers for batch in batches),
            milliseconds=1000 * mean(batch.seconds for batch in batches) / size,
        )
        for size, batches in by_size.items()
    ]
    flops = count_flops(by_size[max(by_size)][0].answer) / max(by_size)
    return ExitLatency(rule=rule.name, setting=setting_of(rule), flops=flops, timings=tuple(timings))


def count_flops_of_texts(model: EarlyExitModel, examples: Examples) -> tuple[TextFlops, ...]:
    """Count the FLOPs of the shortest, the median and the longest text, for each layer that it may leave after.

    A text of at least `HALVED_FROM` tokens skips half of the layer that it leaves after, so FLOPs of shorter and longer
    texts do not lie on one parabola.
    """
    by_length = np.argsort(examples.lengths, kind="stable")
    rows = {int(examples.lengths[row]): row for row in by_length[[0, len(by_length) // 2, -1]]}
    rules = [FixedLayer(layer) for layer in range(1, model.encoder.num_layers + 1)]
    with evaluating(model) as device:
        batches = {tokens: examples.batch(np.array([row]), device) for tokens, row in rows.items()}
        flops = {
            tokens: [count_flops(_Answer(model, rule, batch, seed=0)) for rule in rules]
            for tokens, batch in batches.items()
        }
    return tuple(TextFlops(tokens=tokens, by_layer=tuple(map(float, counts))) for tokens, counts in flops.items())


def _choose_batches(num_examples: int, batch_size: int, num_batches: int) -> list[np.ndarray]:
    """Choose the rows of at most so many batches, in the order of the rows; the last row may be in none."""
    starts = np.linspace(0, num_examples - batch_size, min(num_batches, num_examples // batch_size)).astype(int)
    return [np.arange(start, start + batch_size) for start in starts]


def _time_fastest_rounds(answers: list[_Answer], clock: Callable[[], float]) -> list[float]:
    """Time each answer's fastest round, in seconds."""
    rounds = [[_time(answer, clock) for answer in answers] for _ in range(ROUNDS)]
    return [min(seconds) for seconds in zip(*rounds, strict=True)]


def _choose_clock(device: torch.device) -> Callable[[], float]:
    """Choose the thread's clock if it computes alone on a CPU, which others may use meanwhile; else the wall's."""
    is_alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.thread_time if is_alone else time.perf_counter


def _time(run: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    run()
    return clock() - began


def count_flops(run: Callable[[], object]) -> int:
    """Count the FLOPs of a run's matrix products and convolutions, a multiplication and an addition being two.

    Attention runs on its plain implementation: the fused ones are not counted on every device.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()
