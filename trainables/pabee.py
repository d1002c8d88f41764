"""PABEE: leave when `patience` layers in a row agree. arXiv:2006.04152.

One linear classifier per layer over the encoder's pooler, trained with weights that grow with depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import AtLeastOne, Positive, TrainingConfig, check_used

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel


class Config(TrainingConfig, frozen=True, kw_only=True):
    """What PABEE is told beyond `TrainingConfig`."""

    patience: AtLeastOne  # layers that must agree with the one before
    regression_threshold: Positive | None  # scores agree that differ by less; None for tasks with classes

    def check_task(self, task: Task) -> None:
        """Passes if there is a threshold for scores, and none for classes."""
        condition = f"labels are scores, and {task.title} has {'scores' if task.is_regression else 'classes'}"
        check_used(self, "regression_threshold", used=task.is_regression, condition=condition)


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial.

    Raises:
        ValueError: the configuration is not for the task.
    """
    from trainables.models.classifiers import ClassifierPerLayer
    from trainables.models.exit_rules import Patience

    config.check_task(task)
    return ClassifierPerLayer(encoder, Patience(config.patience, config.regression_threshold), task.num_labels, config)
