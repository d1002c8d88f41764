"""Which columns each of ShareBERT's weight matrices is cut from: trainables/encoders/sharebert.py. No torch here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SIZES = {"vocab_size": 30522, "hidden_size": 2048, "intermediate_size": 4096}  # where a configuration says none


@dataclass(frozen=True)
class Slice:
    """A matrix, and how many columns of the embeddings' product it takes."""

    shape: tuple[int, int]  # a state is multiplied from the left
    width: int


def slices_of(configuration: Mapping[str, Any]) -> dict[str, Slice]:
    """The slices by name, from the right edge on.

    Raises:
        ValueError: there are too few columns for these sizes.
    """
    words, hidden, inner = (configuration.get(name, size) for name, size in SIZES.items())
    shapes = {
        "query": (hidden, hidden),
        "key": (hidden, hidden),
        "value": (hidden, hidden),
        "intermediate": (hidden, inner),
        "output": (inner, hidden),
        "attention_output": (hidden, hidden),
        "pooler": (hidden, hidden),
    }
    slices = {name: Slice(shape, math.ceil(math.prod(shape) / words)) for name, shape in shapes.items()}
    if (wanted := sum(part.width for part in slices.values())) > hidden:
        sizes = f"hidden_size {hidden}, intermediate_size {inner} and vocab_size {words}"
        raise ValueError(f"ShareBERT with {sizes} cuts {wanted} columns out of the embeddings; allowed: {hidden}")
    return slices
