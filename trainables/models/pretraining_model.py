"""What every objective's model can do: the loss of a part of a step's batch, held-out scores, a model to keep."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import PreTrainedModel

from trainables.corpora.pretraining_batches import IGNORED, Arrays
from trainables.models.early_exit import Batch


@dataclass(frozen=True)
class Totals:
    """What a step's losses are means over, of its whole batch: parts of it, and processes, add up to the same loss."""

    predictions: int  # masked tokens
    tokens: int  # all but padding
    examples: int

    @classmethod
    def of(cls, batch: Arrays) -> "Totals":
        """Of a whole batch, where it was made."""
        predictions, tokens = int((batch["labels"] != IGNORED).sum()), int(batch["attention_mask"].sum())
        return cls(max(1, predictions), tokens, len(batch["labels"]))


class PretrainingModel(nn.Module, ABC):
    """An encoder with the heads of an objective. Batches are those of `PretrainingBatches`, as tensors."""

    score_name: ClassVar[str]  # of the held-out scores, the one that stands for the run

    @property
    @abstractmethod
    def kept(self) -> PreTrainedModel:
        """What is left when pretraining is over: a model of `transformers` whose encoder is of use."""

    @abstractmethod
    def loss(self, batch: Batch, totals: Totals) -> Tensor:
        """A part's share of the step's loss, a scalar: the shares of all parts add up to it."""

    def forward(self, batch: Batch, totals: Totals) -> Tensor:
        """The loss, for what wraps a model."""
        return self.loss(batch, totals)

    @abstractmethod
    def scores(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Held-out scores by name."""


def encoder_inputs(model: PreTrainedModel, batch: Batch) -> Batch:
    """What an encoder is given; RoBERTa knows one type of token only."""
    names = ["input_ids", "attention_mask"]
    return {name: batch[name] for name in [*names, *(["token_type_ids"] if model.config.type_vocab_size > 1 else [])]}


def prediction_head(model: Any) -> Callable[[Tensor], Tensor]:
    """The head of a masked language model: logits (..., vocabulary) of hidden states (..., hidden).

    Raises:
        ValueError: the family has none.
    """
    heads: dict[str, Callable[[Tensor], Tensor]] = {
        "albert": lambda hidden: model.predictions(hidden),
        "bert": lambda hidden: model.cls(hidden),
        "electra": lambda hidden: model.generator_lm_head(model.generator_predictions(hidden)),
        "roberta": lambda hidden: model.lm_head(hidden),
        "sharebert": lambda hidden: model.predictions(hidden),
    }
    family = model.config.model_type
    if family not in heads:
        raise ValueError(f"no masked language model of architecture {family!r}; available: {', '.join(heads)}")
    return heads[family]


def masked_logits(model: PreTrainedModel, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (predictions, vocabulary), float32, and labels (predictions,) of the masked tokens alone.

    At the other tokens the head, which costs as much as the encoder, would be computed for nothing.
    """
    masked = labels != IGNORED
    return prediction_head(model)(hidden[masked]).float(), labels[masked]


class Mean:
    """A mean over batches; what it is made of stays on the device until the end."""

    def __init__(self) -> None:
        self._sum: Tensor | float = 0.0
        self._number = 0

    def add(self, values: Tensor) -> None:
        """One value each."""
        self._sum = self._sum + values.double().sum()
        self._number += values.numel()

    @property
    def value(self) -> float:
        return float(self._sum) / max(1, self._number)


class PredictionScores:
    """`mlm_loss` (nats per masked token) and `mlm_accuracy` over batches."""

    def __init__(self) -> None:
        self._loss, self._accuracy = Mean(), Mean()

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Of masked tokens: logits (predictions, vocabulary) and labels (predictions,)."""
        self._loss.add(nn.functional.cross_entropy(logits, labels, reduction="none"))
        self._accuracy.add(logits.argmax(dim=1) == labels)

    def values(self) -> dict[str, float]:
        """Both by name."""
        return {"mlm_loss": self._loss.value, "mlm_accuracy": self._accuracy.value}


def cross_entropy_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy summed over the rows, a scalar; 0 of none."""
    return nn.functional.cross_entropy(logits, labels, reduction="sum")
