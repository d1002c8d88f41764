"""Models without a Λ head: one classifier on the last layer, or one on every layer."""

from collections.abc import Sequence

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
        """A new classifier on the encoder's pooled output."""
        super().__init__(encoder, LastLayer(), num_labels, config)
        self.classifier = initialised(nn.Linear(encoder.hidden_size, num_labels))

    def exit_heads(self, index: int, first: Tensor, carried: Tensor | None) -> tuple[Tensor, None, None]:
        """The classifier's logits, also at layers before the last, which it was not trained for."""
        return self.classifier(self.dropout(self.pooled(first))), None, None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Mean task loss of the last layer."""
        *_, last = self.first_tokens(batch)
        logits, _, _ = self.exit_heads(self.encoder.num_layers - 1, last[None], None)
        return {"loss": self.task_losses(logits, batch["labels"]).mean()}

    def pooled(self, first: Tensor) -> Tensor:
        """The classifier's input, as wide as the states of the first token, (..., hidden)."""
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
        """New classifiers on the encoder's pooled output; `swept` are the rules that are evaluated beside its own."""
        super().__init__(encoder, rule, num_labels, config)
        self.swept = tuple(swept)
        heads = (initialised(nn.Linear(encoder.hidden_size, num_labels)) for _ in range(encoder.num_layers))
        self.classifiers = nn.ModuleList(heads)

    def exit_heads(self, index: int, first: Tensor, carried: Tensor | None) -> tuple[Tensor, None, None]:
        """The logits of each layer's own classifier."""
        features = self.dropout(self.encoder.pool(first))
        own = self.classifiers[index : index + len(first)]
        return torch.stack([classifier(layer) for classifier, layer in zip(own, features, strict=True)]), None, None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Σ_j j L_j / Σ_j j over the layers j = 1 ...: deeper classifiers weigh more (equation 4)."""
        losses = self.task_losses(self.heads(batch)[0], batch["labels"]).mean(dim=1)
        weights = torch.arange(1, len(losses) + 1).to(losses)
        return {"loss": (weights * losses).sum() / weights.sum()}

    def sweep_rules(self) -> list[ExitRule]:
        """The rules that it was made with."""
        return list(self.swept)


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
        """A new classifier on [CLS], or on the encoder's pooled output."""
        super().__init__(encoder, num_labels, config)
        self.uses_pooler = head == "pooled"
        if not self.uses_pooler:
            nn.init.xavier_uniform_(self.classifier.weight)  # Glorot; what `tf.layers.dense` starts from, with bias 0
        self.layer_decay_convention = layer_decay_convention
        encoder.pooler.requires_grad_(self.uses_pooler)

    def pooled(self, first: Tensor) -> Tensor:
        """(..., hidden)."""
        return super().pooled(first) if self.uses_pooler else self.encoder.as_output(first)

    def decay_steps(self, depth: int) -> int:
        """Counts as the released code: everything below the head lies one step further down."""
        steps = super().decay_steps(depth)
        return steps + 1 if steps and self.layer_decay_convention == "released" else steps
