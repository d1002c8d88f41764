"""ShareBERT (AAAI 2024, 29781): a BERT whose weight matrices are all cut out of one matrix W.

The original code is jchenghu/sharebert at e54fe72 (pretraining/modeling.py). W = E A + b has shape (vocabulary,
hidden). E are the word embeddings (vocabulary, factor); A and b are the linear map `factor_linear_all`. The matrices
take their columns from W one after the other, beginning at its right edge. A matrix of P weights takes
ceil(P / vocabulary) columns, reads them row by row and keeps the first P numbers. All layers share the matrices, but
each layer has its own biases and normalisations.

The other differences from BERT: each layer normalises its input (pre-LN), and the last layer's output is normalised
too. Attention scores are divided by d^(2/3) instead of the square root of d. The pooler has no tanh. The pad token's
embedding is a row of W like all others.

Importing this module registers the family with `AutoConfig`, `AutoModel` and `AutoModelForMaskedLM`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedModel
from transformers import initialization as init
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput

from trainables.encoders.sharebert_slices import SIZES, compute_slices
from trainables.encoders.token_states import Places, softmax_attention


class ShareBertConfig(PreTrainedConfig):
    """The configuration of a ShareBERT. The defaults are ShareBERT-small's."""

    model_type = "sharebert"

    vocab_size: int = SIZES["vocab_size"]
    factor_size: int = 128  # width of the word embeddings
    hidden_size: int = SIZES["hidden_size"]
    num_hidden_layers: int = 12
    num_attention_heads: int = 16
    intermediate_size: int = SIZES["intermediate_size"]
    max_position_embeddings: int = 128
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = False  # the embeddings are narrower than the output layer's input


class SharedMatrices:
    """The weight matrices that all layers and the pooler share, by name.

    `refresh` computes them from the current parameters before the first layer runs. Without gradients, it keeps them
    until a parameter changes, so that an exit after one layer does not pay for them again.
    """

    def __init__(self, config: ShareBertConfig) -> None:
        """Compute the sizes of the matrices, but no matrix yet.

        Raises:
            ValueError: if W has too few columns.
        """
        self._slices = compute_slices({name: getattr(config, name) for name in SIZES})
        self._matrices: dict[str, Tensor] = {}
        self._sources: tuple[Any, ...] | None = None

    def __getitem__(self, name: str) -> Tensor:
        """Return a matrix of shape (inputs, outputs)."""
        return self._matrices[name]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the matrices: tensors with a gradient cannot be copied, and a copy computes its own."""
        return self.__dict__ | {"_matrices": {}, "_sources": None}

    def refresh(self, words: nn.Embedding, project: nn.Linear) -> None:
        """Compute the matrices from the word embeddings E (`words`) and the linear map A, b (`project`)."""
        sources = None if torch.is_grad_enabled() else _identity(words.weight, project.weight, project.bias)
        if sources is None or sources != self._sources:
            self._matrices = dict(self._cut(words.weight, project))
            self._sources = sources

    def _cut(self, words: Tensor, project: nn.Linear) -> Iterator[tuple[str, Tensor]]:
        right = project.out_features
        for name, part in self._slices.items():
            left = right - part.width
            columns = nn.functional.linear(words, project.weight[left:right], project.bias[left:right])
            yield name, columns.flatten()[: math.prod(part.shape)].view(part.shape)
            right = left


def _identity(*parameters: Tensor) -> tuple[Any, ...]:
    """Return a key that changes with the values of the parameters, their device and the precision of autocast."""
    device = parameters[0].device
    precision = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    return device, precision, *((parameter.data_ptr(), parameter._version) for parameter in parameters)


class ShareBertEmbeddings(nn.Module):
    """Computes the input of the first layer, and refreshes the matrices of all layers."""

    def __init__(self, config: ShareBertConfig, shared: SharedMatrices) -> None:
        """Build the embeddings, which refresh the matrices in `shared`."""
        super().__init__()
        self.shared = shared
        # No padding_idx: the pad token's row of W also holds weights.
        self.word_embeddings = nn.Embedding(config.vocab_size, config.factor_size)
        self.factor_linear = nn.Linear(config.factor_size, config.hidden_size)
        self.factor_linear_all = nn.Linear(config.factor_size, config.hidden_size)
        self.pre_factor_norm = nn.LayerNorm(config.factor_size, config.layer_norm_eps)
        self.pos_factor_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return states of shape (batch, tokens, hidden)."""
        self.shared.refresh(self.word_embeddings, self.factor_linear_all)
        words = self.factor_linear(self.pre_factor_norm(self.word_embeddings(input_ids)))
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        positions = self.position_embeddings.weight[: input_ids.shape[1]]  # (tokens, hidden)
        return self.dropout(self.pos_factor_norm(words) + positions + self.token_type_embeddings(types))


