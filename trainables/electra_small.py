"""ELECTRA-small: fine-tuning with layer-wise learning rates, without early exit. arXiv:2003.10555, appendix B.

The original is google-research/electra at 8a46635 (configure_finetuning.py, run_finetuning.py, model/optimization.py,
finetune/preprocessing.py, finetune/classification/classification_tasks.py, and the README's "Expected Results"). Three
things are done in one way there and in another elsewhere; both are here:

* `head`: `first_token` is the original's, dropout and `tf.layers.dense` on [CLS]. That layer is given no initialiser,
  so TensorFlow's default holds: a Glorot-uniform kernel and zero bias. `pooled` is `ElectraClassificationHead` of
  `transformers`: dropout, dense, GELU, dropout and a linear layer, started from a normal distribution of 0.02.
* `layer_decay_convention`: by the paper the top layer has learning_rate * layer_decay (`paper`); in the original's
  `_get_layer_lrs` every layer and the embeddings have one factor more (`released`).
* `schedule`: `linear_from_start` is the original's, whose warm-up multiplies a rate that decays meanwhile; with
  `linear` the decay begins after the warm-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainables.configuration import TrainingConfig, check_used

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (
    "Adam corrects the bias of its moments; the original does not",
    "the gradient that is clipped at norm 1 is that of a batch's mean loss; the original's of its sum",
    "MRPC and STS-B are trained with each pair once; the original adds it with its texts swapped",
    "STS-B labels lie in [0, 5]; the original's in [0, 1]",
    "MNLI is judged on both dev sets; the original on the matched one",
    "MRPC and QQP are judged by accuracy with F1; the original's by accuracy alone",
    "STS-B is judged by Pearson with Spearman; the original's README gives Spearman alone",
    "the learning rate is searched on dev for each task; the original's code has 1e-4 for all",
    "weight decay is the original code's 0.01; its paper has 0",
    "the top layer has two factors of layer decay, as in the original's code; its paper means one",
    "a number is the median of a few seeds; the original's is of 'a large number'",
    "an order is drawn for each epoch; the original draws one and then shuffles within 100 examples",
    "the last batch of an epoch is smaller; the original fills it with empty examples",
    "a pair cut to 128 tokens may keep one more token of its second text and one less of its first",
    "batches are padded to their longest text; the original pads every text to 128 tokens",
)


class Config(TrainingConfig, frozen=True, kw_only=True):
    """What ELECTRA-small is told beyond `TrainingConfig`."""

    head: Literal["first_token", "pooled"]
    layer_decay_convention: Literal["paper", "released"] | None  # None where layer_decay is 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_used(self, "layer_decay_convention", used=self.layer_decay < 1, condition="layer_decay is below 1")


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.classifiers import ElectraModel

    convention = config.layer_decay_convention
    return ElectraModel(encoder, task.num_labels, config, head=config.head, layer_decay_convention=convention)
