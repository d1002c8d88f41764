"""Layerwise encoders: the embedding step and then one layer at a time, for ALBERT, BERT, ELECTRA and RoBERTa.

The modules are those of `transformers`; only the walk over the layers is ours. With the same weights the full walk
equals the model of `transformers`. Attention goes through PyTorch's scaled_dot_product_attention, with the padding mask
prepared once. `pool` is what the family's own sequence classifier does below its last linear layer: tanh(dense([CLS]))
for ALBERT, BERT and RoBERTa, gelu(dense([CLS])) for ELECTRA.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from trainables.checkpoints import FAMILIES, MINI_CHECKPOINTS, check_checkpoint, family_of
from trainables.config import TrainingConfig

MINI_VOCABULARY = 8_000  # words
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class LayerwiseEncoder(nn.Module):
    """An encoder that runs one layer at a time. Subclasses adapt one family each."""

    def __init__(self, backbone: PreTrainedModel, pooler: nn.Linear, num_layers: int) -> None:
        """Wraps a base model of `transformers`.

        Args:
            backbone: with SDPA attention.
            pooler: the dense layer of `pool`.
            num_layers: the first of the backbone's, 0 is all.

        Raises:
            ValueError: the backbone has fewer layers.
        """
        super().__init__()
        depth = backbone.config.num_hidden_layers
        if num_layers > depth:
            raise ValueError(f"num_hidden_layers is {num_layers}; this backbone has {depth} layers")
        self.backbone = backbone
        self.pooler = pooler
        self.num_layers = num_layers or depth
        self.hidden_size: int = backbone.config.hidden_size

    def embed(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Hidden states (batch, tokens, hidden) below the first layer, and the mask that `layer` takes.

        Args:
            input_ids: (batch, tokens), int64; so the two others.
            token_type_ids: ignored by backbones that have none.
        """
        if self.backbone.config.type_vocab_size < 2:
            token_type_ids = None
        hidden = self.backbone.embeddings(input_ids, token_type_ids=token_type_ids)
        return self._project(hidden), attention_mask[:, None, None, :].bool()  # (batch, 1, 1, tokens)

    def layer(self, index: int, hidden: Tensor, mask: Tensor) -> Tensor:
        """Hidden states (batch, tokens, hidden) after the layer `index`, from 0."""
        return self._layers()[index](hidden, mask)

    def pool(self, hidden: Tensor) -> Tensor:
        """(batch, hidden) from the first token."""
        return torch.tanh(self.pooler(hidden[:, 0]))

    def parameter_depths(self) -> dict[str, int]:
        """How high each parameter lies: 0 embeddings, 1 ... num_layers the layers, num_layers + 1 the pooler.

        A layer that is used several times (ALBERT) lies where it is used last.
        """
        depths = {
            parameter: index + 1 for index, layer in enumerate(self._layers()) for parameter in layer.parameters()
        }
        depths |= {parameter: self.num_layers + 1 for parameter in self.pooler.parameters()}
        return {name: depths.get(parameter, 0) for name, parameter in self.named_parameters()}

    def _project(self, hidden: Tensor) -> Tensor:
        return hidden

    def _layers(self) -> list[nn.Module]:
        return list(self.backbone.encoder.layer)[: self.num_layers]


class AlbertEncoder(LayerwiseEncoder):
    """ALBERT: layers are shared within a hidden group, which may hold several inner layers."""

    def _project(self, hidden: Tensor) -> Tensor:
        return self.backbone.encoder.embedding_hidden_mapping_in(hidden)

    def _layers(self) -> list[nn.Module]:
        # Groups are spread over the backbone's whole depth, also when only its first layers are used.
        config = self.backbone.config
        groups = self.backbone.encoder.albert_layer_groups
        return [
            groups[int(index / (config.num_hidden_layers / config.num_hidden_groups))]
            for index in range(self.num_layers)
        ]


class BertEncoder(LayerwiseEncoder):
    """BERT."""


class RobertaEncoder(LayerwiseEncoder):
    """RoBERTa. Its positions are counted from the token ids, by its own embeddings."""


class ElectraEncoder(LayerwiseEncoder):
    """ELECTRA: embeddings may be narrower than the layers."""

    def _project(self, hidden: Tensor) -> Tensor:
        project = getattr(self.backbone, "embeddings_project", None)
        return hidden if project is None else project(hidden)

    def pool(self, hidden: Tensor) -> Tensor:
        """(batch, hidden) from the first token."""
        return nn.functional.gelu(self.pooler(hidden[:, 0]))


_ENCODERS: dict[str, type[LayerwiseEncoder]] = {
    "albert": AlbertEncoder,
    "bert": BertEncoder,
    "electra": ElectraEncoder,
    "roberta": RobertaEncoder,
}


def layerwise(model: PreTrainedModel, num_layers: int = 0) -> LayerwiseEncoder:
    """The layerwise encoder of a model of `transformers`, sharing its weights.

    Args:
        model: a base model, or a model for sequence classification, whose own pooling layer is then used. A model
            without one (ELECTRA, RoBERTa) gets a new one, drawn from PyTorch's global generator.
        num_layers: the first of the model's, 0 is all.

    Raises:
        ValueError: another family, or fewer layers.
    """
    family = model.config.model_type
    if family not in _ENCODERS:
        raise ValueError(f"no layerwise encoder for architecture {family!r}; available: {', '.join(FAMILIES)}")
    return _ENCODERS[family](model.base_model, _pooler_of(model), num_layers)


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


def load_tokenizer(checkpoint: str, *, texts: Callable[[], Iterable[str]]) -> PreTrainedTokenizerFast:
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
    """Six layers of width 64: seconds on a CPU, and deep enough for exits to mean something."""
    model_config = AutoConfig.for_model(
        family,
        vocab_size=vocab_size,
        embedding_size=64,
        hidden_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=config.max_length + _reserved_positions(family, pad_token_id=0),
        type_vocab_size=1 if family == "roberta" else 2,
        pad_token_id=0,
        # Weights of such a narrow network start larger than BERT's 0.02, or six layers hardly change their input.
        initializer_range=0.1,
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


def _pooler_of(model: PreTrainedModel) -> nn.Linear:
    """The dense layer between the first token and the classifier, which each family keeps in another place."""
    head, pooler = getattr(model, "classifier", None), getattr(model.base_model, "pooler", None)
    if model.config.model_type == "albert" and pooler is not None:
        return pooler
    if model.config.model_type == "bert" and pooler is not None:
        return pooler.dense
    if hasattr(head, "dense"):
        return head.dense
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
