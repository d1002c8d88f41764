"""The states after each layer of an encoder, none of them asked for the first token alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainables.encoders.layerwise import LayerwiseEncoder
from trainables.encoders.token_states import TokenStates


def walk(encoder: LayerwiseEncoder, **texts: Any) -> Iterator[TokenStates]:
    states = encoder.embed(**texts)
    for index in range(encoder.num_layers):
        states = encoder.layer(index, states)
        yield states
