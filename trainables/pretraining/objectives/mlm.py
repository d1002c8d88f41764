"""Masked language modelling only: BERT's pretraining (arXiv:1810.04805) without next-sentence prediction.

ShareBERT (AAAI 2024; jchenghu/sharebert, pretraining/) and lmtuners' BERT-small use it, with different recipes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.pretraining.configuration import PretrainingConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from trainables.pretraining.models import PretrainingModel

FAMILIES = ("albert", "bert", "electra", "roberta", "sharebert")
ORDER = "kept"
Config = PretrainingConfig


def build(config: Config, encoder: PreTrainedConfig) -> PretrainingModel:
    """Build the model of one pretraining run, with random weights."""
    from transformers import AutoModelForMaskedLM

    from trainables.pretraining.models import MaskedLanguageModel

    return MaskedLanguageModel(AutoModelForMaskedLM.from_config(encoder, attn_implementation="sdpa"))
