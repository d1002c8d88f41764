"""Nystrom attention for ALBERT, BERT and ELECTRA of `transformers`; its cost is linear in the number of tokens.

Nystromformer (arXiv:2102.03902; mlpen/Nystromformer, code/attention_nystrom.py) cuts the tokens into segments. The
landmarks q~ and k~ are the mean query and the mean key of each segment. The output is

    softmax(q k~T) pinv(softmax(q~ k~T)) (softmax(q~ kT) v) + depthwise convolution(v)

In the original, an example's output depends on the padding of its batch. Here, padding has no effect, because

* the segment length depends on the configuration alone;
* a landmark is the mean of its segment's real tokens, and a segment without real tokens has no landmark;
* queries, keys and values of pads are 0;
* each matrix is inverted separately, whereas the original scales all matrices of a batch by the same norm.
"""

from __future__ import annotations

from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.utils.hub import cached_file

from trainables.configuration import EncoderConfig, compute_segment_length
from trainables.encoders.token_states import without_waste

ITERATIONS = 6  # number of iterations for the inverse, as in the paper
_CONVOLUTION = "convolution"  # name of an attention module's parameter, (heads, 1, kernel, 1)


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
    """Compute the attention output, (batch, heads, tokens, head size); outputs at pads are meaningless.

    Args:
        query: scaled queries, (batch, heads, tokens, head size). `key` and `value` have the same shape, unscaled.
        real: true at tokens that are not pads, (batch, 1, tokens), bool.
        segment_length: number of tokens per landmark; must not depend on the batch.
        convolution: weights of a depthwise convolution over the tokens, (heads, 1, kernel, 1); kernel is odd.
    """
    query, key, value = (states.masked_fill(~real[..., None], 0) for states in (query, key, value))
    counts = _cut_into_segments(real[..., None].to(query.dtype), segment_length).sum(-2)  # (batch, 1, landmarks, 1)
    query_landmarks, key_landmarks = (
        _cut_into_segments(states, segment_length).sum(-2) / counts.clamp(min=1) for states in (query, key)
    )  # (batch, heads, landmarks, head size)
    present = counts.squeeze(-1) > 0  # (batch, 1, landmarks)
    to_landmarks = _softmax(query @ key_landmarks.mT, present)  # (batch, heads, tokens, landmarks)
    among_landmarks = _softmax(query_landmarks @ key_landmarks.mT, present)  # (batch, heads, landmarks, landmarks)
    # The row of an absent landmark becomes a row of the identity matrix. The mask has already zeroed the landmark's
    # column in all other rows, so the inverse also equals the identity in this row and column.
    identity = torch.eye(present.shape[-1], dtype=query.dtype, device=query.device)
    among_landmarks = torch.where(present[..., None], among_landmarks, identity)
    from_tokens = _softmax(query_landmarks @ key.mT, real)  # (batch, heads, landmarks, tokens)
    mixed = to_landmarks @ (pseudo_inverse(among_landmarks, iterations) @ (from_tokens @ value))
    if convolution is None:
        return mixed
    padding = (convolution.shape[-2] // 2, 0)
    return mixed + nn.functional.conv2d(value, convolution, padding=padding, groups=convolution.shape[0])


def pseudo_inverse(matrices: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """Approximate the inverses of matrices (..., n, n) by the paper's iteration. Each row must sum to 1.

    `linalg.pinv` is unsuitable: similar landmarks make a matrix nearly singular, so its inverse has huge values.
    """
    with torch.autocast(matrices.device.type, enabled=False):  # bfloat16 would end far from the inverse
        exact = matrices.to(torch.promote_types(matrices.dtype, torch.float32))
        identity = torch.eye(matrices.shape[-1], dtype=exact.dtype, device=exact.device)
        norms = exact.sum(-2).amax(-1) * exact.sum(-1).amax(-1)  # largest column sum times largest row sum
        inverse = exact.mT / norms[..., None, None]
        for _ in range(iterations):
            product = exact @ inverse
            inverse = 0.25 * inverse @ (13 * identity - product @ (15 * identity - product @ (7 * identity - product)))
    return inverse.to(matrices.dtype)


def with_attention(model: PreTrainedModel, config: EncoderConfig) -> PreTrainedModel:
    """Switch a model to the attention in `config`, and return the model.

    For Nystrom attention, convolutions with weights 0 are added to the model. The settings are stored in
    `model.config`, under Nystromformer's names.
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


def read_segment_length(config: Any) -> int | None:
    """Read the tokens per landmark of a model's Nystrom attention from its configuration; None if it has softmax."""
    if config._attn_implementation != "nystrom":
        return None
    return compute_segment_length(config.segment_means_seq_len, config.num_landmarks)


def load_convolutions(model: PreTrainedModel, place: str, revision: str) -> None:
    """Load a backbone's saved convolutions into a model with Nystrom attention.

    Args:
        place: folder or hub name of the backbone.

    Raises:
        ValueError: if one of the convolutions is missing.
    """
    file = cached_file(place, "model.safetensors", revision=revision)
    with safe_open(file, framework="pt") as weights:
        names = filter(lambda name: name.endswith(f".{_CONVOLUTION}"), weights.keys())
        saved = {name.removeprefix(f"{model.base_model_prefix}."): weights.get_tensor(name) for name in names}
    for name in model.load_state_dict(saved, strict=False).missing_keys:
        if name.endswith(f".{_CONVOLUTION}"):
            raise ValueError(f"backbone {place!r} has no {name}, but its configuration has conv_kernel_size")


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
    """Compute the attention output for `transformers`, (batch, tokens, heads, head size), without dropout."""
    if attention_mask is None:
        real = torch.ones(len(query), 1, query.shape[-2], dtype=torch.bool, device=query.device)
    else:
        assert attention_mask.dtype == torch.bool and attention_mask.shape[-2] == 1, "only padding masks are allowed"
        real = attention_mask[..., 0, :]
    length = read_segment_length(module.config)
    assert length is not None
    convolution = module.get_parameter(_CONVOLUTION)
    mixed = nystrom_attention(query * scaling, key, value, real, segment_length=length, convolution=convolution)
    return mixed.transpose(1, 2).contiguous(), None


def _padding_mask(*, attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
    """Reshape the padding mask from (batch, tokens) to (batch, 1, 1, tokens), bool."""
    return None if attention_mask is None else attention_mask[:, None, None, :].bool()


def _cut_into_segments(states: Tensor, length: int) -> Tensor:
    """Cut the tokens into segments, (..., segments, length, size); zeros fill up the last segment."""
    missing = -states.shape[-2] % length
    return nn.functional.pad(states, (0, 0, 0, missing)).unflatten(-2, (-1, length))


def _softmax(scores: Tensor, present: Tensor) -> Tensor:
    """Compute the softmax over the `present` entries of the last dimension. It is uniform if no entry is present.

    Args:
        scores: (batch, heads, n, m).
        present: (batch, 1, m), bool.
    """
    scores = scores.masked_fill(~present[..., None, :], torch.finfo(scores.dtype).min)
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)


AttentionInterface.register("nystrom", without_waste(_attend))
AttentionMaskInterface.register("nystrom", _padding_mask)
