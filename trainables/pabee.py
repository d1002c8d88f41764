"""PABEE: an example exits when each of `patience` layers in a row agrees with the layer below. arXiv:2006.04152.

Every layer has a linear classifier, and all layers share the encoder's pooler. In the training loss, deeper layers have
larger weights. Training follows the PABEE baseline of the PALBERT paper (arXiv:2204.03276). The
original is JetRunner/PABEE at 6080b3e (run_glue.py, finetune_albert.sh, patience_infer_albert.sh,
pabee/modeling_albert.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import AtLeastOne, Positive, TrainingConfig, check_used

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("schedule", "falls linearly to 0", "constant"),
    ("epochs, stop_after", "5 in its scripts", "up to 25, until 5 pass without improvement"),
    ("select", "a checkpoint after a fixed number of steps", "the state after an epoch"),
    ("patience", "chosen separately for each checkpoint", "found by the search, or the published value"),
    ("patience, depth", "for models of 12 layers", "not scaled: with 6 layers, 6 never exits early"),
    ("gradient_clip", "norm 1", "none"),
    ("regression_threshold", "0, which never agrees", "0.2, as in PALBERT's code"),
    ("reported score", "seed 42 in its scripts", "median over seeds"),
    ("precision", "mixed, if PALBERT's code trains it", "float32, as in its own code"),
    ("speed-up", "1 - mean layers / all layers", "all layers / mean layers"),
    ("padding", "to 128 tokens", "to the longest text of the batch"),
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """The configuration of PABEE. It adds these fields to `TrainingConfig`."""

    patience: AtLeastOne  # number of consecutive layers that must each agree with the preceding layer
    regression_threshold: Positive | None  # regression scores agree if they differ by less; None for classes

    def check_task(self, task: Task) -> None:
        """Check that `regression_threshold` is set for a regression, and is None for a classification."""
        condition = f"labels are scores ({task.title} has {'scores' if task.is_regression else 'classes'})"
        check_used(self, "regression_threshold", used=task.is_regression, condition=condition)

    def earliest_exit(self, num_layers: int) -> int:
        """Return layer `patience` + 1, or the last layer if the model has fewer layers."""
        return min(self.patience + 1, num_layers)


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """Build the model of one trial.

    Raises:
        ValueError: if the configuration does not fit the task.
    """
    from trainables.models.classifiers import ClassifierPerLayer
    from trainables.models.exit_rules import Patience, every_patience

    config.check_task(task)
    rule = Patience(config.patience, config.regression_threshold)
    swept = every_patience(encoder.num_layers, config.regression_threshold)
    return ClassifierPerLayer(encoder, rule, task.num_labels, config, swept=swept)
