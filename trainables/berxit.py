"""BERxiT: leave when a learned head trusts the layer's answer. EACL 2021, castorini/berxit at 1fb2162.

Every layer has a pooler and a classifier. One head for all layers learns whether a layer's answer is wrong.
The steps train the last layer and those below it in turn (`--train_routine alternate-lte` of scripts/train_highway.sh;
examples/run_highway_glue.py, transformers/modeling_highway_bert.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from trainables.configuration import TrainingConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (  # what, in the paper or its code, here
    ("backbone", "BERT-base, whose code alone has the exit head", "ALBERT-base"),
    ("hidden_dropout", "0.1, as BERT-base", "0, as ALBERT-base's own configuration"),
    ("turns of the steps", "each epoch begins with the last layer's", "go on through all epochs"),
    ("exit head's input", "a further pooler there", "the last layer's pooled output"),
    ("Adam's step count", "of each weight's own steps", "of all steps, also for those of every second one"),
    ("threshold", "the curve over all", "one chosen on dev, or 0.2"),
    ("score of MRPC and QQP", "F1", "accuracy with F1"),
    ("score of STS-B", "Spearman", "Pearson with Spearman"),
    ("score of MNLI", "each dev set's", "both dev sets"),
    ("a number", "seed 42 in its scripts", "median over seeds"),
    ("padding", "to 128 tokens", "to the longest text of a batch"),
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """The fields of BERxiT beyond `TrainingConfig`."""

    threshold: Annotated[float, Meta(ge=0, le=1)]  # leave when u, the probability of a wrong answer, is below it


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """Build the model of one trial."""
    from trainables.models.classifiers import LearnedExitModel
    from trainables.models.exit_rules import LearnedExit, every_uncertainty

    swept = every_uncertainty()
    return LearnedExitModel(encoder, LearnedExit(config.threshold), task.num_labels, config, swept=swept)
