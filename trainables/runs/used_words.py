"""The word embeddings that a trial's training examples use, trained without the others.

An embedding that no training example uses has no gradient, and without weight decay AdamW leaves it as it is. With all
of them in the optimiser a step fills, clips and adds up megabytes of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from trainables.data.examples import Examples
from trainables.models.early_exit import EarlyExitModel


def training_words(
    model: EarlyExitModel, examples: Examples, *, weight_decay: float
) -> Callable[[], AbstractContextManager]:
    """Makes the context in which a model is trained: `UsedWords.in_place`, where that changes no number."""
    if weight_decay or not model.encoder.words_are_looked_up:
        return nullcontext
    return UsedWords(model, examples).in_place


class UsedWords:
    """Puts the used embeddings into a model in place of all of them, and what they have become back."""

    def __init__(self, model: EarlyExitModel, examples: Examples) -> None:
        """Takes the model on its device."""
        self._embeddings = model.encoder.embeddings
        self._all: nn.Embedding = model.encoder.embeddings.word_embeddings
        used = torch.zeros(self._all.num_embeddings, dtype=torch.bool)
        used[torch.from_numpy(examples.tokens.astype("int64"))] = True
        used[examples.pad_token] = True
        self._words = used.nonzero()[:, 0].to(self._all.weight.device)
        self._used = _Renumbered(self._all, self._words)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model's embeddings are the used ones; behind, all, and the used ones are as they were left."""
        with torch.no_grad():
            self._used.weight.copy_(self._all.weight[self._words])
        self._embeddings.word_embeddings = self._used
        try:
            yield
        finally:
            self._embeddings.word_embeddings = self._all
            with torch.no_grad():
                self._all.weight[self._words] = self._used.weight


class _Renumbered(nn.Module):
    """Looks words up by their numbers in the vocabulary."""

    def __init__(self, embedding: nn.Embedding, words: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(len(words), embedding.embedding_dim, device=words.device))
        self._numbers = torch.zeros(embedding.num_embeddings, dtype=torch.int64, device=words.device)
        self._numbers[words] = torch.arange(len(words), device=words.device)
        padding = embedding.padding_idx
        self._padding = None if padding is None else int(self._numbers[padding])

    def forward(self, input_ids: Tensor) -> Tensor:
        """(..., size)."""
        return nn.functional.embedding(self._numbers[input_ids], self.weight, self._padding)
