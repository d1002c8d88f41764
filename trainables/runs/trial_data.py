"""The data of one trial: what it trains on, what selects its epoch, and the dev set."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from trainables.data import official_glue
from trainables.data.examples import Examples, hold_out_slice, load_examples, tokenizer_of
from trainables.data.tasks import Task
from trainables.runs.failures import available
from trainables.runs.trial import TrialSpec

_ROWS = ("ids", "labels", "starts", "lengths", "tokens", "token_types")  # of examples: what their digest is of


class TrialData:
    """Tokenised examples, from the cache that all trials of a machine share."""

    def __init__(self, spec: TrialSpec, task: Task, *, max_length: int, cache: Path) -> None:
        """Reads what training needs; dev under `holdout` only when it is asked for.

        Raises:
            Unavailable: the data or the tokenizer are not there.
        """
        with available():
            self.tokenizer: PreTrainedTokenizerBase = tokenizer_of(spec.tokenizer or spec.backbone, task, spec.data)
        self._task, self._data, self._max_length, self._cache = task, spec.data, max_length, cache
        self._labels: dict[str, np.ndarray] = {}  # of every split read so far
        train = self._load(task.train_split)
        self.train, self.selection = hold_out_slice(train) if spec.selection == "holdout" else (train, self.dev)

    @cached_property
    def dev(self) -> Examples:
        return self._load(*self._task.dev_splits)

    @property
    def differences(self) -> tuple[str, ...]:
        """From the official GLUE, of all that was read so far; empty: none."""
        return official_glue.differences(self._task, self._labels)

    @cached_property
    def tokens_digest(self) -> str:
        """Hash of the rows to train on and to select by, tokenised and labelled; 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for examples in (self.train, self.selection):
            for name in _ROWS:
                array = np.ascontiguousarray(getattr(examples, name))  # of a memory map no copy
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.data)
        return digest.hexdigest()[:16]

    def _load(self, *splits: str) -> Examples:
        length, cache = self._max_length, self._cache
        with available():
            examples = load_examples(self._task, splits, self._data, self.tokenizer, max_length=length, cache=cache)
        self._labels |= {split: examples.labels[examples.splits == split] for split in splits}
        return examples
