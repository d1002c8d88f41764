"""Layerwise encoders: the embedding step and then one layer at a time, for ALBERT, BERT, ELECTRA and RoBERTa.

The modules are those of `transformers`; only the walk over the layers is ours, and a family is one small adapter that
says where its modules are. With the same weights the full walk equals the model of `transformers`. Attention goes
through PyTorch's scaled_dot_product_attention, with the padding mask prepared once. `pool` is what the family's own
sequence classifier does below its last linear layer: tanh(dense([CLS])) for ALBERT, BERT and RoBERTa, and
gelu(dense([CLS])) for ELECTRA.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from trainables.checkpoints import FAMILIES, MINI_CHECKPOINTS, check_checkpoint, family_of
from trainables.config import TrainingConfig

MINI_VOCABULARY = 8_000  # words
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class _Parts:
    """Where a family keeps what a walk needs."""

    project: nn.Module  # from the width of the embeddings to that of the layers
    layers: list[nn.Module]  # in order of use; a shared layer is there several times
    pooler: nn.Linear
    activation: Callable[[Tensor], Tensor]  # of the pooler


class LayerwiseEncoder(nn.Module):
    """An encoder that runs one layer at a time."""

    def __init__(self, model: Any, parts: _Parts) -> None:
        """Made by `layerwise`."""
        super().__init__()
        self.num_layers = len(parts.layers)
        self.hidden_size: int = model.config.hidden_size
        self.configuration = model.config  # that of `transformers`, to make the same encoder again
        self.has_token_types = model.config.type_vocab_size > 1
        self.embeddings = model.base_model.embeddings
        self.project = parts.project
        distinct = list(dict.fromkeys(parts.layers))
        self.layers = nn.ModuleList(distinct)
        self.layer_order = [distinct.index(layer) for layer in parts.layers]
        self.pooler = parts.pooler
        self.activation = parts.activation

    def embed(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Hidden states (batch, tokens, hidden) below the first layer, and the mask that `layer` takes.

        Args:
            input_ids: (batch, tokens), int64; so the two others.
            token_type_ids: ignored by backbones that have none.
        """
        hidden = self.embeddings(input_ids, token_type_ids=token_type_ids if self.has_token_types else None)
        return self.project(hidden), attention_mask[:, None, None, :].bool()  # (batch, 1, 1, tokens)

    def layer(self, index: int, hidden: Tensor, mask: Tensor) -> Tensor:
        """Hidden states (batch, tokens, hidden) after the layer `index`, from 0."""
        return self.layers[self.layer_order[index]](hidden, mask)

    def pool(self, hidden: Tensor) -> Tensor:
        """(batch, hidden) from the first token."""
        return self.activation(self.pooler(hidden[:, 0]))

    def parameter_depths(self) -> dict[str, int]:
        """How high each parameter lies: 0 embeddings, 1 ... num_layers the layers, num_layers + 1 the pooler.

        A layer that is used several times (ALBERT) lies where it is used last.
        """
        last_use = {layer: index + 1 for index, layer in enumerate(self.layer_order)}
        return {name: self._depth(name.split("."), last_use) for name, _ in self.named_parameters()}

    def _depth(self, path: list[str], last_use: dict[int, int]) -> int:
        if path[0] == "layers":
            return last_use[int(path[1])]
        return self.num_layers + 1 if path[0] == "pooler" else 0


def _albert(model: Any, num_layers: int) -> _Parts:
    """Layers are shared within a hidden group, which may hold several inner layers."""
    config, encoder = model.config, model.base_model.encoder
    # Groups are spread over the backbone's whole depth, also when only its first layers are used.
    layers_per_group = config.num_hidden_layers / config.num_hidden_groups
    layers = [encoder.albert_layer_groups[int(index / layers_per_group)] for index in range(num_layers)]
    pooler = model.base_model.pooler or _new_pooler(model)
    return _Parts(encoder.embedding_hidden_mapping_in, layers, pooler, torch.tanh)


def _bert(model: Any, num_layers: int) -> _Parts:
    base = model.base_model
    pooler = base.pooler.dense if base.pooler else _new_pooler(model)
    return _Parts(nn.Identity(), list(base.encoder.layer[:num_layers]), pooler, torch.tanh)


def _roberta(model: Any, num_layers: int) -> _Parts:
    """The pooler is that of RoBERTa's sequence classifier, not the base model's. Embeddings count the positions."""
    layers = list(model.base_model.encoder.layer[:num_layers])
    return _Parts(nn.Identity(), layers, _head_pooler(model), torch.tanh)


def _electra(model: Any, num_layers: int) -> _Parts:
    """Embeddings may be narrower than the layers. The pooler is that of ELECTRA's sequence classifier."""
    project = getattr(model.base_model, "embeddings_project", nn.Identity())
    layers = list(model.base_model.encoder.layer[:num_layers])
    return _Parts(project, layers, _head_pooler(model), nn.functional.gelu)


_ADAPTERS = {"albert": _albert, "bert": _bert, "electra": _electra, "roberta": _roberta}


