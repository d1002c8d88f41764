"""Nystrom attention for ALBERT, BERT and ELECTRA of `transformers`: its cost grows with the length, not its square.

Nystromformer (arXiv:2102.03902; mlpen/Nystromformer, code/attention_nystrom.py): with the means of segments of queries
and keys as landmarks q~ and k~,

    softmax(q k~T) pinv(softmax(q~ k~T)) (softmax(q~ kT) v) + depthwise convolution(v)

The original is wrong if texts are padded: an answer depends on its batch. Here a segment's length follows
from the configuration, a landmark is the mean of its segment's real tokens, pads are 0 in queries, keys and values, a
segment without a token is no landmark, and the inverse of each matrix is started and iterated on its own.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.utils.hub import cached_file

from trainables.configuration import EncoderConfig
from trainables.encoders.token_states import without_waste

ITERATIONS = 6  # of the inverse, as in the paper
_CONVOLUTION = "convolution"  # parameter of an attention module, (heads, 1, kernel, 1)


def nystrom_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    real: Tensor,
    *,
    segment_length: int,
    convolution: Tensor | None = None,
    iterations: int = ITERATIONS,
) -> Tensor:
    """Compute the values after attention, (batch, heads, tokens, head size); meaningless at a pad.

    Args:
        query: (batch, heads, tokens, head size), already scaled; `key` and `value` of the same shape, unscaled.
        real: true at tokens that are no pads, (batch, 1, tokens), bool.
        segment_length: tokens of a landmark. It must not depend on the batch.
        convolution: depthwise over the tokens, (heads, 1, kernel, 1), kernel odd.
    """
    query, key, value = (states.masked_fill(~real[..., None], 0) for states in (query, key, value))
    counts = _cut_into_segments(real[..., None].to(query.dtype), segment_length).sum(-2)  # (batch, 1, landmarks, 1)
    query_landmarks, key_landmarks = (
        _cut_into_segments(states, segment_length).sum(-2) / counts.clamp(min=1) for states in (query, key)
    )  # (batch, heads, landmarks, head size)
    present = counts.squeeze(-1) > 0  # (batch, 1, landmarks)
    to_landmarks = _softmax(query @ key_landmarks.mT, present)  # (batch, heads, tokens, landmarks)
    among_landmarks = _softmax(query_landmarks @ key_landmarks.mT, present)  # (batch, heads, landmarks, landmarks)
    # A landmark that is not present gets a row and, by the mask, a column of the identity: so does its inverse.
    identity = torch.eye(present.shape[-1], dtype=query.dtype, device=query.device)
    among_landmarks = torch.where(present[..., None], among_landmarks, identity)
    from_tokens = _softmax(query_landmarks @ key.mT, real)  # (batch, heads, landmarks, tokens)
    mixed = to_landmarks @ (pseudo_inverse(among_landmarks, iterations) @ (from_tokens @ value))
    if convolution is None:
        return mixed
    padding = (convolution.shape[-2] // 2, 0)
    return mixed + nn.functional.conv2d(value, convolution, padding=padding, groups=convolution.shape[0])


def pseudo_inverse(matrices: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """Approximate the inverses of square matrices (..., n, n) with rows that sum to 1, by the paper's iteration.

    Not `linalg.pinv`: landmarks that are alike make a matrix nearly singular, and the exact inverse blows that up.
    """
    with torch.autocast(matrices.device.type, enabled=False):  # bfloat16 would end far from the inverse
        exact = matrices.to(torch.promote_types(matrices.dtype, torch.float32))
        identity = torch.eye(matrices.shape[-1], dtype=exact.dtype, device=exact.device)
        norms = exact.sum(-2).amax(-1) * exact.sum(-1).amax(-1)  # of each matrix: largest column, largest row
        inverse = exact.mT / norms[..., None, None]
        for _ in range(iterations):
            product = exact @ inverse
            inverse = 0.25 * inverse @ (13 * identity - product @ (15 * identity - product @ (7 * identity - product)))
    return inverse.to(matrices.dtype)


def with_attention(model: PreTrainedModel, config: EncoderConfig) -> PreTrainedModel:
    """Give every attention of a model that of the configuration of a trial or a pretraining, and return the model.

    Nystrom's has a convolution that is still 0; all other weights stay. Its settings stand in the model's configuration
    under the names of `transformers`' Nystromformer, and a saved model has its convolutions beside its other weights.
    """
    if config.attention != "nystrom":
        return model
    modules: list[Any] = [*model.modules()]
    for attention in modules:
        if hasattr(attention, "query") and hasattr(attention, "num_attention_heads"):
            zeros = attention.query.weight.new_zeros(attention.num_attention_heads, 1, config.conv_kernel_size, 1)
            attention.register_parameter(_CONVOLUTION, nn.Parameter(zeros))
    sizes = {"num_landmarks": config.num_landmarks, "conv_kernel_size": config.conv_kernel_size}
    model.config.update({"segment_means_seq_len": config.max_length, **sizes})
    model.set_attn_implementation("nystrom")
    return model


def load_convolutions(model: PreTrainedModel, place: str, revision: str) -> None:
    """Give a model with Nystrom attention the convolutions that were saved with its other weights.

    Args:
        place: a folder or a hub name.

    Raises:
        ValueError: they are not there, or not all.
    """
    file = cached_file(place, "model.safetensors", revision=revision)
    prefix = f"{model.base_model_prefix}."
    wanted = {name: value for name, value in model.named_parameters() if name.endswith(f".{_CONVOLUTION}")}
    with safe_open(file, framework="pt") as weights, torch.no_grad():
        names = weights.keys()
        saved = {name.removeprefix(prefix): name for name in names if name.endswith(f".{_CONVOLUTION}")}
        if missing := sorted(wanted.keys() - saved.keys()):
            raise ValueError(f"backbone {place!r} has no {missing[0]}; its configuration has conv_kernel_size")
        for name, parameter in wanted.items():
            parameter.copy_(weights.get_tensor(saved[name]))


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as `transformers` asks: (batch, tokens, heads, head size). Dropout has no probabilities here."""
    if attention_mask is None:
        real = torch.ones(len(query), 1, query.shape[-2], dtype=torch.bool, device=query.device)
    else:
        assert attention_mask.dtype == torch.bool and attention_mask.shape[-2] == 1, "a mask of padding, no other"
        real = attention_mask[..., 0, :]
    config: Any = module.config
    segment_length = math.ceil(config.segment_means_seq_len / config.num_landmarks)
    convolution = module.get_parameter(_CONVOLUTION)
    mixed = nystrom_attention(query * scaling, key, value, real, segment_length=segment_length, convolution=convolution)
    return mixed.transpose(1, 2).contiguous(), None


def _padding_mask(*, attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
    """Make a mask (batch, 1, 1, tokens), bool, of the model's (batch, tokens)."""
    return None if attention_mask is None else attention_mask[:, None, None, :].bool()


def _cut_into_segments(states: Tensor, length: int) -> Tensor:
    """Cut the tokens into segments (..., segments, length, size), the last filled up with zeros."""
    missing = -states.shape[-2] % length
    return nn.functional.pad(states, (0, 0, 0, missing)).unflatten(-2, (-1, length))


def _softmax(scores: Tensor, present: Tensor) -> Tensor:
    """Compute softmax over the m of (batch, heads, n, m) that are `present`, (batch, 1, m); uniform if none is."""
    scores = scores.masked_fill(~present[..., None, :], torch.finfo(scores.dtype).min)
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)


AttentionInterface.register("nystrom", without_waste(_attend))
AttentionMaskInterface.register("nystrom", _padding_mask)
