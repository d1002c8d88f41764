"""Measures the inference times of several models together, so that their ratios can be trusted.

In every round, all models answer the same texts. A round has several blocks of texts; within a block, the models take
turns in an order that is drawn anew, so a machine that becomes slower or faster affects all models alike. On a single
CPU thread, only the CPU time of that thread counts, which leaves out most of the work of other programs.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, stdev
from typing import Any

import numpy as np
import torch

from trainables.data.examples import Examples
from trainables.models.answer_rules import FixedLayer, MaxProbability
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitRule, LastLayer, apply_exit, leave_at, read_setting
from trainables.runs.evaluation import evaluating, full_depth_outputs
from trainables.runs.flops import count_flops
from trainables.runs.times import DETAIL_EVERY, ExitKind, LayerTime, TimedModel

BLOCKS = 10  # of a round; each has texts of all lengths
BATCHES = {1: 200, 32: 20}  # batch size -> number of batches in a round; other sizes have `OTHER_BATCHES`
OTHER_BATCHES = 20
FEWEST_BLOCKS = 2
FEWEST_ROUNDS, MOST_ROUNDS = 3, 50
PRECISION = 0.005  # half width of a ratio's interval over rounds at which the measurement ends
CHECKED_SETTINGS = 5  # swept exit settings that are timed, to check times computed from those of single layers
ENCODER_PARTS = ("layer", "attend", "feed_forward", "first_after", "first_of_last", "read")  # methods of the encoder
HEAD_PARTS = ("exit_heads", "pooled", "classified", "exit_logits")  # methods of the model
PROCESSOR_TIMES = Path("/proc/stat")

Clock = Callable[[], float]


class TooLittleTime(ValueError):
    """Raised if the smallest measurement would take longer than allowed; `seconds` is what it needs."""

    def __init__(self, seconds: float) -> None:
        """Store the seconds."""
        super().__init__(f"the measurement needs {seconds:.0f} s")
        self.seconds = seconds


@dataclass(frozen=True)
class Contestant:
    """A model to time, and the arm that it belongs to."""

    key: str  # of its trial
    arm: str
    model: EarlyExitModel
    examples: Examples  # the dev rows as the model reads them; all contestants have the same rows


@dataclass
class _Way:
    """One model under one exit rule, and the seconds that its batches took."""

    contestant: Contestant
    rule: ExitRule
    kind: ExitKind
    at: float | None = None
    seconds: dict[int, list[list[float]]] = field(default_factory=dict)  # batch size -> round -> batch
    exit_layers: dict[int, list[np.ndarray]] = field(default_factory=dict)  # batch size -> batch, in the first round

    def run(self, batch: Batch, seed: int) -> np.ndarray:
        """Answer a batch, and return its exit layers; the device has then finished."""
        return np.asarray(self._infer(batch, torch.Generator().manual_seed(seed)).cpu())

    def time(self, batch: Batch, seed: int, clock: Clock) -> tuple[float, np.ndarray]:
        """Return the seconds that a batch takes, and its exit layers. Rules that sample draw the same in each round."""
        generator, device = torch.Generator().manual_seed(seed), batch["input_ids"].device
        wait_for(device)
        began = clock()
        exit_layer = self._infer(batch, generator)
        wait_for(device)
        return clock() - began, np.asarray(exit_layer.cpu())

    def _infer(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        return self.contestant.model.infer(batch, generator, self.rule).exit_layer

    def summarise(self, size: int) -> TimedModel:
        """Summarise the times of one batch size, in milliseconds per text."""
        layers = self.exit_layers[size]
        times = 1000 * np.array(self.seconds[size]) / len(layers[0])  # (rounds, batches)
        return TimedModel(
            key=self.contestant.key,
            exit=self.kind,
            rule=self.rule.name,
            at=self.at,
            batch_size=size,
            mean_layers=float(np.concatenate(layers).mean()),
            texts=tuple(_shorten(value) for value in np.median(times, axis=0)),
            rounds=tuple(_shorten(value) for value in times.mean(axis=1)),
            exit_layers=tuple(np.concatenate(layers).tolist()) if self.kind == "setting" else (),
        )


def _shorten(milliseconds: float) -> float:
    """Round to four significant digits, because a journal keeps thousands of times."""
    return float(f"{milliseconds:.4g}")


@dataclass(frozen=True)
class Progress:
    """How far a measurement is."""

    rounds: int
    precision: float | None  # half width of the widest ratio's interval over the rounds; None before two rounds
    seconds_left: float  # at most


def measure(
    contestants: Sequence[Contestant],
    batch_sizes: Sequence[int],
    *,
    seconds: float,
    reference: str,
    most_rounds: int = MOST_ROUNDS,
    on_round: Callable[[Progress], None] = lambda progress: None,
) -> tuple[list[TimedModel], list[LayerTime]]:
    """Time all models under their own exit rules, and one model of each arm in detail.

    The details are single layers, fixed cuts and some other exit settings of the arm's first model, each on a part of
    the single texts. The measurement ends once the ratios of all arms to `reference` are precise.

    Args:
        seconds: longest time; if it is short, fewer texts are timed.
        reference: the arm without early exits, or any other arm.

    Raises:
        TooLittleTime: `FEWEST_ROUNDS` rounds of `FEWEST_BLOCKS` blocks take longer, by the speed of each arm's first
            model.
    """
    deadline = time.monotonic() + seconds
    firsts = list({contestant.arm: contestant for contestant in reversed(contestants)}.values())[::-1]
    blocks = _Blocks(contestants, batch_sizes)
    ways = [_Way(contestant, contestant.model.exit_rule, "own") for contestant in contestants]
    details = [way for first in firsts for way in _list_details(first)] if 1 in batch_sizes else []
    clock = choose_clock(_device(contestants[0].model))
    with _undisturbed():
        block_seconds = _estimate_block(blocks, ways, details, clock)
        left, needed = deadline - time.monotonic(), (1 + FEWEST_BLOCKS * FEWEST_ROUNDS) * block_seconds
        if needed > left:
            raise TooLittleTime(seconds - left + needed)
        blocks.run(0, ways + details, clock)  # warms up; these times are thrown away
        _forget(ways + details)
        number = int((deadline - time.monotonic()) / (FEWEST_ROUNDS * block_seconds))
        used = min(max(FEWEST_BLOCKS, number), blocks.number)
        for rounds in range(1, most_rounds + 1):
            began = time.monotonic()
            for way in ways + details:
                for size in blocks.sizes(way):
                    way.seconds.setdefault(size, []).append([])
            for place in range(used):
                blocks.run(place, ways + details, clock)
            now = time.monotonic()
            precision = _precision(ways, reference)
            on_round(Progress(rounds, precision, max(0.0, deadline - now)))
            is_precise = rounds >= FEWEST_ROUNDS and precision is not None and precision <= PRECISION
            is_last = rounds > 1 and now + (now - began) > deadline  # the machine may have become slower
            if is_precise or is_last:
                break
        layers = [
            _time_parts(first, size, blocks.batches(first, size, used)) for first in firsts for size in batch_sizes
        ]
    timed = [way.summarise(size) for way in ways + details for size in blocks.sizes(way)]
    return timed, layers


def _estimate_block(blocks: _Blocks, ways: Sequence[_Way], details: Sequence[_Way], clock: Clock) -> float:
    """Estimate the seconds of a block: those of the details, and those of each arm's first model for all its models."""
    models = Counter(way.contestant.arm for way in ways)
    firsts = {way.contestant.arm: way for way in reversed(ways)}
    seconds = 0.0
    for arm, way in firsts.items():
        blocks.run(0, [way], clock)  # warms up
        began = time.monotonic()
        blocks.run(0, [way], clock)
        seconds += models[arm] * (time.monotonic() - began)
    began = time.monotonic()
    blocks.run(0, details, clock)
    return seconds + time.monotonic() - began


