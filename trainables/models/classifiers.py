"""Models without a Λ head: one classifier on the last layer, or one on every layer."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from trainables.configuration import TrainingConfig
from trainables.encoders.layerwise import LayerwiseEncoder, initialised
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitRule, LastLayer


class LastLayerModel(EarlyExitModel):
    """One classifier, trained on the last layer. Without early exit."""

    uses_pooler = True  # as the sequence classifiers of `transformers`

    def __init__(self, encoder: LayerwiseEncoder, num_labels: int, config: TrainingConfig) -> None:
        """Put a new classifier on the encoder's pooled output."""
        super().__init__(encoder, LastLayer(), num_labels, config)
        self.classifier = initialised(nn.Linear(encoder.hidden_size, num_labels))

    def exit_heads(self, index: int, first: Tensor, carried: Tensor | None) -> tuple[Tensor, None, None]:
        """Compute the classifier's logits, also at layers before the last, which it was not trained for."""
        return self.classifier(self.dropout(self.pooled(first))), None, None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Mean task loss of the last layer."""
        *_, last = self.first_tokens(batch)
        logits, _, _ = self.exit_heads(self.encoder.num_layers - 1, last[None], None)
        return {"loss": self.task_losses(logits, batch["labels"]).mean()}

    def pooled(self, first: Tensor) -> Tensor:
        """Compute the classifier's input, as wide as the states of the first token, (..., hidden)."""
        return self.encoder.pool(first)


class ClassifierPerLayer(EarlyExitModel):
    """One linear classifier per layer over a shared pooler: PABEE (arXiv:2006.04152, section 3)."""

    def __init__(
        self,
        encoder: LayerwiseEncoder,
        rule: ExitRule,
        num_labels: int,
        config: TrainingConfig,
        *,
        swept: Sequence[ExitRule],
    ) -> None:
        """Put new classifiers on the encoder's pooled output; `swept` are evaluated beside its own rule."""
        super().__init__(encoder, rule, num_labels, config)
        self.swept = tuple(swept)
        heads = (initialised(nn.Linear(encoder.hidden_size, num_labels)) for _ in range(encoder.num_layers))
        self.classifiers = nn.ModuleList(heads)

    def exit_heads(self, index: int, first: Tensor, carried: Tensor | None) -> tuple[Tensor, Tensor | None, None]:
        """Compute the logits of each layer's own classifier."""
        return self.classified(index, self.pooled(index, first)), None, None

    def pooled(self, index: int, first: Tensor) -> Tensor:
        """Compute the classifiers' input from the layer `index` on, (layers, batch, hidden)."""
        return self.encoder.pool(first)

    def classified(self, index: int, pooled: Tensor) -> Tensor:
        """Compute the logits of the layers' own classifiers, (layers, batch, labels)."""
        heads = self.classifiers[index : index + len(pooled)]
        return torch.stack([head(layer) for head, layer in zip(heads, self.dropout(pooled), strict=True)])

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute Σ_j j L_j / Σ_j j over the layers j = 1 ...: deeper classifiers weigh more (equation 4)."""
        losses = self.task_losses(self.heads(batch)[0], batch["labels"]).mean(dim=1)
        weights = torch.arange(1, len(losses) + 1).to(losses)
        return {"loss": (weights * losses).sum() / weights.sum()}

    def sweep_rules(self) -> list[ExitRule]:
        """Return the rules that it was made with."""
        return list(self.swept)


class PoolerPerLayer(ClassifierPerLayer):
    """A pooler and a classifier of its own on every layer: the highways of DeeBERT and BERxiT.

    The poolers start as the backbone's, and the last layer's is the encoder's (castorini/berxit at 1fb2162,
    modeling_highway_bert.py:63-67, 228-260).
    """

    def __init__(self, encoder: LayerwiseEncoder, *others: Any, **named: Any) -> None:
        """Put new classifiers on new copies of the encoder's pooler; arguments as for `ClassifierPerLayer`."""
        super().__init__(encoder, *others, **named)
        self.poolers = nn.ModuleList(deepcopy(encoder.pooler) for _ in range(encoder.num_layers - 1))

    def pooled(self, index: int, first: Tensor) -> Tensor:
        """Pool each layer by its own pooler."""
        poolers = [*self.poolers, self.encoder.pooler][index : index + len(first)]
        return torch.stack([self.encoder.pool(layer, pooler) for layer, pooler in zip(first, poolers, strict=True)])


