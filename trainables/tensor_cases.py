"""Reference cases that are tensors in and tensors out: Nystrom attention and LAMB."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor, nn

from trainables.configuration import AtLeastOne, NotNegative, Positive
from trainables.encoders.nystrom import nystrom_attention
from trainables.reference_files import Comparison, largest_difference
from trainables.runs.optimiser import Optimiser, UpdateRule
from trainables.schema import Typed, from_plain


class _Nystrom(Typed, frozen=True, kw_only=True):
    """One example and one head without pads."""

    kind: str
    num_landmarks: AtLeastOne
    conv_kernel_size: AtLeastOne
    pinv_iterations: AtLeastOne
    tokens: AtLeastOne
    head_size: AtLeastOne
    note: str = ""


class _Lamb(Typed, frozen=True, kw_only=True):
    """pytorch-lamb on given gradients, one group: `start_I`, then `grad_STEP_I` and `after_STEP_I` of parameter I."""

    kind: str
    learning_rate: Positive
    betas: tuple[Annotated[float, Meta(ge=0, lt=1)], Annotated[float, Meta(ge=0, lt=1)]]
    epsilon: Positive
    weight_decay: NotNegative
    steps: AtLeastOne
    num_parameters: AtLeastOne
    note: str = ""


def compare_nystrom(description: object, tensors: dict[str, Tensor], where: str) -> Iterator[Comparison]:
    """The output, and the gradients of its mean square."""
    case = from_plain(_Nystrom, description, where=where)
    gradients = ("grad_query", "grad_key", "grad_value")
    _check_names(tensors, ["query", "key", "value", "conv_weight", "output", *gradients], where)
    inputs = {name: tensors[name].clone().requires_grad_() for name in ("query", "key", "value")}
    query, key, value = (states[None, None] for states in inputs.values())
    output = nystrom_attention(
        query * case.head_size**-0.5,
        key,
        value,
        torch.ones(1, 1, case.tokens, dtype=torch.bool),
        segment_length=math.ceil(case.tokens / case.num_landmarks),
        convolution=tensors["conv_weight"],
        iterations=case.pinv_iterations,
    )[0, 0]
    output.square().mean().backward()
    yield Comparison("output", largest_difference(output, tensors["output"]))
    for name, states in inputs.items():
        assert states.grad is not None
        yield Comparison(f"grad_{name}", largest_difference(states.grad, tensors[f"grad_{name}"]))


def compare_lamb(description: object, tensors: dict[str, Tensor], where: str) -> Iterator[Comparison]:
    """Every parameter after every step."""
    case = from_plain(_Lamb, description, where=where)
    steps = [f"{step}_{index}" for step in range(case.steps) for index in range(case.num_parameters)]
    starts = [f"start_{index}" for index in range(case.num_parameters)]
    _check_names(tensors, [*starts, *(f"grad_{step}" for step in steps), *(f"after_{step}" for step in steps)], where)
    weights = nn.ParameterList([tensors[f"start_{index}"].clone() for index in range(case.num_parameters)])
    rule = UpdateRule(
        optimizer="lamb_clamped",
        learning_rate=case.learning_rate,
        adam_betas=case.betas,
        adam_epsilon=case.epsilon,
        schedule="constant",
        num_steps=case.steps,
        warmup_steps=0,
        gradient_clip=0.0,
    )
    optimiser = Optimiser(weights, [{"params": list(weights), "weight_decay": case.weight_decay}], rule)
    for step in range(case.steps):
        # A loss that has the given gradients, so that the step is the one of a training.
        optimiser.step([(weight * tensors[f"grad_{step}_{index}"]).sum() for index, weight in enumerate(weights)])
        for index, weight in enumerate(weights):
            yield Comparison(f"after_{step}_{index}", largest_difference(weight, tensors[f"after_{step}_{index}"]))


def _check_names(tensors: dict[str, Tensor], names: Iterable[str], where: str) -> None:
    if missing := [name for name in names if name not in tensors]:
        raise ValueError(f"{where}: tensors.safetensors has no {missing[0]}")
