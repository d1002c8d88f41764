"""Replaced token detection: a generator fills masked places, a discriminator tells which tokens are not the original.

Samples are drawn at all masked places, by the inverse of the distribution function at the batch's `noise`: so they are
a function of seed and step, the same on every device and in every process. No gradient goes through them.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainables.corpora.pretraining_batches import IGNORED
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


class ReplacedTokenModel(PretrainingModel):
    """A generator, a discriminator, and the modules that are one object in both."""

    score_name = "rtd_auc"

    def __init__(
        self,
        generator: PreTrainedModel,
        discriminator: PreTrainedModel,
        *,
        shared: tuple[str, ...],
        discriminator_weight: float,
    ) -> None:
        """Shares what is named of the embeddings, and ties the generator's output to the table of words.

        Args:
            generator: a masked language model.
            discriminator: a model with one logit for every token, or two classes of which the second is `replaced`.
            shared: modules of both embeddings, e.g. `word_embeddings`.
        """
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        self.discriminator_weight = discriminator_weight
        ours: Any = generator.base_model.embeddings
        for name in shared:
            setattr(ours, name, getattr(discriminator.base_model.embeddings, name))
        output: Any = generator.get_output_embeddings()
        output.weight = ours.word_embeddings.weight

    @property
    def kept(self) -> PreTrainedModel:
        return self.discriminator

    def loss(self, batch: Batch, totals: Totals) -> Tensor:
        logits, labels = self._generated(batch)
        generator_loss = cross_entropy_sum(logits, labels) / totals.predictions
        detected, replaced, is_token = self._detected(batch, logits.detach())
        losses = nn.functional.binary_cross_entropy_with_logits(detected, replaced.float(), reduction="none")
        return generator_loss + self.discriminator_weight * losses[is_token].sum() / totals.tokens

    @torch.no_grad()
    def scores(self, batches: Iterable[Batch]) -> dict[str, float]:
        """`mlm_loss` and `mlm_accuracy` of the generator, `rtd_auc` and `rtd_accuracy` over all tokens but padding."""
        from sklearn.metrics import roc_auc_score  # takes a second to import

        predictions, correct = PredictionScores(), Mean()
        answers: list[tuple[Tensor, Tensor]] = []
        for batch in batches:
            logits, labels = self._generated(batch)
            predictions.add(logits, labels)
            detected, replaced, is_token = self._detected(batch, logits)
            correct.add((detected > 0)[is_token] == replaced[is_token])
            answers.append((replaced[is_token].cpu(), detected[is_token].cpu()))
        truth, given = (torch.cat(column).numpy() for column in zip(*answers, strict=True))
        auc = float(roc_auc_score(truth, given)) if truth.any() and not truth.all() else 0.5
        return predictions.values() | {"rtd_auc": auc, "rtd_accuracy": correct.value}

    def _generated(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The generator's logits (predictions, vocabulary) at masked tokens, and the tokens that were there."""
        hidden = self.generator.base_model(**encoder_inputs(self.generator, batch)).last_hidden_state
        return masked_logits(self.generator, hidden, batch["labels"])

    def _detected(self, batch: Batch, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The discriminator's logits that a token is replaced, whether it is, and whether it is no padding."""
        tokens = filled(batch, logits)
        given = encoder_inputs(self.discriminator, batch | {"input_ids": tokens})
        answers = self.discriminator(**given).logits.float()
        if answers.ndim == 3:  # two classes: the logit of the second against the first
            answers = answers[..., 1] - answers[..., 0]
        return answers, tokens != batch["original_ids"], batch["attention_mask"].bool()


@torch.no_grad()
def filled(batch: Batch, logits: Tensor) -> Tensor:
    """The original tokens (batch, tokens), masked ones replaced by samples of softmax(logits)."""
    masked = batch["labels"] != IGNORED
    cumulated = logits.softmax(dim=1).cumsum(dim=1)
    wanted = batch["noise"][masked][:, None] * cumulated[:, -1:]  # the sum is 1 up to rounding
    samples = torch.searchsorted(cumulated, wanted, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    return batch["original_ids"].masked_scatter(masked, samples)