def choose_clock(device: torch.device) -> Clock:
    """Choose the clock: CPU time for a model on a single CPU thread, and wall time for all others."""
    is_alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.thread_time if is_alone else time.perf_counter


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished its work; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device(model: EarlyExitModel) -> torch.device:
    return next(model.parameters()).device


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Collect no garbage inside the context."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _forget(ways: Sequence[_Way]) -> None:
    for way in ways:
        way.seconds.clear()
        way.exit_layers.clear()


def _precision(ways: Sequence[_Way], reference: str) -> float | None:
    """Compute the half width of the widest interval of a ratio to `reference`, over the rounds."""
    totals: dict[tuple[int, str], np.ndarray] = {}
    for way in ways:
        for size, seconds in way.seconds.items():
            place = (size, way.contestant.arm)
            totals[place] = totals.get(place, np.zeros(len(seconds))) + np.array(seconds).sum(axis=1)
    widths = []
    for (size, arm), own in totals.items():
        if arm != reference and len(own) > 1:
            widths.append(1.96 * stdev(np.log(own / totals[size, reference])) / len(own) ** 0.5)
    return max(widths, default=0.0 if ways and len(ways[0].seconds[min(ways[0].seconds)]) > 1 else None)


class _Blocks:
    """The texts of a measurement, divided into blocks. Each block has texts of all lengths."""

    def __init__(self, contestants: Sequence[Contestant], batch_sizes: Sequence[int]) -> None:
        """Choose the rows of all batches by the lengths that the first contestant reads."""
        lengths = contestants[0].examples.lengths
        rows = {size: choose_batches(lengths, size) for size in batch_sizes}
        self.number = min(BLOCKS, *(len(batches) for batches in rows.values()))
        self._rows = {
            size: [batches[place :: self.number] for place in range(self.number)] for size, batches in rows.items()
        }
        self._collated: dict[tuple[int, int, int], list[Batch]] = {}

    def sizes(self, way: _Way) -> list[int]:
        """List the batch sizes of a way."""
        return [*self._rows] if way.kind == "own" else [1]

    def collate(self, contestant: Contestant, size: int, place: int) -> list[Batch]:
        """Collate the batches of a block on the model's device; models that read the same tokens share them."""
        key = (id(contestant.examples), size, place)
        if key not in self._collated:
            device = _device(contestant.model)
            self._collated[key] = [contestant.examples.batch(rows, device) for rows in self._rows[size][place]]
        return self._collated[key]

    def batches(self, contestant: Contestant, size: int, used: int) -> list[Batch]:
        """List some batches of all blocks in use."""
        chosen = [self._choose_detailed(size, place) if size == 1 else slice(None) for place in range(used)]
        return [batch for place in range(used) for batch in self.collate(contestant, size, place)[chosen[place]]]

    def _choose_detailed(self, size: int, place: int) -> slice:
        """Choose the batches of a block that are also timed in detail: every so many of those of all blocks."""
        earlier = sum(len(rows) for rows in self._rows[size][:place])
        return slice(-earlier % DETAIL_EVERY, None, DETAIL_EVERY)

    def run(self, place: int, ways: Sequence[_Way], clock: Clock) -> None:
        """Let every way answer a block, in a new order, and add the seconds to its last round."""
        for way in random.sample(ways, len(ways)):
            way.run(self.collate(way.contestant, min(self._rows), place)[0], seed=0)  # fills the caches
            for size in self.sizes(way):
                chosen = slice(None) if way.kind == "own" else self._choose_detailed(size, place)
                for number, batch in enumerate(self.collate(way.contestant, size, place)[chosen]):
                    seconds, exit_layer = way.time(batch, seed=place * 1000 + number, clock=clock)
                    rounds = way.seconds.setdefault(size, [[]])
                    rounds[-1].append(seconds)
                    if len(rounds) == 1:
                        way.exit_layers.setdefault(size, []).append(exit_layer)


