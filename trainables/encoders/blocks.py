"""Encoders of any family, taken apart by their structure: a list of blocks, and what comes before the first block.

A `Stem` is a model with a recorder in the place of each block. Running it gives the input of the first block, and the
arguments with which the model calls each block: masks, relative positions or rotary embeddings, which may differ from
block to block. A block is then called with these arguments, so no code here depends on what they mean. `check_blocks`
compares the result with the model's own forward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from trainables.encoders.layerwise import LayerwiseEncoder

# Between a layer's states and those of the model's own forward pass, in float32; relative to the largest state if that
# is above 1, because states without a normalisation after the layer can be large.
LARGEST_DIFFERENCE = 1e-5
_TOKENS = 12  # length of the longest text that `check_blocks` compares

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


@torch.no_grad()
def check_blocks(encoder: LayerwiseEncoder, model: PreTrainedModel) -> None:
    """Check that an encoder's layers compute what its model computes: every layer, without and with pads on each side.

    Raises:
        ValueError: if a layer differs, or cannot be run alone; the message names it.
    """
    modes = encoder.training, model.training
    encoder.eval(), model.eval()
    try:
        for case, batch in _list_texts(model):
            _compare(encoder, model.base_model, case, batch)
    except ValueError:
        raise
    except Exception as error:  # a model may do anything with the recorders
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"its blocks cannot be run alone: {first}") from error
    finally:
        encoder.train(modes[0]), model.train(modes[1])


def _list_texts(model: PreTrainedModel) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """List the batches to compare: token ids and attention masks."""
    config: Any = model.config
    tokens = torch.arange(_TOKENS, device=model.device)
    ids = torch.stack([2 + (tokens * step) % max(config.vocab_size - 2, 1) for step in (1, 5, 7)])
    lengths = torch.tensor([[5], [_TOKENS], [9]], device=model.device)
    pad = config.pad_token_id or 0
    for case, real in (
        ("without pads", torch.ones_like(ids).bool()),
        ("with pads on the right", tokens < lengths),
        ("with pads on the left", tokens >= _TOKENS - lengths),
    ):
        yield case, {"input_ids": ids.masked_fill(~real, pad), "attention_mask": real.long()}


def _compare(encoder: LayerwiseEncoder, base: Any, case: str, batch: dict[str, Tensor]) -> None:
    """Compare every layer on one batch. After the first layer, the first example leaves in a second run."""
    real = batch["attention_mask"].bool()
    with _recorded_outputs(find_blocks(base)[1]) as expected:
        last = base(**batch).last_hidden_state
    stays = torch.arange(1, len(real), device=real.device)
    states = encoder.embed(**batch)
    fewer = None
    for index in range(encoder.num_layers):
        states, where = encoder.layer(index, states), f"layer {index + 1} of {base.config.num_hidden_layers}"
        _require_equal(states.hidden, expected[index], real, f"{where}, {case},")
        fewer = states.of(stays) if fewer is None else encoder.layer(index, fewer)
        _require_equal(fewer.hidden, expected[index][stays], real[stays], f"{where}, {case} and after an exit,")
    if encoder.num_layers == base.config.num_hidden_layers:
        _require_equal(encoder.final_norm(states.hidden), last, real, f"the output after the last layer, {case},")


@contextmanager
def _recorded_outputs(blocks: list[nn.Module]) -> Iterator[list[Tensor]]:
    """Record the states after each block while a model runs."""
    outputs: list[Tensor] = []

    def record(block: nn.Module, arguments: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    hooks = [block.register_forward_hook(record) for block in blocks]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def _require_equal(ours: Tensor, theirs: Tensor, real: Tensor, what: str) -> None:
    difference = float((ours[real] - theirs[real]).abs().max())
    allowed = LARGEST_DIFFERENCE * max(1.0, float(theirs[real].abs().max()))
    if not difference <= allowed:
        raise ValueError(
            f"{what} differs by {difference:.2g} from the model's own forward pass; allowed: {allowed:.1g}"
        )
