"""The steps of a training: optimizer, learning rate, clipping, batches in parts, and the checks of every step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from trainables.configuration import TrainingConfig
from trainables.data.examples import Examples
from trainables.models.early_exit import EarlyExitModel, is_decayed
from trainables.runs.trial import OutOfMemory, TrainingError

OptimizerName = Literal["adamw", "adamw_uncorrected", "lamb", "lamb_clamped"]
ScheduleName = Literal["constant", "linear", "linear_from_start", "polynomial"]

_CLAMP = 10.0  # of pytorch-lamb


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """The settings of all updates of a training."""

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
    """An optimiser with its schedule and clipping. With weight decay 0 and a constant rate AdamW is PALBERT's Adam."""

    def __init__(self, model: nn.Module, groups: list[dict[str, Any]], rule: UpdateRule) -> None:
        """Take the parameters in `groups`, each with `params`, `weight_decay` and, if it differs, `lr`."""
        self._model = model
        self._rule = rule
        self._optimizer = _make_optimizer(groups, rule)
        self._schedule = _make_schedule(self._optimizer, rule)

    @classmethod
    def of_trial(cls, model: EarlyExitModel, config: TrainingConfig, *, num_steps: int) -> Optimiser:
        """Make the optimiser of a trial of at most `num_steps` steps."""
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
        """Number of steps so far."""
        return self._schedule.last_epoch

    @property
    def learning_rate(self) -> float:
        """The present learning rate of the parts whose peak is the configured one."""
        return self._rule.learning_rate * self._schedule.lr_lambdas[0](self.steps)

    def step(self, losses: Iterable[Tensor]) -> Tensor:
        """Go down the gradient of the sum of scalar losses, and return the sum.

        The losses are those of a batch's parts, each weighted so that their sum is the batch's: then parts and batch
        give the same step, to rounding. The next is computed after the graph of the one before is freed.
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

    def diverged(self, what: str) -> TrainingError:
        """Make the error of a model that is of no use after so many steps."""
        rate = f"{self._rule.learning_rate:.3g}"  # the present one may have come down to 0
        return TrainingError(f"{what} after step {self.steps}, learning rate up to {rate}; try a lower learning_rate")

    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on, beside the model."""
        return {"optimizer": self._optimizer.state_dict(), "schedule": self._schedule.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Group the model's parameters for an `Optimiser`, all with one learning rate."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in trained if is_decayed(parameter)]
    rest = [parameter for parameter in trained if not is_decayed(parameter)]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def _make_optimizer(groups: list[dict[str, Any]], rule: UpdateRule) -> torch.optim.Optimizer:
    rate, betas, epsilon = rule.learning_rate, rule.adam_betas, rule.adam_epsilon
    if rule.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon, fused=True)
    if rule.optimizer == "lamb":  # ALBERT's: parameters without weight decay have no trust ratio either
        groups = [
            {**group, "params": own, "max_weight_norm": math.inf if is_trusted else None}
            for is_trusted in (True, False)
            for group in groups
            if (own := [weight for weight in group["params"] if is_decayed(weight) is is_trusted])
        ]
    most = _CLAMP if rule.optimizer == "lamb_clamped" else None
    return UncorrectedAdam(groups, rate, betas=betas, eps=epsilon, max_weight_norm=most)


def _make_schedule(optimizer: torch.optim.Optimizer, rule: UpdateRule) -> LambdaLR:
    warmup, steps = rule.warmup_steps, rule.num_steps
    if rule.schedule == "linear_from_start":  # google-research/electra, model/optimization.py: both at once
        return LambdaLR(optimizer, lambda step: min(1, step / max(1, warmup)) * (1 - step / steps))
    kind = "constant_with_warmup" if rule.schedule == "constant" else rule.schedule
    options = {"power": rule.decay_power, "lr_end": 0.0} if rule.schedule == "polynomial" else None
    return get_scheduler(kind, optimizer, warmup, steps, scheduler_specific_kwargs=options)


# Checks of every step.


STEPS_BETWEEN_CHECKS = 50  # that the loss is finite: reading it waits for the device


class FiniteLosses:
    """The losses of an epoch's steps, checked now and then."""

    def __init__(self, first_step: int) -> None:
        """`first_step`: number of the epoch's first step, from 1."""
        self._first_step = first_step
        self._losses: list[Tensor] = []
        self._rates: list[float] = []
        self._checked = 0

    def add(self, loss: Tensor, learning_rate: float) -> None:
        """Add the loss of the next step.

        Raises:
            TrainingError: one of the latest steps has a loss that is not finite.
        """
        self._losses.append(loss)
        self._rates.append(learning_rate)
        if len(self._losses) - self._checked >= STEPS_BETWEEN_CHECKS:
            self._check()

    def mean(self) -> float:
        """Average the losses of all steps.

        Raises:
            TrainingError: a loss is not finite.
        """
        self._check()
        return torch.stack(self._losses).mean().item()

    def _check(self) -> None:
        latest = self._losses[self._checked :]
        broken = [] if not latest else (~torch.stack(latest).isfinite()).nonzero().flatten().tolist()
        if broken:
            place = self._checked + broken[0]
            loss, rate, step = self._losses[place].item(), self._rates[place], self._first_step + place
            if self._first_step == 1 and not any(self._rates[:place]):
                raise TrainingError(f"loss is {loss} at step {step}, before any step has changed the model")
            raise TrainingError(f"loss is {loss} at step {step}, learning rate {rate:.3g}; try a lower learning_rate")
        self._checked = len(self._losses)


