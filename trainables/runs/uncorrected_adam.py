"""LAMB, and AdamW without bias correction: one update, with or without a trust ratio.

    m = β1 m + (1 - β1) g        v = β2 v + (1 - β2) g²        u = m / (√v + ε) + weight_decay w
    w = w - learning_rate r u    r = 1, or the trust ratio |w| / |u|, which is 1 where either norm is 0

The moments are not corrected for having started at 0. Sources: google-research/albert, lamb_optimizer.py (a trust ratio
but for normalisations and biases); cybertronai/pytorch-lamb, which shoarora/lmtuners trains with (a trust ratio
everywhere, |w| counts as 10 at most); google-research/electra, model/optimization.py (none).

No library has all three. `torch.optim.AdamW` corrects the moments, and `transformers` has no optimizer of its own since
release 5; torch_optimizer 0.3.0 has pytorch-lamb's update, and no way to leave the ratio out for some parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class UncorrectedAdam(torch.optim.Optimizer):
    """The update above; each of its settings may also stand in a group of parameters."""

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
        """`max_weight_norm`: what |w| counts as in a trust ratio at most, infinity for no limit; None: no ratio."""
        settings = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_weight_norm=max_weight_norm)
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
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
    """m / (√v + ε) after one more gradient, which the state takes up."""
    if not state:
        state.update(exp_avg=torch.zeros_like(gradient), exp_avg_sq=torch.zeros_like(gradient))
    mean_decay, square_decay = group["betas"]
    state["exp_avg"].mul_(mean_decay).add_(gradient, alpha=1 - mean_decay)
    state["exp_avg_sq"].mul_(square_decay).addcmul_(gradient, gradient, value=1 - square_decay)
    return state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])


def _trust_ratio(weight: Tensor, update: Tensor, max_weight_norm: float) -> Tensor:
    """A scalar on the weight's device: reading it would wait for that."""
    weight_norm, update_norm = weight.norm().clamp(max=max_weight_norm), update.norm()
    return torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
