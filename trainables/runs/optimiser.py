"""Training steps: optimiser, learning rate, clipping, gradient accumulation and loss scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from trainables.configuration import EncoderConfig, TrainingConfig
from trainables.data.examples import Examples
from trainables.models.early_exit import EarlyExitModel, is_decayed
from trainables.runs.trial import TrainingError

SMALLEST_SCALE = 1e-4  # as fairseq's --min-loss-scale


class Optimiser:
    """An optimiser with a learning-rate schedule, gradient clipping and, in float16, loss scaling.

    AdamW with a constant learning rate and without weight decay is the same as PALBERT's Adam.

    In float16, small gradients would become 0, so losses are multiplied by a scale and gradients divided by it. If a
    gradient overflows, the step changes no parameter and the scale is halved (`torch.amp.GradScaler`). Such a step
    counts as a step of training, but does not advance the schedule, as in the Trainer of transformers.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: list[dict[str, Any]],
        config: EncoderConfig,
        *,
        num_steps: int,
        warmup_steps: int,
        kind: str = "adamw",
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        """Make an optimiser.

        Args:
            groups: parameter groups with the keys `params` and `weight_decay`. The optional key `lr` replaces the
                learning rate of `config`.
            num_steps: largest number of steps, at which the schedule ends.
            kind: a value of `PretrainingConfig.optimizer`.
        """
        self._model = model
        self._config = config
        self._optimizer = _make_optimizer(kind, groups, config.learning_rate, betas, config.adam_epsilon)
        self._schedule = _make_schedule(self._optimizer, config, num_steps, warmup_steps)
        device = next(model.parameters()).device
        self._scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
        self._skipped = 0  # steps that changed no parameter, because a gradient overflowed

    @property
    def steps(self) -> int:
        """Number of steps taken so far, including those that were skipped in float16."""
        return self._schedule.last_epoch + self._skipped

    def learning_rate_after(self, steps: int) -> float:
        """Compute the learning rate after `steps` steps, for parameter groups without the key `lr`."""
        return self._config.learning_rate * self._schedule.lr_lambdas[0](max(0, steps - self._skipped))

    def step(self, losses: Iterable[Tensor]) -> Tensor:
        """Take one step on the sum of scalar losses, and return the sum.

        Each loss comes from one part of a batch, and the losses must add up to the loss of the batch. The graph of a
        loss is freed before the next loss is computed.

        Raises:
            TrainingError: in float16, gradients overflow at every scale.
        """
        self._optimizer.zero_grad()
        total: Tensor | float = 0.0
        for loss in losses:
            self._scaler.scale(loss).backward()
            total = total + loss.detach()
        assert isinstance(total, Tensor), "a step needs at least one loss"
        if self._config.gradient_clip:
            self._scaler.unscale_(self._optimizer)
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._config.gradient_clip)
        self._scaler.step(self._optimizer)
        if self._update_scale():
            self._schedule.step()
        else:
            self._skipped += 1
        return total

    def _update_scale(self) -> bool:
        """Update the scale after a step, and return whether the step changed the parameters."""
        if not self._scaler.is_enabled():
            return True
        before = self._scaler.get_scale()
        self._scaler.update()
        scale = self._scaler.get_scale()
        if scale < SMALLEST_SCALE:
            raise self.diverged(f"gradients overflow in float16 even if the loss is multiplied by {scale:.1g}")
        return scale >= before

    def diverged(self, what: str) -> TrainingError:
        """Create the error for diverged training, with the number of steps and the peak learning rate."""
        rate = f"{self._config.learning_rate:.3g}"  # the peak, because the current rate may have decayed to 0
        return TrainingError(
            f"{what} after step {self.steps} at learning rates up to {rate}; try a lower learning_rate"
        )

    def state(self) -> dict[str, Any]:
        """Return the state of the optimiser, of the learning-rate schedule and, in float16, of the scale."""
        state = {"optimizer": self._optimizer.state_dict(), "schedule": self._schedule.state_dict()}
        if self._scaler.is_enabled():
            state["scale"] = {**self._scaler.state_dict(), "skipped": self._skipped}
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Restore the optimiser from the result of the method `state`."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])
        if self._scaler.is_enabled():
            self._scaler.load_state_dict(state["scale"])
            self._skipped = state["scale"]["skipped"]


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split the model's trained parameters into two groups: with weight decay and without."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in trained if is_decayed(parameter)]
    rest = [parameter for parameter in trained if not is_decayed(parameter)]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def _make_optimizer(
    kind: str, groups: list[dict[str, Any]], rate: float, betas: tuple[float, float], epsilon: float
) -> torch.optim.Optimizer:
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon, fused=True)
    if kind == "lamb":  # as in ALBERT: no trust ratio for parameters without weight decay
        groups = [
            {**group, "params": own, "max_weight_norm": math.inf if is_trusted else None}
            for is_trusted in (True, False)
            for group in groups
            if (own := [weight for weight in group["params"] if is_decayed(weight) is is_trusted])
        ]
    most = 10.0 if kind == "lamb_clamped" else None  # as in pytorch-lamb
    return UncorrectedAdam(groups, rate, betas=betas, eps=epsilon, max_weight_norm=most)


def _make_schedule(optimizer: torch.optim.Optimizer, config: EncoderConfig, steps: int, warmup: int) -> LambdaLR:
    if isinstance(config, TrainingConfig) and config.learning_rate_at(0, steps) is not None:
        return LambdaLR(optimizer, lambda step: _own_rate(config, step, steps) / config.learning_rate)
    if config.schedule == "linear_from_start":  # decays during warmup too: google-research/electra, optimization.py
        return LambdaLR(optimizer, lambda step: min(1, step / warmup if warmup else 1) * (1 - step / steps))
    kind = "constant_with_warmup" if config.schedule == "constant" else config.schedule
    options = {"power": config.decay_power, "lr_end": 0.0} if config.schedule == "polynomial" else None
    return get_scheduler(kind, optimizer, warmup, steps, scheduler_specific_kwargs=options)


