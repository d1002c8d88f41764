"""BERxiT: an example exits as soon as a learned head expects a right prediction. EACL 2021.

Every layer has a pooler and a classifier. One exit head, shared by all layers, predicts the probability that a layer's
prediction is wrong. Training steps alternate between the last layer's loss and the losses of all lower layers. The
original is castorini/berxit at 1fb2162: `--train_routine alternate-lte` of scripts/train_highway.sh,
examples/run_highway_glue.py and transformers/modeling_highway_bert.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import TrainingConfig, WholeShare

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("backbone", "BERT-base; only the code for BERT has the exit head", "any; by default ALBERT-base"),
    ("hidden_dropout", "0.1, as for BERT-base", "0, as in ALBERT-base's configuration"),
    ("alternation of the losses", "begins again in each epoch", "continues through all epochs"),
    ("input of the last exit head", "an additional pooler", "the last layer, pooled as the others are"),
    ("Adam's step count", "each weight's own steps", "all steps, also for weights trained every second step"),
    ("threshold", "a curve over all values", "one value: chosen by the search, or 0.2"),
    ("score of MRPC and QQP", "F1", "accuracy with F1"),
    ("score of STS-B", "Spearman", "Pearson with Spearman"),
    ("score of MNLI", "each dev set separately", "both dev sets together"),
    ("reported score", "seed 42 in its scripts", "median over seeds"),
    ("padding", "to 128 tokens", "to the longest text of the batch"),
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """The configuration of BERxiT: the fields of `TrainingConfig`, plus `threshold`."""

    # An example exits if u, the predicted probability of a wrong answer, is below this threshold.
    threshold: WholeShare


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """Build the model of one trial."""
    from trainables.models.classifiers import LearnedExitModel
    from trainables.models.exit_rules import LearnedExit, every_uncertainty

    swept = every_uncertainty()
    return LearnedExitModel(encoder, LearnedExit(config.threshold), task.num_labels, config, swept=swept)
