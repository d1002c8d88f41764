"""PABEE: leave when `patience` layers in a row agree. arXiv:2006.04152.

One linear classifier per layer over the encoder's pooler, trained with weights that grow with depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.config import TrainingConfig, check_above, check_integer

if TYPE_CHECKING:
    from trainables.backbones import LayerwiseEncoder
    from trainables.early_exit import EarlyExitModel
    from trainables.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """What PABEE is told beyond `TrainingConfig`."""

    patience: int  # layers that must agree with the one before
    regression_threshold: float  # STS-B: scores agree that differ by less; not used by tasks with classes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(self, 1, "patience")
        check_above(self, 0, "regression_threshold")


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.exits import Patience
    from trainables.heads import ClassifierPerLayer

    return ClassifierPerLayer(encoder, Patience(config.patience, config.regression_threshold), task.num_labels, config)
