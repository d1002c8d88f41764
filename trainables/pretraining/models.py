"""Models for the pretraining objectives, with their losses and held-out scores.

In replaced token detection, a generator fills the masked places, and a discriminator finds the tokens that differ from
the original. The generator's samples depend only on seed and step, not on the device or the number of processes. No
gradient flows through the samples.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AlbertForPreTraining, PreTrainedConfig, PreTrainedModel

from trainables.encoders.backbone_names import MINI_BACKBONES, hub_revision, is_untrained
from trainables.encoders.backbones import check_attention, find_family, has_new_pooler, pretrained_convolution
from trainables.encoders.layerwise import one_kernel_gelu
from trainables.encoders.loading import check_size, load_configuration, load_heads, load_model
from trainables.encoders.mini_backbones import mini_model
from trainables.encoders.nystrom import load_convolutions, with_attention
from trainables.models.early_exit import Batch
from trainables.pretraining.batches import IGNORED, Arrays
from trainables.pretraining.configuration import PretrainingConfig


@dataclass(frozen=True)
class Totals:
    """Counts over a whole batch.

    Each part of the batch divides its summed loss by such a count. The parts' losses then add up to the mean loss.
    """

    predictions: int  # masked tokens
    tokens: int  # tokens without padding
    examples: int

    @classmethod
    def of(cls, batch: Arrays) -> "Totals":
        """Compute the counts of a whole batch, on the CPU."""
        predictions, tokens = int((batch["labels"] != IGNORED).sum()), int(batch["attention_mask"].sum())
        return cls(max(1, predictions), tokens, len(batch["labels"]))


class PretrainingModel(nn.Module, ABC):
    """An encoder with the heads of a pretraining objective. Its batches come from `PretrainingBatches`, as tensors."""

    score_name: ClassVar[str]  # name of the main held-out score

    @property
    @abstractmethod
    def kept(self) -> PreTrainedModel:
        """The `transformers` model to save as the backbone."""

    @abstractmethod
    def forward(self, batch: Batch, totals: Totals) -> Tensor:
        """Compute the loss of one part of a batch, a scalar; the losses of all parts add up to the batch's loss."""

    @abstractmethod
    def scores(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Compute held-out scores by name."""


def encoder_inputs(model: PreTrainedModel, batch: Batch) -> Batch:
    """Select the encoder's inputs from a batch; omit the token types if the model has only one type (RoBERTa)."""
    types = ["token_type_ids"] if model.config.type_vocab_size > 1 else []
    return {name: batch[name] for name in ["input_ids", "attention_mask", *types]}


# The head of a masked language model, by family: hidden states (..., hidden) -> logits (..., vocabulary).
_HEADS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "albert": lambda model, hidden: model.predictions(hidden),
    "bert": lambda model, hidden: model.cls(hidden),
    "electra": lambda model, hidden: model.generator_lm_head(model.generator_predictions(hidden)),
    "roberta": lambda model, hidden: model.lm_head(hidden),
    "sharebert": lambda model, hidden: model.predictions(hidden),
}


def predict_masked(model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor, Any]:
    """Compute the logits of the masked tokens, (predictions, vocabulary), in float32.

    Also return the labels of the masked tokens, (predictions,), and the encoder's output.
    """
    output = model.base_model(**encoder_inputs(model, batch))
    masked = batch["labels"] != IGNORED
    logits = _HEADS[model.config.model_type](model, output.last_hidden_state[masked])
    return logits.float(), batch["labels"][masked], output


class Means:
    """Running means over batches, by name. They stay on the device until `values` is called."""

    def __init__(self) -> None:
        """Start without any values."""
        self._totals: dict[str, tuple[Tensor | float, int]] = {}  # sum and number of values

    def add(self, **values: Tensor) -> None:
        """Add the values of one batch. Each keyword is the name of a mean."""
        for name, each in values.items():
            total, number = self._totals.get(name, (0.0, 0))
            self._totals[name] = total + each.double().sum(), number + each.numel()

    def add_predictions(self, logits: Tensor, labels: Tensor) -> None:
        """Add `mlm_loss` (nats) and `mlm_accuracy` of one batch. The logits are (predictions, vocabulary)."""
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        self.add(mlm_loss=losses, mlm_accuracy=logits.argmax(dim=1) == labels)

    def values(self) -> dict[str, float]:
        """Return the means by name. The mean of a name without values is 0."""
        return {name: float(total) / max(1, number) for name, (total, number) in self._totals.items()}


