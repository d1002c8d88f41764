"""ALBERT: fine-tuning without early exit, the baseline of the PALBERT paper (arXiv:2204.03276, tables 2 and 3).

One classifier on the pooled output of the last layer, as `transformers`' own sequence classifiers. With
`num_hidden_layers = 9` it is the paper's "ALBERT (9 L.)" row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import TrainingConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel


class Config(TrainingConfig, frozen=True, kw_only=True):
    """Nothing beyond what all methods share."""


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.classifiers import LastLayerModel

    return LastLayerModel(encoder, task.num_labels, config)
