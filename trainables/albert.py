"""ALBERT: fine-tuning without early exit, the baseline of the PALBERT paper (arXiv:2204.03276, tables 2 and 3).

The model has one classifier, on the pooled output of the last layer, as in `transformers`. With 9 layers, it is "ALBERT
(9 L.)" of the PALBERT paper. Training follows the PALBERT paper. `DEPARTURES` lists the differences from ALBERT's own
fine-tuning: arXiv:1909.11942, table 14, and google-research/albert at b772393 (run_glue.sh, run_classifier.py,
optimization.py, classifier_utils.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import TrainingConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("schedule", "warms up, then falls to 0", "constant"),
    ("epochs, stop_after", "a number of steps per task", "up to 25, until 5 pass without improvement"),
    ("select", "every 100 steps (QNLI: 200)", "after every epoch"),
    ("max_length", "512 tokens", "128 tokens"),
    ("learning_rate, batch_size", "one pair per task", "one range for all tasks"),
    ("weight_decay", "0.01", "0"),
    ("gradient_clip", "norm 1", "none"),
    ("Adam", "no bias correction", "bias correction"),
    ("adam_epsilon", "1e-6", "1e-8"),
    ("hidden_dropout", "0.1 on QQP, RTE and WNLI", "0"),
    ("selection on MRPC and QQP", "accuracy", "accuracy with F1"),
    ("selection on STS-B", "Pearson", "Pearson with Spearman"),
    ("selection on MNLI", "matched dev set", "both dev sets"),
    ("reported score", "of one run (its issue 30)", "median over seeds"),
    ("precision", "mixed in PALBERT's code (--fp16 in its README)", "float32"),
    ("classifier's first weights", "normal, cut at two deviations", "normal"),
    ("padding", "to 512 tokens", "to the longest text of the batch"),
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """The configuration of ALBERT: the fields of `TrainingConfig`."""


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """Build the model of one trial."""
    from trainables.models.classifiers import LastLayerModel

    return LastLayerModel(encoder, task.num_labels, config)
