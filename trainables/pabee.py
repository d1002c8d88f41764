"""PABEE: leave when `patience` layers in a row agree. arXiv:2006.04152.

One linear classifier per layer over the encoder's pooler, trained with weights that grow with depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.configuration import TrainingConfig, check_above, check_integer, check_used

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """What PABEE is told beyond `TrainingConfig`."""

    patience: int  # layers that must agree with the one before
    regression_threshold: float | None  # scores agree that differ by less; null for tasks with classes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(self, 1, "patience")
        if self.regression_threshold is not None:
            check_above(self, 0, "regression_threshold")

    def check_task(self, task: Task) -> None:
        """Passes if there is a threshold for scores, and none for classes."""
        condition = f"labels are scores, and {task.title} has {'scores' if task.is_regression else 'classes'}"
        check_used(self, "regression_threshold", used=task.is_regression, condition=condition)


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial. ValueError if the configuration is not for the task."""
    from trainables.models.classifiers import ClassifierPerLayer
    from trainables.models.exit_rules import Patience

    config.check_task(task)
    return ClassifierPerLayer(encoder, Patience(config.patience, config.regression_threshold), task.num_labels, config)
