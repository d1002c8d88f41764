"""PonderNet on a pretrained encoder: learn when to halt, and halt by chance. arXiv:2107.05407.

As PALBERT's baseline (arXiv:2204.03276, table 1): one shared classifier, a bare linear Λ on h_i, sampled exits. The
rows between it and PALBERT are PALBERT without some of its parts (trainables/palbert.py).

The original is PonderNet's paper, which has no released code; "PALBERT's code" is tinkoff-ai/palbert at 52a79af, whose
own command for this baseline ends with an error (its Λ expects 1536 inputs and gets 768).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import AtLeastOne, PonderConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (
    "steps are the layers of a pretrained encoder; the original repeats one step trained from nothing",
    "the KL term is PALBERT's code's, KL(prior || posterior); the original's KL(posterior || prior)",
    "layers behind the cut count with ε / N, as in PALBERT's code; the original's p_i sum to 1",
    "β is 0.5, as in PALBERT's table 4; the original's 0.01",
    "Λ is bare linear, which PALBERT's code calls num_lambda_layers 1 of lambda_layer_arch linear",
    "λ is read from the pooled [CLS] with dropout, as in PALBERT's code; the original's from its state",
    "float32, also λ and the KL term; PALBERT's code in mixed precision (README, --fp16)",
    "all metrics are of the selected epoch; PALBERT's code reports the best of each metric on its own",
    "on tiny backbones a score is the mean of 5 draws of every exit; the original draws once",
    "beside PALBERT's grid, ranges of β and prior λ can be searched",
    "exits have random numbers of their own; PALBERT's code draws them from the one stream for all",
    "batches are padded to their longest text; PALBERT's code pads every text to 128 tokens",
)


class Config(PonderConfig, frozen=True, kw_only=True):
    """What PonderNet is told beyond `PonderConfig`."""

    sample_draws: AtLeastOne  # of every exit per evaluation; the score is their mean


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
    from trainables.models.exit_rules import Sampled
    from trainables.models.ponder import Lambda, PonderModel

    bare = Lambda(arch="linear", num_layers=0, learning_rate=None)
    return PonderModel(encoder, task.num_labels, config, bare, Sampled(config.sample_draws))
