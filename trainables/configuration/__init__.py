"""The fields of a method's configuration, and their allowed values. This module does not import torch.

All values of a trial come from the method's search space, which cites the source of each value. A field has a default
only if trials with older configurations, which lack the field, must keep their keys (`list_defaults`).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import NODEFAULT, Meta
from msgspec.structs import fields

from trainables.configuration.schema import MOST, Configuration, Typed

if TYPE_CHECKING:
    from trainables.data.tasks import Task

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
WholeShare = Annotated[float, Meta(ge=0, le=1)]
Inside = Annotated[float, Meta(gt=0, lt=1)]
Precision = Literal["float32", "tensorfloat32", "bfloat16", "float16"]  # explained in devices.py
Pooling = Literal["pooler", "first", "mean", "fresh"]  # explained in encoders/layerwise.py
AtLeastOne = Annotated[int, Meta(ge=1, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]


class EncoderConfig(Typed, frozen=True, kw_only=True):
    """The configuration fields that fine-tuning and pretraining share."""

    learning_rate: Positive  # peak of the schedule
    batch_size: AtLeastOne  # examples per step
    weight_decay: NotNegative  # decoupled weight decay; not applied to biases and normalisation
    adam_epsilon: Positive
    warmup_steps: Count
    gradient_clip: NotNegative  # largest gradient norm; 0 does not clip
    # Shape of the learning rate after warm-up, as in `get_scheduler` of transformers; `constant` warms up too, as
    # `constant_with_warmup` there, and `linear_from_start` decays during warm-up.
    schedule: Literal[
        "constant",
        "cosine",
        "inverse_sqrt",
        "linear",
        "linear_from_start",
        "polynomial",
    ]
    decay_power: Positive | None  # exponent of a polynomial schedule; 1 is linear
    max_length: Annotated[int, Meta(ge=3)]  # tokens per example; longer examples are truncated
    classifier_dropout: Share  # dropout on the pooled output, before every head
    hidden_dropout: Share  # dropout inside the encoder: embeddings, attention probabilities and layer outputs
    attention: Literal["softmax", "nystrom"]  # nystrom applies no dropout to attention probabilities
    num_landmarks: AtLeastOne | None  # nystrom: number of segments that max_length is divided into
    conv_kernel_size: AtLeastOne | None  # nystrom: width in tokens, odd; the weights start at 0
    precision: Precision  # precision of matrix products in training and evaluation

    def __post_init__(self) -> None:
        """Check that all numbers are finite and that the fields are consistent."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} is {value}; allowed: a finite number")
        check_used(self, "decay_power", used=self.schedule == "polynomial", condition="schedule is polynomial")
        for field in ("num_landmarks", "conv_kernel_size"):
            check_used(self, field, used=self.attention == "nystrom", condition="attention is nystrom")
        if self.num_landmarks is not None and self.num_landmarks > self.max_length:
            raise ValueError(f"num_landmarks is {self.num_landmarks}; allowed: at most {self.max_length} (max_length)")
        if self.conv_kernel_size is not None and self.conv_kernel_size % 2 == 0:
            raise ValueError(f"conv_kernel_size is {self.conv_kernel_size}; allowed: an odd number")


class TrainingConfig(EncoderConfig, frozen=True, kw_only=True):
    """The configuration fields that all methods share."""

    epochs: AtLeastOne  # largest number of epochs
    stop_after: Count  # number of epochs without improvement after which training stops; 0 never stops early
    select: Literal["best", "last"]  # the epoch that is kept: the one with the best selection score, or the last
    warmup_ratio: Share  # share of all steps; warmup_steps must then be 0
    layer_decay: Annotated[float, Meta(gt=0, le=1)]  # factor from a layer's learning rate to that of the layer below
    num_hidden_layers: Count  # number of backbone layers to keep, counted from the first; 0 keeps all
    pooling: Pooling = "pooler"  # how a layer's hidden states become the vector that the heads read
    gradient_accumulation: AtLeastOne = 1  # number of parts of a step's batch, computed one after another

    def __post_init__(self) -> None:
        """Check that the training fields are consistent."""
        super().__post_init__()
        if self.select == "last" and self.stop_after:
            raise ValueError(f"stop_after is {self.stop_after}, but must be 0 if select is last")
        if self.warmup_ratio and self.warmup_steps:
            raise ValueError(f"warmup_steps is {self.warmup_steps}, but must be 0 if warmup_ratio is set")
        if self.gradient_accumulation > self.batch_size:
            menu = f"at most batch_size ({self.batch_size})"
            raise ValueError(f"gradient_accumulation is {self.gradient_accumulation}; allowed: {menu}")

    @property
    def examples_at_once(self) -> int:
        """Largest number of examples that a training step computes at once."""
        return math.ceil(self.batch_size / self.gradient_accumulation)

    def learning_rate_at(self, step: int, steps: int) -> float | None:
        """Return the learning rate of a step (counted from 0) of `steps` steps, or None to follow `schedule`.

        Override this method if the learning rate has a shape of the method's own, without `schedule` and warm-up. The
        result must depend only on the arguments and the configuration.
        """
        return None

    def check_task(self, task: Task) -> None:
        """Check that the configuration fits the task.

        Raises:
            ValueError: if the method cannot run the task, or a field does not fit the task.
        """

    def earliest_exit(self, num_layers: int) -> int:
        """Return the first layer (counted from 1) after which an example may exit, in a model of `num_layers` layers.

        Override this method if some values of the configuration rule out early exits.
        """
        return 1


class PonderConfig(TrainingConfig, frozen=True, kw_only=True):
    """The configuration fields that PonderNet and PALBERT share."""

    lambda_bias_init: Literal["default", "prior"]  # initial bias of Λ: PyTorch's default or the logit of prior_lambda
    beta: Positive  # weight of the KL term in the loss
    prior_lambda: Inside  # λ of the truncated geometric prior
    epsilon: Inside  # the posterior is truncated after the first layer with a cumulative sum above 1 - epsilon
    # prior_posterior is KL(prior || posterior), as in the released code.
    kl_direction: Literal["prior_posterior", "posterior_prior"]
    posterior_tail: Literal["constant", "drop", "remainder"]  # p_i of layers after the truncation: see models/ponder.py


def list_defaults(config: type[TrainingConfig] = TrainingConfig) -> Configuration:
    """Map the fields that have a default to their defaults. A configuration omits a default that is not searched."""
    return dict(_list_defaults(config))


@cache
def _list_defaults(config: type[TrainingConfig]) -> tuple[tuple[str, Any], ...]:
    """List the fields with their defaults. Every trial key needs them, and msgspec takes milliseconds to find them."""
    return tuple((field.name, field.default) for field in fields(config) if field.default is not NODEFAULT)


def compute_segment_length(max_length: int, num_landmarks: int) -> int:
    """Compute the number of tokens per landmark of Nystrom attention."""
    return -(-max_length // num_landmarks)


def check_used(config: object, field: str, *, used: bool, condition: str) -> None:
    """Check that a field is set if `used` is true, and is None otherwise.

    Args:
        condition: when the field is used, as text for the error message.

    Raises:
        ValueError: if a used field is None, or an unused field is set.
    """
    value = getattr(config, field)
    if used and value is None:
        raise ValueError(f"{field} must be set when {condition}")
    if not used and value is not None:
        raise ValueError(f"{field} is {value!r} but is used only when {condition}; set it to null")