def choose_batches(lengths: np.ndarray, size: int, *, most: int | None = None) -> list[np.ndarray]:
    """Choose the rows of at most `most` batches with texts of similar lengths, as inference makes them.

    The batches are spread over all lengths. The default of `most` is the number for a measurement.
    """
    order = np.argsort(-lengths, kind="stable")
    size = min(size, len(order))
    starts = np.arange(0, len(order) - size + 1, size)
    wanted = min(most or BATCHES.get(size, OTHER_BATCHES), len(starts))
    chosen = starts[np.linspace(0, len(starts) - 1, wanted).astype(int)]
    return [order[start : start + size] for start in chosen]


@dataclass(frozen=True)
class RuleCosts:
    """Costs per example under one exit rule, at one batch size."""

    examples: int  # number of timed examples
    milliseconds: float
    flops: float  # per example; the mean over the same examples


def compare_rules(
    model: EarlyExitModel, examples: Examples, rules: Sequence[ExitRule], num_batches: Mapping[int, int]
) -> dict[int, list[RuleCosts]]:
    """Time one model under several exit rules, in turn; return the costs of each rule by batch size.

    Args:
        num_batches: batch size -> largest number of batches. If there are fewer examples than a size, it is reduced.
    """
    costs: dict[int, list[RuleCosts]] = {}
    clock, contestant = choose_clock(_device(model)), Contestant("", "", model, examples)
    with evaluating(model) as device, _undisturbed():
        for wanted, most in num_batches.items():
            rows = choose_batches(examples.lengths, wanted, most=most)
            size, batches = len(rows[0]), [examples.batch(own, device) for own in rows]
            ways = [_Way(contestant, rule, "own") for rule in rules]
            for number in range(FEWEST_ROUNDS + 1):
                for way in ways:
                    way.seconds.setdefault(size, []).append([])
                for place, batch in enumerate(batches):
                    for way in ways:
                        seconds, exit_layer = way.time(batch, seed=place, clock=clock)
                        way.seconds[size][-1].append(seconds)
                        if number == 0:
                            way.exit_layers.setdefault(size, []).append(exit_layer)
            costs[size] = []
            for way in ways:
                del way.seconds[size][0]  # warms up
                number = size * len(batches)
                flops = sum(count_flops(partial(way.run, batch, seed=place)) for place, batch in enumerate(batches))
                costs[size].append(RuleCosts(number, float(np.mean(way.summarise(size).texts)), flops / number))
    return costs


