"""How parameters are updated: an optimizer, its learning rate over all steps, clipping, and batches in parts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from trainables.configuration import TrainingConfig
from trainables.models.early_exit import EarlyExitModel, is_decayed
from trainables.runs.uncorrected_adam import UncorrectedAdam

OptimizerName = Literal["adamw", "adamw_uncorrected", "lamb", "lamb_clamped"]
ScheduleName = Literal["constant", "linear", "linear_from_start", "polynomial"]

_CLAMP = 10.0  # of pytorch-lamb


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """How parameters are updated over a training."""

    optimizer: OptimizerName
    learning_rate: float  # peak
    adam_betas: tuple[float, float] = (0.9, 0.999)  # PyTorch's and TensorFlow's
    adam_epsilon: float
    schedule: ScheduleName
    num_steps: int  # at most
    warmup_steps: int
    decay_power: float | None = None  # polynomial
    gradient_clip: float  # largest norm, 0 is no clipping


class Optimiser:
    """Updates a model. With weight decay 0 and a constant rate AdamW is PALBERT's Adam."""

    def __init__(self, model: nn.Module, groups: list[dict[str, Any]], rule: UpdateRule) -> None:
        """Of the model's parameters those in `groups`, each with `params`, `weight_decay` and, if its own, `lr`."""
        self._model = model
        self._rule = rule
        self._optimizer = _OPTIMIZERS[rule.optimizer](groups, rule)
        self._schedule = _schedule(self._optimizer, rule)

    @classmethod
    def of_trial(cls, model: EarlyExitModel, config: TrainingConfig, *, num_steps: int) -> Optimiser:
        """For a trial of at most `num_steps` steps."""
        rule = UpdateRule(
            optimizer="adamw",
            learning_rate=config.learning_rate,
            adam_epsilon=config.adam_epsilon,
            schedule=config.schedule,
            num_steps=num_steps,
            warmup_steps=config.warmup_steps or round(config.warmup_ratio * num_steps),
            decay_power=config.decay_power,
            gradient_clip=config.gradient_clip,
        )
        return cls(model, model.parameter_groups(config), rule)

    @property
    def steps(self) -> int:
        """How many it has made."""
        return self._schedule.last_epoch

    @property
    def peak_learning_rate(self) -> float:
        """The highest one that is planned."""
        return self._rule.learning_rate

    @property
    def learning_rate(self) -> float:
        """The present one of the parts that have the configured one at the peak."""
        return self._rule.learning_rate * self._schedule.lr_lambdas[0](self.steps)

    def step(self, losses: Iterable[Tensor]) -> Tensor:
        """Goes down the gradient of the sum of scalar losses, and returns the sum.

        The losses are those of a batch's parts, each weighted so that their sum is the batch's: then parts and batch
        give the same step, to rounding. The next is asked for when the graph of the one before is freed.
        """
        self._optimizer.zero_grad()
        total: Tensor | float = 0.0
        for loss in losses:
            loss.backward()
            total = total + loss.detach()
        assert isinstance(total, Tensor), "a step needs a loss"
        if self._rule.gradient_clip:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._rule.gradient_clip)
        self._optimizer.step()
        self._schedule.step()
        return total

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, beside the model."""
        return {"optimizer": self._optimizer.state_dict(), "schedule": self._schedule.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from what `state` returned."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The model's parameters in groups for an `Optimiser`, all with one learning rate."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in trained if is_decayed(parameter)]
    rest = [parameter for parameter in trained if not is_decayed(parameter)]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def _adamw(groups: list[dict[str, Any]], rule: UpdateRule) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=rule.learning_rate, betas=rule.adam_betas, eps=rule.adam_epsilon, fused=True)


def _uncorrected(groups: list[dict[str, Any]], rule: UpdateRule) -> torch.optim.Optimizer:
    return UncorrectedAdam(groups, rule.learning_rate, betas=rule.adam_betas, eps=rule.adam_epsilon)


def _lamb(groups: list[dict[str, Any]], rule: UpdateRule) -> torch.optim.Optimizer:
    """ALBERT's: what has no weight decay has no trust ratio either."""
    decayed, rest = (
        [{**group, "params": [weight for weight in group["params"] if is_decayed(weight) is kind]} for group in groups]
        for kind in (True, False)
    )
    parts = [*({**group, "max_weight_norm": math.inf} for group in decayed), *rest]
    return _uncorrected([part for part in parts if part["params"]], rule)


def _lamb_clamped(groups: list[dict[str, Any]], rule: UpdateRule) -> torch.optim.Optimizer:
    return _uncorrected([{**group, "max_weight_norm": _CLAMP} for group in groups], rule)


_OPTIMIZERS = {"adamw": _adamw, "adamw_uncorrected": _uncorrected, "lamb": _lamb, "lamb_clamped": _lamb_clamped}


def _schedule(optimizer: torch.optim.Optimizer, rule: UpdateRule) -> LambdaLR:
    warmup, steps = rule.warmup_steps, rule.num_steps
    if rule.schedule == "linear_from_start":  # google-research/electra, model/optimization.py: both at once
        return LambdaLR(optimizer, lambda step: min(1, step / max(1, warmup)) * (1 - step / steps))
    kind = "constant_with_warmup" if rule.schedule == "constant" else rule.schedule
    more = {"power": rule.decay_power, "lr_end": 0.0} if rule.schedule == "polynomial" else None
    return get_scheduler(kind, optimizer, warmup, steps, scheduler_specific_kwargs=more)
