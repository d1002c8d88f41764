"""Encoders and tokenizers of backbones: pretrained ones from the hub or a folder, untrained ones made here."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    AlbertTokenizer,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from trainables.configuration import EncoderConfig, TrainingConfig
from trainables.encoders.backbones import (
    MINI_BACKBONES,
    PUBLISHED_SIZES,
    check_attention,
    check_tokenizer,
    check_weights,
    family_of,
    hub_revision,
    is_hub_name,
    is_untrained,
    pretrained_convolution,
)
from trainables.encoders.families import dropouts, family_options, reserved_positions
from trainables.encoders.layerwise import LayerwiseEncoder, layerwise, one_kernel_gelu
from trainables.encoders.mini_backbones import mini_model, word_tokenizer
from trainables.encoders.nystrom import load_convolutions, with_attention
from trainables.pretraining_configuration import PretrainingConfig
from trainables.sources import Unusable

if TYPE_CHECKING:
    from trainables.models.pretraining_models import PretrainingModel


def load_encoder(backbone: str, config: TrainingConfig, *, vocab_size: int) -> LayerwiseEncoder:
    """Load the encoder of a backbone, with the configuration's dropout, depth and attention.

    New weights are drawn from PyTorch's global generator.

    Args:
        backbone: a hub name, with @REVISION behind or not; a local folder, whose weights (safetensors or .bin) are
            random if it has a configuration alone; an untrained one that is tiny (`MINI_BACKBONES`) or of a published
            size (`PUBLISHED_SIZES`).
        vocab_size: of the tokenizer.

    Raises:
        ValueError: no such backbone, another family, one that is too small for the configuration, or that cannot have
            its attention.
    """
    if backbone in MINI_BACKBONES:
        model = mini_model(family_of(backbone), vocab_size, config)
    else:
        model = _load_model(backbone, config)
    _check_size(backbone, model.config, config, vocab_size)
    check_attention(backbone, config)
    model = with_attention(model, config)
    if pretrained_convolution(backbone) is not None:
        load_convolutions(model, *hub_revision(backbone))
    return layerwise(model, config.num_hidden_layers)


def load_tokenizer(name: str, *, texts: Callable[[], Iterable[str]]) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a folder or of the hub; a tiny backbone's is made of the most frequent words of `texts()`.

    Raises:
        ValueError: the folder or the hub has no such tokenizer.
        Unusable: it has one that cannot be loaded.
    """
    if name in MINI_BACKBONES:
        return word_tokenizer(texts())
    files = check_tokenizer(name)
    with _explaining_errors("tokenizer", name), quiet_transformers():
        tokenizer = _load_tokenizer_files(files, *hub_revision(name))
        if len(tokenizer) <= len(tokenizer.all_special_ids):  # no file that its class reads was there
            raise ValueError(f"no word in {', '.join(sorted(files))} for a {type(tokenizer).__name__}")
    return tokenizer


