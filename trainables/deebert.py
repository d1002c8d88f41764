"""DeeBERT: an example exits as soon as the prediction has a low entropy. arXiv:2004.12993.

Training has two stages. The first stage is the method `albert` on the same task. The second stage, in this file, starts
from the best model of the first stage. Every layer below the last gets a pooler and a classifier, and only these
poolers and classifiers are trained. The original is castorini/DeeBERT at 563eac1: scripts/train_highway.sh,
examples/run_highway_glue.py and transformers/modeling_highway_bert.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import NotNegative, TrainingConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("first stage", "3 epochs at 2e-5", "the model of the arm albert"),
    ("seeds", "for both stages", "for the second stage; all start from albert's best model"),
    ("backbone", "BERT-base or RoBERTa-base", "any; by default ALBERT-base"),
    ("hidden_dropout", "0.1, as for BERT-base", "0, as in ALBERT-base's configuration"),
    ("unit of entropy", "nats", "fraction of ln C: 0.69 nats are 1 with two classes"),
    ("entropy", "a curve over all values", "one value: chosen by the search, or 0.14"),
    ("last layer's answer", "from an untrained exit if the entropy is low", "always from its classifier"),
    ("gradient_clip", "norm includes the frozen encoder's gradient", "norm of the exits' gradients"),
    ("score of MRPC and QQP", "F1", "accuracy with F1"),
    ("score of MNLI", "each dev set separately", "both dev sets together"),
    ("reported score", "seed 42 in its scripts", "median over seeds"),
    ("padding", "to 128 tokens", "to the longest text of the batch"),
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """The configuration of DeeBERT: the fields of `TrainingConfig`, plus `entropy`."""

    entropy: NotNegative  # an example exits if its prediction's entropy, divided by ln C for C classes, is lower

    def check_task(self, task: Task) -> None:
        """Check that the task is a classification, because the scores of a regression have no entropy."""
        if task.is_regression:
            raise ValueError(f"deebert needs classes to compute an entropy; {task.title} has scores")


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """Build the model of one trial.

    Raises:
        ValueError: if the task is a regression, or the encoder has only one layer.
    """
    from trainables.models.answer_rules import SWEPT_ENTROPIES, Entropy
    from trainables.models.classifiers import FrozenEncoderModel

    config.check_task(task)
    if encoder.num_layers < 2:
        raise ValueError("num_hidden_layers is 1; allowed: at least 2, because the exits lie below the last layer")
    swept = [Entropy(entropy) for entropy in SWEPT_ENTROPIES]
    return FrozenEncoderModel(encoder, Entropy(config.entropy), task.num_labels, config, swept=swept)
