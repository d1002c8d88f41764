"""Which tokens are to be predicted: pytest tests/trainables/pretraining/test_masking.py"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.corpora import pretraining_config
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.pretraining import batches as masking

NUM_SEQUENCES = 10_000
LENGTH = 20  # tokens of each, special ones included
MASK, VOCABULARY = 4, 100
KINDS = ("bernoulli", "token", "n_gram")


def config_of(kind: str, **changes):
    return pretraining_config("mlm", **{"masking": kind, "max_predictions": 0, **changes})


def sequences(number: int = NUM_SEQUENCES, share_of_words: float = 0.7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is text, what begins a word, and lengths: two segments of 9 and 8 tokens between special ones."""
    maskable = np.ones((number, LENGTH), bool)
    maskable[:, [0, 10, 19]] = False
    begins_word = np.random.default_rng(1).random(maskable.shape) < share_of_words
    begins_word[:, [1, 11]] = True
    return maskable, begins_word, np.full(number, LENGTH)


def chosen_of(kind: str, *, seed: int = 0, number: int = NUM_SEQUENCES, share_of_words: float = 0.7, **changes):
    rows = sequences(number, share_of_words)
    return masking.choose(*rows, config_of(kind, **changes), np.random.default_rng(seed)), rows


def runs(row: np.ndarray) -> list[tuple[int, int]]:
    """Where stretches of true begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_as_many_tokens_are_masked_as_was_said(kind: str) -> None:
    chosen, _ = chosen_of(kind, share_of_words=1.0, mask_probability=0.25)
    if kind == "bernoulli":
        maskable = LENGTH - 3
        assert abs(chosen.sum(1).mean() - 0.25 * maskable) < 3 * (0.25 * 0.75 * maskable / len(chosen)) ** 0.5
    else:
        assert (chosen.sum(1) == 5).all()  # round(.25 * 20), with special tokens


@pytest.mark.parametrize("kind", ("token", "n_gram"))
def test_at_least_one_token_is_masked(kind: str) -> None:
    chosen, _ = chosen_of(kind, number=20, share_of_words=1.0, mask_probability=0.01)
    assert (chosen.sum(1) == 1).all()


@pytest.mark.parametrize("kind", ("token", "n_gram"))
def test_no_more_are_masked_than_is_allowed(kind: str) -> None:
    chosen, _ = chosen_of(kind, number=200, mask_probability=0.5, max_predictions=4)
    assert chosen.sum(1).max() == 4


def test_every_token_is_as_likely_as_any_other() -> None:
    chosen, (maskable, _, _) = chosen_of("token")
    rate = 3 / 17
    rates = chosen.mean(0)[maskable[0]]
    assert (abs(rates - rate) < 4 * (rate * (1 - rate) / NUM_SEQUENCES) ** 0.5).all()


def test_words_are_masked_whole() -> None:
    chosen, (maskable, begins_word, _) = chosen_of("n_gram", number=500, mask_probability=0.4)
    for row, text, starts in zip(chosen, maskable, begins_word, strict=True):
        for start, end in runs(row):
            assert starts[start]
            assert end == LENGTH or starts[end] or not text[end]


def test_n_grams_are_longer_than_words() -> None:
    tokens, n_grams = (chosen_of(kind, number=1_000, share_of_words=1.0)[0] for kind in ("token", "n_gram"))
    longest = max(end - start for row in n_grams for start, end in runs(row))
    assert longest == masking.LONGEST_N_GRAM
    assert sum(len(runs(row)) for row in n_grams) < 0.85 * sum(len(runs(row)) for row in tokens)


def test_hidden_replaced_and_kept_have_their_shares() -> None:
    generator = np.random.default_rng(1)
    chosen, _ = chosen_of("token")
    tokens = np.full(chosen.shape, 50)
    config = config_of("token", mask_token_share=0.8, random_token_share=0.1)
    given = masking.corrupt(tokens, chosen, config, mask_token=MASK, vocab_size=VOCABULARY, generator=generator)
    assert (given[~chosen] == 50).all()
    number = chosen.sum()
    for share, found in ((0.8 + 0.1 / VOCABULARY, given == MASK), (0.1 + 0.1 / VOCABULARY, given == 50)):
        assert abs(found[chosen].mean() - share) < 3 * (share * (1 - share) / number) ** 0.5
    assert len(np.unique(given[chosen])) > 90


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.floats(0, 1), probability=st.floats(0.01, 0.9))
def test_special_tokens_are_never_masked(kind: str, seed: int, share: float, probability: float) -> None:
    chosen, (maskable, _, _) = chosen_of(kind, seed=seed, number=5, share_of_words=share, mask_probability=probability)
    assert not chosen[~maskable].any()


def test_what_is_masked_depends_on_the_generator_alone() -> None:
    for kind in KINDS:
        one, again, other = (chosen_of(kind, seed=seed, number=50)[0] for seed in (1, 1, 2))
        assert (one == again).all() and (one != other).any()
