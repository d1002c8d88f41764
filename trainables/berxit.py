"""BERxiT: leave where a learned head trusts the layer's answer. EACL 2021, castorini/berxit at 1fb2162.

Every layer has a pooler and a classifier. One head for all layers learns to say whether a layer's answer is wrong.
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

DEPARTURES = (
    "the backbone is ALBERT-base; the original's is BERT-base, whose code alone has the exit head",
    "no dropout in the encoder, as in ALBERT-base's own configuration; BERT-base's has 0.1",
    "steps take turns through all epochs; the original begins each epoch with the last layer's",
    "the exit head sees the last layer's pooled output; the original's has a further pooler there",
    "weights whose turn comes at the second step count the first as a step of Adam; the original does not",
    "one threshold is chosen on dev, or 0.2; the original draws the curve over all",
    "MRPC and QQP are judged by accuracy with F1; the original's by F1 alone",
    "STS-B is judged by Pearson with Spearman; the original's by Spearman alone",
    "MNLI is judged on both dev sets; the original prints each",
    "numbers are medians over seeds; the original's scripts run seed 42",
    "batches are padded to their longest text; the original pads every text to 128 tokens",
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """What BERxiT is told beyond `TrainingConfig`."""

    threshold: Annotated[float, Meta(ge=0, le=1)]  # leave where u, the probability of a wrong answer, is below it


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.classifiers import LearnedExitModel
    from trainables.models.exit_rules import LearnedExit, every_uncertainty

    swept = every_uncertainty()
    return LearnedExitModel(encoder, LearnedExit(config.threshold), task.num_labels, config, swept=swept)
