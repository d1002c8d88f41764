"""The states of a batch's tokens between two layers: with pads, or those of the real tokens alone.

Nearly all work of a layer is done token by token, and needs no pads: there the real tokens of all examples lie end to
end. Only attention asks which tokens belong together; it gets them padded (`padding_free`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

Attention = Callable[..., tuple[Tensor, None]]  # as `transformers` calls it


@dataclass(frozen=True)
class Places:
    """Where the tokens without pads lie in the padded batch."""

    mask: Tensor  # (batch, 1, 1, tokens), bool: true at real tokens
    places: Tensor  # of the real tokens among all of the batch, (real tokens,), int64
    firsts: Tensor  # of each example's first token among the real ones, (batch,), int64

    @classmethod
    def of(cls, mask: Tensor) -> Places:
        """Every example has a token, and its pads behind its tokens."""
        lengths = mask.flatten(1).sum(1)
        return cls(mask, mask.flatten().nonzero()[:, 0], lengths.cumsum(0) - lengths)

    def padded(self, states: Tensor) -> Tensor:
        """(batch, tokens, ...), zeros at pads, from (1, real tokens, ...)."""
        batch, _, _, tokens = self.mask.shape
        zeros = states.new_zeros(batch * tokens, *states.shape[2:])
        return zeros.index_copy(0, self.places, states[0]).unflatten(0, (batch, tokens))

    def packed(self, states: Tensor) -> Tensor:
        """(1, real tokens, ...) from (batch, tokens, ...)."""
        return states.flatten(0, 1)[None, self.places]


@dataclass(frozen=True)
class TokenStates:
    """What a layer takes and gives."""

    hidden: Tensor  # (batch, tokens, hidden), or of the real tokens alone (1, real tokens, hidden)
    mask: Tensor | Places  # (batch, 1, 1, tokens), bool: true at real tokens; or where those lie

    def through(self, layer: Callable[[Tensor, Any], Tensor]) -> TokenStates:
        """The states that a layer makes of these."""
        return TokenStates(layer(self.hidden, self.mask), self.mask)

    def first(self) -> Tensor:
        """Of each example's first token, (batch, hidden)."""
        return self.hidden[:, 0] if isinstance(self.mask, Tensor) else self.hidden[0, self.mask.firsts]

    def padded(self) -> Tensor:
        """(batch, tokens, hidden); at pads it means nothing."""
        return self.hidden if isinstance(self.mask, Tensor) else self.mask.padded(self.hidden)

    def of(self, rows: Tensor) -> TokenStates:
        """Those of some examples, (batch,), bool."""
        if isinstance(self.mask, Tensor):
            return TokenStates(self.hidden[rows], self.mask[rows])
        stays = rows[self.mask.places // self.mask.mask.shape[-1]]
        return TokenStates(self.hidden[:, stays], Places.of(self.mask.mask[rows]))


def padding_free(attend: Attention) -> Attention:
    """An attention function of `transformers` that takes `Places` as its mask too, and then states without pads."""

    def attend_padded(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any
    ) -> tuple[Tensor, None]:
        if not isinstance(attention_mask, Places):
            return attend(module, query, key, value, attention_mask, **more)
        # (1, heads, real tokens, head size) each; what comes back is (batch, tokens, heads, head size)
        padded = (attention_mask.padded(states.transpose(1, 2)).transpose(1, 2) for states in (query, key, value))
        mixed, _ = attend(module, *padded, attention_mask.mask, **more)
        return attention_mask.packed(mixed), None

    return attend_padded


softmax_attention = padding_free(sdpa_attention_forward)

AttentionInterface.register("padding_free", softmax_attention)
AttentionMaskInterface.register("padding_free", sdpa_mask)
