"""Masked language models: masked tokens predicted, and with ALBERT the order of two segments."""

from collections.abc import Iterable

import torch
from torch import Tensor
from transformers import AlbertForPreTraining, PreTrainedModel

from trainables.models.early_exit import Batch
from trainables.models.pretraining_model import (
    Mean,
    PredictionScores,
    PretrainingModel,
    Totals,
    cross_entropy_sum,
    encoder_inputs,
    masked_logits,
)


class MaskedLanguageModel(PretrainingModel):
    """Any family's model for masked tokens."""

    score_name = "mlm_accuracy"

    def __init__(self, model: PreTrainedModel) -> None:
        """Takes a model of `transformers` for masked language modelling."""
        super().__init__()
        self.model = model

    @property
    def kept(self) -> PreTrainedModel:
        return self.model

    def loss(self, batch: Batch, totals: Totals) -> Tensor:
        hidden = self.model.base_model(**encoder_inputs(self.model, batch)).last_hidden_state
        return cross_entropy_sum(*masked_logits(self.model, hidden, batch["labels"])) / totals.predictions

    @torch.no_grad()
    def scores(self, batches: Iterable[Batch]) -> dict[str, float]:
        """`mlm_loss` (nats per masked token) and `mlm_accuracy`."""
        predictions = PredictionScores()
        for batch in batches:
            hidden = self.model.base_model(**encoder_inputs(self.model, batch)).last_hidden_state
            predictions.add(*masked_logits(self.model, hidden, batch["labels"]))
        return predictions.values()


class SentenceOrderModel(PretrainingModel):
    """ALBERT's: masked tokens, and whether two consecutive segments were swapped, with equal weight."""

    score_name = "mlm_accuracy"

    def __init__(self, model: AlbertForPreTraining) -> None:
        """Takes ALBERT with both heads."""
        super().__init__()
        self.model = model

    @property
    def kept(self) -> PreTrainedModel:
        return self.model

    def loss(self, batch: Batch, totals: Totals) -> Tensor:
        output = self.model.albert(**encoder_inputs(self.model, batch))
        masked = cross_entropy_sum(*masked_logits(self.model, output.last_hidden_state, batch["labels"]))
        orders = self.model.sop_classifier(output.pooler_output).float()  # (batch, 2)
        return masked / totals.predictions + cross_entropy_sum(orders, batch["sentence_order"]) / totals.examples

    @torch.no_grad()
    def scores(self, batches: Iterable[Batch]) -> dict[str, float]:
        """`mlm_loss` (nats per masked token), `mlm_accuracy`, `sop_accuracy`."""
        predictions, orders = PredictionScores(), Mean()
        for batch in batches:
            output = self.model.albert(**encoder_inputs(self.model, batch))
            predictions.add(*masked_logits(self.model, output.last_hidden_state, batch["labels"]))
            orders.add(self.model.sop_classifier(output.pooler_output).argmax(dim=1) == batch["sentence_order"])
        return predictions.values() | {"sop_accuracy": orders.value}