def layerwise(model: PreTrainedModel, num_layers: int = 0) -> LayerwiseEncoder:
    """The layerwise encoder of a model of `transformers`, sharing its weights.

    Args:
        model: a base model or one for sequence classification, with SDPA attention. Where it has no layer for `pool`
            (base models of ELECTRA and RoBERTa) a new one is drawn from PyTorch's global generator.
        num_layers: the first of the model's, 0 is all.

    Raises:
        ValueError: another family, or fewer layers.
    """
    assert model.config._attn_implementation == "sdpa", "the mask of `embed` is for SDPA attention"
    family, depth = model.config.model_type, model.config.num_hidden_layers
    if family not in _ADAPTERS:
        raise ValueError(f"no layerwise encoder for architecture {family!r}; available: {', '.join(FAMILIES)}")
    if num_layers > depth:
        raise ValueError(f"num_hidden_layers is {num_layers}; this backbone has {depth} layers")
    return LayerwiseEncoder(model, _ADAPTERS[family](model, num_layers or depth))


def load_encoder(checkpoint: str, config: TrainingConfig, *, vocab_size: int) -> LayerwiseEncoder:
    """The encoder of a checkpoint, with the configuration's dropout and depth. New weights: PyTorch's global generator.

    Args:
        checkpoint: a hub name, a local folder (safetensors or .bin), or one of the tiny untrained ones: `mini-albert`,
            `mini-bert`, `mini-electra`, `mini-roberta`.
        vocab_size: of the tokenizer.

    Raises:
        ValueError: no such checkpoint, another family, or one that is too small for the configuration.
    """
    if checkpoint in MINI_CHECKPOINTS:
        model = _mini_model(family_of(checkpoint), vocab_size, config)
    else:
        check_checkpoint(checkpoint)
        model = _pretrained_model(checkpoint, config)
    _check_size(checkpoint, model, config, vocab_size)
    return layerwise(model, config.num_hidden_layers)


def load_tokenizer(checkpoint: str, *, texts: Callable[[], Iterable[str]]) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint; that of a tiny backbone is made from the most frequent words of `texts()`.

    Raises:
        ValueError: no such checkpoint, or one without tokenizer.
    """
    if checkpoint in MINI_CHECKPOINTS:
        return _word_tokenizer(texts())
    check_checkpoint(checkpoint)
    with _quiet_transformers():
        return AutoTokenizer.from_pretrained(checkpoint)


def _pretrained_model(checkpoint: str, config: TrainingConfig) -> PreTrainedModel:
    with _quiet_transformers():
        model_config = AutoConfig.from_pretrained(checkpoint)
        model_config.update(_dropouts(config))
        return AutoModel.from_pretrained(
            checkpoint,
            config=model_config,
            attn_implementation="sdpa",
            dtype=torch.float32,
            weights_only=True,
            **_options(model_config.model_type),
        )


def _mini_model(family: str, vocab_size: int, config: TrainingConfig) -> PreTrainedModel:
    """Six layers of width 32: seconds on a CPU, and deep enough for exits to mean something.

    Twice the width takes twice the time and learns mini-GLUE no better within nine epochs.
    """
    model_config = AutoConfig.for_model(
        family,
        vocab_size=vocab_size,
        embedding_size=32,
        hidden_size=32,
        num_hidden_layers=6,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=config.max_length + _reserved_positions(family, pad_token_id=0),
        type_vocab_size=1 if family == "roberta" else 2,
        pad_token_id=0,
        **_dropouts(config),
    )
    return AutoModel.from_config(model_config, attn_implementation="sdpa", **_options(family))


def _options(family: str) -> dict[str, bool]:
    """RoBERTa's own sequence classifier does not use the base model's pooler but a new one."""
    return {"add_pooling_layer": False} if family == "roberta" else {}


def _dropouts(config: TrainingConfig) -> dict[str, float]:
    """Set explicitly: checkpoints of the four families come with different ones. The classifier's is in the heads."""
    return {"hidden_dropout_prob": config.hidden_dropout, "attention_probs_dropout_prob": config.hidden_dropout}


def _reserved_positions(family: str, pad_token_id: int) -> int:
    """RoBERTa counts positions from pad_token_id + 1."""
    return pad_token_id + 1 if family == "roberta" else 0


def _check_size(checkpoint: str, model: PreTrainedModel, config: TrainingConfig, vocab_size: int) -> None:
    limit = model.config.max_position_embeddings
    limit -= _reserved_positions(model.config.model_type, model.config.pad_token_id)
    if config.max_length > limit:
        raise ValueError(f"max_length is {config.max_length}; checkpoint {checkpoint} has {limit} positions")
    if vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer of {checkpoint} has {vocab_size} tokens, its model {model.config.vocab_size} embeddings"
        )


def _head_pooler(model: Any) -> nn.Linear:
    return model.classifier.dense if hasattr(model, "classifier") else _new_pooler(model)


def _new_pooler(model: Any) -> nn.Linear:
    size = model.config.hidden_size
    return initialised(nn.Linear(size, size), model.config.initializer_range)


def initialised(linear: nn.Linear, standard_deviation: float = 0.02) -> nn.Linear:
    """The layer with normal weights and zero bias, as `transformers` initialises new layers."""
    nn.init.normal_(linear.weight, std=standard_deviation)
    nn.init.zeros_(linear.bias)
    return linear


def _word_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Lower-cased words and punctuation marks; the same texts give the same tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    splitter = pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.BertNormalizer(lowercase=True)
    words = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    ranked = sorted(words, key=lambda word: (-words[word], word))
    vocabulary = list(dict.fromkeys([*_SPECIAL_TOKENS, *ranked[:MINI_VOCABULARY]]))
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, _SPECIAL_TOKENS.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars, and no table of the pre-training heads that are left out on purpose."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
