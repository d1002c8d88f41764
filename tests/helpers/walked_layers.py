"""Small models, texts of unlike lengths for them, and the states after each layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from helpers.configurations import config_of
from torch import Tensor

import trainables
from trainables.data.tasks import TASKS
from trainables.encoders.layerwise import LayerwiseEncoder
from trainables.encoders.loading import load_encoder
from trainables.encoders.token_states import Places, TokenStates
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import Step

LENGTHS = (20, 3, 1, 32, 5)


def texts(lengths: tuple[int, ...] = LENGTHS, tokens: int = 32) -> dict[str, Tensor]:
    """A batch with as many tokens as `lengths` says, and pads."""
    generator = torch.Generator().manual_seed(0)
    real = torch.arange(tokens) < torch.tensor(lengths)[:, None]
    ids = torch.randint(1, 30, (len(lengths), tokens), generator=generator)
    return {"input_ids": ids * real, "attention_mask": real.long(), "token_type_ids": torch.zeros_like(ids)}


def model_of(
    family: str, method: str = "palbert", *, seed: int = 0, backbone: str = "", **changes: Any
) -> EarlyExitModel:
    """A model of a method on a tiny backbone, in evaluation mode."""
    torch.manual_seed(seed)
    config = config_of(method, **{"hidden_dropout": 0.0, "classifier_dropout": 0.0, "max_length": 32} | changes)
    encoder = load_encoder(backbone or f"mini-{family}", config, vocab_size=30)
    return trainables.load_method(method).build(config, encoder, TASKS["rte"]).eval()


class At:
    """An exit rule by which each example leaves after a layer of its own."""

    draws = 1

    def __init__(self, *layers: int) -> None:
        self.layers = layers

    def earliest(self, num_layers):
        return 1

    def start(self, num_layers, logits, generator):
        return {"layers": torch.tensor(self.layers)}

    def step(self, state, layer, num_layers, logits, lambdas):
        return Step(state["layers"] == layer, logits, state)


def recorded_halves(encoder: Any) -> dict[str, list[int]]:
    """For how many tokens each half of a layer is asked from now on."""
    halves = {"attend": encoder._attend, "feed_forward": encoder._feed_forward}
    seen: dict[str, list[int]] = {name: [] for name in halves}

    def recorded(name, layer, states, *more):
        seen[name].append(states.shape[:-1].numel())
        return halves[name](layer, states, *more)

    encoder._attend, encoder._feed_forward = (partial(recorded, name) for name in halves)
    return seen


def walk(encoder: LayerwiseEncoder, **texts: Any) -> Iterator[TokenStates]:
    """The states after each layer, none of them asked for the first token alone."""
    states = encoder.embed(**texts)
    for index in range(encoder.num_layers):
        states = encoder.layer(index, states)
        yield states


def padded(states: TokenStates) -> Tensor:
    """(batch, tokens, hidden), with anything at pads."""
    return states.mask.padded(states.hidden) if isinstance(states.mask, Places) else states.hidden
