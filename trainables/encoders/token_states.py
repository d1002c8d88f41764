"""The hidden states of a batch's tokens between two layers, padded or packed.

Except for attention, a layer processes each token separately and needs no pads. Packed states therefore hold only the
real tokens of all examples, end to end. For attention, `without_waste` restores the padded batch on a GPU. On a CPU, it
groups the examples by length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from trainables.encoders.blocks import BlockCalls

Attention = Callable[..., tuple[Tensor, None]]  # an attention function of `transformers`


@dataclass(frozen=True)
class _Part:
    """A group of examples that attention handles in one call."""

    examples: int  # number of examples
    tokens: int  # tokens of the longest example
    mask: Tensor | None = None  # (examples, 1, 1, tokens), bool: true at real tokens; None if there are no pads
    places: Tensor | None = None  # (real tokens,), int64: their indices in the padded part; None if there are no pads

    @property
    def num_tokens(self) -> int:
        """Number of real tokens."""
        return self.examples * self.tokens if self.places is None else len(self.places)

    def attend(self, attend: Attention, module: nn.Module, states: list[Tensor], options: dict[str, Any]) -> Tensor:
        """Apply attention to `states`: query, key and value. Inputs and result are (real tokens, heads, head size)."""
        shape = self.examples, self.tokens
        padded = [self._pad(of_all).unflatten(0, shape).transpose(1, 2) for of_all in states]
        mixed = attend(module, *padded, self.mask, **options)[0].flatten(0, 1)
        return mixed if self.places is None else mixed.index_select(0, self.places)

    def _pad(self, states: Tensor) -> Tensor:
        """Insert zeros at the pads."""
        if self.places is None:
            return states
        zeros = states.new_zeros(self.examples * self.tokens, *states.shape[1:])
        return zeros.index_copy_(0, self.places, states)


@dataclass(frozen=True)
class Places:
    """The positions of the real tokens in the padded batch. On a CPU, packed states begin with the shortest example."""

    mask: Tensor  # (batch, 1, 1, tokens), bool: true at real tokens
    places: Tensor  # (real tokens,), int64: indices of the real tokens among all tokens of the batch
    firsts: Tensor  # (batch,), int64: index of each example's first token among the packed tokens
    parts: tuple[_Part, ...]  # the batch, split for attention

    @classmethod
    def of(cls, mask: Tensor) -> Places:
        """Find the real tokens; every example must have at least one, and pads must follow the real tokens."""
        return cls._split_by_length(mask) if mask.device.type == "cpu" else cls._keep_order(mask)

    @classmethod
    def _keep_order(cls, mask: Tensor) -> Places:
        """Keep the whole batch in one part, because sorting it by length would have to wait for the GPU."""
        lengths = mask.flatten(1).sum(1)
        places = mask.flatten().nonzero()[:, 0]
        batch, _, _, tokens = mask.shape
        return cls(mask, places, lengths.cumsum(0) - lengths, (_Part(batch, tokens, mask, places),))

    @classmethod
    def _split_by_length(cls, mask: Tensor) -> Places:
        """Split the batch into one part for each text length, so that no part needs pads."""
        real = mask.flatten(1)
        lengths, order = real.sum(1).sort(stable=True)  # stable: when examples leave, those that stay keep their order
        of_parts = (sizes.tolist() for sizes in lengths.unique_consecutive(return_counts=True))
        parts = tuple(_Part(examples, tokens) for tokens, examples in zip(*of_parts, strict=True))
        example, token = real[order].nonzero(as_tuple=True)
        firsts = torch.empty_like(order).index_copy(0, order, lengths.cumsum(0) - lengths)
        return cls(mask, order[example] * real.shape[1] + token, firsts, parts)

    def padded(self, states: Tensor) -> Tensor:
        """Pad (1, real tokens, ...) with zeros to (batch, tokens, ...)."""
        batch, _, _, tokens = self.mask.shape
        zeros = states.new_zeros(batch * tokens, *states.shape[2:])
        return zeros.index_copy_(0, self.places, states[0]).unflatten(0, (batch, tokens))

    def packed(self, states: Tensor) -> Tensor:
        """Pack (batch, tokens, ...) into (1, real tokens, ...)."""
        return states.flatten(0, 1).index_select(0, self.places)[None]


@dataclass(frozen=True)
class FirstTokens:
    """A mask for attention of the first tokens to all tokens. It also holds the states of all tokens."""

    hidden: Tensor  # as in `TokenStates`
    mask: Tensor | Places | None

    def keys_and_values(self, module: Any) -> tuple[Tensor, Tensor]:
        """Compute the keys and values of all tokens, (batch, heads, tokens, head size)."""
        size = module.num_attention_heads, -1
        states = (linear(self.hidden).unflatten(-1, size) for linear in (module.key, module.value))
        key, value = (self.mask.padded(of_all) if isinstance(self.mask, Places) else of_all for of_all in states)
        return key.transpose(1, 2), value.transpose(1, 2)


@dataclass(frozen=True)
class TokenStates:
    """The hidden states of a batch's tokens: the input and output of a layer."""

    hidden: Tensor  # (batch, tokens, hidden) if padded, (1, real tokens, hidden) if packed
    # (batch, 1, 1, tokens), bool: true at real tokens; None if there are known to be no pads; if packed, the places of
    # real tokens; or what else blocks need.
    mask: Tensor | Places | BlockCalls | None

    def first(self) -> Tensor:
        """Take the states of each example's first token, (batch, hidden)."""
        return self.hidden[0, self.mask.firsts] if isinstance(self.mask, Places) else self.hidden[:, 0]

    def mean(self) -> Tensor:
        """Compute the mean of each example's states over its real tokens, (batch, hidden)."""
        if isinstance(self.mask, Places):
            return self.mask.padded(self.hidden).sum(1) / self.mask.mask[:, 0, 0, :, None].sum(1)
        if self.mask is None:
            return self.hidden.mean(1)
        real = (self.mask if isinstance(self.mask, Tensor) else self.mask.mask)[:, 0, 0, :, None]
        return (self.hidden * real).sum(1) / real.sum(1)

    @property
    def num_tokens(self) -> int:
        """Number of tokens that a layer processes, including any pads."""
        return self.hidden.shape[:2].numel()

    def of(self, rows: Tensor | None) -> TokenStates:
        """Select the examples at the places `rows`, int64, ascending; None selects all."""
        if rows is None:
            return self
        if self.mask is None:
            return TokenStates(self.hidden[rows], None)
        if isinstance(self.mask, Tensor):
            return TokenStates(self.hidden[rows], self.mask[rows])
        if isinstance(self.mask, BlockCalls):
            return TokenStates(self.hidden[rows], self.mask.of(rows))
        batch, _, _, tokens = self.mask.mask.shape
        stays = torch.zeros(batch, dtype=torch.bool, device=rows.device).index_fill(0, rows, value=True)
        return TokenStates(self.hidden[:, stays[self.mask.places // tokens]], Places.of(self.mask.mask[rows]))


def without_waste(attend: Attention) -> Attention:
    """Wrap an attention function of `transformers`: its mask may then also be `Places` or `FirstTokens`."""

    def attend_to_real_tokens(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
    ) -> tuple[Tensor, None]:
        if isinstance(attention_mask, FirstTokens):
            key, value = attention_mask.keys_and_values(module)
            mask = attention_mask.mask
            return attend(module, query, key, value, mask.mask if isinstance(mask, Places) else mask, **options)
        if not isinstance(attention_mask, Places):
            return attend(module, query, key, value, attention_mask, **options)
        sizes = [part.num_tokens for part in attention_mask.parts]
        # Query, key and value are (1, heads, real tokens, head size); the result is (1, real tokens, heads, head size).
        split = (states.squeeze(0).transpose(0, 1).split(sizes) for states in (query, key, value))
        parts = zip(attention_mask.parts, *split, strict=True)
        mixed = [part.attend(attend, module, of_part, options) for part, *of_part in parts]
        return torch.cat(mixed)[None], None

    return attend_to_real_tokens


_attend: Attention = partial(sdpa_attention_forward, is_causal=False)  # not causal, even without a mask


def _attend_in_float32_on_cpu(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Apply PyTorch's attention; on a CPU in float32.

    There, its backward pass takes several times as long in bfloat16 and float16.
    """
    kind = query.dtype
    if query.device.type != "cpu" or kind not in (torch.bfloat16, torch.float16):
        return _attend(module, query, key, value, mask, **options)
    with torch.autocast("cpu", enabled=False):
        mixed, _ = _attend(module, query.float(), key.float(), value.float(), mask, **options)
    return mixed.to(kind), None


softmax_attention = without_waste(_attend_in_float32_on_cpu)

AttentionInterface.register("padding_free", softmax_attention)
AttentionMaskInterface.register("padding_free", sdpa_mask)
