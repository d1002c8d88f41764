"""What every trial is told: the fields of a method's configuration, and which values they may take. No torch here.

Nothing has a default: every value of a trial comes from its search space, where it stands with its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainables.data.tasks import Task

SCHEDULES = ("constant", "linear", "linear_from_start")
PRECISIONS = ("float32", "bfloat16")
LAMBDA_LAYER_ARCHS = ("linear", "linear_cat", "linear_diff", "rnn")
LAMBDA_BIAS_INITS = ("default", "prior")
KL_DIRECTIONS = ("prior_posterior", "posterior_prior")
POSTERIOR_TAILS = ("constant", "drop", "remainder")
PONDER_EXITS = ("threshold", "sample", "expectation", "expectation_legacy", "last")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained; the fields that all methods share."""

    learning_rate: float  # peak, AdamW
    batch_size: int  # examples per step
    epochs: int  # at most
    stop_after: int  # epochs without improvement, 0 is never
    weight_decay: float  # decoupled; not applied to biases and normalisation
    adam_epsilon: float
    schedule: str  # after the warm-up: constant, or linear to 0; linear_from_start decays during the warm-up too
    warmup_ratio: float  # of all steps, in [0, 1)
    gradient_clip: float  # largest norm, 0 is no clipping
    layer_decay: float  # learning rate factor from a layer to the one below it, 1 is none
    max_length: int  # tokens per example, longer ones are cut
    classifier_dropout: float  # on the pooled output, before every head
    hidden_dropout: float  # inside the encoder: embeddings, attention probabilities and layer outputs
    num_hidden_layers: int  # the first of the backbone's, 0 is all
    precision: str  # of matrix products in training and evaluation

    def __post_init__(self) -> None:
        check_above(self, 0, "learning_rate", "adam_epsilon")
        check_integer(self, 1, "batch_size", "epochs")
        check_integer(self, 0, "stop_after", "num_hidden_layers")
        check_integer(self, 3, "max_length")  # [CLS] word [SEP]
        check_at_least(self, 0, "weight_decay", "gradient_clip")
        check_share(self, "warmup_ratio", "classifier_dropout", "hidden_dropout")
        check_choice(self, "schedule", SCHEDULES)
        check_choice(self, "precision", PRECISIONS)
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay is {self.layer_decay!r}; it must be above 0 and at most 1 (1 is none)")

    def check_task(self, task: Task) -> None:
        """Passes if the task uses every field that is set, and none that it needs is null; else a `ValueError`."""


@dataclass(frozen=True, kw_only=True)
class PonderConfig(TrainingConfig):
    """What PonderNet and PALBERT are told beyond `TrainingConfig`."""

    lambda_learning_rate: float | None  # of Λ, then without weight decay; None: Λ is trained as the rest of the model
    lambda_layer_arch: str  # Λ sees h_i (linear, rnn), [h_i, h_{i-1}] (linear_cat) or h_i - h_{i-1} (linear_diff)
    num_lambda_layers: int  # hidden tanh layers below Λ's output layer (0 is a bare linear Λ); of rnn: recurrent layers
    lambda_bias_init: str  # of Λ's output bias: PyTorch's default, or the logit of prior_lambda
    beta: float  # weight of the KL term
    prior_lambda: float  # of the truncated geometric prior
    epsilon: float  # the posterior is cut where its sum passes 1 - epsilon
    kl_direction: str  # prior_posterior is KL(prior || posterior), as released; posterior_prior as in the papers
    posterior_tail: str  # what lies behind the cut: see trainables/models/ponder.py
    exit: str  # rule at evaluation: see trainables/models/exit_rules.py
    q: float | None  # threshold exit: leave at the first layer whose CDF is above q
    sample_draws: int | None  # sample exit: draws per evaluation

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above(self, 0, "beta", *(() if self.lambda_learning_rate is None else ("lambda_learning_rate",)))
        check_choice(self, "lambda_layer_arch", LAMBDA_LAYER_ARCHS)
        check_integer(self, 1 if self.lambda_layer_arch == "rnn" else 0, "num_lambda_layers")
        check_choice(self, "lambda_bias_init", LAMBDA_BIAS_INITS)
        check_choice(self, "kl_direction", KL_DIRECTIONS)
        check_choice(self, "posterior_tail", POSTERIOR_TAILS)
        check_inside(self, "prior_lambda", "epsilon")
        check_choice(self, "exit", PONDER_EXITS)
        check_used(self, "q", used=self.exit == "threshold", condition="exit is threshold")
        check_used(self, "sample_draws", used=self.exit == "sample", condition="exit is sample")
        if self.q is not None and not 0 <= self.q <= 1:
            raise ValueError(f"q is {self.q!r}; it must be from 0 (one layer) to 1 (all layers)")
        if self.sample_draws is not None:
            check_integer(self, 1, "sample_draws")


def check_choice(config: object, field: str, menu: Sequence[str]) -> None:
    """Passes if the field's value is on the menu; else a `ValueError` names the menu."""
    value = getattr(config, field)
    if value not in menu:
        raise ValueError(f"{field} is {value!r}; it must be one of: {', '.join(menu)}")


def check_integer(config: object, smallest: int, *fields: str) -> None:
    """Passes if the fields are whole numbers, none below `smallest`."""
    for field in fields:
        value = getattr(config, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
            raise ValueError(f"{field} is {value!r}; it must be a whole number, at least {smallest}")


def check_above(config: object, bound: float, *fields: str) -> None:
    """Passes if the fields are numbers above `bound`."""
    for field in fields:
        if not (_is_number(getattr(config, field)) and bound < getattr(config, field) < float("inf")):
            raise ValueError(f"{field} is {getattr(config, field)!r}; it must be a number above {bound}")


def check_at_least(config: object, smallest: float, *fields: str) -> None:
    """Passes if the fields are numbers, none below `smallest`."""
    for field in fields:
        if not (_is_number(getattr(config, field)) and smallest <= getattr(config, field) < float("inf")):
            raise ValueError(f"{field} is {getattr(config, field)!r}; it must be a number, at least {smallest}")


def check_share(config: object, *fields: str) -> None:
    """Passes if the fields are numbers in [0, 1)."""
    for field in fields:
        if not (_is_number(getattr(config, field)) and 0 <= getattr(config, field) < 1):
            raise ValueError(f"{field} is {getattr(config, field)!r}; it must be at least 0 and below 1")


def check_inside(config: object, *fields: str) -> None:
    """Passes if the fields are numbers in (0, 1)."""
    for field in fields:
        if not (_is_number(getattr(config, field)) and 0 < getattr(config, field) < 1):
            raise ValueError(f"{field} is {getattr(config, field)!r}; it must be above 0 and below 1")


def check_used(config: object, field: str, *, used: bool, condition: str) -> None:
    """Passes if the field is set where it has an effect and None where it would be ignored."""
    value = getattr(config, field)
    if used and value is None:
        raise ValueError(f"{field} must be set when {condition}")
    if not used and value is not None:
        raise ValueError(f"{field} is {value!r} but is used only when {condition}; set it to null")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
