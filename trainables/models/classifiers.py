"""Models without PonderNet's Λ head: a classifier on the last layer, or one on every layer."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from trainables.configuration import TrainingConfig
from trainables.encoders.layerwise import LayerwiseEncoder, initialised
from trainables.models.devices import without_autocast
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitRule, LastLayer


class LastLayerModel(EarlyExitModel):
    """A model without early exit: one classifier, trained on the last layer."""

    def __init__(self, encoder: LayerwiseEncoder, num_labels: int, config: TrainingConfig) -> None:
        """Add a new classifier to the encoder's pooled output."""
        super().__init__(encoder, LastLayer(), num_labels, config)
        self.classifier = initialised(nn.Linear(encoder.hidden_size, num_labels))

    def classified(self, index: int, pooled: Tensor) -> Tensor:
        """Compute the classifier's logits, even for layers that it was not trained on."""
        return self.classifier(self.dropout(pooled))

    def plain_head(self, index: int) -> tuple[nn.Module, nn.Module] | None:
        """Return the pooler and the classifier of the last layer; None for the other layers, which were not trained."""
        return (self.encoder.pooler, self.classifier) if index == self.encoder.num_layers - 1 else None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the mean task loss of the last layer."""
        *_, last = self.first_tokens(batch)
        logits, _, _ = self.exit_heads(self.encoder.num_layers - 1, last[None], None)
        return {"loss": self.task_losses(logits, batch["labels"]).mean()}


class ClassifierPerLayer(EarlyExitModel):
    """PABEE's model: a shared pooler, and one linear classifier per layer (arXiv:2006.04152, section 3)."""

    def __init__(
        self,
        encoder: LayerwiseEncoder,
        rule: ExitRule,
        num_labels: int,
        config: TrainingConfig,
        *,
        swept: Sequence[ExitRule],
    ) -> None:
        """Add a new classifier for each layer. `swept` lists further exit rules to evaluate."""
        super().__init__(encoder, rule, num_labels, config)
        self.swept = tuple(swept)
        heads = (initialised(nn.Linear(encoder.hidden_size, num_labels)) for _ in range(encoder.num_layers))
        self.classifiers = nn.ModuleList(heads)

    def classified(self, index: int, pooled: Tensor) -> Tensor:
        """Compute each layer's logits with that layer's classifier."""
        heads = list(self.classifiers)[index : index + len(pooled)]  # a slice of a `ModuleList` is made anew
        return torch.stack([head(layer) for head, layer in zip(heads, self.dropout(pooled), strict=True)])

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the weighted mean of the layers' losses, Σ_j j L_j / Σ_j j, with j = 1, 2, ... (equation 4)."""
        losses = self.task_losses(self.heads(batch)[0], batch["labels"]).mean(dim=1)
        weights = torch.arange(1, len(losses) + 1).to(losses)
        return {"loss": (weights * losses).sum() / weights.sum()}

    def plain_head(self, index: int) -> tuple[nn.Module, nn.Module] | None:
        """Return the shared pooler and the layer's classifier."""
        return self.encoder.pooler, self.classifiers[index]

    def sweep_rules(self) -> list[ExitRule]:
        """List the exit rules that were passed to the constructor."""
        return list(self.swept)


class PoolerPerLayer(ClassifierPerLayer):
    """A pooler and a classifier for every layer, as in DeeBERT and BERxiT.

    The last layer uses the encoder's pooler; the other layers use copies of it (castorini/berxit at 1fb2162,
    modeling_highway_bert.py:63-67, 228-260). Without a pooler, each layer has only its classifier.
    """

    def __init__(self, encoder: LayerwiseEncoder, *others: Any, **named: Any) -> None:
        """Add new classifiers and copies of the encoder's pooler. Arguments are those of `ClassifierPerLayer`."""
        super().__init__(encoder, *others, **named)
        copies = encoder.num_layers - 1 if encoder.uses_pooler else 0
        self.poolers = nn.ModuleList(deepcopy(encoder.pooler) for _ in range(copies))

    def pooled(self, index: int, first: Tensor) -> Tensor:
        """Apply each layer's pooler, if the heads read poolers."""
        if not self.encoder.uses_pooler:
            return super().pooled(index, first)
        poolers = [*self.poolers, self.encoder.pooler][index : index + len(first)]
        return torch.stack([self.encoder.pool(layer, pooler) for layer, pooler in zip(first, poolers, strict=True)])

    def plain_head(self, index: int) -> tuple[nn.Module, nn.Module] | None:
        """Return the layer's pooler and classifier."""
        return [*self.poolers, self.encoder.pooler][index], self.classifiers[index]


