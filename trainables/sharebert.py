"""ShareBERT: fine-tuning an encoder whose matrices are cut out of its embeddings, without early exit. AAAI 2024, 29781.

The original is jchenghu/sharebert at 6530e06: run_glue.py, by the one command of its README. That script scores CoLA by
QQP's metric, accuracy with F1 (lines 438 to 440), so a CoLA number of its is no Matthews correlation. The weights lie
on no hub: pretrain them (study/profiles.py), or the backbone is a random one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import TrainingConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (
    "CoLA is judged by Matthews correlation; the original's script by QQP's metric, accuracy with F1",
    "the original's weights are on no hub: what is not pretrained here starts from random ones",
    "MNLI is judged on both dev sets; the original's on the matched one",
    "numbers are medians over seeds; the original's README does not say of how many runs its are",
    "the learning rate falls to 0; the original's to 1e-7, the end that its library's schedule has",
    "float32; the original in mixed precision (README, --fp16)",
    "batches are padded to their longest text; the original pads every text to 128 tokens",
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """Nothing beyond what all methods share."""


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.classifiers import LastLayerModel

    return LastLayerModel(encoder, task.num_labels, config)
