"""ALECTRA's replaced token detection: ELECTRA's with ALBERT's encoders. shoarora/lmtuners, train_alectra_small.py.

The input embeddings are tied and the projections behind them are not, as its README says is best. Tables of words,
positions and segments are one object in both.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from trainables.objectives import check_family
from trainables.objectives.electra_rtd import generator_sizes
from trainables.pretraining_configuration import ReplacedTokenConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from trainables.corpora.pretraining_batches import Order
    from trainables.models.pretraining_models import PretrainingModel

SHARED = ("word_embeddings", "position_embeddings", "token_type_embeddings")
FAMILIES = ("albert",)
ORDER: Order = "kept"
DEPARTURES = (
    "the embeddings are really tied, 5,633,724 parameters; the original clones them and trains 9,557,180",
    "two random lines of one document; the original's are of one file of its data",
)


class Config(ReplacedTokenConfig, frozen=True, kw_only=True):
    """Nothing beyond what both replaced token objectives share."""


def build(config: Config, encoder: PreTrainedConfig) -> PretrainingModel:
    """The model of one run, with new weights."""
    from transformers import AlbertForMaskedLM, AlbertForTokenClassification

    from trainables.models.pretraining_models import ReplacedTokenModel

    check_family("alectra-rtd", encoder.model_type, *FAMILIES)
    smaller, two_classes = deepcopy(encoder), deepcopy(encoder)
    smaller.update(generator_sizes(config))
    two_classes.num_labels = 2  # original, replaced
    return ReplacedTokenModel(
        AlbertForMaskedLM._from_config(smaller, attn_implementation="sdpa"),
        AlbertForTokenClassification._from_config(two_classes, attn_implementation="sdpa"),
        shared=SHARED,
        discriminator_weight=config.discriminator_weight,
    )
