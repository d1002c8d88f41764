"""Batches of packed examples: a step's batch is a function of seed and step, so that a resumed run sees the same."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from transformers import PreTrainedTokenizerBase

from trainables.corpora import masking
from trainables.corpora.example_packing import PackedExamples
from trainables.corpora.tokenised_corpus import TokenisedCorpus
from trainables.pretraining_configuration import PretrainingConfig
from trainables.runs.random_numbers import own_numpy_generator

Arrays = dict[str, np.ndarray]
Order = Literal["kept", "random"]  # of an example's two segments

HELD_OUT_EXAMPLES = 1_000  # at most: what held-out scores are computed on
_HELD_OUT_SEED = 0  # the same masks for all runs and epochs, or their scores could not be compared


class PretrainingBatches:
    """The batches of one run."""

    def __init__(
        self,
        corpus: TokenisedCorpus,
        examples: PackedExamples,
        tokenizer: PreTrainedTokenizerBase,
        config: PretrainingConfig,
        *,
        order: Order,
    ) -> None:
        """`order`: random where it is to be told (sentence order), kept elsewhere.

        Raises:
            ValueError: the tokenizer lacks a special token.
        """
        for name in ("cls_token", "sep_token", "mask_token", "pad_token"):
            if getattr(tokenizer, f"{name}_id") is None:
                raise ValueError(f"the tokenizer has no {name}; pretraining needs cls, sep, mask and pad tokens")
        self._corpus, self._examples, self._tokenizer, self._config = corpus, examples, tokenizer, config
        self._order = order

    def __len__(self) -> int:
        return len(self._examples)

    def training_batch(self, step: int, *, seed: int) -> Arrays:
        """The batch of a step, from 0. One pass takes every example once, in an order of its own.

        `input_ids, attention_mask, token_type_ids, labels` (batch, tokens) int64, labels -100 where nothing is to be
        predicted; `original_ids`, the tokens before masking; `noise` (batch, tokens) float32, uniform in [0, 1), for
        whatever is sampled; `sentence_order` (batch,) int64, 1 where the segments are swapped.
        """
        size = self._config.batch_size
        return self._batch(self._rows(step * size, size, seed), own_numpy_generator(seed, "masks", step))

    def held_out_batches(self, size: int) -> list[Arrays]:
        """All batches of the held-out examples, with masks that never change."""
        rows = np.arange(min(len(self), HELD_OUT_EXAMPLES))
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [self._batch(part, own_numpy_generator(_HELD_OUT_SEED, "held out", int(part[0]))) for part in parts]

    def _rows(self, start: int, size: int, seed: int) -> np.ndarray:
        """Numbers of examples in the order of training, which a batch may take from two passes."""
        places = np.arange(start, start + size)
        passes = places // len(self)
        rows = np.empty(size, np.int64)
        for number in np.unique(passes):
            rows[passes == number] = _order_of_pass(seed, int(number), len(self))[places[passes == number] % len(self)]
        return rows

    def _batch(self, rows: np.ndarray, generator: np.random.Generator) -> Arrays:
        swapped = generator.random(len(rows)) < 0.5 if self._order == "random" else np.zeros(len(rows), bool)
        arrays, maskable, begins_word = self._laid_out(rows, swapped)
        original, lengths = arrays["input_ids"], arrays["attention_mask"].sum(axis=1)
        chosen = masking.choose(maskable, begins_word, lengths, self._config, generator)
        vocab_size, mask_token = len(self._tokenizer), self._tokenizer.mask_token_id
        corrupted = masking.corrupt(
            original, chosen, self._config, mask_token=mask_token, vocab_size=vocab_size, generator=generator
        )
        return arrays | {
            "input_ids": corrupted,
            "original_ids": original,
            "labels": np.where(chosen, original, masking.IGNORED),
            "noise": generator.random(original.shape, dtype=np.float32),
            "sentence_order": swapped.astype(np.int64),
        }

    def _laid_out(self, rows: np.ndarray, swapped: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray]:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]; which tokens are text, and which begin a word."""
        examples, tokenizer = self._examples, self._tokenizer
        one = np.stack([examples.first_starts[rows], examples.first_lengths[rows]])  # (start and length, batch)
        two = np.stack([examples.second_starts[rows], examples.second_lengths[rows]])
        (first, num_first), (second, num_second) = np.where(swapped, two, one), np.where(swapped, one, two)
        lengths = num_first + num_second + 2 + (num_second > 0)
        places = np.arange(lengths.max())
        first_text = (places >= 1) & (places <= num_first[:, None])  # (batch, tokens)
        of_second = places - (num_first + 2)[:, None]  # place in the second segment
        second_text = (of_second >= 0) & (of_second < num_second[:, None])
        text = first_text | second_text
        flat = np.where(first_text, first[:, None] + places - 1, np.where(second_text, second[:, None] + of_second, 0))
        inside = places < lengths[:, None]
        special = np.where(
            inside, np.where(places == 0, tokenizer.cls_token_id, tokenizer.sep_token_id), tokenizer.pad_token_id
        )
        arrays = {
            "input_ids": np.where(text, self._corpus.tokens[flat], special).astype(np.int64),
            "attention_mask": inside.astype(np.int64),
            "token_type_ids": (inside & (of_second >= 0)).astype(np.int64),
        }
        begins_word = self._corpus.begins_word[flat] | (places == 1) | (of_second == 0)
        return arrays, text, begins_word


@lru_cache(maxsize=2)  # a batch may take from two
def _order_of_pass(seed: int, number: int, size: int) -> np.ndarray:
    return own_numpy_generator(seed, "order", number).permutation(size)
