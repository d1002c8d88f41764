"""PALBERT: PonderNet on an ALBERT. An example exits when its cumulative exit probability exceeds q (Q-exit).

PALBERT (arXiv:2204.03276, section 3) differs from PonderNet in two ways. Exits are not sampled. Λ, the head for
exit probabilities, is an MLP of three tanh layers on [h_i, h_{i-1}] and has a separate learning rate. The variants in
the paper's table 1 have a simpler Λ. The original is tinkoff-ai/palbert at 52a79af (src/train.py, src/trainer.py,
src/loss.py, src/modeling/palbert_fast.py). If the paper and the original code differ, this file follows the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainables.configuration import AtLeastOne, Count, PonderConfig, Positive, WholeShare, check_used

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("precision", "mixed (--fp16 in its README)", "float32, including λ and the KL term"),
    ("kl_direction", "KL(posterior || prior) in the paper", "KL(prior || posterior), as in the code"),
    ("posterior_tail", "0 in the paper", "ε / N per layer after the truncation, as in the code"),
    ("metrics", "each at its own best epoch", "all at the selected epoch"),
    ("input of Λ", "h_i in the paper", "pooled h_i with dropout, and zeros for h_0, as in the code"),
    ("num_lambda_layers", "a 3-layer MLP in the paper", "three tanh layers and an output layer, as in the code"),
    ("num_lambda_layers of a linear Λ", "1", "0"),
    ("kind of weight_decay", "L2 within Adam, also of biases and norms", "decoupled, not of biases and norms"),
    ("epochs", "no limit in the paper", "at most 25, as in the code"),
    ("fields that can be searched", "only those of its grid", "also β, prior λ and Λ's architecture"),
    ("mean number of layers on MNLI", "over the mismatched dev set", "over both dev sets"),
    ("a loss that is not finite", "its step is skipped", "ends the trial"),
    ("random numbers", "one stream for everything", "separate streams for order, dropout and exits"),
    ("q = 0", "raises an error in the code", "every example exits at layer 1"),
    ("padding", "to 128 tokens", "to the longest text of the batch"),
)


class Config(PonderConfig, frozen=True, kw_only=True):
    """The configuration of PALBERT. It adds these fields to `PonderConfig`."""

    lambda_learning_rate: Positive | None  # Λ's learning rate (without weight decay); None: that of all parameters
    lambda_layer_arch: Literal["linear", "linear_cat", "linear_diff", "rnn"]  # see `Lambda` in models/ponder.py
    num_lambda_layers: Count  # hidden layers of Λ (tanh; recurrent for rnn); 0 makes Λ linear (1 in the released code)
    exit: Literal["threshold", "sample", "expectation", "expectation_legacy", "last"]  # see models/exit_rules.py
    q: WholeShare | None  # threshold: an example exits at the first layer whose CDF exceeds q
    sample_draws: AtLeastOne | None  # sample: number of draws per evaluation

    def __post_init__(self) -> None:
        """Check that `q` and `sample_draws` are set if the exit rule uses them, and are None otherwise."""
        super().__post_init__()
        check_used(self, "q", used=self.exit == "threshold", condition="exit is threshold")
        check_used(self, "sample_draws", used=self.exit == "sample", condition="exit is sample")


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """Build the model of one trial."""
    from trainables.models.exit_rules import ExitRule, Expectation, LastLayer, Sampled, Threshold
    from trainables.models.ponder import Lambda, PonderModel

    shape = Lambda(config.lambda_layer_arch, config.num_lambda_layers, config.lambda_learning_rate)
    rules: dict[str, ExitRule] = {
        "threshold": Threshold(config.q or 0.0),
        "sample": Sampled(config.sample_draws or 1),
        "expectation": Expectation(legacy=False),
        "expectation_legacy": Expectation(legacy=True),
        "last": LastLayer(),
    }
    return PonderModel(encoder, task.num_labels, config, shape, rules[config.exit])
