"""ALECTRA's replaced token detection: ELECTRA's objective, with an ALBERT as the discriminator.

The original is shoarora/lmtuners at 86f31ba, train_alectra_small.py. As its README recommends, generator and
discriminator share the input embeddings but not the projections after them. `generator_family` and `tie_encoder` select
the README's other variants.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Literal

from trainables.pretraining.configuration import ReplacedTokenConfig
from trainables.pretraining.objectives.electra_rtd import TABLES, with_generator

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from trainables.pretraining.models import PretrainingModel

FAMILIES = ("albert",)
ORDER = "kept"
_OF_BOTH = (
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "pad_token_id",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)


class Config(ReplacedTokenConfig, frozen=True, kw_only=True):
    """The fields of replaced token detection, and two options for the generator."""

    generator_family: Literal["albert", "bert"]  # a BERT generator must be as wide as the discriminator's embeddings
    tie_encoder: bool  # the generator shares the discriminator's layers, except Nystrom's convolutions (one per head)

    def __post_init__(self) -> None:
        """Check that a BERT generator does not share the discriminator's layers."""
        super().__post_init__()
        if self.tie_encoder and self.generator_family != "albert":
            raise ValueError(f"tie_encoder must be false if generator_family is {self.generator_family}")


def build(config: Config, encoder: PreTrainedConfig) -> PretrainingModel:
    """Build the model of one pretraining run, with random weights."""
    from transformers import BertConfig

    if config.generator_family == "bert":
        generator: PreTrainedConfig = BertConfig(**{name: getattr(encoder, name) for name in _OF_BOTH})
    else:
        generator = deepcopy(encoder)
    shared = (*TABLES, "encoder.albert_layer_groups") if config.tie_encoder else TABLES
    return with_generator(generator, encoder, config, shared=shared)
