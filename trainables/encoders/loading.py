"""Encoders and tokenizers of backbones: pretrained ones from the hub or a folder, tiny untrained ones made here."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from trainables.configuration import TrainingConfig
from trainables.encoders.backbones import MINI_BACKBONES, MINI_LAYERS, check_tokenizer, check_weights, family_of
from trainables.encoders.layerwise import LayerwiseEncoder, layerwise

MINI_VOCABULARY = 8_000  # words
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def load_encoder(backbone: str, config: TrainingConfig, *, vocab_size: int) -> LayerwiseEncoder:
    """The encoder of a backbone, with the configuration's dropout and depth. New weights: PyTorch's global generator.

    Args:
        backbone: a hub name, a local folder (safetensors or .bin), or one of the tiny untrained ones: `mini-albert`,
            `mini-bert`, `mini-electra`, `mini-roberta`.
        vocab_size: of the tokenizer.

    Raises:
        ValueError: no such backbone, another family, or one that is too small for the configuration.
    """
    if backbone in MINI_BACKBONES:
        model = _mini_model(family_of(backbone), vocab_size, config)
    else:
        check_weights(backbone)
        model = _pretrained_model(backbone, config)
    _check_size(backbone, model, config, vocab_size)
    return layerwise(model, config.num_hidden_layers)


def load_tokenizer(name: str, *, texts: Callable[[], Iterable[str]]) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder or on the hub; a tiny backbone has one of the most frequent words of `texts()`.

    Raises:
        ValueError: there is none.
    """
    if name in MINI_BACKBONES:
        return _word_tokenizer(texts())
    check_tokenizer(name)
    with _quiet_transformers():
        return AutoTokenizer.from_pretrained(name)


def _pretrained_model(backbone: str, config: TrainingConfig) -> PreTrainedModel:
    with _quiet_transformers():
        model_config = AutoConfig.from_pretrained(backbone)
        model_config.update(_dropouts(config))
        return AutoModel.from_pretrained(
            backbone,
            config=model_config,
            attn_implementation="sdpa",
            dtype=torch.float32,
            weights_only=True,
            **_options(model_config.model_type),
        )


def _mini_model(family: str, vocab_size: int, config: TrainingConfig) -> PreTrainedModel:
    """Few layers of width 32: seconds on a CPU, and deep enough for exits to mean something.

    Twice the width takes twice the time and learns mini-GLUE no better within nine epochs.
    """
    model_config = AutoConfig.for_model(
        family,
        vocab_size=vocab_size,
        embedding_size=32,
        hidden_size=32,
        num_hidden_layers=MINI_LAYERS,
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
    """Set explicitly: backbones of the four families come with different ones."""
    return {
        "hidden_dropout_prob": config.hidden_dropout,
        "attention_probs_dropout_prob": config.hidden_dropout,
        "classifier_dropout": config.classifier_dropout,  # ELECTRA and RoBERTa: below the pooler too
    }


def _reserved_positions(family: str, pad_token_id: int) -> int:
    """RoBERTa counts positions from pad_token_id + 1."""
    return pad_token_id + 1 if family == "roberta" else 0


def _check_size(backbone: str, model: PreTrainedModel, config: TrainingConfig, vocab_size: int) -> None:
    limit = model.config.max_position_embeddings
    limit -= _reserved_positions(model.config.model_type, model.config.pad_token_id)
    if config.max_length > limit:
        raise ValueError(f"max_length is {config.max_length}; backbone {backbone} has {limit} positions")
    if vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {vocab_size} tokens, backbone {backbone} {model.config.vocab_size} embeddings"
        )


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
