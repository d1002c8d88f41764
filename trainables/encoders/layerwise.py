"""Encoders that run one layer at a time, for every model family.

The modules are those of `transformers` or, for ShareBERT, of this package. Only the loop over the layers is new. With
the same weights, running all layers gives the same output as the `transformers` model.

Layers of ALBERT, BERT, ELECTRA, RoBERTa, XLM-RoBERTa and ShareBERT run in two halves, and without pads if the hidden
size is large (`token_states.py`). Their attention is PyTorch's scaled_dot_product_attention or Nystrom attention. All
other models are taken apart by their structure, and run block by block (`blocks.py`).

`pooling` says how the states of a layer become the vector that the heads read:

* `pooler`: what the family's sequence classifier does before its last dropout: tanh(dense([CLS])) for ALBERT and BERT,
  tanh(dense(dropout([CLS]))) for RoBERTa, XLM-RoBERTa and MPNet, gelu(dense(dropout([CLS]))) for ELECTRA and DeBERTa,
  relu(dense([CLS])) for DistilBERT, norm(gelu(dense(norm([CLS])))) for ModernBERT, dense(norm([CLS])) for ShareBERT.
  Except in ALBERT, BERT and ShareBERT, the dense layer is always new, because only the sequence classifiers have it.
* `fresh`: like `pooler`, but with a new dense layer for ALBERT and BERT too. ShareBERT's dense layer is cut from the
  word embeddings, so it cannot be new.
* `first`: the state of [CLS]. The states of ShareBERT and ModernBERT are normalised, here and in `mean`.
* `mean`: the mean of the states of all tokens without pads. This needs all tokens of each layer that has heads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN, NewGELUActivation

from trainables.configuration import Pooling
from trainables.encoders.blocks import BlockCalls, Stem, call_block, find_blocks
from trainables.encoders.sharebert import ShareBertConfig, ShareBertLayer
from trainables.encoders.token_states import FirstTokens, Places, TokenStates

PADDING_FREE_WIDTH = 128  # smallest hidden size at which leaving out pads saves more time than it costs
LARGEST_SHARE = 0.95  # largest share of real tokens at which pads are left out


def _attend(layer: Any, hidden: Tensor, mask: Any) -> Tensor:
    """Run the attention of a BERT, ELECTRA or RoBERTa layer."""
    return layer.attention(hidden, mask)[0]


@dataclass(frozen=True)
class _Parts:
    """The modules and functions that a `LayerwiseEncoder` takes from a model."""

    embeddings: nn.Module
    project: nn.Module  # maps the embeddings to the hidden size
    layers: list[nn.Module]  # layers in order of use; a shared layer appears several times
    pooler: nn.Module
    activation: Callable[[Tensor], Tensor]  # activation after the pooler
    pooler_dropout: float = 0.0  # dropout rate before the pooler, in training
    final_norm: nn.Module = field(default_factory=nn.Identity)  # used if the layers do not end with a norm
    words_are_looked_up: bool = True  # False if the layers compute their weights from the word embeddings
    # True if each layer has one attention module of `transformers`; such a module can compute the first tokens alone.
    one_attention_each: bool = True
    attend: Callable[[Any, Tensor, Any], Tensor] = _attend  # first half: (layer, states, mask) -> states
    # The second half of a layer, which handles each token separately.
    feed_forward: Callable[[Any, Tensor], Tensor] = lambda layer, attended: layer.feed_forward_chunk(attended)


class LayerwiseEncoder(nn.Module):
    """An encoder that runs one layer at a time."""

    def __init__(self, model: Any, parts: _Parts) -> None:
        """Store the parts of a model; called by the function `layerwise`."""
        super().__init__()
        self.num_layers = len(parts.layers)
        self.hidden_size: int = model.config.hidden_size
        self.configuration = model.config  # configuration of `transformers`, to make the same encoder again
        self.has_token_types = getattr(model.config, "type_vocab_size", 0) > 1
        self.embeddings = parts.embeddings
        self.project = parts.project
        distinct = list(dict.fromkeys(parts.layers))
        self.layers = nn.ModuleList(distinct)
        self.layer_order = [distinct.index(layer) for layer in parts.layers]
        self.final_norm = parts.final_norm
        self.pooler = parts.pooler
        self.activation = parts.activation
        self.pooler_dropout = parts.pooler_dropout
        self.words_are_looked_up = parts.words_are_looked_up
        softmax = model.config._attn_implementation == "padding_free"
        self.first_tokens_alone = softmax and parts.one_attention_each
        self._attend, self._feed_forward = parts.attend, parts.feed_forward
        self.pooling: Pooling = "pooler"

    def read_by(self, pooling: Pooling) -> None:
        """Choose how the heads read a layer. A pooler that is not used is not trained."""
        self.pooling = pooling
        self.pooler.requires_grad_(self.uses_pooler)

    @property
    def uses_pooler(self) -> bool:
        """True if the heads read the output of the pooler."""
        return self.pooling in ("pooler", "fresh")

    @property
    def reads_first_token(self) -> bool:
        """True if the heads read only the first token of each example."""
        return self.pooling != "mean"

    def first_tokens(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Iterator[Tensor]:
        """After each layer, yield what `read` gives, (batch, hidden). Arguments are those of `embed`."""
        states = self.embed(input_ids, attention_mask, token_type_ids)
        last = self.num_layers - 1
        for index in range(last):
            states = self.layer(index, states)
            yield self.read(states)
        yield self.first_of_last(states)

    def read(self, states: TokenStates) -> Tensor:
        """Take the input of `pool` from a layer's states, (batch, hidden): the first tokens, or the means of `mean`."""
        if self.reads_first_token:
            return states.first()
        return TokenStates(self.final_norm(states.hidden), states.mask).mean()

    def embed(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> TokenStates:
        """Compute the embeddings, which are the input of the first layer.

        Args:
            input_ids: token ids; all arguments are (batch, tokens), int64. Pads follow the real tokens.
            token_type_ids: ignored if the backbone has no token types.
        """
        token_type_ids = token_type_ids if self.has_token_types else None
        if isinstance(self.embeddings, Stem):
            return TokenStates(*self.embeddings(input_ids, attention_mask, token_type_ids))
        hidden = self.embeddings(input_ids, token_type_ids=token_type_ids)
        mask = attention_mask[:, None, None, :].bool()
        if self.hidden_size < PADDING_FREE_WIDTH:
            return TokenStates(self.project(hidden), mask)
        num_real = int(mask.sum())  # waits for a GPU, once per batch
        if num_real <= LARGEST_SHARE * mask.numel():
            places = Places.of(mask)
            return TokenStates(self.project(places.packed(hidden)), places)
        return TokenStates(self.project(hidden), None if num_real == mask.numel() else mask)

    def layer(self, index: int, states: TokenStates) -> TokenStates:
        """Compute the states after layer `index`, counted from 0."""
        return self.feed_forward(index, self.attend(index, states))

    def attend(self, index: int, states: TokenStates) -> TokenStates:
        """Run the first half of layer `index`, the attention."""
        hidden = self._attend(self.layers[self.layer_order[index]], states.hidden, states.mask)
        return TokenStates(hidden, states.mask)

    def feed_forward(self, index: int, attended: TokenStates) -> TokenStates:
        """Run the second half of layer `index` on `attended`, the output of `attend`."""
        return TokenStates(self._run_feed_forward(index, attended.hidden), attended.mask)

    def first_after(self, index: int, attended: TokenStates) -> Tensor:
        """Run the second half of layer `index` on the first tokens only; return the result, (batch, hidden)."""
        return self._run_feed_forward(index, attended.first())

    def first_of_last(self, states: TokenStates) -> Tensor:
        """Run the last layer on `states`, and return what `read` gives, (batch, hidden).

        If `first_tokens_alone` is true and the heads read the first token, attention computes no outputs for other
        tokens.
        """
        last = self.num_layers - 1
        if not self.reads_first_token:
            return self.read(self.layer(last, states))
        if not self.first_tokens_alone:
            return self.first_after(last, self.attend(last, states))
        assert not isinstance(states.mask, BlockCalls), "whole blocks compute all tokens"
        layer, mask = self.layers[self.layer_order[last]], FirstTokens(states.hidden, states.mask)
        return self._feed_forward(layer, self._attend(layer, states.first()[:, None], mask)[:, 0])

    def _run_feed_forward(self, index: int, attended: Tensor) -> Tensor:
        return self._feed_forward(self.layers[self.layer_order[index]], attended)

    def pool(self, first: Tensor, pooler: nn.Module | None = None) -> Tensor:
        """Pool what `read` gives, (..., hidden). If `pooler` is None, use the encoder's pooler."""
        if not self.uses_pooler:
            return self.final_norm(first) if self.reads_first_token else first
        output = nn.functional.dropout(self.final_norm(first), self.pooler_dropout, self.training)
        return self.activation((pooler or self.pooler)(output))

    def find_words(self) -> tuple[nn.Module, str]:
        """Find the table of word embeddings: the module that holds it, and its name there."""
        if not isinstance(self.embeddings, Stem):
            return self.embeddings, "word_embeddings"
        table = self.embeddings.model.get_input_embeddings()
        return next(
            (holder, name)
            for holder in self.embeddings.modules()
            for name, part in holder.named_children()
            if part is table
        )

    def parameter_depths(self) -> dict[str, int]:
        """Map each parameter to its depth: 0 in the embeddings, n in layer n, num_layers + 1 above the last layer.

        A layer that is used several times (ALBERT) has the depth of its last use. ShareBERT
        computes the matrices of all layers from the embeddings, which have depth 0.
        """
        last_use = {layer: index + 1 for index, layer in enumerate(self.layer_order)}
        return {name: self._depth(name.split("."), last_use) for name, _ in self.named_parameters()}

    def _depth(self, path: list[str], last_use: dict[int, int]) -> int:
        if path[0] == "layers":
            return last_use[int(path[1])]
        return self.num_layers + 1 if path[0] in ("final_norm", "pooler") else 0


def _albert(model: Any, num_layers: int) -> _Parts:
    """Find the parts of an ALBERT. The layers are divided evenly among the layer groups."""
    config, encoder = model.config, model.base_model.encoder
    # The backbone's whole depth is divided among the groups, even if only its first layers are used.
    layers_per_group = config.num_hidden_layers / config.num_hidden_groups
    layers = [encoder.albert_layer_groups[int(index / layers_per_group)] for index in range(num_layers)]
    pooler = model.base_model.pooler or _new_pooler(model)
    return _Parts(
        model.base_model.embeddings,
        encoder.embedding_hidden_mapping_in,
        layers,
        pooler,
        torch.tanh,
        one_attention_each=config.inner_group_num == 1,
        attend=_attend_in_group,
        feed_forward=_feed_forward_of_group,
    )


def _attend_in_group(group: Any, hidden: Tensor, mask: Any) -> Tensor:
    """Run an ALBERT group up to the attention of the group's last layer."""
    *below, last = group.albert_layers
    for layer in below:
        hidden = layer(hidden, mask)
    return last.attention(hidden, mask)[0]


def _feed_forward_of_group(group: Any, attended: Tensor) -> Tensor:
    last = group.albert_layers[-1]
    return last.full_layer_layer_norm(last.ff_chunk(attended) + attended)


def _bert(model: Any, num_layers: int) -> _Parts:
    base = model.base_model
    pooler = base.pooler.dense if base.pooler else _new_pooler(model)
    return _Parts(base.embeddings, nn.Identity(), list(base.encoder.layer[:num_layers]), pooler, torch.tanh)


def _roberta(model: Any, num_layers: int) -> _Parts:
    """Find the parts of a RoBERTa or XLM-RoBERTa; the pooler is the dense layer of its sequence classifier."""
    base = model.base_model
    layers = list(base.encoder.layer[:num_layers])
    return _Parts(base.embeddings, nn.Identity(), layers, _find_pooler(model), torch.tanh, _read_dropout(model))


def _electra(model: Any, num_layers: int) -> _Parts:
    """Find the parts of an ELECTRA; the pooler is the dense layer of its sequence classifier."""
    base = model.base_model
    project = getattr(base, "embeddings_project", nn.Identity())
    layers = list(base.encoder.layer[:num_layers])
    return _Parts(base.embeddings, project, layers, _find_pooler(model), nn.functional.gelu, _read_dropout(model))


def _sharebert(model: Any, num_layers: int) -> _Parts:
    base = model.base_model
    layers = list(base.layers[:num_layers])
    return _Parts(
        base.embeddings,
        nn.Identity(),
        layers,
        base.pooler,
        nn.Identity(),
        final_norm=base.final_norm,
        words_are_looked_up=False,  # layers compute their matrices from the word embeddings
        one_attention_each=False,  # keys are computed from normalised states
        attend=ShareBertLayer.attend,
        feed_forward=ShareBertLayer.feed_forward,
    )


# Families whose layers are run in two halves and without pads; layers of all others are run as whole blocks.
_ADAPTERS = {
    "albert": _albert,
    "bert": _bert,
    "electra": _electra,
    "roberta": _roberta,
    ShareBertConfig.model_type: _sharebert,
    "xlm-roberta": _roberta,
}


def _blocks(model: Any, num_layers: int) -> _Parts:
    """Find the parts of any model with a list of blocks; `check_blocks` shows whether they compute the same."""
    base, (pooler, activation, dropout) = model.base_model, _find_head(model)
    return _Parts(
        Stem(base, num_layers, without=("pooler", _FINAL_NORM)),
        nn.Identity(),
        find_blocks(base)[1][:num_layers],
        pooler,
        activation,
        dropout,
        final_norm=getattr(base, _FINAL_NORM, nn.Identity()),
        attend=call_block,  # a block is not divided, so its second half is empty
        feed_forward=lambda block, states: states,
    )


_FINAL_NORM = "final_norm"  # name of the norm after the last block, in families that have one


def _find_head(model: Any) -> tuple[nn.Module, Callable[[Tensor], Tensor], float]:
    """Find the pooler of a family's sequence classifier, the activation after it and the dropout rate before it."""
    config, family = model.config, model.config.model_type
    if family == "distilbert":
        return getattr(model, "pre_classifier", None) or _new_pooler(model), nn.functional.relu, 0.0
    if family == "deberta-v2":
        pooler = model.pooler.dense if hasattr(model, "pooler") else _new_pooler(model)
        return pooler, ACT2FN[config.pooler_hidden_act], config.pooler_dropout
    if family == "modernbert":  # its pooler includes the activation
        return getattr(model, "head", None) or _new_modernbert_head(model), nn.Identity(), 0.0
    return _find_pooler(model), torch.tanh, config.hidden_dropout_prob


def _new_modernbert_head(model: Any) -> nn.Module:
    from transformers.models.modernbert.modeling_modernbert import ModernBertPredictionHead

    head = ModernBertPredictionHead(model.config)
    for part in head.modules():
        model._init_weights(part)
    return head


def layerwise(model: PreTrainedModel, num_layers: int = 0, pooling: Pooling = "pooler") -> LayerwiseEncoder:
    """Make a layerwise encoder that shares the weights of a `transformers` model.

    Args:
        model: a base model or a sequence classifier of one of `FAMILIES`, with the attention that `transformers`
            chooses or with Nystrom attention. A missing pooler is initialised with PyTorch's global generator.
        num_layers: number of layers to use, counted from the first; 0 means all layers.
        pooling: how the heads read a layer. `fresh` draws a new pooler with PyTorch's global generator.

    Raises:
        ValueError: if the model has no list of blocks, or has fewer than `num_layers` layers.
    """
    family, depth = model.config.model_type, model.config.num_hidden_layers
    if num_layers > depth:
        raise ValueError(f"num_hidden_layers is {num_layers}; this backbone has {depth} layers")
    if family in _ADAPTERS:
        if model.config._attn_implementation == "sdpa":
            model.set_attn_implementation("padding_free")
        assert model.config._attn_implementation in ("padding_free", "nystrom"), "`TokenStates` needs one of these"
    one_kernel_gelu(model)
    encoder = LayerwiseEncoder(model, _ADAPTERS.get(family, _blocks)(model, num_layers or depth))
    if pooling == "fresh" and isinstance(encoder.pooler, nn.Linear) and family in ("albert", "bert"):
        initialised(encoder.pooler, model.config.initializer_range)
    encoder.read_by(pooling)
    return encoder


def _find_pooler(model: Any) -> nn.Linear:
    return model.classifier.dense if hasattr(model, "classifier") else _new_pooler(model)


def _read_dropout(model: Any) -> float:
    """Read the dropout rate of the classifier, or of the hidden states if the classifier has none."""
    rate = model.config.classifier_dropout
    return model.config.hidden_dropout_prob if rate is None else rate


def _new_pooler(model: Any) -> nn.Linear:
    size = model.config.hidden_size
    return initialised(nn.Linear(size, size), model.config.initializer_range)


def initialised(linear: nn.Linear, standard_deviation: float = 0.02) -> nn.Linear:
    """Draw normal weights and zero the bias, as `transformers` initialises new layers."""
    nn.init.normal_(linear.weight, std=standard_deviation)
    nn.init.zeros_(linear.bias)
    return linear


def one_kernel_gelu(model: nn.Module) -> None:
    """Replace `gelu_new` of `transformers` (eight operations) by PyTorch's single kernel.

    The values are the same up to rounding.
    """
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, NewGELUActivation):
                setattr(module, name, nn.GELU(approximate="tanh"))