class FrozenEncoderModel(PoolerPerLayer):
    """DeeBERT's second stage: the exits below the last layer are trained, on a model that stays as it began."""

    def __init__(self, encoder: LayerwiseEncoder, *others: Any, **named: Any) -> None:
        """Add new exits; the encoder and the last layer's classifier are not trained."""
        super().__init__(encoder, *others, **named)
        for part in self.started_parts().values():
            part.requires_grad_(False)

    def started_parts(self) -> dict[str, nn.Module]:
        """Take over the encoder, and the last layer's classifier from the only one of the first stage."""
        return {"encoder": self.encoder, "classifier": self.classifiers[-1]}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute Σ_{j<L} L_j (castorini/DeeBERT at 563eac1, modeling_highway_bert.py:438-440)."""
        losses = self.task_losses(self.heads(batch)[0], batch["labels"]).mean(dim=1)
        return {"loss": losses[:-1].sum()}


class LearnedExitModel(PoolerPerLayer):
    """BERxiT: one more head, shared by all layers, learns u, the probability that a layer's answer is wrong."""

    exit_head_gives = "uncertainties"
    steps: Tensor

    def __init__(self, encoder: LayerwiseEncoder, *others: Any, **named: Any) -> None:
        """Put a new exit head on the pooled outputs, and count the steps of training."""
        super().__init__(encoder, *others, **named)
        self.exit_head = initialised(nn.Linear(encoder.hidden_size, 1))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))  # in the state, so that a resume goes on

    def exit_heads(self, index: int, first: Tensor, carried: Tensor | None) -> tuple[Tensor, Tensor, None]:
        """Compute the logits of the classifiers, and of u from the same pooled outputs without dropout."""
        pooled = self.pooled(index, first)
        with torch.autocast(pooled.device.type, enabled=False):
            exit_logits = self.exit_head(pooled.float())[..., 0]
        return self.classified(index, pooled), exit_logits, None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Add L_L or, in turn, Σ_{j<L} L_j (`task_loss`) to the mean of (u_j - wrong_j)² over all layers (`exit_loss`).

        modeling_highway_bert.py:382-411. The layers whose turn it is not have gradients of 0, as they have there: Adam
        moves them by what it remembers.
        """
        logits, exit_logits = self.heads(batch)
        assert exit_logits is not None
        losses = self.task_losses(logits, batch["labels"]).mean(dim=1)
        is_last = torch.arange(1, len(losses) + 1, device=losses.device) == len(losses)
        task_loss = ((is_last ^ (self.steps % 2 == 1)) * losses).sum()
        exit_loss = nn.functional.mse_loss(exit_logits.sigmoid(), self.wrong(logits, batch["labels"]))
        self.steps += self.training
        return {"loss": task_loss + exit_loss, "task_loss": task_loss, "exit_loss": exit_loss}

    @torch.no_grad()
    def wrong(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Rate how wrong answers (layers, batch, labels) are, (layers, batch): 0 or 1; of scores tanh of the error."""
        if self.num_labels == 1:
            return torch.tanh(logits[..., 0].float() - labels.float()).abs()
        return (logits.argmax(dim=-1) != labels).float()


class ElectraModel(LastLayerModel):
    """ELECTRA's fine-tuning; the two choices are explained in trainables/electra_small.py."""

    def __init__(
        self,
        encoder: LayerwiseEncoder,
        num_labels: int,
        config: TrainingConfig,
        *,
        head: str,
        layer_decay_convention: str | None,
    ) -> None:
        """Put a new classifier on [CLS], or on the encoder's pooled output."""
        super().__init__(encoder, num_labels, config)
        self.uses_pooler = head == "pooled"
        if not self.uses_pooler:
            nn.init.xavier_uniform_(self.classifier.weight)  # Glorot; what `tf.layers.dense` starts from, with bias 0
        self.layer_decay_convention = layer_decay_convention
        encoder.pooler.requires_grad_(self.uses_pooler)

    def pooled(self, first: Tensor) -> Tensor:
        """Pool [CLS] as `transformers` or, without the pooler, return the encoder's output, (..., hidden)."""
        return super().pooled(first) if self.uses_pooler else self.encoder.as_output(first)

    def decay_steps(self, depth: int) -> int:
        """Count as the released code: everything below the head lies one step further down."""
        steps = super().decay_steps(depth)
        return steps + 1 if steps and self.layer_decay_convention == "released" else steps
