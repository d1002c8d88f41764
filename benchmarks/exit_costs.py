"""What exits cost where nobody leaves, on MiniLM: time of each method's model, as a multiple of the plain model's.

Part of `benchmarks.early_exit_speed`. The heads are such that every layer decides and no example leaves: adjacent
classifiers of PABEE disagree, Λ gives λ = 0, BERxiT's exit head is sure that the answer is wrong. So a ratio above 1 is
what heads and decisions cost. Under two settings the heads need no decision: PABEE's published patience of 6, and
PALBERT's rule without exits.

All arms take turns at each batch, in an order drawn anew; a ratio is that of two sums over the batches of a round, and
the figure is the median over the rounds. `plain again` is the plain model as a second arm: how far it is from 1 is the
error of the measurement. `plain and products of Λ` is the plain model with the matrix products of PALBERT's Λ, and no
other part of it, after each layer below the last. There they cost more than in a row, because the weights of each layer
displace those of Λ from the cache.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import search_spaces
import trainables
from benchmarks.random_texts import VOCABULARY, random_examples
from benchmarks.training_contenders import device, minilm_folder
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitRule, LastLayer, LearnedExit, Patience, Sampled, Threshold
from trainables.models.ponder import PonderModel

PLAIN, AGAIN, PRODUCTS = "plain", "plain again", "plain and products of Λ"
LENGTHS = (5, 45)  # tokens, from and up to; the mean is that of SST-2's dev texts
NUM_BATCHES = {1: 32, 32: 2}  # by batch size
MOST = {
    "pabee, patience 1": 1.05,
    "pabee, patience 6": 1.05,
    "pondernet": 1.05,
    "palbert, q .999": 1.10,
}  # PALBERT: and products of Λ

Row = dict[str, Any]


def measure_costs(pooling: str, batch_size: int, rounds: int, timed: Callable[[Callable[[], object]], float]) -> Row:
    """Measure the ratio to the plain model's time for each arm, at one batch size.

    Args:
        timed: returns the seconds that a function takes.

    Raises:
        ValueError: if MiniLM is not installed.
    """
    arms = make_arms(pooling)
    batches, generator = make_batches(batch_size), np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        sums = dict.fromkeys(arms, 0.0)
        for batch, name in itertools.chain.from_iterable(
            [(batch, name) for name in generator.permutation(list(arms))] for batch in batches
        ):
            sums[name] += timed(lambda run=arms[name], batch=batch: run(batch))
        if number:  # the first round warms up
            for name, total in sums.items():
                seconds[name].append(total)
    ratios = {name: statistics.median(np.divide(times, seconds[PLAIN]).tolist()) for name, times in seconds.items()}
    texts = batch_size * len(batches)
    milliseconds = {name: 1000 * statistics.median(times) / texts for name, times in seconds.items()}
    return {"pooling": pooling, "batch_size": batch_size, "ratios": ratios, "milliseconds": milliseconds}


def make_arms(pooling: str) -> dict[str, Callable[[Batch], object]]:
    """Make the functions to time, by name; each handles one batch."""
    plain, pabee, berxit, pondernet, palbert = (
        make_model(method, pooling) for method in ("albert", "pabee", "berxit", "pondernet", "palbert")
    )
    assert isinstance(palbert, PonderModel)
    rules: dict[str, tuple[EarlyExitModel, ExitRule]] = {
        PLAIN: (plain, LastLayer()),
        AGAIN: (plain, LastLayer()),
        "pabee, patience 1": (pabee, Patience(1, None)),
        "pabee, patience 6": (pabee, Patience(6, None)),
        "berxit": (berxit, LearnedExit(0.2)),
        "pondernet": (pondernet, Sampled(1)),
        "palbert, q .999": (palbert, Threshold(0.999)),
        "palbert, last layer": (palbert, LastLayer()),
    }
    arms = {name: infer_with(model, rule) for name, (model, rule) in rules.items()}
    return {**arms, PRODUCTS: infer_and_multiply(plain, palbert)}


@torch.no_grad()
def make_model(method: str, pooling: str) -> EarlyExitModel:
    """Make a method's model on MiniLM, whose heads let no example leave."""
    torch.manual_seed(0)
    space = search_spaces.load_space(method)
    values = {**space.fixed, **{field: menu[0] for field, menu in space.paper_grid.items()}}
    config = trainables.configure(method, values | {"pooling": pooling, "num_hidden_layers": 0})
    encoder = load_encoder(minilm_folder(), config, vocab_size=VOCABULARY)
    model: EarlyExitModel = trainables.load_method(method).build(config, encoder, TASKS["sst2"])
    for layer, classifier in enumerate(getattr(model, "classifiers", [])):
        classifier.weight.zero_()
        classifier.bias[layer % 2] = 1  # adjacent layers disagree
    if isinstance(model, PonderModel):
        never(model.lambda_head.output, -30)
    if method == "berxit":
        never(model.get_submodule("exit_head"), 30)
    return model.to(device()).eval()


