"""PALBERT: PonderNet's posterior on an ALBERT, left at a quantile of it (Q-exit). arXiv:2204.03276, section 3.

Beside PonderNet: Λ is an MLP of three tanh layers on [h_i, h_{i-1}], it has its own learning rate, and the exit is the
first layer whose CDF is above q. Each can be taken back (`--set`), which makes the rows of the paper's table 1.

The original is the paper's released code, tinkoff-ai/palbert at 52a79af (src/train.py, src/trainer.py, src/loss.py,
src/modeling/palbert_fast.py); where it differs from the paper's text, the code is followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from trainables.configuration import AtLeastOne, Count, PonderConfig, Positive, check_used

if TYPE_CHECKING:
    from trainables.data.tasks import Task
    from trainables.encoders.layerwise import LayerwiseEncoder
    from trainables.models.early_exit import EarlyExitModel

DEPARTURES = (
    "float32, also λ and the KL term; the original in mixed precision (README, --fp16)",
    "the KL term is the code's, KL(prior || posterior); the paper's is KL(posterior || prior)",
    "layers behind the cut count as in the code, each with ε / N; by the paper they do not count",
    "all metrics are of the selected epoch; the original reports the best of each metric on its own",
    "Λ sees the pooled [CLS] with dropout, and zeros for h_0, as in the code; the paper writes h_i",
    "Λ's three tanh layers lie below an output layer, as in the code; the paper says a 3-layer MLP",
    "num_lambda_layers leaves out Λ's output layer: 0 here is 1 in the code, and 2 and 3 are the same",
    "at most 25 epochs, as in the code; the paper names no limit",
    "beside the paper's grid, ranges of β, prior λ and Λ's architecture can be searched",
    "mean layers of MNLI are over both dev sets; the original's over the mismatched one",
    "a loss that is not finite ends the trial; the original's gradient scaler skips the step",
    "order, dropout and exits have random numbers of their own; the original has one stream for all",
    "q = 0 leaves at layer 1; the original's code ends with an error",
    "batches are padded to their longest text; the original pads every text to 128 tokens",
)


class Config(PonderConfig, frozen=True, kw_only=True):
    """What PALBERT is told beyond `PonderConfig`."""

    lambda_learning_rate: Positive | None  # of Λ, then without weight decay; None: as the rest of the model
    lambda_layer_arch: Literal["linear", "linear_cat", "linear_diff", "rnn"]  # see `Lambda` in models/ponder.py
    num_lambda_layers: Count  # tanh layers, of rnn recurrent ones, below Λ's output layer; 0, in the code 1: none
    exit: Literal["threshold", "sample", "expectation", "expectation_legacy", "last"]  # see models/exit_rules.py
    q: Annotated[float, Meta(ge=0, le=1)] | None  # threshold: leave at the first layer whose CDF is above it
    sample_draws: AtLeastOne | None  # sample: draws per evaluation

    def __post_init__(self) -> None:
        super().__post_init__()
        check_used(self, "q", used=self.exit == "threshold", condition="exit is threshold")
        check_used(self, "sample_draws", used=self.exit == "sample", condition="exit is sample")


def build(config: Config, encoder: LayerwiseEncoder, task: Task) -> EarlyExitModel:
    """The model of one trial."""
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
