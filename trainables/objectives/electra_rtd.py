"""ELECTRA's replaced token detection. arXiv:2003.10555.

google-research/electra at 8a46635: run_pretraining.py, pretrain/pretrain_helpers.py, build_pretraining_dataset.py.
Generator and discriminator share the tables of words, positions and segments, and the embeddings' normalisation.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from trainables.objectives import check_family
from trainables.pretraining_configuration import ReplacedTokenConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from trainables.corpora.pretraining_batches import Order
    from trainables.models.pretraining_models import PretrainingModel

SHARED = ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
FAMILIES = ("electra",)
ORDER: Order = "kept"
DEPARTURES = (
    "masked places are drawn without replacement; the original's may be drawn twice",
    "a line that follows the second segment stays in it; the original's may go back to the first",
    "weights start from a normal distribution; the original cuts it at two deviations",
    "samples are drawn by the inverse distribution function; the original's by Gumbel noise, of the same distribution",
)


class Config(ReplacedTokenConfig, frozen=True, kw_only=True):
    """Nothing beyond what both replaced token objectives share."""


def build(config: Config, encoder: PreTrainedConfig) -> PretrainingModel:
    """The model of one run, with new weights."""
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    from trainables.models.pretraining_models import ReplacedTokenModel

    check_family("electra-rtd", encoder.model_type, *FAMILIES)
    smaller = deepcopy(encoder)
    smaller.update(generator_sizes(config))
    return ReplacedTokenModel(
        ElectraForMaskedLM._from_config(smaller, attn_implementation="sdpa"),
        ElectraForPreTraining._from_config(encoder, attn_implementation="sdpa"),
        shared=SHARED,
        discriminator_weight=config.discriminator_weight,
    )


def generator_sizes(config: ReplacedTokenConfig) -> dict[str, int]:
    """What a generator's configuration has of its own; the embeddings are as wide as the discriminator's."""
    return {
        "hidden_size": config.generator_hidden_size,
        "num_hidden_layers": config.generator_layers,
        "num_attention_heads": config.generator_heads,
        "intermediate_size": config.generator_intermediate_size,
    }
