"""ELECTRA-small: fine-tuning with layer-wise learning rates, without early exit. arXiv:2003.10555, appendix B.

The original is google-research/electra at 8a46635 (configure_finetuning.py, run_finetuning.py, model/optimization.py,
finetune/preprocessing.py, finetune/classification/classification_tasks.py, and the README's "Expected Results").
Three configuration fields select the behaviour:

* `head`: `first_token` is the head of the original: dropout and `tf.layers.dense` on [CLS], with TensorFlow's default
  initial weights (Glorot-uniform, zero bias). It has no pooler; with `pooling` mean, it reads the mean of the tokens.
  `pooled` is `ElectraClassificationHead` of `transformers`: dropout,
  dense, GELU, dropout and a linear layer, with normal initial weights of standard deviation 0.02.
* `layer_decay_convention`: with `paper`, the top layer has the rate learning_rate * layer_decay, as in the paper. With
  `released`, the rates of all layers and of the embeddings are multiplied by layer_decay once more, as in the code.
* `schedule`: `linear_from_start` is the schedule of the original: the learning rate decays from the first step, and is
  also multiplied by the warm-up factor. With `linear`, the decay begins after the warm-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainables.configuration import TrainingConfig, check_used

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("Adam", "no bias correction", "bias correction"),
    ("gradient_clip", "norm 1 of the summed loss", "norm 1 of the mean loss"),
    ("pairs of MRPC and STS-B", "also with their texts swapped", "once"),
    ("labels of STS-B", "in [0, 1]", "in [0, 5]"),
    ("score of MNLI", "matched dev set", "both dev sets"),
    ("score of MRPC and QQP", "accuracy", "accuracy with F1"),
    ("score of STS-B", "Spearman (README)", "Pearson with Spearman"),
    ("learning_rate", "1e-4 for all tasks", "searched for each task"),
    ("weight_decay", "0 in the paper, 0.01 in its code", "0.01"),
    ("layer_decay_convention", "the paper's; its code applies one more factor", "the code's"),
    ("reported score", "median of 'a large number' of runs", "median of a few seeds"),
    ("order of examples", "one order, shuffled within 100 examples", "a new order in each epoch"),
    ("last batch of an epoch", "filled with empty examples", "smaller"),
    ("pairs cut to 128 tokens", "one token at a time", "may keep one token more of the second text"),
    ("padding", "to 128 tokens", "to the longest text of the batch"),
)
VARIANT_DEPARTURES = {
    "lmtuners": (
        ("fine-tuning script", "not published", "the values of ELECTRA's appendix, as its README says"),
        ("learning_rate", "2e-5 on RTE; not in the README for other tasks", "searched, starting with ELECTRA's"),
        ("select", "not in the README", "last, as in ELECTRA's code"),
        ("score of MRPC and QQP", "accuracy", "accuracy with F1"),
        ("score of STS-B", "Spearman", "Pearson with Spearman"),
    )
}


class Config(TrainingConfig, frozen=True, kw_only=True):
    """The configuration of ELECTRA-small: the fields of `TrainingConfig`, plus `head` and `layer_decay_convention`."""

    head: Literal["first_token", "pooled"]
    layer_decay_convention: Literal["paper", "released"] | None  # None if layer_decay is 1

    def __post_init__(self) -> None:
        """Check that `layer_decay_convention` is set only if it is used, and that a new pooler has a head."""
        super().__post_init__()
        check_used(self, "layer_decay_convention", used=self.layer_decay < 1, condition="layer_decay is below 1")
        if self.pooling == "fresh" and self.head == "first_token":
            raise ValueError(
                "pooling is fresh, but the head first_token has no pooler; allowed: pooler, first, mean, or fresh with "
                "the head pooled"
            )


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """Build the model of one trial."""
    from trainables.models.classifiers import ElectraModel

    convention = config.layer_decay_convention
    return ElectraModel(encoder, task.num_labels, config, head=config.head, layer_decay_convention=convention)
