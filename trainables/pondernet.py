"""PonderNet on a pretrained encoder: the model learns exit probabilities, and exits are sampled. arXiv:2107.05407.

This is the baseline of the PALBERT paper (arXiv:2204.03276, table 1): one shared classifier, a linear Λ on h_i, and
sampled exits. The table's rows between PonderNet and PALBERT are variants of PALBERT (trainables/palbert.py).
`DEPARTURES` lists the differences from PonderNet's paper, which came without code. "PALBERT's code" is
tinkoff-ai/palbert at 52a79af. Its command for this baseline fails: Λ expects 1536 inputs and gets 768.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.configuration import AtLeastOne, PonderConfig

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("step", "one module repeated, trained from scratch", "a layer of a pretrained encoder"),
    ("kl_direction", "KL(posterior || prior)", "KL(prior || posterior), as in PALBERT's code"),
    ("posterior_tail", "p_i sum to 1", "ε / N per layer after the truncation, as in PALBERT's code"),
    ("beta", "0.01", "searched, or 0.5, as in PALBERT's table 4"),
    ("Λ", "num_lambda_layers 1 with lambda_layer_arch linear (PALBERT)", "one linear layer"),
    ("input of Λ", "the step's state", "pooled with dropout, as in PALBERT's code"),
    ("precision", "mixed in PALBERT's code (--fp16 in its README)", "float32, including λ and the KL term"),
    ("kind of weight_decay", "L2 within Adam in PALBERT's code, also of biases", "decoupled, not of biases and norms"),
    ("metrics", "each at its own best epoch in PALBERT's code", "all at the selected epoch"),
    ("draws per exit", "1", "1; on tiny backbones the mean of 5"),
    ("fields that can be searched", "only those of PALBERT's grid", "also β and prior λ"),
    ("random numbers of exits", "one stream for everything in PALBERT's code", "a separate stream"),
    ("padding", "to 128 tokens in PALBERT's code", "to the longest text of the batch"),
)


class Config(PonderConfig, frozen=True, kw_only=True):
    """The configuration of PonderNet. It adds these fields to `PonderConfig`."""

    sample_draws: AtLeastOne  # number of draws per evaluation; the score is the mean over them


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """Build the model of one trial."""
    from trainables.models.exit_rules import Sampled
    from trainables.models.ponder import Lambda, PonderModel

    bare = Lambda(arch="linear", num_layers=0, learning_rate=None)
    return PonderModel(encoder, task.num_labels, config, bare, Sampled(config.sample_draws))
