"""ELECTRA-small: fine-tuning with layer-wise learning rates, without early exit. arXiv:2003.10555, appendix B.

Three things are done in one way by the released code (google-research/electra) and in another elsewhere; both are here:

* `head`: `first_token` is the released code's, one linear layer on [CLS]; `pooled` has `transformers`' dense + GELU
  below it.
* `layer_decay_convention`: by the paper the top layer has learning_rate * layer_decay (`paper`); in the released code
  (finetune, optimization.py, `_get_layer_lrs`) every layer and the embeddings have one factor more (`released`).
* `schedule`: `linear_from_start` is the released code's, whose warm-up multiplies a rate that decays meanwhile; with
  `linear` the decay begins after the warm-up.

Of the released code these are not reproduced: Adam without bias correction; MRPC and STS-B training pairs doubled with
the sentences swapped; STS-B labels scaled to [0, 1]; MNLI judged on the matched dev set alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainables.configuration import TrainingConfig, check_used

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel


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
