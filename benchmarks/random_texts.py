"""Texts of random tokens: what a step or an evaluation takes does not depend on what they say."""

import numpy as np

from trainables.data.examples import Examples

VOCABULARY = 1_000  # tokens are of so many


def random_examples(lengths: np.ndarray) -> Examples:
    """A text of each length, in tokens, with a class of two."""
    generator = np.random.default_rng(0)
    tokens = generator.integers(1, VOCABULARY, size=lengths.sum())
    return Examples(
        ids=np.arange(len(lengths)),
        splits=np.full(len(lengths), "train"),
        labels=generator.integers(0, 2, len(lengths)),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        tokens=tokens,
        token_types=np.zeros_like(tokens),
        pad_token=0,
    )
