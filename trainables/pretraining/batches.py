"""Batches of packed examples. A batch depends only on seed and step, so a resumed run sees the same batches.

Special tokens and padding are never masked. `bernoulli` masking (lmtuners) masks each token independently. The other
kinds mask at most clamp(round(probability x length), 1, max_predictions) tokens per example, as in
google-research/albert and google-research/electra. The length includes special tokens.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from transformers import PreTrainedTokenizerBase

from trainables.data.examples import choose_spread
from trainables.encoders.loading import load_tokenizer
from trainables.pretraining.configuration import PretrainingConfig, PretrainingSpec
from trainables.pretraining.corpus import vocabulary_texts
from trainables.pretraining.packing import PackedExamples, TokenisedCorpus, pack, tokenise_corpus
from trainables.runs.random_numbers import seeded_numpy_generator
from trainables.runs.trial import reading_inputs

Arrays = dict[str, np.ndarray]
Order = Literal["kept", "random"]  # order of the two segments of an example

HELD_OUT_EXAMPLES = 1_000  # largest number of examples for held-out scores
_HELD_OUT_SEED = 0  # all runs and epochs use the same masks, so that their scores are comparable


class PretrainingBatches:
    """The training or held-out batches of one run."""

    def __init__(
        self,
        corpus: TokenisedCorpus,
        examples: PackedExamples,
        tokenizer: PreTrainedTokenizerBase,
        config: PretrainingConfig,
        *,
        order: Order,
    ) -> None:
        """Prepare batches of `examples`. If `order` is "random", each example's segments are swapped at random."""
        self._corpus, self._examples, self._tokenizer, self._config = corpus, examples, tokenizer, config
        self._order = order

    def __len__(self) -> int:
        """Count the examples."""
        return len(self._examples)

    def training_batch(self, step: int, *, seed: int) -> Arrays:
        """Make the batch of a step, counted from 0. Each pass over the data has a new random order.

        `input_ids`, `attention_mask`, `token_type_ids`, `labels` and `original_ids` are (batch, tokens) int64. `labels`
        is -100 for a token that is not predicted. `original_ids` has the tokens before masking. `noise` is
        (batch, tokens) float32, uniform in [0, 1), for sampling. `sentence_order` is (batch,) int64, 1 if the segments
        are swapped.
        """
        size = self._config.batch_size
        return self._make_batch(self._choose_rows(step * size, size, seed), seeded_numpy_generator(seed, "masks", step))

    def held_out_batches(self, size: int) -> list[Arrays]:
        """Make batches of at most HELD_OUT_EXAMPLES held-out examples. The masks do not depend on `size`."""
        rows = choose_spread(len(self), HELD_OUT_EXAMPLES)  # not the first ones, which a single corpus may fill
        whole = self._make_batch(rows, seeded_numpy_generator(_HELD_OUT_SEED, "held out", 0))
        starts = range(0, len(rows), size)
        parts = ({name: array[start : start + size] for name, array in whole.items()} for start in starts)
        return [_without_empty_columns(part) for part in parts]

    def _choose_rows(self, start: int, size: int, seed: int) -> np.ndarray:
        """Choose the examples of a batch, which may span several passes over the data."""
        passes, places = np.divmod(np.arange(start, start + size), len(self))
        orders = [_draw_order(seed, int(number), len(self))[places[passes == number]] for number in np.unique(passes)]
        return np.concatenate(orders)

    def _make_batch(self, rows: np.ndarray, generator: np.random.Generator) -> Arrays:
        swapped = generator.random(len(rows)) < 0.5 if self._order == "random" else np.zeros(len(rows), bool)
        arrays, maskable, begins_word = self._lay_out(rows, swapped)
        original, lengths = arrays["input_ids"], arrays["attention_mask"].sum(axis=1)
        chosen = choose(maskable, begins_word, lengths, self._config, generator)
        vocab_size, mask_token = len(self._tokenizer), self._tokenizer.mask_token_id
        corrupted = corrupt(
            original, chosen, self._config, mask_token=mask_token, vocab_size=vocab_size, generator=generator
        )
        return arrays | {
            "input_ids": corrupted,
            "original_ids": original,
            "labels": np.where(chosen, original, IGNORED),
            "noise": generator.random(original.shape, dtype=np.float32),
            "sentence_order": swapped.astype(np.int64),
        }

    def _lay_out(self, rows: np.ndarray, swapped: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray]:
        """Build rows: [CLS] first [SEP], then second [SEP] if it exists. Also return masks of text and word starts."""
        examples, tokenizer = self._examples, self._tokenizer
        one = np.stack([examples.first_starts[rows], examples.first_lengths[rows]])  # (start and length, batch)
        two = np.stack([examples.second_starts[rows], examples.second_lengths[rows]])
        (first, num_first), (second, num_second) = np.where(swapped, two, one), np.where(swapped, one, two)
        lengths = num_first + num_second + 2 + (num_second > 0)
        places = np.arange(lengths.max())
        first_text = (places >= 1) & (places <= num_first[:, None])  # (batch, tokens)
        of_second = places - (num_first + 2)[:, None]  # position in the second segment
        second_text = (of_second >= 0) & (of_second < num_second[:, None])
        text = first_text | second_text
        flat = np.where(first_text, first[:, None] + places - 1, np.where(second_text, second[:, None] + of_second, 0))
        inside = places < lengths[:, None]
        special = np.where(places == 0, tokenizer.cls_token_id, tokenizer.sep_token_id)
        special = np.where(inside, special, tokenizer.pad_token_id)
        arrays = {
            "input_ids": np.where(text, self._corpus.tokens[flat], special).astype(np.int64),
            "attention_mask": inside.astype(np.int64),
            "token_type_ids": (inside & (of_second >= 0)).astype(np.int64),
        }
        begins_word = self._corpus.begins_word[flat] | (places == 1) | (of_second == 0)
        return arrays, text, begins_word