class FrozenEncoderModel(PoolerPerLayer):
    """DeeBERT's second training stage: only the poolers and classifiers below the last layer are trained."""

    def __init__(self, encoder: LayerwiseEncoder, *others: Any, **named: Any) -> None:
        """Add new exits, and freeze the encoder and the last layer's classifier."""
        super().__init__(encoder, *others, **named)
        for part in self.started_parts().values():
            part.requires_grad_(False)

    def started_parts(self) -> dict[str, nn.Module]:
        """Return the parts that the first stage trained: the encoder and the last layer's classifier."""
        return {"encoder": self.encoder, "classifier": self.classifiers[-1]}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Sum the losses of all layers but the last (castorini/DeeBERT@563eac1, modeling_highway_bert.py:438-440)."""
        losses = self.task_losses(self.heads(batch)[0], batch["labels"]).mean(dim=1)
        return {"loss": losses[:-1].sum()}


class LearnedExitModel(PoolerPerLayer):
    """BERxiT: one exit head for all layers predicts u, the probability of a wrong prediction."""

    exit_head_gives = "uncertainties"
    steps: Tensor

    def __init__(self, encoder: LayerwiseEncoder, *others: Any, **named: Any) -> None:
        """Add a new exit head to the pooled outputs, and a counter of training steps."""
        super().__init__(encoder, *others, **named)
        self.exit_head = initialised(nn.Linear(encoder.hidden_size, 1))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))  # saved for resumed trials

    def exit_logits(self, pooled: Tensor, carried: Tensor | None) -> tuple[Tensor, None]:
        """Compute the logits of the exit head, which has no dropout."""
        with without_autocast(pooled.device):
            return self.exit_head(pooled.float())[..., 0], None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute `loss`, the sum of `task_loss` and `exit_loss`.

        In even steps, `task_loss` is the last layer's loss. In odd steps, it is the sum of all other layers' losses.
        `exit_loss` is the mean squared difference between u and `wrong`. In each step, Adam updates all classifiers,
        because those without a loss get zero gradients (modeling_highway_bert.py:382-411).
        """
        logits, exit_logits = self.heads(batch)
        assert exit_logits is not None
        losses = self.task_losses(logits, batch["labels"]).mean(dim=1)
        is_last = torch.arange(1, len(losses) + 1, device=losses.device) == len(losses)
        task_loss = ((is_last ^ (self.steps % 2 == 1)) * losses).sum()
        exit_loss = nn.functional.mse_loss(exit_logits.sigmoid(), self.wrong(logits, batch["labels"]))
        return {"loss": task_loss + exit_loss, "task_loss": task_loss, "exit_loss": exit_loss}

    def after_step(self) -> None:
        """Count the training steps."""
        self.steps += 1

    @torch.no_grad()
    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute how wrong each prediction is, (layers, batch): 0 or 1 for classes, tanh |error| for scores."""
        if self.num_labels == 1:
            return torch.tanh(logits[..., 0].float() - labels.float()).abs()
        return (logits.argmax(dim=-1) != labels).float()


class ElectraModel(LastLayerModel):
    """The model of ELECTRA's fine-tuning; trainables/electra_small.py explains `head` and `layer_decay_convention`."""

    def __init__(
        self,
        encoder: LayerwiseEncoder,
        num_labels: int,
        config: TrainingConfig,
        *,
        head: str,
        layer_decay_convention: str | None,
    ) -> None:
        """Add a new classifier to the pooled output if `head` is "pooled", else to the [CLS] state or to the mean."""
        super().__init__(encoder, num_labels, config)
        if head == "first_token":
            nn.init.xavier_uniform_(self.classifier.weight)  # Glorot-uniform, with bias 0: default of `tf.layers.dense`
        self.layer_decay_convention = layer_decay_convention
        if head == "first_token" and encoder.uses_pooler:
            encoder.read_by("first")

    def decay_steps(self, depth: int) -> int:
        """Compute the exponent of `layer_decay`. In the convention `released`, a layer's exponent is 1 higher."""
        steps = super().decay_steps(depth)
        return steps + 1 if steps and self.layer_decay_convention == "released" else steps