# ---- details of one model


def _list_details(contestant: Contestant) -> list[_Way]:
    """List the ways that show what each layer, fixed cut and exit setting of a model costs."""
    model = contestant.model
    num_layers, swept = model.encoder.num_layers, model.sweep_rules()
    if not swept:
        return []
    rules = _choose_settings(contestant, swept)
    eager, layers = rules[0], range(1, num_layers + 1)
    late = {rule.earliest(num_layers): rule for rule in swept if rule.earliest(num_layers) > eager.earliest(num_layers)}
    cuts = [*map(FixedLayer, layers[:-1]), LastLayer()]
    others = [] if model.num_labels == 1 or isinstance(eager, MaxProbability) else [MaxProbability(0.5)]
    return [
        *(_Way(contestant, leave_at(eager, layer), "layer", at=layer) for layer in layers),
        *(_Way(contestant, leave_at(rule, layer), "first", at=layer) for layer, rule in late.items()),
        *(_Way(contestant, cut, "cut", at=layer) for cut, layer in zip(cuts, layers, strict=True)),
        *(_Way(contestant, rule, "setting", at=read_setting(rule)) for rule in rules),
        *(_Way(contestant, leave_at(other, layer), "layer", at=layer) for other in others for layer in layers),
    ]


def _choose_settings(contestant: Contestant, rules: Sequence[ExitRule]) -> list[ExitRule]:
    """Choose swept settings that differ in their mean layers, the fastest first."""
    rows = np.concatenate(choose_batches(contestant.examples.lengths, 1))
    outputs = full_depth_outputs(contestant.model, contestant.examples.take(rows), 32)
    layers = [float(apply_exit(rule, outputs).exit_layer.double().mean()) for rule in rules]
    chosen = [
        int(np.abs(np.array(layers) - wanted).argmin())
        for wanted in np.linspace(min(layers), max(layers), CHECKED_SETTINGS)
    ]
    return [rules[place] for place in dict.fromkeys(chosen)]


