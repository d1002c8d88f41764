"""The confirm seeds of a cell as one program (`torch.func.vmap` over stacked weights) against one after another.

    python -m benchmarks.fused_seeds

Tiny models of equal shapes with other weights and other examples of equal length each, without dropout: a step is loss,
gradient, clipping by each member's own norm and AdamW. Both ways must find the same losses and gradients; that is
checked before anything is timed. Rounds are interleaved, and a ratio is the median of the rounds' own. Texts are of
equal length here; of real ones fused members would all be padded to the longest of all. Methods whose walk looks at the
data (PonderNet and PALBERT leave out layers behind every example's cut) have no such program: `vmap` says so, and so
does the row. Results go to benchmarks/results/fused_seeds.json.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

import search_spaces
import trainables
from benchmarks.counts import count
from benchmarks.random_texts import VOCABULARY, random_examples
from benchmarks.results_file import write_results
from benchmarks.training_contenders import device
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.runs.devices import device_name

TOKENS = 24  # of every text
LEARNING_RATE = 1e-4
LARGEST_NORM = 1.0
LOOKS_AT_DATA = "data-dependent control flow"  # in vmap's words
TOLERANCE = 1e-6  # between the gradients of both ways


class OneByOne:
    """Every member by itself."""

    def __init__(self, models: list[EarlyExitModel], batches: list[Batch]) -> None:
        self._models, self._batches = models, batches
        self._optimizers = [torch.optim.AdamW(model.parameters(), LEARNING_RATE) for model in models]

    def gradients(self) -> list[dict[str, Tensor]]:
        """Member -> parameter -> gradient."""
        for model, batch in zip(self._models, self._batches, strict=True):
            model.zero_grad()
            model.loss(batch)["loss"].backward()
        return [
            {name: own.grad.clone() for name, own in model.named_parameters() if own.grad is not None}
            for model in self._models
        ]

    def step(self) -> None:
        for model, batch, optimizer in zip(self._models, self._batches, self._optimizers, strict=True):
            optimizer.zero_grad()
            model.loss(batch)["loss"].backward()
            nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
            optimizer.step()


class Fused:
    """All members at once."""

    def __init__(self, models: list[EarlyExitModel], batches: list[Batch]) -> None:
        """
        Raises:
            RuntimeError: at the first step, of `vmap`: the method's loss looks at the data.
        """
        parameters, self._buffers = stack_module_state([_Loss(model) for model in models])
        self._parameters = {name: nn.Parameter(stacked.detach().clone()) for name, stacked in parameters.items()}
        self._batch = {name: torch.stack([batch[name] for batch in batches]) for name in batches[0]}
        self._optimizer = torch.optim.AdamW(self._parameters.values(), LEARNING_RATE)
        member = _Loss(copy.deepcopy(models[0]))
        self._differentiate = vmap(
            grad_and_value(lambda own, buffers, batch: functional_call(member, (own, buffers), (batch,))),
            randomness="different",
        )

    def gradients(self) -> list[dict[str, Tensor]]:
        """Member -> parameter -> gradient."""
        stacked = self._stacked_gradients()
        members = len(next(iter(stacked.values())))
        return [{name.removeprefix("model."): of[index] for name, of in stacked.items()} for index in range(members)]

    def step(self) -> None:
        stacked = self._stacked_gradients()
        norms = torch.stack([of.flatten(1).norm(dim=1) for of in stacked.values()]).norm(dim=0)
        scale = (LARGEST_NORM / (norms + 1e-6)).clamp(max=1.0)
        for name, parameter in self._parameters.items():
            parameter.grad = stacked[name] * scale.view(-1, *[1] * (parameter.dim() - 1))
        self._optimizer.step()

    def _stacked_gradients(self) -> dict[str, Tensor]:
        own = {name: parameter.detach() for name, parameter in self._parameters.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of an operation that vmap runs member by member
            return self._differentiate(own, self._buffers, self._batch)[0]


class _Loss(nn.Module):
    def __init__(self, model: EarlyExitModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        return self.model.loss(batch)["loss"]


def main() -> None:
    arguments = build_parser().parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [measure(method, size, arguments) for method in arguments.methods for size in arguments.batch_sizes]
    facts = {"device": device_name(device()), "torch": torch.__version__, **vars(arguments)}
    write_results("fused_seeds", {**facts, "rows": rows})
    print(f"{arguments.members} members on {facts['device']}, {arguments.threads} thread(s)")
    for row in rows:
        print(f"{row['method']:10}  batch {row['batch_size']:3}  {in_words(row)}")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fused_seeds", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--methods", nargs="+", choices=search_spaces.available(), default=["albert", "pabee", "palbert"]
    )
    parser.add_argument("--members", type=count, default=5)
    parser.add_argument("--batch-sizes", type=count, nargs="+", default=[8, 32], metavar="N")
    parser.add_argument("--rounds", type=count, default=10)
    parser.add_argument("--threads", type=count, default=1)
    return parser


def measure(method: str, batch_size: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a step of all members both ways; without seconds where the method has no fused program."""
    row = {"method": method, "batch_size": batch_size, "members": arguments.members}
    models = [new_model(method, seed) for seed in range(arguments.members)]
    batches = batches_of(arguments.members, batch_size)
    ways = {"one_by_one": OneByOne(models, batches), "fused": Fused(models, batches)}
    try:
        check_same(ways["one_by_one"].gradients(), ways["fused"].gradients())
    except RuntimeError as error:
        if LOOKS_AT_DATA not in str(error):
            raise
        return row | {"refused": f"vmap allows no {LOOKS_AT_DATA}"}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds + 1):
        for name, way in ways.items():
            seconds[name].append(timed(way.step))
    pairs = zip(seconds["one_by_one"][1:], seconds["fused"][1:], strict=True)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    return row | {"seconds": medians, "ratio": statistics.median(before / fused for before, fused in pairs)}


