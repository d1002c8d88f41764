"""The fields of a method's configuration, and the values that they may take. No torch here.

Nothing has a default: every value of a trial comes from its search space, which names its source.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from trainables.schema import MOST, Typed

if TYPE_CHECKING:
    from trainables.data.tasks import Task

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Inside = Annotated[float, Meta(gt=0, lt=1)]
Precision = Literal["float32", "tensorfloat32", "bfloat16"]  # explained in devices.py
AtLeastOne = Annotated[int, Meta(ge=1, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]


class EncoderConfig(Typed, frozen=True, kw_only=True):
    """Fields that fine-tuning and pretraining share."""

    # After the warm-up; `_from_start` during it too.
    schedule: Literal["constant", "linear", "linear_from_start", "polynomial"]
    decay_power: Positive | None  # polynomial: of the share of steps that is left, 1 is linear
    max_length: Annotated[int, Meta(ge=3)]  # tokens per example, longer ones are cut: [CLS] word [SEP]
    classifier_dropout: Share  # on the pooled output, before every head
    hidden_dropout: Share  # inside the encoder: embeddings, attention probabilities and layer outputs
    attention: Literal["softmax", "nystrom"]  # of every layer; nystrom has no probabilities for dropout to act on
    num_landmarks: AtLeastOne | None  # nystrom: segments that max_length is cut into
    conv_kernel_size: AtLeastOne | None  # nystrom: tokens, odd; 0 weights at first
    precision: Precision  # of matrix products in training and evaluation

    def __post_init__(self) -> None:
        """Check that every number is finite, and the fields against each other."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} is {value}; allowed: a finite number")
        check_used(self, "decay_power", used=self.schedule == "polynomial", condition="schedule is polynomial")
        for field in ("num_landmarks", "conv_kernel_size"):
            check_used(self, field, used=self.attention == "nystrom", condition="attention is nystrom")
        if self.num_landmarks is not None and self.num_landmarks > self.max_length:
            raise ValueError(f"num_landmarks is {self.num_landmarks}; allowed: at most max_length, {self.max_length}")
        if self.conv_kernel_size is not None and self.conv_kernel_size % 2 == 0:
            raise ValueError(f"conv_kernel_size is {self.conv_kernel_size}; allowed: an odd number")


class TrainingConfig(EncoderConfig, frozen=True, kw_only=True):
    """The fields that all methods share, about training."""

    learning_rate: Positive  # peak, AdamW
    batch_size: AtLeastOne  # examples per step
    epochs: AtLeastOne  # at most
    stop_after: Count  # epochs without improvement, 0 is never
    select: Literal["best", "last"]  # the epoch that is kept and reported: of the highest selection score, or the last
    weight_decay: NotNegative  # decoupled; not applied to biases and normalisation
    adam_epsilon: Positive
    warmup_ratio: Share  # of all steps
    warmup_steps: Count  # instead of the ratio, 0 if that is set
    gradient_clip: NotNegative  # largest norm, 0 is no clipping
    layer_decay: Annotated[float, Meta(gt=0, le=1)]  # learning rate factor from a layer to the one below it, 1 is none
    num_hidden_layers: Count  # the first of the backbone's, 0 is all

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        super().__post_init__()
        if self.select == "last" and self.stop_after:
            raise ValueError(f"stop_after is {self.stop_after}; allowed if select is last: 0")
        if self.warmup_ratio and self.warmup_steps:
            raise ValueError(f"warmup_steps is {self.warmup_steps}; allowed if warmup_ratio is set: 0")

    def check_task(self, task: Task) -> None:
        """Check that the task uses every field that is set, and that no field that it needs is None.

        Raises:
            ValueError: a field does not fit the task.
        """


class PonderConfig(TrainingConfig, frozen=True, kw_only=True):
    """The fields that PonderNet and PALBERT share: the posterior over layers, its prior and the loss of both."""

    lambda_bias_init: Literal["default", "prior"]  # of Λ's output bias: PyTorch's, or the logit of prior_lambda
    beta: Positive  # weight of the KL term
    prior_lambda: Inside  # of the truncated geometric prior
    epsilon: Inside  # the posterior is cut where its sum passes 1 - epsilon
    kl_direction: Literal["prior_posterior", "posterior_prior"]  # the first is KL(prior || posterior), as released
    posterior_tail: Literal["constant", "drop", "remainder"]  # of the layers behind the cut: see models/ponder.py


def check_used(config: object, field: str, *, used: bool, condition: str) -> None:
    """Check that the field is set if it has an effect, and None if it would be ignored.

    Raises:
        ValueError: it is missing, or would be ignored.
    """
    value = getattr(config, field)
    if used and value is None:
        raise ValueError(f"{field} must be set when {condition}")
    if not used and value is not None:
        raise ValueError(f"{field} is {value!r} but is used only when {condition}; set it to null")
