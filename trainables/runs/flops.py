"""Counts the FLOPs of models, by text length and exit layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from trainables.data.examples import Examples
from trainables.encoders.nystrom import read_segment_length
from trainables.models.answer_rules import FixedLayer
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import HALVED_FROM, leave_at
from trainables.runs.evaluation import evaluating
from trainables.runs.trial import TextFlops, list_flops_terms


def count_flops_of_texts(model: EarlyExitModel, examples: Examples) -> tuple[TextFlops, ...]:
    """Count the FLOPs of a few texts, for exits after layer 1, 2, ...

    Three lengths are counted: the shortest, the middle and the longest. They determine the FLOPs of all other lengths.
    With Nystrom attention, up to five are needed, because each segment of tokens adds a landmark (`list_flops_terms`).
    A text of at least `HALVED_FROM` tokens skips about half of the layer at which it exits, unless the heads read the
    mean of all tokens, so lengths below and lengths from `HALVED_FROM` are counted separately. It does so only
    at the first layer at which the model's exit rule decides: `infer` expects exits only where some have just left.
    An exit before this layer is counted as that of a fixed layer.
    """
    segment_length = read_segment_length(model.encoder.configuration)
    rows = {int(examples.lengths[row]): row for row in _choose_texts(examples.lengths, segment_length)}
    num_layers = model.encoder.num_layers
    rule, first = model.exit_rule, model.exit_rule.earliest(num_layers)
    rules = [FixedLayer(layer) if layer < first else leave_at(rule, layer) for layer in range(1, num_layers + 1)]
    with evaluating(model) as device:
        batches = {tokens: examples.batch(np.array([row]), device) for tokens, row in rows.items()}
        model.infer(next(iter(batches.values())), rule=FixedLayer(1))  # ShareBERT keeps its matrices for all texts
        flops = {
            tokens: [count_flops(partial(model.infer, batch, torch.Generator(), rule)) for rule in rules]
            for tokens, batch in batches.items()
        }
    return tuple(TextFlops(tokens=tokens, by_layer=tuple(map(float, counts))) for tokens, counts in flops.items())


def _choose_texts(lengths: np.ndarray, segment_length: int | None = None) -> list[int]:
    """Choose rows whose FLOPs determine those of all other lengths, below and from `HALVED_FROM` tokens."""
    found, rows = np.unique(lengths, return_index=True)
    groups = (found < HALVED_FROM, found >= HALVED_FROM)
    return [
        int(row) for group in groups if group.any() for row in rows[group][_choose_places(found[group], segment_length)]
    ]


def _choose_places(lengths: np.ndarray, segment_length: int | None) -> list[int]:
    """Choose indices into ascending lengths: the first, the middle and the last, or what Nystrom attention needs."""
    if segment_length is None:
        return [0, len(lengths) // 2, len(lengths) - 1]
    from scipy.linalg import qr  # takes a second to import

    terms = list_flops_terms(lengths, segment_length)
    terms /= terms.max(axis=0)
    _, order = qr(terms.T, mode="r", pivoting=True)  # each length differs most from what those before it determine
    return sorted(order[: np.linalg.matrix_rank(terms)].tolist())


def count_flops(run: Callable[[], object]) -> int:
    """Call `run`, and count the FLOPs of its matrix products and convolutions.

    A multiplication and an addition count as two FLOPs. Attention and recurrent layers run without fused kernels,
    because PyTorch does not count the FLOPs of fused kernels on every device.
    """
    with sdpa_kernel(SDPBackend.MATH), _without_cudnn(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@contextmanager
def _without_cudnn() -> Iterator[None]:
    """Switch cuDNN off inside the context; `cudnn.flags` would also set the precision of products."""
    was_enabled = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = was_enabled