def _time_parts(contestant: Contestant, size: int, batches: Sequence[Batch]) -> LayerTime:
    """Split the time of a layer, if no example leaves early, into encoder, heads and exit decision."""
    model, device = contestant.model, _device(contestant.model)
    clock, spent = choose_clock(device), {"embed": 0.0, "encoder": 0.0, "heads": 0.0}
    num_layers = model.encoder.num_layers
    rule = leave_at(_find_eager(model), num_layers)
    parts: list[tuple[str, Any, Sequence[str]]] = [
        ("embed", model.encoder, ("embed",)),
        ("encoder", model.encoder, ENCODER_PARTS),
        ("heads", model, HEAD_PARTS),
    ]
    whole: list[dict[str, float]] = []
    with _timing_parts(parts, spent, clock, device):
        for batch in [batches[0], *batches]:  # the first warms up
            spent.update(dict.fromkeys(spent, 0.0))
            began = clock()
            model.infer(batch, torch.Generator().manual_seed(0), rule).exit_layer.cpu()
            whole.append({**spent, "all": clock() - began})
    milliseconds = {name: 1000 * median(each[name] for each in whole[1:]) / size for name in (*spent, "all")}
    rest = milliseconds["all"] - milliseconds["embed"] - milliseconds["encoder"] - milliseconds["heads"]
    return LayerTime(
        key=contestant.key,
        batch_size=size,
        encoder=_shorten(milliseconds["encoder"] / num_layers),
        heads=_shorten(milliseconds["heads"] / num_layers),
        decision=_shorten(max(0.0, rest) / num_layers),
    )


def _find_eager(model: EarlyExitModel) -> ExitRule:
    """Return the model's rule with which examples may leave earliest, of its own and the swept ones."""
    num_layers = model.encoder.num_layers
    return min([model.exit_rule, *model.sweep_rules()], key=lambda rule: rule.earliest(num_layers))


@contextmanager
def _timing_parts(
    parts: Sequence[tuple[str, Any, Sequence[str]]], spent: dict[str, float], clock: Clock, device: torch.device
) -> Iterator[None]:
    """Add the time of these methods to `spent` inside the context. A method that another one calls counts once."""
    inside: list[str] = []

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if inside:
                return call(*args, **kwargs)
            inside.append(name)
            wait_for(device)
            began = clock()
            try:
                return call(*args, **kwargs)
            finally:
                wait_for(device)
                spent[name] += clock() - began
                inside.pop()

        return run

    replaced = [(holder, method) for _, holder, methods in parts for method in methods if hasattr(holder, method)]
    try:
        for name, holder, methods in parts:
            for method in methods:
                if hasattr(holder, method):
                    setattr(holder, method, timed(name, getattr(holder, method)))
        yield
    finally:
        for holder, method in replaced:
            vars(holder).pop(method, None)


# ---- other work on the machine


@dataclass(frozen=True)
class ProcessorTimes:
    """Seconds that the processors which this process may use have worked, and that this process has worked."""

    clock: float
    busy: float
    own: float
    processors: int

    @classmethod
    def read(cls) -> ProcessorTimes | None:
        """Read the times; None on a system without `/proc/stat`."""
        if not PROCESSOR_TIMES.exists():
            return None
        usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in PROCESSOR_TIMES.read_text().splitlines()]
        rows = [[int(text) for text in numbers] for name, *numbers in lines if name in usable]
        # Waiting for a disk (the fifth number) is idle; guests (from the ninth on) are counted in user time already.
        ticks = sum(sum(row[:8]) - row[3] - row[4] for row in rows)
        used = os.times()
        return cls(
            clock=time.monotonic(),
            busy=ticks / os.sysconf("SC_CLK_TCK"),
            own=used.user + used.system + used.children_user + used.children_system,
            processors=len(rows),
        )

    def others_since(self, earlier: ProcessorTimes) -> float:
        """Compute the share of these processors that other work has used since `earlier`."""
        seconds = (self.clock - earlier.clock) * self.processors
        return min(1.0, max(0.0, (self.busy - earlier.busy - self.own + earlier.own) / seconds))


def measure_other_load(since: ProcessorTimes | None) -> float | None:
    """Compute the share of its processors that other programs have used since then; None if it is unknown."""
    now = ProcessorTimes.read()
    return None if since is None or now is None else round(now.others_since(since), 3)
