"""Reference cases of ShareBERT: an encoder of the original code, and what it made of a batch."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from trainables.configuration import AtLeastOne
from trainables.encoders.layerwise import layerwise
from trainables.encoders.sharebert import ShareBertConfig, ShareBertModel
from trainables.models.early_exit import Batch
from trainables.reference_files import Comparison, largest_difference
from trainables.schema import Typed, from_plain


class _Sizes(Typed, frozen=True, kw_only=True):
    vocab_size: AtLeastOne
    factor_size: AtLeastOne
    hidden_size: AtLeastOne
    num_hidden_layers: AtLeastOne
    num_attention_heads: AtLeastOne
    intermediate_size: AtLeastOne
    max_position_embeddings: AtLeastOne
    type_vocab_size: AtLeastOne


class _Batch(Typed, frozen=True, kw_only=True):
    input_ids: list[list[int]]  # (batch, tokens); so the others
    token_type_ids: list[list[int]]
    attention_mask: list[list[int]]


class _Expected(Typed, frozen=True, kw_only=True):
    last_hidden: list[list[list[float]]]  # (batch, tokens, hidden), of the first tokens alone
    pooled: list[list[float]]  # (batch, hidden)
    loss: float  # mean of all squared states, those of pads too, + mean of the squared pooled ones
    loss_is: str = ""
    grad_norm: dict[str, float]  # of the loss, by the original's names
    num_parameters: int


class _Case(Typed, frozen=True, kw_only=True):
    kind: str
    config: _Sizes
    batch: _Batch
    expected: _Expected
    note: str = ""


def compare_sharebert(description: object, weights: dict[str, Tensor], where: str) -> Iterator[Comparison]:
    """States, pooled states, loss and gradients, for the whole batch and for one example at a time.

    Raises:
        ValueError: the case is incomplete, or the weights do not fit.
    """
    case = from_plain(_Case, description, where=where)
    batch = {name: torch.tensor(getattr(case.batch, name)) for name in _Batch.__struct_fields__}
    model = _model(case, weights, where)
    yield Comparison("num_parameters", abs(model.num_parameters() - case.expected.num_parameters), 0)
    yield from _compare_states(case.expected, model, [batch], "batched")
    yield from _compare_states(case.expected, model, _examples(batch), "batch 1")
    yield from _compare_gradients(case.expected, model, batch, where)


def our_name(original: str) -> str:
    """The name of an original parameter in our model."""
    for pattern, replacement in _NAMES:
        original = re.sub(pattern, replacement, original)
    return original


def _model(case: _Case, weights: dict[str, Tensor], where: str) -> ShareBertModel:
    sizes = {name: getattr(case.config, name) for name in _Sizes.__struct_fields__}
    model = ShareBertModel(ShareBertConfig(**sizes)).eval()
    try:
        model.load_state_dict({our_name(name): tensor for name, tensor in weights.items()})
    except RuntimeError as error:
        raise ValueError(f"{where}: weights do not fit: {str(error).splitlines()[1].strip()}") from error
    return model


@torch.no_grad()
def _compare_states(
    expected: _Expected, model: ShareBertModel, batches: list[Batch], size: str
) -> Iterator[Comparison]:
    outputs = [model(**batch) for batch in batches]
    hidden = torch.cat([output.last_hidden_state for output in outputs])
    pooled = torch.cat([output.pooler_output for output in outputs])
    num_tokens = len(expected.last_hidden[0])
    yield Comparison(f"last_hidden ({size})", largest_difference(hidden[:, :num_tokens], expected.last_hidden))
    yield Comparison(f"pooled ({size})", largest_difference(pooled, expected.pooled))
    layer_by_layer = torch.cat([_walked(model, batch) for batch in batches])
    yield Comparison(f"pooled ({size}, layer by layer)", largest_difference(layer_by_layer, expected.pooled))


def _walked(model: ShareBertModel, batch: Batch) -> Tensor:
    """Pooled as the methods here run the encoder, (batch, hidden)."""
    encoder = layerwise(model)
    *_, states = encoder.walk(**batch)
    return encoder.pool(states.first())


def _compare_gradients(expected: _Expected, model: ShareBertModel, batch: Batch, where: str) -> Iterator[Comparison]:
    output = model(**batch)
    loss = output.last_hidden_state.square().mean() + output.pooler_output.square().mean()
    loss.backward()
    yield Comparison("loss", largest_difference(loss, expected.loss))
    parameters = dict(model.named_parameters())
    for name, norm in expected.grad_norm.items():
        if our_name(name) not in parameters:
            raise ValueError(f"{where}: grad_norm of an unknown parameter {name}")
        gradient = parameters[our_name(name)].grad
        assert gradient is not None, "every parameter has a part in the loss"
        yield Comparison(f"grad_norm {name}", largest_difference(gradient.norm(), norm))


def _examples(batch: Batch) -> list[Batch]:
    return [{name: values[index, None] for name, values in batch.items()} for index in range(len(batch["input_ids"]))]


# Original name -> ours; at most one matches. The embeddings' names are the same.
_NAMES = (
    (r"^encoder\.FinalLayerNorm\.", "final_norm."),
    (r"^encoder\.layer\.(\d+)\.PreAttentionLayerNorm\.", r"layers.\1.attention_norm."),
    (r"^encoder\.layer\.(\d+)\.PostAttentionLayerNorm\.", r"layers.\1.feed_forward_norm."),
    (r"^encoder\.layer\.(\d+)\.block\.self\.(query|key|value)_bias$", r"layers.\1.biases.\2"),
    (r"^encoder\.layer\.(\d+)\.block\.output\.bias$", r"layers.\1.biases.attention_output"),
    (r"^encoder\.layer\.(\d+)\.(intermediate|output)\.bias$", r"layers.\1.biases.\2"),
)