def new_model(method: str, seed: int) -> EarlyExitModel:
    """A tiny one with random weights and without dropout, on the device."""
    space = search_spaces.load(method)
    first = {field: menu[0] for field, menu in {**space.paper_grid, **space.mini_grid}.items()}
    none = {"classifier_dropout": 0.0, "hidden_dropout": 0.0}
    config = trainables.configure(method, {**first, **space.fixed, **space.mini_fixed, **none})
    torch.manual_seed(seed)
    encoder = load_encoder(space.backbone["mini"], config, vocab_size=VOCABULARY)
    return trainables.load(method).build(config, encoder, TASKS["rte"]).to(device()).train()


def batches_of(members: int, batch_size: int) -> list[Batch]:
    """One of each member, on the device."""
    examples = random_examples(np.full(members * batch_size, TOKENS))
    parts = np.arange(members * batch_size).reshape(members, batch_size)
    return [examples.batch(rows, torch.device(device())) for rows in parts]


def check_same(one_by_one: list[dict[str, Tensor]], fused: list[dict[str, Tensor]]) -> None:
    """Passes if both have the same gradients within rounding."""
    for alone, together in zip(one_by_one, fused, strict=True):
        for name, gradient in alone.items():
            apart = (gradient - together[name]).abs().max().item()
            assert apart < TOLERANCE, f"{name}: gradients are {apart} apart"


def timed(work: Callable[[], object]) -> float:
    """Seconds: of this process, or where a GPU computes by the clock until it is done."""
    clock = time.perf_counter if device() == "cuda" else time.process_time
    began = clock()
    work()
    if device() == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def in_words(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"cannot be fused: {row['refused']}"
    alone, fused = row["seconds"]["one_by_one"], row["seconds"]["fused"]
    return f"{1000 * alone:7.1f} ms one by one, {1000 * fused:7.1f} ms fused: {row['ratio']:.2f}x"


if __name__ == "__main__":
    main()
