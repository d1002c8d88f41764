"""The interface of every method's model: a loss, the outputs of all layers, and inference that stops early."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainables.configuration import TrainingConfig
from trainables.encoders.layerwise import LayerwiseEncoder
from trainables.encoders.token_states import TokenStates
from trainables.models.devices import forward_precision
from trainables.models.exit_rules import (
    HALVED_FROM,
    ExitHeadRule,
    ExitResult,
    ExitRule,
    LayerOutputs,
    State,
    needs_no_logits,
)

Batch = dict[str, Tensor]  # input_ids, attention_mask, token_type_ids: (batch, tokens); labels: (batch,), for `loss`
ALL = slice(None)


def is_decayed(parameter: nn.Parameter) -> bool:
    """Check whether weight decay applies to a parameter; biases and normalisation have no decay."""
    return parameter.ndim > 1


class EarlyExitModel(nn.Module, ABC):
    """An encoder with heads on its layers and a rule for early exits.

    A subclass defines the training loss (`loss`) and the heads: either `exit_heads`, or `classified` and perhaps
    `pooled` and `exit_logits`, whose results `exit_heads` then puts together. With the latter, inference runs only the
    heads that it needs.
    """

    exit_head_gives = "lambdas"  # field of `LayerOutputs` that holds the sigmoid of the exit head

    def __init__(self, encoder: LayerwiseEncoder, exit_rule: ExitRule, num_labels: int, config: TrainingConfig) -> None:
        """Store the encoder, the exit rule and the number of logits per layer (1 for regression)."""
        super().__init__()
        self.encoder = encoder
        self.exit_rule = exit_rule
        self.num_labels = num_labels
        self.precision = config.precision
        self.dropout = nn.Dropout(config.classifier_dropout)

    def exit_heads(
        self, index: int, first: Tensor, carried: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Compute the heads' outputs for one or more consecutive layers.

        Args:
            index: the first of these layers, counted from 0.
            first: what the encoder reads of each layer for its `pool`, (layers, batch, hidden): the states of the
                first token, or with the pooling `mean` the means over all tokens.
            carried: state that the heads returned for the previous layer, (batch, ...); None at the first layer.

        Returns:
            The logits of the predictions, (layers, batch, labels); the exit head's logits, (layers, batch), or None if
            there is no exit head; and `carried` for the next layer. The exit head predicts λ, the probability of
            exiting, or u, the probability of a wrong prediction.
        """
        pooled = self.pooled(index, first)
        logits = self.classified(index, pooled)
        return logits, *self.exit_logits(pooled, carried)

    def pooled(self, index: int, first: Tensor) -> Tensor:
        """Compute the heads' inputs, (layers, batch, hidden), from layer `index` on; `first` as in `exit_heads`."""
        return self.encoder.pool(first)

    def classified(self, index: int, pooled: Tensor) -> Tensor:
        """Compute each layer's logits from its pooled output, (layers, batch, labels), without any other layer's."""
        raise NotImplementedError(f"{type(self).__name__} defines neither `exit_heads` nor `classified`")

    def exit_logits(self, pooled: Tensor, carried: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Compute the exit head's logits and `carried`, as in `exit_heads`; by default, there is no exit head."""
        return None, None

    @abstractmethod
    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the scalar `loss` to minimise, and its parts by name."""

    def plain_head(self, index: int) -> tuple[nn.Module, nn.Module] | None:
        """Return the pooler and the linear classifier that compute the logits of layer `index`, counted from 0.

        None if the layer has no such classifier. An export of the first layers needs these two.
        """
        return None

    def after_step(self) -> None:
        """Do what a method does once after each training step, in which `loss` may be called for several parts."""

    def sweep_rules(self) -> list[ExitRule]:
        """List further exit rules to evaluate, besides `exit_rule`. By default, the list is empty."""
        return []

    def started_parts(self) -> dict[str, nn.Module]:
        """Return the modules, by name, that get the weights of the trial's start model."""
        return {"encoder": self.encoder}

    @torch.no_grad()
    def all_exits(self, batch: Batch) -> LayerOutputs:
        """Compute the outputs of all layers, in float32."""
        with self.computing(batch):
            logits, exit_logits = self.heads(batch)
        sigmoid = {} if exit_logits is None else {self.exit_head_gives: exit_logits.sigmoid()}
        return LayerOutputs(logits.float(), **sigmoid)

    @torch.no_grad()
    def infer(self, batch: Batch, generator: torch.Generator | None = None, rule: ExitRule | None = None) -> ExitResult:
        """Compute the predictions under an exit rule; each example runs only the layers up to its exit.

        Examples that have exited are removed from the batch at once. Sampled exits are drawn with `generator`.

        Args:
            rule: exit rule to apply; None means the model's own exit rule.
        """
        with self.computing(batch):
            return self._infer(batch, generator, self.exit_rule if rule is None else rule)

    def heads(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Compute all layers' class logits, (layers, batch, labels), and exit-head logits, (layers, batch)."""
        logits, exit_logits, _ = self.exit_heads(0, torch.stack(list(self.first_tokens(batch))), None)
        return logits, exit_logits

    def first_tokens(self, batch: Batch) -> Iterator[Tensor]:
        """Compute what the encoder reads of each layer, (batch, hidden): by default, the states of the first token."""
        return self.encoder.first_tokens(**_drop_labels(batch))

    def computing(self, batch: Batch) -> AbstractContextManager[None]:
        """Return a context in which the model computes in the configured precision."""
        return forward_precision(self.precision, batch["input_ids"].device)

    def task_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute each example's loss from logits (..., batch, labels): cross-entropy, or squared error of scores."""
        wanted = labels.expand(logits.shape[:-1])
        if self.num_labels == 1:
            return nn.functional.mse_loss(logits[..., 0].float(), wanted.float(), reduction="none")
        losses = nn.functional.cross_entropy(logits.flatten(0, -2).float(), wanted.flatten(), reduction="none")
        return losses.view(wanted.shape)

    def parameter_groups(self, config: TrainingConfig) -> list[dict[str, Any]]:
        """Group the parameters for AdamW; each group has `name`, `params`, `lr` and `weight_decay`.

        Biases and normalisation have no weight decay. Heads and pooler have the full learning rate. Each layer's rate
        is `layer_decay` times the rate of the layer above.
        """
        depths = self.encoder.parameter_depths()
        groups: dict[tuple[str, float, float], dict[str, Any]] = {}
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            depth = depths.get(name.removeprefix("encoder."), self.encoder.num_layers + 1)
            key = self.parameter_group(config, name, parameter, depth)
            group = dict(zip(("name", "lr", "weight_decay"), key, strict=True))
            groups.setdefault(key, {**group, "params": []})["params"].append(parameter)
        return list(groups.values())

    def parameter_group(
        self, config: TrainingConfig, name: str, parameter: nn.Parameter, depth: int
    ) -> tuple[str, float, float]:
        """Compute the name, learning rate and weight decay of a parameter's group."""
        rate = config.learning_rate * config.layer_decay ** self.decay_steps(depth)
        weight_decay = config.weight_decay if is_decayed(parameter) else 0.0
        group = f"depth {depth}" if config.layer_decay < 1 else "model"
        return group if weight_decay == config.weight_decay else f"{group}, no decay", rate, weight_decay

    def decay_steps(self, depth: int) -> int:
        """Compute the exponent of `layer_decay` at a depth: 0 for the heads, 1 for the top layer, and so on."""
        return self.encoder.num_layers + 1 - depth

    def _infer(self, batch: Batch, generator: torch.Generator | None, rule: ExitRule) -> ExitResult:
        num_layers = self.encoder.num_layers
        earliest, is_apart = rule.earliest(num_layers), self._heads_run_apart(rule)
        decide = self._decide_by_exit_head if is_apart else self._decide
        going = _Going(torch.arange(len(batch["input_ids"]), device=batch["input_ids"].device))
        answers = torch.zeros(len(going.rows), self.num_labels, device=going.rows.device)
        exit_layer = torch.full_like(going.rows, num_layers)
        states, first = self.encoder.embed(**_drop_labels(batch)), []
        some_left = True  # True if examples left after the previous layer; at the first layer, a guess
        for layer in range(1, num_layers):
            if layer < earliest:  # no example may exit: the heads run later, together, or not at all
                states = self.encoder.layer(layer - 1, states)
                if not (is_apart and earliest == num_layers):
                    first.append(self.encoder.read(states))
                continue
            first_after, rest = self._begin(layer - 1, states, some_left)
            decision = decide(rule, _join([*first, first_after]), layer, going, generator)
            first, going = [], decision.going
            leave = decision.leaves.nonzero()  # the one wait for a GPU: the next layer depends on the number
            some_left = len(leave) > 0
            if not some_left:
                states = rest(None)
                continue
            leave = leave[:, 0]
            answers[going.rows[leave]], exit_layer[going.rows[leave]] = decision.answer(leave), layer
            if len(leave) == len(going.rows):
                return ExitResult(answers, exit_layer)
            stay = decision.leaves.argsort(stable=True)[: -len(leave)]  # False comes first
            states, going = rest(stay), going.of(stay)
        last = self.encoder.first_of_last(states)
        if is_apart:
            answers[going.rows] = self._classify(num_layers, self.pooled(num_layers - 1, last[None]))
        else:
            answers[going.rows] = decide(rule, _join([*first, last]), num_layers, going, generator).answer(ALL)
        return ExitResult(answers, exit_layer)

    def _heads_run_apart(self, rule: ExitRule) -> bool:
        """Check whether an example's exit needs no logits, so that the classifier runs only for examples that leave.

        A method that defines `exit_heads`, or a rule that defines `step`, gets all outputs of the heads.
        """
        return type(self).exit_heads is EarlyExitModel.exit_heads and needs_no_logits(rule)

    def _begin(
        self, index: int, states: TokenStates, some_left: bool
    ) -> tuple[Tensor, Callable[[Tensor | None], TokenStates]]:
        """Run a layer after which examples may exit.

        In a large batch, the layer's second half may run on the first tokens only, if the heads read no others. The
        returned function then runs the second half on all tokens of the examples that stay.

        Returns:
            What the encoder reads of the layer, and a function that computes all states of the examples that stay.
        """
        attended = self.encoder.attend(index, states)
        if some_left and self.encoder.reads_first_token and attended.num_tokens >= HALVED_FROM:
            first = self.encoder.first_after(index, attended)
            return first, lambda stays: self.encoder.feed_forward(index, attended.of(stays))
        whole = self.encoder.feed_forward(index, attended)
        return self.encoder.read(whole), whole.of

    def _decide(
        self, rule: ExitRule, first: Tensor, layer: int, going: _Going, generator: torch.Generator | None
    ) -> _Decision:
        """Run the heads and an exit rule on consecutive layers; return the decision at the last of them.

        Args:
            first: what the encoder reads of these layers, (layers, batch, hidden).
            layer: the last of these layers, counted from 1.
        """
        below, num_layers = layer - len(first), self.encoder.num_layers
        logits, exit_logits, carried = self.exit_heads(below, first, going.carried)
        logits = logits.float()
        state = rule.start(num_layers, logits[0], generator) if going.state is None else going.state
        for index in range(len(first)):
            lambdas = None if exit_logits is None else exit_logits[index].sigmoid()
            step = rule.step(state, below + index + 1, num_layers, logits[index], lambdas)
            state = step.state
        return _Decision(step.leaves, lambda rows: step.logits[rows], _Going(going.rows, carried, state))

    def _decide_by_exit_head(
        self, rule: ExitRule, first: Tensor, layer: int, going: _Going, generator: torch.Generator | None
    ) -> _Decision:
        """Do the same as `_decide` for a rule that needs no logits, and classify only the examples that leave."""
        assert isinstance(rule, ExitHeadRule)
        below, num_layers = layer - len(first), self.encoder.num_layers
        pooled = self.pooled(below, first)
        exit_logits, carried = self.exit_logits(pooled, going.carried)
        assert exit_logits is not None, "this rule needs a model with an exit head"
        lambdas = exit_logits.sigmoid()
        # The initial state depends only on the shape and device of the logits.
        state = rule.start(num_layers, lambdas[0][:, None], generator) if going.state is None else going.state
        for index in range(len(first)):
            leaves, state = rule.decide(state, below + index + 1, lambdas[index])
        return _Decision(
            leaves, lambda rows: self._classify(layer, pooled[-1:, rows]), _Going(going.rows, carried, state)
        )

    def _classify(self, layer: int, pooled: Tensor) -> Tensor:
        """Compute the logits of a layer, counted from 1, from its pooled output, (1, batch, hidden)."""
        return self.classified(layer - 1, pooled)[0].float()


@dataclass(frozen=True)
class _Going:
    """The examples that are still running, and the states of the heads and of the exit rule."""

    rows: Tensor  # row numbers in the batch, (going,), int64
    carried: Tensor | None = None  # `carried` from the previous layer's heads, (going, ...)
    state: State | None = None  # state of the exit rule; None before its first step

    def of(self, rows: Tensor) -> _Going:
        """Keep only the examples at the places `rows`, int64."""
        carried = None if self.carried is None else self.carried[rows]
        state = self.state and {name: values[rows] for name, values in self.state.items()}
        return _Going(self.rows[rows], carried, state)


@dataclass(frozen=True)
class _Decision:
    """Who leaves after a layer, and with which answers."""

    leaves: Tensor  # (going,), bool
    answer: Callable[[Tensor | slice], Tensor]  # the answers, (rows, labels), of the examples at these places
    going: _Going


def _join(layers: list[Tensor]) -> Tensor:
    """Stack what the encoder reads of several layers, (layers, batch, hidden), without copying a single one."""
    return layers[0][None] if len(layers) == 1 else torch.stack(layers)


def _drop_labels(batch: Batch) -> Batch:
    return {name: values for name, values in batch.items() if name != "labels"}
