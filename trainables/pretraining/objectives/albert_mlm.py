"""ALBERT's pretraining: predict masked n-grams, and the order of two segments (SOP). arXiv:1909.11942.

The original is google-research/albert at b772393: create_pretraining_data.py, run_pretraining.py, lamb_optimizer.py.
In the labels of SOP, 1 means that the segments are swapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.pretraining.configuration import PretrainingConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from trainables.pretraining.models import PretrainingModel

FAMILIES = ("albert",)
ORDER = "random"


class Config(PretrainingConfig, frozen=True, kw_only=True):
    """The fields that all objectives share; `packing` must be `sentence_pairs`."""

    def __post_init__(self) -> None:
        """Check that `packing` is `sentence_pairs`."""
        super().__post_init__()
        if self.packing != "sentence_pairs":
            raise ValueError(f"packing is {self.packing!r}, but albert-mlm needs sentence_pairs")


def build(config: Config, encoder: PreTrainedConfig) -> PretrainingModel:
    """Build the model of one pretraining run, with random weights."""
    from transformers import AlbertForPreTraining

    from trainables.pretraining.models import SentenceOrderModel

    return SentenceOrderModel(AlbertForPreTraining._from_config(encoder, attn_implementation="sdpa"))
