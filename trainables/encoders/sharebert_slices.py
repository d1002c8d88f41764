"""The columns from which each of ShareBERT's weight matrices is cut; see sharebert.py. Does not import torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SIZES = {"vocab_size": 30522, "hidden_size": 2048, "intermediate_size": 4096}  # defaults of ShareBertConfig


@dataclass(frozen=True)
class Slice:
    """The shape of a weight matrix, and the number of columns of W that it takes (sharebert.py defines W)."""

    shape: tuple[int, int]  # (inputs, outputs)
    width: int


def compute_slices(configuration: Mapping[str, Any]) -> dict[str, Slice]:
    """Return the slice of each matrix, by the matrix's name, in order from the right edge of W.

    Raises:
        ValueError: if W has too few columns.
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