class ShareBertLayer(nn.Module):
    """Attention and a feed-forward network, with shared matrices and the layer's own biases."""

    def __init__(self, config: ShareBertConfig, shared: SharedMatrices) -> None:
        """Build a layer that reads its matrices from `shared`."""
        super().__init__()
        self.shared = shared
        self.num_heads = config.num_attention_heads
        self.scale = (config.hidden_size // config.num_attention_heads) ** (-2 / 3)
        self.attention_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        sizes = dict.fromkeys(("query", "key", "value", "attention_output", "output"), config.hidden_size)
        sizes["intermediate"] = config.intermediate_size
        self.biases = nn.ParameterDict({name: nn.Parameter(torch.randn(size)) for name, size in sizes.items()})
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.attention_dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, hidden: Tensor, mask: Tensor | Places | None) -> Tensor:
        """Return states of the same shape as `hidden`; for the arguments, see the fields of `TokenStates`."""
        return self.feed_forward(self.attend(hidden, mask))

    def attend(self, hidden: Tensor, mask: Tensor | Places | None) -> Tensor:
        """Run the first half: attention."""
        return hidden + self.dropout(self._mixed(self.attention_norm(hidden), mask))

    def feed_forward(self, attended: Tensor) -> Tensor:
        """Run the second half: the feed-forward network, for states of shape (..., hidden)."""
        inner = nn.functional.gelu(self._linear("intermediate", self.feed_forward_norm(attended)))
        return attended + self.dropout(self._linear("output", inner))

    def _mixed(self, hidden: Tensor, mask: Tensor | Places | None) -> Tensor:
        query, key, value = (self._heads(self._linear(name, hidden)) for name in ("query", "key", "value"))
        rate = self.attention_dropout.p if self.training else 0.0
        context, _ = softmax_attention(self, query, key, value, mask, dropout=rate, scaling=self.scale)
        return self._linear("attention_output", context.flatten(2))

    def _linear(self, name: str, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, self.shared[name].T, self.biases[name])

    def _heads(self, hidden: Tensor) -> Tensor:
        return hidden.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (batch, heads, tokens, size of a head)


class ShareBertPooler(nn.Module):
    """A linear map of the first token's state, with a shared matrix."""

    def __init__(self, config: ShareBertConfig, shared: SharedMatrices) -> None:
        """Build a pooler that reads its matrix from `shared`."""
        super().__init__()
        self.shared = shared
        self.bias = nn.Parameter(torch.randn(config.hidden_size))

    def forward(self, first: Tensor) -> Tensor:
        """Map states of shape (batch, hidden) to pooled states of the same shape."""
        return nn.functional.linear(first, self.shared["pooler"].T, self.bias)


class ShareBertPreTrainedModel(PreTrainedModel):
    """The base class of the family's models: it initialises their weights."""

    config_class = ShareBertConfig
    base_model_prefix = "sharebert"
    _supports_sdpa = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise weights like BERT, but draw the biases of layers and pooler from a normal distribution.

        Each layer draws its own biases. The original code draws those of one layer and copies them to the others.
        """
        super()._init_weights(module)
        if isinstance(module, ShareBertPooler):
            init.normal_(module.bias)
        elif isinstance(module, nn.ParameterDict):
            for bias in module.values():
                init.normal_(bias)


class ShareBertModel(ShareBertPreTrainedModel):
    """The encoder, without a head."""

    def __init__(self, config: ShareBertConfig) -> None:
        """Build an encoder with random weights.

        Raises:
            ValueError: if the configuration's sizes do not fit; see `SharedMatrices`.
        """
        super().__init__(config)
        shared = SharedMatrices(config)
        self.embeddings = ShareBertEmbeddings(config, shared)
        self.layers = nn.ModuleList([ShareBertLayer(config, shared) for _ in range(config.num_hidden_layers)])
        self.final_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.pooler = ShareBertPooler(config, shared)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> BaseModelOutputWithPooling:
        """Return normalised states of the last layer (batch, tokens, hidden), and pooled states (batch, hidden)."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers:
            hidden = layer(hidden, mask[:, None, None, :].bool())
        hidden = self.final_norm(hidden)
        return BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=self.pooler(hidden[:, 0]))


class ShareBertPredictions(nn.Module):
    """The head that predicts masked tokens. As in the original code, it shares no weights with the embeddings."""

    def __init__(self, config: ShareBertConfig) -> None:
        """Build a head with random weights."""
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map states of shape (..., hidden) to logits of shape (..., vocabulary)."""
        return self.decoder(self.norm(nn.functional.gelu(self.transform(hidden))))


class ShareBertForMaskedLM(ShareBertPreTrainedModel):
    """The encoder with its head for pretraining on masked tokens."""

    def __init__(self, config: ShareBertConfig) -> None:
        """Build a model with random weights; `ShareBertModel` lists the errors."""
        super().__init__(config)
        self.sharebert = ShareBertModel(config)
        self.predictions = ShareBertPredictions(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> MaskedLMOutput:
        """Return logits (batch, tokens, vocabulary) and, if there are labels (batch, tokens), their mean loss.

        A label of -100 is ignored.
        """
        hidden = self.sharebert(input_ids, attention_mask, token_type_ids).last_hidden_state
        logits = self.predictions(hidden)
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        return MaskedLMOutput(loss=loss, logits=logits)


AutoConfig.register(ShareBertConfig.model_type, ShareBertConfig)
AutoModel.register(ShareBertConfig, ShareBertModel)
AutoModelForMaskedLM.register(ShareBertConfig, ShareBertForMaskedLM)
