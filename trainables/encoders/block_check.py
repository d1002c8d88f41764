"""Compares the layers of an encoder with the model's own forward pass: each layer, without pads and with pads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainables.configuration.error_text import take_first_line
from trainables.encoders.blocks import find_blocks
from trainables.encoders.layerwise import LayerwiseEncoder

# Between a layer's states and those of the model's own forward pass, in float32; relative to the largest state if that
# is above 1, because states without a normalisation after the layer can be large.
LARGEST_DIFFERENCE = 1e-5
_TOKENS = 12  # length of the longest text that `check_blocks` compares


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
        raise ValueError(f"its blocks cannot be run alone: {take_first_line(error)}") from error
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
