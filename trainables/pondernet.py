"""PonderNet on a pretrained encoder: learn when to halt, and halt by chance. arXiv:2107.05407.

As PALBERT's baseline (arXiv:2204.03276, table 1): one shared classifier, a bare linear Λ on h_i, sampled exits. The
rows between it and PALBERT are PALBERT without some of its parts (trainables/palbert.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import AtLeastOne, PonderConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel


class Config(PonderConfig, frozen=True, kw_only=True):
    """What PonderNet is told beyond `PonderConfig`."""

    sample_draws: AtLeastOne  # of every exit per evaluation; the score is their mean


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.exit_rules import Sampled
    from trainables.models.ponder import Lambda, PonderModel

    bare = Lambda(arch="linear", num_layers=0, learning_rate=None)
    return PonderModel(encoder, task.num_labels, config, bare, Sampled(config.sample_draws))