def _own_rate(config: TrainingConfig, step: int, steps: int) -> float:
    rate = config.learning_rate_at(step, steps)
    if rate is None or not 0 <= rate < math.inf:
        raise ValueError(f"learning_rate_at({step}, {steps}) returned {rate}; allowed: a number from 0 on")
    return rate


# LAMB and AdamW, both without bias correction.


class UncorrectedAdam(torch.optim.Optimizer):
    """LAMB or AdamW, without bias correction. Settings may differ between parameter groups.

        m = β1 m + (1 - β1) g        v = β2 v + (1 - β2) g²        u = m / (√v + ε) + weight_decay w
        w = w - learning_rate r u    r = 1, or the trust ratio |w| / |u|, which is 1 if either norm is 0

    Sources: google-research/albert, lamb_optimizer.py (a trust ratio except for normalisations and biases);
    cybertronai/pytorch-lamb, used by shoarora/lmtuners (a trust ratio for all parameters, with |w| at most 10);
    google-research/electra, model/optimization.py (no trust ratio).

    No library has all three updates. `torch.optim.AdamW` corrects the bias of the moments. `transformers` has had no
    optimizers since release 5. torch_optimizer 0.3.0 has pytorch-lamb's update, always with the trust ratio.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        betas: tuple[float, float],
        eps: float,
        max_weight_norm: float | None,
    ) -> None:
        """Set the default settings of parameter groups.

        Args:
            max_weight_norm: largest value of |w| in the trust ratio. Infinity means no limit; None means no ratio.
        """
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "max_weight_norm": max_weight_norm})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "this optimizer does not take a closure"
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                update = _moment_ratio(self.state[weight], weight.grad, group).add(weight, alpha=group["weight_decay"])
                if group["max_weight_norm"] is not None:
                    update.mul_(_trust_ratio(weight, update, group["max_weight_norm"]))
                weight.sub_(update, alpha=group["lr"])


def _moment_ratio(state: dict[str, Tensor], gradient: Tensor, group: dict[str, Any]) -> Tensor:
    """Update the moments m and v in `state` with a gradient, and return m / (√v + ε)."""
    if not state:
        state.update(exp_avg=torch.zeros_like(gradient), exp_avg_sq=torch.zeros_like(gradient))
    mean_decay, square_decay = group["betas"]
    state["exp_avg"].mul_(mean_decay).add_(gradient, alpha=1 - mean_decay)
    state["exp_avg_sq"].mul_(square_decay).addcmul_(gradient, gradient, value=1 - square_decay)
    return state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])


def _trust_ratio(weight: Tensor, update: Tensor, max_weight_norm: float) -> Tensor:
    """Compute the trust ratio, a scalar on the weight's device."""
    weight_norm, update_norm = weight.norm().clamp(max=max_weight_norm), update.norm()
    return torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)


# Training only the word embeddings that the training examples use.


def training_words(
    model: EarlyExitModel, examples: Examples, *, weight_decay: float
) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes a context for faster training.

    Inside the context, the word embeddings contain only the tokens of `examples`. The results do not change, because
    AdamW without weight decay does not update the other tokens' embeddings. With weight decay, for ShareBERT, and if
    another module shares the embeddings, the context does nothing. The model must already be on its device.
    """
    if weight_decay or not model.encoder.words_are_looked_up:
        return nullcontext
    embeddings, name = model.encoder.find_words()
    table = embeddings.get_submodule(name)
    assert isinstance(table, nn.Embedding)
    if sum(weight is table.weight for _, weight in model.named_parameters(remove_duplicate=False)) > 1:  # tied weights
        return nullcontext
    is_used = torch.zeros(table.num_embeddings, dtype=torch.bool)
    is_used[torch.from_numpy(examples.tokens.astype("int64"))] = True
    is_used[examples.pad_token] = True
    if table.padding_idx is not None:  # its embedding gets no gradient, and no other may take its place
        is_used[table.padding_idx] = True
    words = is_used.nonzero()[:, 0].to(table.weight.device)
    used = _UsedWords(table, words)

    @contextmanager
    def with_used_words() -> Iterator[None]:
        with torch.no_grad():
            used.weight.copy_(table.weight[words])
        setattr(embeddings, name, used)
        try:
            yield
        finally:
            setattr(embeddings, name, table)
            with torch.no_grad():
                table.weight[words] = used.weight

    return with_used_words


class _UsedWords(nn.Module):
    """Some rows of an embedding table. Token ids are the same as in the whole table."""

    def __init__(self, table: nn.Embedding, words: Tensor) -> None:
        super().__init__()
        weight = torch.empty(len(words), table.embedding_dim, device=words.device)
        self.weight = nn.Parameter(weight, requires_grad=table.weight.requires_grad)
        # -1 is no index, so a method that makes up tokens fails, instead of reading the embedding of another token.
        self._numbers = torch.full((table.num_embeddings,), -1, device=words.device)
        self._numbers[words] = torch.arange(len(words), device=words.device)
        self._padding = None if table.padding_idx is None else int(self._numbers[table.padding_idx])

    def forward(self, input_ids: Tensor) -> Tensor:
        """Look up the embeddings of the tokens; the result has shape (..., size)."""
        return nn.functional.embedding(self._numbers[input_ids], self.weight, self._padding)
