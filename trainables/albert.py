"""ALBERT: fine-tuning without early exit, the baseline of the PALBERT paper (arXiv:2204.03276, tables 2 and 3).

One classifier on the pooled output of the last layer, as `transformers`' own sequence classifiers. With
`num_hidden_layers = 9` it is the paper's "ALBERT (9 L.)" row.

It is trained as that baseline is. Its original is ALBERT's own fine-tuning: arXiv:1909.11942, table 14, and
google-research/albert at b772393 (run_glue.sh, run_classifier.py, optimization.py, classifier_utils.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import TrainingConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (
    "the learning rate is constant; the original's warms up and then falls linearly to 0",
    "up to 25 epochs, until 5 pass without improvement; the original has a number of steps per task",
    "an epoch is selected; the original evaluates every 100 steps (QNLI: 200) and selects among those",
    "texts are cut at 128 tokens; the original's at 512",
    "one range of learning rates and batch sizes for all tasks; the original has one pair per task",
    "no weight decay; the original has 0.01",
    "gradients are not clipped; the original's at norm 1",
    "Adam corrects the bias of its moments, epsilon 1e-8; the original does not, epsilon 1e-6",
    "no dropout in the encoder; the original has 0.1 on QQP, RTE and WNLI",
    "epochs of MRPC and QQP are selected by accuracy with F1; the original's by accuracy alone",
    "epochs of STS-B are selected by Pearson with Spearman; the original's by Pearson alone",
    "epochs of MNLI are selected on both dev sets; the original's on the matched one",
    "numbers are medians over seeds; the original's are of one run (its issue 30)",
    "float32; the PALBERT paper's code trains this baseline in mixed precision (README, --fp16)",
    "the classifier starts from a normal distribution; the original cuts it at two deviations",
    "batches are padded to their longest text; the original pads every text to the full length",
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """Nothing beyond what all methods share."""


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.classifiers import LastLayerModel

    return LastLayerModel(encoder, task.num_labels, config)
