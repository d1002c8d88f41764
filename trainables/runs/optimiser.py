"""AdamW with the schedule of its learning rate over a whole trial."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from trainables.configuration import TrainingConfig
from trainables.models.early_exit import EarlyExitModel


class Optimiser:
    """Updates a model. With weight decay 0 and a constant rate it is PALBERT's Adam."""

    def __init__(self, model: EarlyExitModel, config: TrainingConfig, *, num_steps: int) -> None:
        """For a trial of at most `num_steps` steps."""
        self._model = model
        self._config = config
        self._adamw = torch.optim.AdamW(model.parameter_groups(config), eps=config.adam_epsilon, fused=True)
        self._schedule = _schedule(self._adamw, config, num_steps)

    @property
    def steps(self) -> int:
        """How many it has made."""
        return self._schedule.last_epoch

    @property
    def learning_rate(self) -> float:
        """The present one of the parts that have the configured one at the peak."""
        return self._config.learning_rate * self._schedule.lr_lambdas[0](self.steps)

    def step(self, loss: Tensor) -> None:
        """Goes down the gradient of a scalar loss."""
        self._adamw.zero_grad()
        loss.backward()
        if self._config.gradient_clip:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._config.gradient_clip)
        self._adamw.step()
        self._schedule.step()

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, beside the model."""
        return {"optimizer": self._adamw.state_dict(), "schedule": self._schedule.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from what `state` returned."""
        self._adamw.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])


def _schedule(adamw: torch.optim.Optimizer, config: TrainingConfig, num_steps: int) -> LambdaLR:
    warmup = round(config.warmup_ratio * num_steps)
    if config.schedule == "linear_from_start":  # google-research/electra, model/optimization.py: both at once
        return LambdaLR(adamw, lambda step: min(1, step / max(1, warmup)) * (1 - step / num_steps))
    kind = {"constant": "constant_with_warmup", "linear": "linear"}[config.schedule]
    return get_scheduler(kind, adamw, num_warmup_steps=warmup, num_training_steps=num_steps)