def _without_empty_columns(arrays: Arrays) -> Arrays:
    """Leave out the last columns in which all examples have pads."""
    width = arrays["attention_mask"].sum(axis=1).max()
    return {name: array[:, :width] if array.ndim == 2 else array for name, array in arrays.items()}


@lru_cache(maxsize=2)  # a batch may span two passes
def _draw_order(seed: int, number: int, size: int) -> np.ndarray:
    return seeded_numpy_generator(seed, "order", number).permutation(size)


# ---- masking: functions of arrays and a random generator

IGNORED = -100  # label of tokens that are not predicted
LONGEST_N_GRAM = 3  # words; n has a probability proportional to 1/n (google-research/albert, README)


def choose(
    maskable: np.ndarray,
    begins_word: np.ndarray,
    lengths: np.ndarray,
    config: PretrainingConfig,
    generator: np.random.Generator,
) -> np.ndarray:
    """Choose the tokens to predict; return a mask, (batch, tokens) bool.

    Args:
        maskable: (batch, tokens) bool, false for special tokens and padding.
        begins_word: (batch, tokens) bool, whether a token is the first of its word.
        lengths: (batch,), number of tokens of each example, special tokens included.
    """
    if config.masking == "bernoulli":
        return maskable & (generator.random(maskable.shape) < config.mask_probability)
    wanted = np.maximum(1, np.round(config.mask_probability * lengths).astype(int))
    budgets = np.minimum(np.minimum(wanted, config.max_predictions or wanted), maskable.sum(axis=1))
    if config.masking == "token":
        return _choose_tokens(maskable, budgets, generator)
    rows = zip(maskable, begins_word, budgets, strict=True)
    return np.stack([_choose_n_grams(*row, generator) for row in rows])


