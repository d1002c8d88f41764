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
from trainables.models.exit_rules import HALVED_FROM, ExitResult, ExitRule, LayerOutputs, State, Step

Batch = dict[str, Tensor]  # input_ids, attention_mask, token_type_ids: (batch, tokens); labels: (batch,), for `loss`


def is_decayed(parameter: nn.Parameter) -> bool:
    """Check whether weight decay applies to a parameter; biases and normalisation have no decay."""
    return parameter.ndim > 1


class EarlyExitModel(nn.Module, ABC):
    """An encoder with heads on its layers and a rule for early exits.

    A subclass defines the heads (`exit_heads`) and the training loss (`loss`).
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

    @abstractmethod
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

    @abstractmethod
    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the scalar `loss` to minimise, and its parts by name."""

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
        going = _Going(torch.arange(len(batch["input_ids"]), device=batch["input_ids"].device))
        answers = torch.zeros(len(going.rows), self.num_labels, device=going.rows.device)
        exit_layer = torch.full_like(going.rows, num_layers)
        states, first = self.encoder.embed(**_drop_labels(batch)), []
        some_left = True  # True if examples left after the previous layer; at the first layer, a guess
        for index in range(num_layers):
            if index + 1 < rule.earliest(num_layers):  # no example may exit: the heads run later, together
                states = self.encoder.layer(index, states)
                first.append(self.encoder.read(states))
                continue
            if index + 1 == num_layers:
                first.append(self.encoder.first_of_last(states))
            else:
                first_after, rest = self._begin(index, states, some_left)
                first.append(first_after)
            step, going = self._decide(rule, torch.stack(first), index + 1, going, generator)
            first = []
            # If an example runs a later layer, that layer overwrites its answer.
            answers[going.rows], exit_layer[going.rows] = step.logits, index + 1
            stays = ~step.leaves
            num_staying = int(stays.sum())
            if num_staying == 0 or index + 1 == num_layers:
                break
            some_left = num_staying < len(stays)
            rows = stays if some_left else None
            states, going = rest(rows), going.of(rows)
        return ExitResult(answers, exit_layer)

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
    ) -> tuple[Step, _Going]:
        """Run the heads and an exit rule on consecutive layers; return the decision at the last of them.

        Args:
            first: what the encoder reads of these layers, (layers, batch, hidden).
            layer: the last of these layers, counted from 1.
        """
        below, num_layers = layer - len(first), self.encoder.num_layers
        logits, exit_logits, carried = self.exit_heads(below, first, going.carried)
        state = rule.start(num_layers, logits[0], generator) if going.state is None else going.state
        for index in range(len(first)):
            lambdas = None if exit_logits is None else exit_logits[index].sigmoid()
            step = rule.step(state, below + index + 1, num_layers, logits[index].float(), lambdas)
            state = step.state
        return step, _Going(going.rows, carried, state)


@dataclass(frozen=True)
class _Going:
    """The examples that are still running, and the states of the heads and of the exit rule."""

    rows: Tensor  # row numbers in the batch, (going,), int64
    carried: Tensor | None = None  # `carried` from the previous layer's heads, (going, ...)
    state: State | None = None  # state of the exit rule; None before its first step

    def of(self, stays: Tensor | None) -> _Going:
        """Keep only the examples with True in `stays`, (going,). None keeps all examples."""
        if stays is None:
            return self
        carried = None if self.carried is None else self.carried[stays]
        state = self.state and {name: values[stays] for name, values in self.state.items()}
        return _Going(self.rows[stays], carried, state)


def _drop_labels(batch: Batch) -> Batch:
    return {name: values for name, values in batch.items() if name != "labels"}
