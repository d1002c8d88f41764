"""PonderNet on a pretrained encoder: learn when to halt, and halt by chance. arXiv:2107.05407.

As PALBERT's baseline (arXiv:2204.03276, table 1): one shared classifier, a bare linear Λ on h_i, sampled exits. These
are values of `search_spaces/pondernet.py`; the model is shared with PALBERT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.configuration import PonderConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel


@dataclass(frozen=True, kw_only=True)
class Config(PonderConfig):
    """The fields of PonderNet and PALBERT."""


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.ponder import PonderModel

    return PonderModel(encoder, task.num_labels, config)
