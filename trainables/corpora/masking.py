"""Which tokens of an example are to be predicted, and what stands in their place. Pure functions of a generator.

Special tokens and padding are never among them. `token`, `whole_word` and `n_gram` mask
clamp(round(probability x length), 1, max_predictions) tokens, the length with special tokens, as google-research/albert
and electra do; `bernoulli` (lmtuners) decides for every token by itself.
"""

from __future__ import annotations

import numpy as np

from trainables.pretraining_configuration import PretrainingConfig

IGNORED = -100  # label of tokens that are not to be predicted
LONGEST_N_GRAM = 3  # words; n is drawn with a probability in proportion to 1/n (google-research/albert, README)


def choose(
    maskable: np.ndarray,
    begins_word: np.ndarray,
    lengths: np.ndarray,
    config: PretrainingConfig,
    generator: np.random.Generator,
) -> np.ndarray:
    """Which tokens are to be predicted, (batch, tokens) bool.

    Args:
        maskable: (batch, tokens) bool, false for special tokens and padding.
        begins_word: (batch, tokens) bool, whether a token is the first of its word.
        lengths: (batch,), tokens of each example with special ones.
    """
    if config.masking == "bernoulli":
        return maskable & (generator.random(maskable.shape) < config.mask_probability)
    wanted = np.maximum(1, np.round(config.mask_probability * lengths).astype(int))
    budgets = np.minimum(np.minimum(wanted, config.max_predictions or wanted), maskable.sum(axis=1))
    if config.masking == "token":
        return _tokens(maskable, budgets, generator)
    longest = LONGEST_N_GRAM if config.masking == "n_gram" else 1
    rows = zip(maskable, begins_word, budgets, strict=True)
    return np.stack([_n_grams(*row, longest, generator) for row in rows])


def corrupt(
    input_ids: np.ndarray,
    chosen: np.ndarray,
    config: PretrainingConfig,
    *,
    mask_token: int,
    vocab_size: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """The tokens with those that are to be predicted hidden, replaced or left, (batch, tokens)."""
    drawn = generator.random(input_ids.shape)
    random_tokens = generator.integers(vocab_size, size=input_ids.shape)
    hidden = chosen & (drawn < config.mask_token_share)
    replaced = chosen & ~hidden & (drawn < config.mask_token_share + config.random_token_share)
    return np.where(hidden, mask_token, np.where(replaced, random_tokens, input_ids))


def _tokens(maskable: np.ndarray, budgets: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """So many tokens of each example, all alike, none twice."""
    keys = np.where(maskable, generator.random(maskable.shape), 2.0)
    ranks = keys.argsort(axis=1).argsort(axis=1)
    return maskable & (ranks < budgets[:, None])


def _n_grams(
    maskable: np.ndarray, begins_word: np.ndarray, budget: int, longest: int, generator: np.random.Generator
) -> np.ndarray:
    """Runs of whole words of one example, (tokens,) bool, in random order until the budget is used up.

    A run that does not fit any more, overlaps another or meets a special token is made shorter by words, or left out.
    """
    starts = np.flatnonzero(maskable & begins_word)
    stops = np.append(np.flatnonzero(~maskable | begins_word), len(maskable))
    ends = stops[np.searchsorted(stops, starts, side="right")]
    chances = 1 / np.arange(1, longest + 1)
    numbers = generator.choice(longest, p=chances / chances.sum(), size=len(starts)) + 1
    chosen = np.zeros_like(maskable)
    left = int(budget)
    for word in generator.permutation(len(starts)):
        end = _end_of_run(chosen, starts, ends, word, numbers[word], left)
        chosen[starts[word] : end] = True
        left -= end - starts[word]
        if not left:
            break
    return chosen


def _end_of_run(chosen: np.ndarray, starts: np.ndarray, ends: np.ndarray, word: int, number: int, left: int) -> int:
    """Where the longest run of at most so many words from this one on ends that is free and fits; its start if none."""
    start = end = starts[word]
    for place in range(word, min(word + number, len(starts))):
        is_next = starts[place] == end
        if not is_next or ends[place] - start > left or chosen[starts[place] : ends[place]].any():
            break
        end = ends[place]
    return int(end)
