"""The states after each layer of an encoder, none of them asked for the first token alone; and states with pads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from trainables.encoders.layerwise import LayerwiseEncoder
from trainables.encoders.token_states import Places, TokenStates


def walk(encoder: LayerwiseEncoder, **texts: Any) -> Iterator[TokenStates]:
    states = encoder.embed(**texts)
    for index in range(encoder.num_layers):
        states = encoder.layer(index, states)
        yield states


def padded(states: TokenStates) -> Tensor:
    """(batch, tokens, hidden), with anything at pads."""
    return states.mask.padded(states.hidden) if isinstance(states.mask, Places) else states.hidden