def cross_entropy_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum the cross-entropy over all rows. Without rows, the sum is 0."""
    return nn.functional.cross_entropy(logits, labels, reduction="sum")


# ---- masked language models


class MaskedLanguageModel(PretrainingModel):
    """Masked language modelling with a model of any family."""

    score_name = "mlm_accuracy"

    def __init__(self, model: PreTrainedModel) -> None:
        """Use a masked language model of `transformers`."""
        super().__init__()
        self.model = model

    @property
    def kept(self) -> PreTrainedModel:
        """The whole model."""
        return self.model

    def forward(self, batch: Batch, totals: Totals) -> Tensor:
        """Compute the cross-entropy of the masked tokens."""
        logits, labels, _ = predict_masked(self.model, batch)
        return cross_entropy_sum(logits, labels) / totals.predictions

    @torch.no_grad()
    def scores(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Compute `mlm_loss` (nats per masked token) and `mlm_accuracy`."""
        means = Means()
        for batch in batches:
            logits, labels, _ = predict_masked(self.model, batch)
            means.add_predictions(logits, labels)
        return means.values()


class SentenceOrderModel(MaskedLanguageModel):
    """ALBERT's objective: predict masked tokens, and whether two consecutive segments were swapped."""

    model: AlbertForPreTraining  # with both heads

    def forward(self, batch: Batch, totals: Totals) -> Tensor:
        """Compute the cross-entropy of the masked tokens plus the cross-entropy of the segment order."""
        logits, labels, output = predict_masked(self.model, batch)
        masked = cross_entropy_sum(logits, labels)
        orders = self.model.sop_classifier(output.pooler_output).float()  # (batch, 2)
        return masked / totals.predictions + cross_entropy_sum(orders, batch["sentence_order"]) / totals.examples

    @torch.no_grad()
    def scores(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Compute `mlm_loss` (nats per masked token), `mlm_accuracy` and `sop_accuracy`."""
        means = Means()
        for batch in batches:
            logits, labels, output = predict_masked(self.model, batch)
            means.add_predictions(logits, labels)
            orders = self.model.sop_classifier(output.pooler_output).argmax(dim=1)
            means.add(sop_accuracy=orders == batch["sentence_order"])
        return means.values()


# ---- replaced token detection


class ReplacedTokenModel(PretrainingModel):
    """Replaced token detection, with a generator and a discriminator that share some modules."""

    score_name = "rtd_auc"

    def __init__(
        self,
        generator: PreTrainedModel,
        discriminator: PreTrainedModel,
        *,
        shared: tuple[str, ...],
        discriminator_weight: float,
    ) -> None:
        """Share the modules in `shared`, and tie the generator's output layer to its word embeddings.

        Args:
            generator: a masked language model.
            discriminator: a model with one logit per token, or with the two classes `original` and `replaced`.
            shared: names of modules in both encoders, such as `embeddings.word_embeddings`.

        Raises:
            ValueError: if a shared module has different sizes in the two models.
        """
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        self.discriminator_weight = discriminator_weight
        for path in shared:
            _share(path, generator.base_model, discriminator.base_model)
        output: Any = generator.get_output_embeddings()
        output.weight = generator.get_input_embeddings().weight

    @property
    def kept(self) -> PreTrainedModel:
        """The discriminator."""
        return self.discriminator

    def forward(self, batch: Batch, totals: Totals) -> Tensor:
        """Compute the generator's cross-entropy plus the weighted cross-entropy of the discriminator."""
        logits, labels, _ = predict_masked(self.generator, batch)
        generator_loss = cross_entropy_sum(logits, labels) / totals.predictions
        detected, replaced, is_token = self._detected(batch, logits.detach())
        losses = nn.functional.binary_cross_entropy_with_logits(detected, replaced.float(), reduction="none")
        return generator_loss + self.discriminator_weight * losses[is_token].sum() / totals.tokens

    @torch.no_grad()
    def scores(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Compute `mlm_loss` and `mlm_accuracy` of the generator, `rtd_auc` and `rtd_accuracy` of the discriminator."""
        from sklearn.metrics import roc_auc_score  # takes a second to import

        predictions, detections = Means(), Means()
        answers: list[tuple[Tensor, Tensor]] = []
        for batch in batches:
            logits, labels, _ = predict_masked(self.generator, batch)
            predictions.add_predictions(logits, labels)
            detected, replaced, is_token = self._detected(batch, logits)
            detections.add(rtd_accuracy=(detected > 0)[is_token] == replaced[is_token])
            answers.append((replaced[is_token].cpu(), detected[is_token].cpu()))
        truth, scores = (torch.cat(column).numpy() for column in zip(*answers, strict=True))
        auc = 0.5
        if truth.any() and not truth.all():
            auc = float(roc_auc_score(truth, scores)) if np.isfinite(scores).all() else math.nan
        return predictions.values() | {"rtd_auc": auc} | detections.values()

    def _detected(self, batch: Batch, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the discriminator's logits, the mask of replaced tokens, and the mask of tokens without padding."""
        tokens = filled(batch, logits)
        inputs = encoder_inputs(self.discriminator, batch | {"input_ids": tokens})
        answers = self.discriminator(**inputs).logits.float()
        if answers.ndim == 3:  # with two classes: logit of the second minus the first
            answers = answers[..., 1] - answers[..., 0]
        return answers, tokens != batch["original_ids"], batch["attention_mask"].bool()


def _share(path: str, ours: nn.Module, theirs: nn.Module) -> None:
    """Make the module at `path` in `ours` use the parameters of the module at `path` in `theirs`."""
    for module_path, module in theirs.get_submodule(path).named_modules(prefix=path):
        for name, parameter in module.named_parameters(recurse=False):
            old = getattr(ours.get_submodule(module_path), name)
            if old.shape != parameter.shape:
                raise ValueError(
                    f"{module_path} cannot be shared, because its shape is {tuple(parameter.shape)} in the "
                    f"discriminator and {tuple(old.shape)} in the generator; "
                    "choose a generator_hidden_size and a generator_intermediate_size that fit"
                )
            setattr(ours.get_submodule(module_path), name, parameter)


@torch.no_grad()
def filled(batch: Batch, logits: Tensor) -> Tensor:
    """Fill the masked places of a batch with sampled tokens; return all tokens, (batch, tokens)."""
    masked = batch["labels"] != IGNORED
    cumulated = logits.softmax(dim=1).cumsum(dim=1)
    wanted = batch["noise"][masked][:, None] * cumulated[:, -1:]  # the sum can miss 1 by rounding
    samples = torch.searchsorted(cumulated, wanted, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    return batch["original_ids"].masked_scatter(masked, samples)


# ---- the start of a pretraining


def encoder_configuration(backbone: str, config: PretrainingConfig, *, vocab_size: int) -> PreTrainedConfig:
    """Load the `transformers` configuration of a backbone's encoder, with the dropout of `config`.

    Args:
        vocab_size: number of the tokenizer's tokens.

    Raises:
        ValueError: if the backbone does not exist, has too few positions or embeddings, or does not support the
            configured attention.
    """
    if backbone in MINI_BACKBONES:
        with torch.device("meta"):
            encoder = mini_model(find_family(backbone), vocab_size, config).config
    else:
        encoder = load_configuration(backbone, config)
    encoder.classifier_dropout_prob = config.classifier_dropout  # the name that ALBERT uses
    check_size(backbone, encoder, config, vocab_size)
    check_attention(backbone, config)
    return encoder


def begin_with(backbone: str, model: PretrainingModel, config: PretrainingConfig) -> list[str]:
    """Load a pretrained backbone's weights into `model.kept`, and use the configured attention in every encoder.

    Returns:
        Names of the pooler, heads and models that stay random because the pretrained backbone lacks them.
    """
    kept: Any = model.kept.base_model
    new: list[str] = []
    if not is_untrained(backbone):
        weights = load_model(backbone, config).state_dict()
        kept.load_state_dict({name: weights[name] for name in kept.state_dict()})  # the kept encoder may lack a pooler
        new = [name for name, part in model.named_children() if part is not model.kept]
        new += ["pooler"] * (getattr(kept, "pooler", None) is not None and has_new_pooler(backbone))
        new += load_heads(model.kept, backbone)
    for part in model.children():
        if isinstance(part, PreTrainedModel):
            one_kernel_gelu(with_attention(part, config))
    if pretrained_convolution(backbone) is not None:
        load_convolutions(kept, *hub_revision(backbone))
    return new
