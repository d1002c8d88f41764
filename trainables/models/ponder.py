"""The model of PonderNet and PALBERT. All layers share a classifier and Λ, a head that predicts whether to exit.

λ_i = σ(Λ(h_i)), p_i = λ_i Π_{j<i} (1 - λ_j), loss = Σ_i p_i L_i + β KL(prior, posterior). h_i is the pooled [CLS] of
layer i; h_0 is zero. Λ applies dropout to h_i, as in the released PALBERT code (tinkoff-ai/palbert at 52a79af,
src/modeling/palbert_fast.py). The posterior p is truncated after the first layer at which its sum exceeds 1 - ε.
`posterior_tail` defines p_i for the later layers:

* `constant`: every p_i is ε / N, without gradient, as in the released code. The later layers count in the KL term. A
  layer counts in the task loss unless all examples of the batch are truncated before it.
* `drop`: the later layers count neither in the task loss nor in the KL term (PALBERT, section 3.1).
* `remainder`: like `drop`, but the last layer that counts takes all remaining probability. Posterior and prior then
  sum to 1 (PonderNet, section 2.2).

λ, posterior and KL are computed in float32 from log-sigmoids, even under autocast.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import log, log1p

import torch
from torch import Tensor, nn

from trainables.configuration import PonderConfig, TrainingConfig
from trainables.encoders.layerwise import LayerwiseEncoder, initialised
from trainables.models.devices import without_autocast
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitRule, every_threshold

LAYERS_PER_LOOK = 6  # number of layers between two checks whether all posteriors are truncated


@dataclass(frozen=True)
class Lambda:
    """The architecture of Λ, and its learning rate."""

    arch: str  # input: h_i (linear, rnn), [h_i, h_{i-1}] (linear_cat) or h_i - h_{i-1} (linear_diff)
    num_layers: int  # hidden tanh layers (recurrent ones for rnn); 0: Λ is one linear layer
    learning_rate: float | None  # separate rate of Λ, without weight decay; None: same as the other heads


class PonderModel(EarlyExitModel):
    """PonderNet and PALBERT. They differ only in the architecture of Λ and in the exit rule."""

    def __init__(
        self, encoder: LayerwiseEncoder, num_labels: int, config: PonderConfig, shape: Lambda, exit_rule: ExitRule
    ) -> None:
        """Add a new classifier and a new Λ to the encoder's pooled output."""
        super().__init__(encoder, exit_rule, num_labels, config)
        self.config = config
        self.lambda_learning_rate = shape.learning_rate
        self.classifier = initialised(nn.Linear(encoder.hidden_size, num_labels))
        self.lambda_head = LambdaHead(encoder.hidden_size, config, shape)

    def classified(self, index: int, pooled: Tensor) -> Tensor:
        """Compute the classifier's logits."""
        return self.classifier(self.dropout(pooled))

    def plain_head(self, index: int) -> tuple[nn.Module, nn.Module] | None:
        """Return the pooler and the classifier, which all layers share."""
        return self.encoder.pooler, self.classifier

    def exit_logits(self, pooled: Tensor, carried: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Compute the logits of λ, and the state of Λ for the next layer."""
        with without_autocast(pooled.device):
            return self.lambda_head(pooled.float(), carried)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute `loss`, and its parts `task_loss` and `kl`."""
        logits, exit_logits = self.heads_until_truncation(batch)
        posterior = truncated_posterior(exit_logits, self.config, self.encoder.num_layers)
        weights = posterior.weights()[: len(logits)]
        task_loss = (weights * self.task_losses(logits, batch["labels"])).mean(dim=1).sum()
        kl = divergence(posterior, self.config.kl_direction).mean()
        return {"loss": task_loss + self.config.beta * kl, "task_loss": task_loss, "kl": kl}

    def heads_until_truncation(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the class logits, (layers, batch, labels), and the λ logits, (layers, batch), of the first layers.

        Computation stops when every example's posterior is truncated. This is checked every `LAYERS_PER_LOOK` layers.
        """
        parts: list[tuple[Tensor, Tensor]] = []
        carried, log_survived = None, torch.zeros((), device=batch["input_ids"].device)
        first_tokens = self.first_tokens(batch)
        while first := list(islice(first_tokens, LAYERS_PER_LOOK)):
            logits, exit_logits, carried = self.exit_heads(len(parts) * LAYERS_PER_LOOK, torch.stack(first), carried)
            assert exit_logits is not None
            parts.append((logits, exit_logits))
            log_survived = log_survived + log_survival(exit_logits.detach())[-1]
            if (log_survived.exp() < self.config.epsilon).all():
                break
        all_logits, all_exit_logits = zip(*parts, strict=True)
        return torch.cat(all_logits), torch.cat(all_exit_logits)

    def parameter_group(
        self, config: TrainingConfig, name: str, parameter: nn.Parameter, depth: int
    ) -> tuple[str, float, float]:
        """Put Λ in a group without weight decay if Λ has a separate learning rate."""
        if name.startswith("lambda_head.") and self.lambda_learning_rate is not None:
            return "lambda", self.lambda_learning_rate, 0.0
        return super().parameter_group(config, name, parameter, depth)

    def sweep_rules(self) -> list[ExitRule]:
        """List Q-exit with every q."""
        return every_threshold()


class LambdaHead(nn.Module):
    """Λ: computes the logit of a layer's exit probability λ. Some architectures also read earlier layers.

    As in the released PALBERT code, the head has dropout on the input, hidden layers as wide as the input, PyTorch's
    default initialisation, and the same weights for all layers of the encoder.
    """

    def __init__(self, size: int, config: PonderConfig, shape: Lambda) -> None:
        """Make a head for pooled outputs of width `size`."""
        super().__init__()
        self.arch = shape.arch if shape.num_layers or shape.arch != "rnn" else "linear"  # no RNN layers
        self.dropout = nn.Dropout(config.classifier_dropout)
        width = 2 * size if self.arch == "linear_cat" else size
        if self.arch == "rnn":
            self.recurrent = nn.RNN(width, width, shape.num_layers)
        else:
            self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(shape.num_layers))
        self.output = nn.Linear(width, 1)
        if config.lambda_bias_init == "prior":
            nn.init.constant_(self.output.bias, log(config.prior_lambda) - log1p(-config.prior_lambda))

    def forward(self, pooled: Tensor, carried: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Compute the logits, (layers, batch), from the pooled outputs of consecutive layers, (layers, batch, size).

        Also return `carried` for the next call: the recurrent state (batch, recurrent layers, size), the last pooled
        output (batch, size), or None if Λ reads only h_i.
        """
        if self.arch == "rnn":
            state = None if carried is None else carried.transpose(0, 1).contiguous()
            features, state = self.recurrent(self.dropout(pooled), state)
            return self.output(features)[..., 0], state.transpose(0, 1)
        reads_below = self.arch != "linear"
        features = self.dropout(self._with_layer_below(pooled, carried) if reads_below else pooled)
        for layer in self.hidden:
            features = torch.tanh(layer(features))
        return self.output(features)[..., 0], pooled[-1] if reads_below else None

    def _with_layer_below(self, pooled: Tensor, carried: Tensor | None) -> Tensor:
        """Compute [h_i, h_{i-1}] or h_i - h_{i-1}, (layers, batch, width)."""
        below = torch.zeros_like(pooled[:1]) if carried is None else carried[None]
        before = torch.cat([below, pooled[:-1]])
        return pooled - before if self.arch == "linear_diff" else torch.cat([pooled, before], dim=-1)


@dataclass(frozen=True)
class Posterior:
    """The posterior probabilities of exiting at each layer during training, and the prior."""

    log_probabilities: Tensor  # (layers, batch)
    log_prior: Tensor  # (layers, batch)
    counts: Tensor  # (layers, batch), bool: True if the layer counts in the loss
    is_reached: Tensor  # (layers, 1), bool: False if the posterior of every example is truncated before the layer

    def probabilities(self) -> Tensor:
        """Compute the probabilities, (layers, batch); 0 for layers that do not count in the loss."""
        return self.log_probabilities.exp() * self.counts

    def weights(self) -> Tensor:
        """Compute the weight of each layer in the task loss, (layers, batch)."""
        return self.probabilities() * self.is_reached


def truncated_posterior(exit_logits: Tensor, config: PonderConfig, num_layers: int) -> Posterior:
    """Compute the truncated posterior over all layers, and the prior. The module's docstring explains the truncation.

    Args:
        exit_logits: logits of λ at the first layers, (computed, batch). If these are not all layers, they must truncate
            every posterior.
        num_layers: number of layers of the encoder.
    """
    epsilon, tail, prior_lambda = config.epsilon, config.posterior_tail, config.prior_lambda
    # log p_i = log λ_i + Σ_{j<i} log(1 - λ_j)
    log_probabilities = nn.functional.logsigmoid(exit_logits) + shifted(log_survival(exit_logits))
    cdf_before = shifted(log_probabilities.exp().cumsum(0))
    above = (0, 0, 0, num_layers - len(exit_logits))  # rows of layers that were not computed
    is_truncated = nn.functional.pad(cdf_before > 1 - epsilon, above, value=True)
    log_probabilities = nn.functional.pad(log_probabilities, above)
    is_reached = ~is_truncated.all(dim=1, keepdim=True)
    log_prior = log_geometric_prior(prior_lambda, num_layers).to(exit_logits)[:, None].expand_as(log_probabilities)
    if tail == "constant":
        log_probabilities = log_probabilities.masked_fill(is_truncated, log(epsilon / num_layers))
        return Posterior(log_probabilities, log_prior, torch.ones_like(is_truncated), is_reached)
    if tail == "remainder":
        is_last = ~is_truncated & nn.functional.pad(is_truncated[1:], (0, 0, 0, 1), value=True)
        remaining = nn.functional.pad(shifted(log_survival(exit_logits)), above)
        prior_remaining = log1p(-prior_lambda) * torch.arange(num_layers).to(exit_logits)[:, None]
        log_probabilities = torch.where(is_last, remaining, log_probabilities)
        log_prior = torch.where(is_last, prior_remaining, log_prior)
    return Posterior(log_probabilities, log_prior, ~is_truncated, is_reached)


def divergence(posterior: Posterior, direction: str) -> Tensor:
    """Compute the KL divergence over the layers that count, (batch,); `direction` is `PonderConfig.kl_direction`."""
    difference = posterior.log_prior - posterior.log_probabilities
    if direction == "prior_posterior":
        return (posterior.log_prior.exp() * difference * posterior.counts).sum(0)
    return (posterior.probabilities() * -difference).sum(0)


def log_survival(exit_logits: Tensor) -> Tensor:
    """Compute Σ_{j<=i} log(1 - λ_j), (layers, batch)."""
    return nn.functional.logsigmoid(-exit_logits).cumsum(0)


def shifted(rows: Tensor) -> Tensor:
    """Shift the rows down by one, drop the last row, and fill the first row with zeros."""
    return nn.functional.pad(rows[:-1], (0, 0, 1, 0))


def log_geometric_prior(prior_lambda: float, num_layers: int) -> Tensor:
    """Compute the log of the geometric prior, (num_layers,); the last layer takes the remaining probability."""
    log_prior = log(prior_lambda) + log1p(-prior_lambda) * torch.arange(num_layers, dtype=torch.float64)
    log_prior[-1] = log1p(-prior_lambda) * (num_layers - 1)
    return log_prior.float()
