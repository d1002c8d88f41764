"""ELECTRA's replaced token detection. arXiv:2003.10555.

The original is google-research/electra at 8a46635: run_pretraining.py, pretrain/pretrain_helpers.py,
build_pretraining_dataset.py. Generator and discriminator share the word, position and segment embeddings, and the layer
normalisation after them. If the backbone is a BERT, training follows lmtuners (shoarora/lmtuners at 86f31ba,
train_electra_small.py): the discriminator has two classes per token, and only the embeddings are shared.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from trainables.pretraining.configuration import ReplacedTokenConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from trainables.pretraining.models import PretrainingModel

FAMILIES = ("bert", "electra")
ORDER = "kept"
TABLES = tuple(f"embeddings.{kind}_embeddings" for kind in ("word", "position", "token_type"))
Config = ReplacedTokenConfig


def build(config: Config, encoder: PreTrainedConfig) -> PretrainingModel:
    """Build the model of one pretraining run, with random weights."""
    shared = (*TABLES, "embeddings.LayerNorm") if encoder.model_type == "electra" else TABLES
    return with_generator(deepcopy(encoder), encoder, config, shared=shared)


def with_generator(
    generator: PreTrainedConfig, encoder: PreTrainedConfig, config: ReplacedTokenConfig, *, shared: tuple[str, ...]
) -> PretrainingModel:
    """Build a model that consists of a generator and a discriminator, with random weights.

    Args:
        generator: the generator's configuration; its sizes are replaced by those in `config`.
        encoder: the discriminator's configuration.
        shared: names of the modules that generator and discriminator share.
    """
    from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoModelForTokenClassification

    from trainables.pretraining.models import ReplacedTokenModel

    generator.hidden_size = config.generator_hidden_size
    generator.num_hidden_layers = config.generator_layers
    generator.num_attention_heads = config.generator_heads
    generator.intermediate_size = config.generator_intermediate_size
    discriminator = deepcopy(encoder)
    discriminator.num_labels = 2  # classes `original` and `replaced`; ELECTRA's model ignores this and has one logit
    kind: Any = AutoModelForPreTraining if encoder.model_type == "electra" else AutoModelForTokenClassification
    return ReplacedTokenModel(
        AutoModelForMaskedLM.from_config(generator, attn_implementation="sdpa"),
        kind.from_config(discriminator, attn_implementation="sdpa"),
        shared=shared,
        discriminator_weight=config.discriminator_weight,
    )