@contextmanager
def naming_memory_errors(batch_size: int) -> Iterator[None]:
    """Turn errors of missing memory into one with the batch size and a smaller one."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)):
            raise
        raise OutOfMemory(f"out of memory with batch_size {batch_size}; try {max(1, batch_size // 2)}") from error


# LAMB, and AdamW without bias correction.


class UncorrectedAdam(torch.optim.Optimizer):
    """One update, with or without a trust ratio; each setting may also stand in a group of parameters.

        m = β1 m + (1 - β1) g        v = β2 v + (1 - β2) g²        u = m / (√v + ε) + weight_decay w
        w = w - learning_rate r u    r = 1, or the trust ratio |w| / |u|, which is 1 if either norm is 0

    The moments are not corrected for having started at 0. Sources: google-research/albert, lamb_optimizer.py (a trust
    ratio but for normalisations and biases); cybertronai/pytorch-lamb, which shoarora/lmtuners trains with (a trust
    ratio everywhere, |w| counts as 10 at most); google-research/electra, model/optimization.py (none).

    No library has all three. `torch.optim.AdamW` corrects the moments, and `transformers` has no optimizer of its own
    since release 5; torch_optimizer 0.3.0 has pytorch-lamb's update, and no way to leave the ratio out for some
    parameters.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        max_weight_norm: float | None = None,
    ) -> None:
        """`max_weight_norm`: the largest |w| in a trust ratio, infinity for no limit; None: no ratio."""
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "max_weight_norm": max_weight_norm})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient once."""
        assert closure is None, "no optimizer here evaluates the loss by itself"
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                update = _moment_ratio(self.state[weight], weight.grad, group).add(weight, alpha=group["weight_decay"])
                if group["max_weight_norm"] is not None:
                    update.mul_(_trust_ratio(weight, update, group["max_weight_norm"]))
                weight.sub_(update, alpha=group["lr"])


def _moment_ratio(state: dict[str, Tensor], gradient: Tensor, group: dict[str, Any]) -> Tensor:
    """Compute m / (√v + ε) after one more gradient, which the state takes up."""
    if not state:
        state.update(exp_avg=torch.zeros_like(gradient), exp_avg_sq=torch.zeros_like(gradient))
    mean_decay, square_decay = group["betas"]
    state["exp_avg"].mul_(mean_decay).add_(gradient, alpha=1 - mean_decay)
    state["exp_avg_sq"].mul_(square_decay).addcmul_(gradient, gradient, value=1 - square_decay)
    return state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])


def _trust_ratio(weight: Tensor, update: Tensor, max_weight_norm: float) -> Tensor:
    """Compute a scalar on the weight's device, without waiting for that."""
    weight_norm, update_norm = weight.norm().clamp(max=max_weight_norm), update.norm()
    return torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)


# The word embeddings that the training examples use, trained without the others.


def training_words(
    model: EarlyExitModel, examples: Examples, *, weight_decay: float
) -> Callable[[], AbstractContextManager[None]]:
    """Choose the context to train a model in: `UsedWords.in_place` if that changes no number."""
    if weight_decay or not model.encoder.words_are_looked_up:
        return nullcontext
    return UsedWords(model, examples).in_place


class UsedWords:
    """The embeddings of the words in the training examples, which replace all others during training.

    An embedding that no training example uses has no gradient, and without weight decay AdamW leaves it as it is. With
    all of them in the optimiser a step fills, clips and adds up megabytes of zeros.
    """

    def __init__(self, model: EarlyExitModel, examples: Examples) -> None:
        """Take the model on its device."""
        self._embeddings = model.encoder.embeddings
        self._all: nn.Embedding = model.encoder.embeddings.word_embeddings
        used = torch.zeros(self._all.num_embeddings, dtype=torch.bool)
        used[torch.from_numpy(examples.tokens.astype("int64"))] = True
        used[examples.pad_token] = True
        self._words = used.nonzero()[:, 0].to(self._all.weight.device)
        self._used = _Renumbered(self._all, self._words)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Train the used embeddings inside; afterwards all are back, the used ones as training left them."""
        with torch.no_grad():
            self._used.weight.copy_(self._all.weight[self._words])
        self._embeddings.word_embeddings = self._used
        try:
            yield
        finally:
            self._embeddings.word_embeddings = self._all
            with torch.no_grad():
                self._all.weight[self._words] = self._used.weight


class _Renumbered(nn.Module):
    """A part of an embedding table, still indexed by the numbers of the vocabulary."""

    def __init__(self, embedding: nn.Embedding, words: Tensor) -> None:
        super().__init__()
        weight = torch.empty(len(words), embedding.embedding_dim, device=words.device)
        self.weight = nn.Parameter(weight, requires_grad=embedding.weight.requires_grad)
        self._numbers = torch.zeros(embedding.num_embeddings, dtype=torch.int64, device=words.device)
        self._numbers[words] = torch.arange(len(words), device=words.device)
        padding = embedding.padding_idx
        self._padding = None if padding is None else int(self._numbers[padding])

    def forward(self, input_ids: Tensor) -> Tensor:
        """Look up the embeddings, (..., size)."""
        return nn.functional.embedding(self._numbers[input_ids], self.weight, self._padding)
