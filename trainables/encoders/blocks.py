"""Encoders of any family, taken apart by their structure: a list of blocks, and what comes before the first block.

A `Stem` is a model with a recorder in the place of each block. Running it gives the input of the first block, and the
arguments with which the model calls each block: masks, relative positions or rotary embeddings, which may differ from
block to block. A block is then called with these arguments, so no code here depends on what they mean.
`block_check.py` compares the result with the model's own forward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and named


@dataclass(frozen=True)
class BlockCalls:
    """The arguments, without the hidden states, with which a model calls its blocks on a batch."""

    mask: Tensor  # (batch, 1, 1, tokens), bool: true at real tokens
    arguments: Mapping[nn.Module, Arguments]  # by block

    def of(self, rows: Tensor) -> BlockCalls:
        """Select the examples at the places `rows`, int64."""
        selected: dict[int, Tensor] = {}  # most blocks share their arguments

        def select(value: Any) -> Any:
            if isinstance(value, Tensor):
                if value.ndim < 3 or len(value) != len(self.mask):  # for instance embeddings of relative positions
                    return value
                if id(value) not in selected:
                    selected[id(value)] = value[rows]
                return selected[id(value)]
            if isinstance(value, tuple | list):
                return type(value)(map(select, value))
            return {name: select(part) for name, part in value.items()} if isinstance(value, dict) else value

        arguments = {block: (select(these), select(named)) for block, (these, named) in self.arguments.items()}
        return BlockCalls(self.mask[rows], arguments)


def call_block(block: Any, hidden: Tensor, calls: BlockCalls) -> Tensor:
    """Run a block as its model does. Inputs and outputs are (batch, tokens, hidden)."""
    arguments, named = calls.arguments[block]
    output = block(hidden, *arguments, **named)
    return output[0] if isinstance(output, tuple) else output


class Stem(nn.Module):
    """A model up to its first block."""

    def __init__(self, base: PreTrainedModel, num_layers: int, *, without: tuple[str, ...]) -> None:
        """Share the modules of a base model, except its blocks and the modules named in `without`.

        Raises:
            ValueError: if the model has no list of blocks.
        """
        super().__init__()
        path, blocks = find_blocks(base)
        recorders = [_Recorder(block) for block in blocks[:num_layers]]
        recorders[-1].is_last = True
        self._recorders = tuple(recorders)
        self.model = _replace(base, path, nn.ModuleList(recorders))
        for name in without:
            vars(self.model)["_modules"].pop(name, None)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, BlockCalls]:
        """Compute the input of the first block, (batch, tokens, hidden), and the other arguments of all blocks.

        Args:
            input_ids: token ids; all arguments are (batch, tokens), int64.
        """
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        with suppress(_LastBlockReached):
            self.model(input_ids=input_ids, attention_mask=attention_mask, **types)
        (hidden, _), *_ = calls = [recorder.take() for recorder in self._recorders]
        arguments = {recorder.block: given for recorder, (_, given) in zip(self._recorders, calls, strict=True)}
        return hidden, BlockCalls(attention_mask[:, None, None, :].bool(), arguments)


class _LastBlockReached(Exception):
    """Ends the forward pass of a stem, because nothing after the last block is needed."""


class _Recorder(nn.Module):
    """Takes the place of a block in a stem: it keeps its arguments, and returns its input."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.is_last = False
        self._block = (block,)  # a tuple, so that the block's parameters are not the recorder's
        self._call: tuple[Tensor, Arguments] | None = None

    @property
    def block(self) -> nn.Module:
        return self._block[0]

    def __getattr__(self, name: str) -> Any:
        """Look up what a model asks its blocks for, such as the type of their attention."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_block":  # a copy in the making
                raise
            return getattr(self.block, name)

    def forward(self, *arguments: Any, **named: Any) -> tuple[Tensor, None]:
        hidden, arguments = (arguments[0], arguments[1:]) if arguments else (named.pop("hidden_states"), ())
        self._call = hidden, (arguments, named)
        if self.is_last:
            raise _LastBlockReached
        return hidden, None

    def take(self) -> tuple[Tensor, Arguments]:
        """Return the input and the other arguments of the last call, and forget them."""
        call, self._call = self._call, None
        if call is None:
            raise ValueError(f"the model does not call each of its blocks ({type(self.block).__name__})")
        return call


def find_blocks(base: PreTrainedModel) -> tuple[str, list[nn.Module]]:
    """Find a model's blocks: their path in the model, and the blocks in order.

    Raises:
        ValueError: if the model has no list of as many blocks of one type as it has layers.
    """
    depth = base.config.num_hidden_layers
    lists = [(path, [*part]) for path, part in base.named_modules() if isinstance(part, nn.ModuleList)]
    fitting = [(path, blocks) for path, blocks in lists if len(blocks) == depth and len({*map(type, blocks)}) == 1]
    if not fitting:
        raise ValueError(
            f"{type(base).__name__} has no list of {depth} blocks of one type, so its layers cannot be run"
        )
    return max(fitting, key=lambda found: sum(weight.numel() for block in found[1] for weight in block.parameters()))


def _replace(module: nn.Module, path: str, part: nn.Module) -> Any:
    """Copy a module, with another part at `path`. All other parts are shared with the original."""
    name, _, rest = path.partition(".")
    shared = copy.copy(module)
    vars(shared)["_modules"] = dict(module.named_children())
    setattr(shared, name, _replace(module.get_submodule(name), rest, part) if rest else part)
    return shared
