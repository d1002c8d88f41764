"""PALBERT: PonderNet's posterior on an ALBERT, left at a quantile of it (Q-exit). arXiv:2204.03276, section 3.

Beside PonderNet: Λ is an MLP of three tanh layers on [h_i, h_{i-1}], it has its own learning rate, and the exit is the
first layer whose CDF is above q. These are values of `search_spaces/palbert.py`; the model is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.configuration import PonderConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel


@dataclass(frozen=True, kw_only=True)
class Config(PonderConfig):
    """The fields of PonderNet and PALBERT."""


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.ponder import PonderModel

    return PonderModel(encoder, task.num_labels, config)