def corrupt(
    input_ids: np.ndarray,
    chosen: np.ndarray,
    config: PretrainingConfig,
    *,
    mask_token: int,
    vocab_size: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Replace each chosen token by the mask token or a random token, or keep it. Return the ids, (batch, tokens)."""
    drawn = generator.random(input_ids.shape)
    random_tokens = generator.integers(vocab_size, size=input_ids.shape)
    hidden = chosen & (drawn < config.mask_token_share)
    replaced = chosen & ~hidden & (drawn < config.mask_token_share + config.random_token_share)
    return np.where(hidden, mask_token, np.where(replaced, random_tokens, input_ids))


def _choose_tokens(maskable: np.ndarray, budgets: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Choose tokens uniformly and without replacement; `budgets` gives the number for each example."""
    keys = np.where(maskable, generator.random(maskable.shape), 2.0)
    ranks = keys.argsort(axis=1).argsort(axis=1)
    return maskable & (ranks < budgets[:, None])


def _choose_n_grams(
    maskable: np.ndarray, begins_word: np.ndarray, budget: int, generator: np.random.Generator
) -> np.ndarray:
    """Choose runs of whole words in one example until the budget is used up; return a mask, (tokens,) bool.

    If a run exceeds the budget, overlaps another run or meets a special token, it is shortened or dropped.
    """
    starts = np.flatnonzero(maskable & begins_word)
    stops = np.append(np.flatnonzero(~maskable | begins_word), len(maskable))
    ends = stops[np.searchsorted(stops, starts, side="right")]
    chances = 1 / np.arange(1, LONGEST_N_GRAM + 1)
    numbers = generator.choice(LONGEST_N_GRAM, p=chances / chances.sum(), size=len(starts)) + 1
    chosen = np.zeros_like(maskable)
    left = int(budget)
    for word in generator.permutation(len(starts)):
        end = _find_end_of_run(chosen, starts, ends, word, numbers[word], left)
        chosen[starts[word] : end] = True
        left -= end - starts[word]
        if not left:
            break
    return chosen


def _find_end_of_run(
    chosen: np.ndarray, starts: np.ndarray, ends: np.ndarray, word: int, number: int, left: int
) -> int:
    """Find the end of the longest possible run of unmasked words from `word` on.

    The run has at most `number` words and `left` tokens. If no run is possible, return the start of `word`.
    """
    start = end = starts[word]
    for place in range(word, min(word + number, len(starts))):
        is_next = starts[place] == end
        if not is_next or ends[place] - start > left or chosen[starts[place] : ends[place]].any():
            break
        end = ends[place]
    return int(end)


# ---- the data of a run


def load_pretraining_tokenizer(spec: PretrainingSpec) -> PreTrainedTokenizerBase:
    """Load the tokenizer that a pretraining reads its corpus with.

    Raises:
        Unavailable: if the tokenizer is missing or invalid, or lacks a special token.
    """
    with reading_inputs():
        tokenizer = load_tokenizer(spec.tokenizer or spec.backbone, texts=lambda: vocabulary_texts(spec.corpus))
        for name in ("cls_token", "sep_token", "mask_token", "pad_token"):
            if getattr(tokenizer, f"{name}_id") is None:
                raise ValueError(f"the tokenizer has no {name}; pretraining needs cls, sep, mask and pad tokens")
    return tokenizer


class PretrainingData:
    """The training and held-out batches of a run. All runs on a machine share the cached examples."""

    def __init__(
        self,
        corpus: str,
        tokenizer: PreTrainedTokenizerBase,
        config: PretrainingConfig,
        *,
        order: Order,
        cache: Path,
    ) -> None:
        """Tokenise and pack the corpus, or read the result from the cache.

        Raises:
            Unavailable: if the corpus is missing or invalid.
        """
        with reading_inputs():
            self._corpus = tokenise_corpus(corpus, tokenizer, cache=cache)
            self._parts = pack(
                corpus,
                self._corpus,
                tokenizer,
                packing=config.packing,
                max_length=config.max_length,
                cache=cache,
            )
            self.train, self.held_out = (
                PretrainingBatches(self._corpus, part, tokenizer, config, order=order) for part in self._parts
            )

    @cached_property
    def digest(self) -> str:
        """Hash of the tokens and of the packed examples, as 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for part in (self._corpus, *self._parts):
            for field in fields(part):
                array = getattr(part, field.name)
                digest.update(f"{field.name} {array.dtype} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]