def _load_tokenizer_files(files: Set[str], place: str, revision: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer that files describe; `vocab.txt` or `spiece.model` alone is BERT's or ALBERT's."""
    if files & {"tokenizer.json", "tokenizer_config.json"} or not files & {"vocab.txt", "spiece.model"}:
        return AutoTokenizer.from_pretrained(place, revision=revision)
    if "spiece.model" in files:
        return AlbertTokenizer.from_pretrained(place, revision=revision)
    uncased = BertTokenizer.from_pretrained(place, revision=revision)
    if any("A" <= word[:1] <= "Z" for word in uncased.get_vocab()):
        return BertTokenizer.from_pretrained(place, revision=revision, do_lower_case=False)
    return uncased


_IN_PLAIN_WORDS = {  # part of a message of torch or transformers, about an option that a user cannot give
    "Weights only load failed": "pytorch_model.bin holds something else than weights",
    "ignore_mismatched_sizes": "its weights have other shapes than in its config.json",
}


@contextlib.contextmanager
def _explaining_errors(kind: str, name: str) -> Iterator[None]:
    """Turn errors in the content of files into `Unusable`; those of memory, a disk or the hub pass."""
    try:
        yield
    except Exception as error:  # whatever the libraries that read such files raise
        if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
            raise
        if isinstance(error, OSError) and (error.errno is not None or is_hub_name(name)):
            raise
        [line, *_] = str(error).splitlines() or [type(error).__name__]
        known = next((plain for theirs, plain in _IN_PLAIN_WORDS.items() if theirs in line), line)
        raise Unusable(f"{kind} {name!r} cannot be loaded: {known}") from error


@lru_cache(maxsize=1)
def fingerprint_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of all that decides how a text is tokenised: vocabulary, rules, special tokens; 16 hexadecimal digits."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    for setting_of_last_call in ("truncation", "padding"):
        del rules[setting_of_last_call]
    content = json.dumps([rules, tokenizer.truncation_side, tokenizer.model_input_names], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _load_configuration(backbone: str, config: EncoderConfig) -> PreTrainedConfig:
    """Load the configuration of a backbone that is not a tiny one, with this dropout."""
    if backbone in PUBLISHED_SIZES:
        return AutoConfig.for_model(**{**PUBLISHED_SIZES[backbone], **dropouts(config)})
    check_weights(backbone)
    place, revision = hub_revision(backbone)
    with _explaining_errors("backbone", backbone), quiet_transformers():
        model_config = AutoConfig.from_pretrained(place, revision=revision)
    model_config.update(dropouts(config))
    return model_config


def _load_model(backbone: str, config: TrainingConfig) -> PreTrainedModel:
    """Load the model of a backbone that is not a tiny one: pretrained, or with random weights."""
    model_config = _load_configuration(backbone, config)
    options: dict[str, Any] = {**family_options(model_config.model_type), "attn_implementation": "sdpa"}
    if is_untrained(backbone):
        return AutoModel.from_config(model_config, **options)
    place, revision = hub_revision(backbone)
    options |= {"revision": revision, "dtype": torch.float32, "weights_only": True}
    with _explaining_errors("backbone", backbone), quiet_transformers():
        return AutoModel.from_pretrained(place, config=model_config, **options)


def _check_size(backbone: str, encoder: PreTrainedConfig, config: EncoderConfig, vocab_size: int) -> None:
    positions = encoder.max_position_embeddings - reserved_positions(encoder.model_type, encoder.pad_token_id)
    if config.max_length > positions:
        raise Unusable(f"max_length is {config.max_length}; backbone {backbone} has {positions} positions")
    if vocab_size > encoder.vocab_size:
        raise Unusable(f"the tokenizer has {vocab_size} tokens, backbone {backbone} {encoder.vocab_size} embeddings")


# ---- what a pretraining begins with


def encoder_configuration(backbone: str, config: PretrainingConfig, *, vocab_size: int) -> PreTrainedConfig:
    """Load the `transformers` configuration of a backbone's encoder, with this dropout.

    Args:
        vocab_size: of the tokenizer.

    Raises:
        ValueError: no such backbone, one that is too small for the texts or the tokenizer, or that cannot have the
            configuration's attention.
    """
    if backbone in MINI_BACKBONES:
        with torch.device("meta"):
            encoder = mini_model(family_of(backbone), vocab_size, config).config
    else:
        encoder = _load_configuration(backbone, config)
    encoder.classifier_dropout_prob = config.classifier_dropout  # as ALBERT names it
    _check_size(backbone, encoder, config, vocab_size)
    check_attention(backbone, config)
    return encoder


def begin_with(backbone: str, model: PretrainingModel, config: PretrainingConfig) -> None:
    """Give the encoder that is kept the weights of the backbone, and all encoders the configuration's attention."""
    kept: Any = model.kept.base_model
    if not is_untrained(backbone):
        place, revision = hub_revision(backbone)
        with _explaining_errors("backbone", backbone), quiet_transformers():
            pretrained = AutoModel.from_pretrained(place, revision=revision, dtype=torch.float32, weights_only=True)
        weights = pretrained.state_dict()
        kept.load_state_dict({name: weights[name] for name in kept.state_dict()})  # it may have no pooler
    for part in model.children():
        if isinstance(part, PreTrainedModel):
            one_kernel_gelu(with_attention(part, config))
    if pretrained_convolution(backbone) is not None:
        load_convolutions(kept, *hub_revision(backbone))


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide progress bars, and the table of the pre-training heads that are left out on purpose."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