def never(head: nn.Module, logit: float) -> None:
    """Let a linear head give the same logit for every example."""
    assert isinstance(head, nn.Linear)
    head.weight.zero_()
    head.bias.fill_(logit)


def infer_with(model: EarlyExitModel, rule: ExitRule) -> Callable[[Batch], object]:
    """Return a function that infers a batch under a rule, and checks that nobody left."""

    def run(batch: Batch) -> None:
        exit_layer = model.infer(batch, torch.Generator().manual_seed(0), rule).exit_layer
        assert int(exit_layer.min()) == model.encoder.num_layers, f"{rule} lets examples leave"

    return run


def infer_and_multiply(plain: EarlyExitModel, palbert: PonderModel) -> Callable[[Batch], object]:
    """Return a function that runs the plain model, and the linear maps of Λ after each layer but the last."""
    maps = [*palbert.lambda_head.hidden, palbert.lambda_head.output]
    states = {size: torch.zeros(size, maps[0].in_features, device=device()) for size in NUM_BATCHES}
    encoder, last = plain.encoder, plain.encoder.num_layers - 1

    @torch.no_grad()
    def run(batch: Batch) -> None:
        hidden = encoder.embed(**{name: values for name, values in batch.items() if name != "labels"})
        for index in range(last):
            hidden = encoder.layer(index, hidden)
            inputs = states[len(batch["input_ids"])]
            for linear in maps:
                linear(inputs)
        pooled = plain.pooled(last, encoder.first_of_last(hidden)[None])
        plain.classified(last, pooled).cpu()

    return run


def make_batches(batch_size: int) -> list[Batch]:
    """Make batches of random texts of similar length."""
    number = NUM_BATCHES[batch_size]
    lengths = np.sort(np.random.default_rng(0).integers(*LENGTHS, size=batch_size * number, endpoint=True))
    examples = random_examples(lengths)
    rows = np.split(np.arange(len(lengths)), number)
    return [examples.batch(of_batch, torch.device(device())) for of_batch in rows]


def most(row: Row, arm: str) -> float | None:
    """Compute the largest ratio that an arm may have, or None if it has no bar."""
    if arm not in MOST:
        return None
    return MOST[arm] + (row["ratios"][PRODUCTS] - 1 if arm.startswith("palbert") else 0.0)


def missed_costs(rows: list[Row]) -> list[str]:
    """Name the arms that take longer than they may."""
    return [
        f"MISSED by {arm} at batch {row['batch_size']}, {row['pooling']}: {ratio:.3f} times plain; wanted: {bar:.3f}"
        for row in rows
        for arm, ratio in row["ratios"].items()
        if (bar := most(row, arm)) is not None and ratio > bar
    ]


def print_costs(rows: list[Row]) -> None:
    """Print a line for each arm, and a column for each batch size and pooling."""
    print("\nMiniLM, no example leaves: time / time of the plain model, and the largest allowed")
    print(" " * 24 + "".join(f"{row['pooling'] + ', batch ' + str(row['batch_size']):>19}" for row in rows))
    for arm in rows[0]["ratios"]:
        bars = [(row["ratios"][arm], most(row, arm)) for row in rows]
        cells = (f"{ratio:.3f}" + (f" ({bar:.3f})" if bar else " " * 8) for ratio, bar in bars)
        print(f"{arm:24}" + "".join(f"{cell:>19}" for cell in cells))
    print("plain, ms per text      " + "".join(f"{row['milliseconds'][PLAIN]:11.3f}{'':8}" for row in rows))
