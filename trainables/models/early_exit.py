"""What every method's model can do: a loss, all layers' outputs, and inference that stops computing."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from trainables.configuration import TrainingConfig
from trainables.encoders.layerwise import LayerwiseEncoder
from trainables.models.exit_rules import ExitResult, ExitRule, LayerOutputs

Batch = dict[str, Tensor]  # input_ids, attention_mask, token_type_ids: (batch, tokens); labels: (batch,), for `loss`


def is_decayed(parameter: nn.Parameter) -> bool:
    """Whether a parameter has weight decay: biases and normalisation have none."""
    return parameter.ndim > 1


class EarlyExitModel(nn.Module, ABC):
    """An encoder with heads on its layers and a rule for leaving early.

    A subclass says what stands on a layer (`exit_head`) and how it is trained (`loss`).
    """

    def __init__(self, encoder: LayerwiseEncoder, exit_rule: ExitRule, num_labels: int, config: TrainingConfig) -> None:
        """Takes the encoder, the rule of `infer`, and the width of the logits (1 is regression)."""
        super().__init__()
        self.encoder = encoder
        self.exit_rule = exit_rule
        self.num_labels = num_labels
        self.precision = config.precision
        self.dropout = nn.Dropout(config.classifier_dropout)

    @abstractmethod
    def exit_head(
        self, index: int, hidden: Tensor, carried: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Logits (batch, labels), logits of λ (batch,) or None, and what the next layer's head is given.

        Args:
            index: of the layer, from 0.
            hidden: states after this layer, (batch, tokens, hidden).
            carried: what the layer before handed on, first dimension the example; None at the first layer.
        """

    @abstractmethod
    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """`loss`, a scalar to minimise, and its parts."""

    def sweep_rules(self) -> list[ExitRule]:
        """The exit rules that are evaluated beside the model's own, none for a model that always runs all layers."""
        return []

    @torch.no_grad()
    def all_exits(self, batch: Batch) -> LayerOutputs:
        """Every layer's logits (layers, batch, labels) and λ (layers, batch), float32."""
        with self.autocast(batch):
            steps = list(self.walk(batch))
        logits = torch.stack([logits.float() for logits, _ in steps])
        lambdas = [exit_logits.sigmoid() for _, exit_logits in steps if exit_logits is not None]
        return LayerOutputs(logits, torch.stack(lambdas) if lambdas else None)

    @torch.no_grad()
    def infer(self, batch: Batch, generator: torch.Generator | None = None) -> ExitResult:
        """The exit rule's answers, computing for every example only the layers up to its exit.

        Finished examples leave the batch after each layer. A sampled exit draws from `generator`.
        """
        with self.autocast(batch):
            return self._infer(batch, generator)

    def walk(self, batch: Batch) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Logits and logits of λ, layer by layer; a layer is computed when it is asked for."""
        hidden, mask = self._embed(batch)
        carried = None
        for index in range(self.encoder.num_layers):
            hidden = self.encoder.layer(index, hidden, mask)
            logits, exit_logits, carried = self.exit_head(index, hidden, carried)
            yield logits, exit_logits

    def autocast(self, batch: Batch) -> AbstractContextManager:
        """Context of the configured precision; parameters stay float32."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(batch["input_ids"].device.type, dtype=torch.bfloat16)

    def task_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy, or squared error of a regression, of every example, (batch,)."""
        if self.num_labels == 1:
            return nn.functional.mse_loss(logits[:, 0].float(), labels.float(), reduction="none")
        return nn.functional.cross_entropy(logits.float(), labels, reduction="none")

    def parameter_groups(self, config: TrainingConfig) -> list[dict]:
        """Groups for AdamW, each with `name`, `params`, `lr` and `weight_decay`.

        Biases and normalisation have no weight decay. With `layer_decay` a layer's learning rate is that of the layer
        above it times the factor; the heads and the pooler have the full one.
        """
        depths = self.encoder.parameter_depths()
        groups: dict[tuple, dict] = {}
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            depth = depths.get(name.removeprefix("encoder."), self.encoder.num_layers + 1)
            key = self.parameter_group(config, name, parameter, depth)
            group = dict(zip(("name", "lr", "weight_decay"), key))
            groups.setdefault(key, {**group, "params": []})["params"].append(parameter)
        return list(groups.values())

    def parameter_group(
        self, config: TrainingConfig, name: str, parameter: nn.Parameter, depth: int
    ) -> tuple[str, float, float]:
        """Name, learning rate and weight decay of one parameter's group."""
        rate = config.learning_rate * config.layer_decay ** self.decay_steps(depth)
        weight_decay = config.weight_decay if is_decayed(parameter) else 0.0
        where = f"depth {depth}" if config.layer_decay < 1 else "model"
        return where if weight_decay == config.weight_decay else f"{where}, no decay", rate, weight_decay

    def decay_steps(self, depth: int) -> int:
        """How many times `layer_decay` is applied at a depth: none to the heads, once to the top layer, and so on."""
        return self.encoder.num_layers + 1 - depth

    def _embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.encoder.embed(batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids"))

    def _infer(self, batch: Batch, generator: torch.Generator | None) -> ExitResult:
        hidden, mask = self._embed(batch)
        rows = torch.arange(len(hidden), device=hidden.device)  # of the examples still in the batch
        answers = torch.zeros(len(hidden), self.num_labels, device=hidden.device)
        exit_layer = torch.full_like(rows, self.encoder.num_layers)
        state, carried = None, None
        for index in range(self.encoder.num_layers):
            hidden = self.encoder.layer(index, hidden, mask)
            logits, exit_logits, carried = self.exit_head(index, hidden, carried)
            if state is None:
                state = self.exit_rule.start(self.encoder.num_layers, logits, generator)
            lambdas = None if exit_logits is None else exit_logits.sigmoid()
            step = self.exit_rule.step(state, index + 1, self.encoder.num_layers, logits.float(), lambdas)
            # An answer is overwritten by every later layer that still runs for its example.
            answers[rows] = step.logits
            exit_layer[rows] = index + 1
            stays = ~step.leaves
            if not stays.any():
                break
            rows, hidden, mask = rows[stays], hidden[stays], mask[stays]
            carried = None if carried is None else carried[stays]
            state = {name: values[stays] for name, values in step.state.items()}
        return ExitResult(answers, exit_layer)
