"""The data of one pretraining run: tokenizer, corpus and examples."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import cached_property
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from trainables.corpora.corpus import vocabulary_texts
from trainables.corpora.example_packing import pack
from trainables.corpora.pretraining_batches import Order, PretrainingBatches
from trainables.corpora.tokenised_corpus import tokenise_corpus
from trainables.encoders.loading import load_tokenizer
from trainables.pretraining_configuration import PretrainingConfig
from trainables.runs.pretraining_trial import PretrainingSpec
from trainables.runs.trial import available


class PretrainingData:
    """What a run trains on and what its held-out scores are of, from the cache that all runs of a machine share."""

    def __init__(self, spec: PretrainingSpec, config: PretrainingConfig, *, order: Order, cache: Path) -> None:
        """Reads the corpus, and packs it.

        Raises:
            Unavailable: the corpus or the tokenizer are not there, or not as they should be.
        """
        with available():
            self.tokenizer = _tokenizer(spec)
            self._corpus = tokenise_corpus(spec.corpus, self.tokenizer, cache=cache)
            self._parts = pack(
                spec.corpus,
                self._corpus,
                self.tokenizer,
                packing=config.packing,
                max_length=config.max_length,
                cache=cache,
            )
            self.train, self.held_out = (
                PretrainingBatches(self._corpus, part, self.tokenizer, config, order=order) for part in self._parts
            )

    @cached_property
    def digest(self) -> str:
        """Hash of the tokens and of how they are packed; 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for part in (self._corpus, *self._parts):
            for field in fields(part):
                array = getattr(part, field.name)
                digest.update(f"{field.name} {array.dtype} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


def _tokenizer(spec: PretrainingSpec) -> PreTrainedTokenizerBase:
    """Of a tiny backbone: of the words of `vocabulary_texts`."""
    return load_tokenizer(spec.tokenizer or spec.backbone, texts=lambda: vocabulary_texts(spec.corpus))
