"""Encoders and tokenizers of backbones: pretrained ones from the hub or a folder, untrained ones made here."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
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
    UNTRAINED,
    check_attention,
    check_tokenizer,
    check_weights,
    family_of,
    hub_revision,
    is_folder,
    pretrained_convolution,
)
from trainables.encoders.families import dropouts, family_options, reserved_positions
from trainables.encoders.layerwise import LayerwiseEncoder, layerwise, one_kernel_gelu
from trainables.encoders.mini_backbones import mini_model, word_tokenizer
from trainables.encoders.nystrom import load_convolutions, with_attention
from trainables.pretraining_configuration import PretrainingConfig

if TYPE_CHECKING:
    from trainables.models.pretraining_models import PretrainingModel


def load_encoder(backbone: str, config: TrainingConfig, *, vocab_size: int) -> LayerwiseEncoder:
    """The encoder of a backbone, with the configuration's dropout, depth and attention.

    New weights are drawn from PyTorch's global generator.

    Args:
        backbone: a hub name, with @REVISION behind or not, a local folder (safetensors or .bin), or one of the tiny
            untrained ones (`MINI_BACKBONES`), or one of a published size (`PUBLISHED_SIZES`), untrained too.
        vocab_size: of the tokenizer.

    Raises:
        ValueError: no such backbone, another family, one that is too small for the configuration, or that cannot have
            its attention.
    """
    if backbone in MINI_BACKBONES:
        model = mini_model(family_of(backbone), vocab_size, config)
    elif backbone in PUBLISHED_SIZES:
        model = _untrained_model(PUBLISHED_SIZES[backbone], config)
    else:
        check_weights(backbone)
        model = _pretrained_model(backbone, config)
    _check_size(backbone, model.config, config, vocab_size)
    check_attention(backbone, config)
    model = with_attention(model, config)
    if pretrained_convolution(backbone) is not None:
        load_convolutions(model, *hub_revision(backbone))
    return layerwise(model, config.num_hidden_layers)


def load_tokenizer(name: str, *, texts: Callable[[], Iterable[str]]) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder or on the hub; a tiny backbone has one of the most frequent words of `texts()`.

    Raises:
        ValueError: the folder or the hub has no such tokenizer.
    """
    if name in MINI_BACKBONES:
        return word_tokenizer(texts())
    check_tokenizer(name)
    with quiet_transformers():
        place, revision = hub_revision(name)
        if not is_folder(name):
            return AutoTokenizer.from_pretrained(place, revision=revision)
        try:
            return _tokenizer_in(Path(name))
        except (OSError, ImportError, ValueError) as error:
            [line, *_] = str(error).splitlines() or [type(error).__name__]
            raise ValueError(f"tokenizer {name!r} cannot be loaded: {line}") from error


def _tokenizer_in(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder; of a vocabulary alone, BERT's for `vocab.txt` and ALBERT's for `spiece.model`."""
    words = folder / "vocab.txt"
    if any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json", "config.json")):
        return AutoTokenizer.from_pretrained(str(folder))
    if (folder / "spiece.model").is_file():
        return AlbertTokenizer.from_pretrained(str(folder))
    if words.is_file():
        is_cased = any("A" <= word[:1] <= "Z" for word in words.read_text(encoding="utf-8").splitlines())
        return BertTokenizer.from_pretrained(str(folder), do_lower_case=not is_cased)
    return AutoTokenizer.from_pretrained(str(folder))


@lru_cache(maxsize=1)
def fingerprint_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of all that decides how a text is tokenised: vocabulary, rules, special tokens; 16 hexadecimal digits."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    for setting_of_last_call in ("truncation", "padding"):
        del rules[setting_of_last_call]
    content = json.dumps([rules, tokenizer.truncation_side, tokenizer.model_input_names], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _untrained_model(sizes: Mapping[str, Any], config: TrainingConfig) -> PreTrainedModel:
    model_config = AutoConfig.for_model(**{**sizes, **dropouts(config)})
    options = family_options(model_config.model_type)
    return AutoModel.from_config(model_config, attn_implementation="sdpa", **options)


def _pretrained_model(backbone: str, config: TrainingConfig) -> PreTrainedModel:
    place, revision = hub_revision(backbone)
    with quiet_transformers():
        model_config = AutoConfig.from_pretrained(place, revision=revision)
        model_config.update(dropouts(config))
        return AutoModel.from_pretrained(
            place,
            revision=revision,
            config=model_config,
            attn_implementation="sdpa",
            dtype=torch.float32,
            weights_only=True,
            **family_options(model_config.model_type),
        )


def _check_size(backbone: str, encoder: PreTrainedConfig, config: EncoderConfig, vocab_size: int) -> None:
    positions = encoder.max_position_embeddings - reserved_positions(encoder.model_type, encoder.pad_token_id)
    if config.max_length > positions:
        raise ValueError(f"max_length is {config.max_length}; backbone {backbone} has {positions} positions")
    if vocab_size > encoder.vocab_size:
        raise ValueError(f"the tokenizer has {vocab_size} tokens, backbone {backbone} {encoder.vocab_size} embeddings")


# ---- what a pretraining begins with


def encoder_configuration(backbone: str, config: PretrainingConfig, *, vocab_size: int) -> PreTrainedConfig:
    """The configuration of `transformers` of a backbone's encoder, with this dropout.

    Args:
        vocab_size: of the tokenizer.

    Raises:
        ValueError: no such backbone, one that is too small for the texts or the tokenizer, or that cannot have the
            configuration's attention.
    """
    if backbone in MINI_BACKBONES:
        with torch.device("meta"):
            encoder = mini_model(family_of(backbone), vocab_size, config).config
    elif backbone in PUBLISHED_SIZES:
        encoder = AutoConfig.for_model(**{**PUBLISHED_SIZES[backbone], **dropouts(config)})
    else:
        check_weights(backbone)
        place, revision = hub_revision(backbone)
        encoder = AutoConfig.from_pretrained(place, revision=revision)
        encoder.update(dropouts(config))
    encoder.classifier_dropout_prob = config.classifier_dropout  # as ALBERT names it
    _check_size(backbone, encoder, config, vocab_size)
    check_attention(backbone, config)
    return encoder


def begin_with(backbone: str, model: PretrainingModel, config: PretrainingConfig) -> None:
    """Gives the encoder that is kept the weights of the backbone, and all encoders the configuration's attention."""
    kept: Any = model.kept.base_model
    _load_into(backbone, kept)
    for part in model.children():
        if isinstance(part, PreTrainedModel):
            one_kernel_gelu(with_attention(part, config))
    if pretrained_convolution(backbone) is not None:
        load_convolutions(kept, *hub_revision(backbone))


def _load_into(backbone: str, encoder: PreTrainedModel) -> None:
    """A name of sizes leaves them as they were drawn. Whether the encoder has a pooler is its own affair."""
    if backbone in UNTRAINED:
        return
    place, revision = hub_revision(backbone)
    with quiet_transformers():
        model = AutoModel.from_pretrained(place, revision=revision, dtype=torch.float32, weights_only=True)
    weights = model.state_dict()
    encoder.load_state_dict({name: weights[name] for name in encoder.state_dict()})


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
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
