"""What a pretraining run starts from: a backbone's sizes with new weights, or the weights of a folder or of the hub."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from trainables.encoders.backbones import (
    MINI_BACKBONES,
    PUBLISHED_SIZES,
    UNTRAINED,
    check_attention,
    check_weights,
    family_of,
    hub_revision,
    pretrained_convolution,
)
from trainables.encoders.families import dropouts, reserved_positions
from trainables.encoders.layerwise import one_kernel_gelu
from trainables.encoders.loading import quiet_transformers
from trainables.encoders.mini_backbones import mini_model
from trainables.encoders.nystrom import load_convolutions, with_attention
from trainables.models.pretraining_model import PretrainingModel
from trainables.pretraining_configuration import PretrainingConfig


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
    _load_weights(backbone, kept)
    for part in model.children():
        if isinstance(part, PreTrainedModel):
            one_kernel_gelu(with_attention(part, config))
    if pretrained_convolution(backbone) is not None:
        load_convolutions(kept, *hub_revision(backbone))


def _load_weights(backbone: str, encoder: PreTrainedModel) -> None:
    """A name of sizes leaves them as they were drawn. Whether the encoder has a pooler is its own affair."""
    if backbone in UNTRAINED:
        return
    place, revision = hub_revision(backbone)
    with quiet_transformers():
        model = AutoModel.from_pretrained(place, revision=revision, dtype=torch.float32, weights_only=True)
    weights = model.state_dict()
    encoder.load_state_dict({name: weights[name] for name in encoder.state_dict()})


def _check_size(backbone: str, encoder: PreTrainedConfig, config: PretrainingConfig, vocab_size: int) -> None:
    positions = encoder.max_position_embeddings - reserved_positions(encoder.model_type, encoder.pad_token_id)
    if config.max_length > positions:
        raise ValueError(f"max_length is {config.max_length}; backbone {backbone} has {positions} positions")
    if vocab_size > encoder.vocab_size:
        raise ValueError(f"the tokenizer has {vocab_size} tokens, backbone {backbone} {encoder.vocab_size} embeddings")
