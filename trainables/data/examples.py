"""Examples ready for a model: tokenised rows of one or several splits, put into padded batches on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from trainables.data.glue import Split, hold_out, vocabulary_texts
from trainables.data.tasks import Task
from trainables.data.tokenised import TokenisedSplit, encode, tokenise
from trainables.encoders.loading import load_tokenizer
from trainables.models.early_exit import Batch

HELD_OUT_SHARE = 0.1  # of train, under `selection: holdout`
HELD_OUT_SEED = 0  # the same slice for all trials, or their selection scores could not be compared


@dataclass(frozen=True)
class Examples:
    """Rows in the order of their splits. Tokens lie end to end; a row is where it starts and how long it is."""

    ids: np.ndarray  # (n,), row number in its file
    splits: np.ndarray  # (n,), name of its split
    labels: np.ndarray  # (n,); (0,) on test
    starts: np.ndarray  # (n,), place of its first token
    lengths: np.ndarray  # (n,), tokens
    tokens: np.ndarray  # (all tokens,)
    token_types: np.ndarray  # (all tokens,)
    pad_token: int

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: np.ndarray, device: torch.device) -> Batch:
        """The rows of these numbers, padded to the longest of them."""
        lengths = self.lengths[rows, None]
        places = np.arange(lengths.max())  # (tokens,)
        mask = places < lengths  # (batch, tokens)
        flat = np.where(mask, self.starts[rows, None] + places, 0)
        arrays = {
            "input_ids": np.where(mask, self.tokens[flat], self.pad_token),
            "attention_mask": mask,
            "token_type_ids": np.where(mask, self.token_types[flat], 0),
        }
        batch = {name: on_device(array.astype(np.int64), device) for name, array in arrays.items()}
        if len(self.labels):
            batch["labels"] = on_device(self.labels[rows], device)
        return batch

    def take(self, rows: np.ndarray) -> Examples:
        """Only these labelled rows, in this order."""
        names = ("ids", "splits", "labels", "starts", "lengths")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def load_examples(
    task: Task, splits: tuple[str, ...], data: str, tokenizer: PreTrainedTokenizerBase, *, max_length: int, cache: Path
) -> Examples:
    """The rows of the splits, tokenised; one split's tokens are memory-mapped.

    Raises:
        ValueError: see `load_split`.
    """
    parts = [tokenise(task, split, data, tokenizer, max_length=max_length, cache=cache) for split in splits]
    return _examples(parts, splits, tokenizer)


def examples_of_file(rows: Split, tokenizer: PreTrainedTokenizerBase, *, max_length: int) -> Examples:
    """Rows that are in no data set, tokenised as those are, and kept in memory."""
    return _examples([encode(rows, tokenizer, max_length)], ("file",), tokenizer)


def _examples(parts: Sequence[TokenisedSplit], splits: tuple[str, ...], tokenizer: PreTrainedTokenizerBase) -> Examples:
    moved = np.cumsum([0, *(len(part.tokens) for part in parts[:-1])])
    return Examples(
        ids=_joined([part.ids for part in parts]),
        splits=np.repeat(splits, [len(part) for part in parts]),
        labels=_joined([part.labels for part in parts if part.labels is not None]),
        starts=_joined([part.starts + offset for part, offset in zip(parts, moved, strict=True)]),
        lengths=_joined([part.lengths for part in parts]),
        tokens=_joined([part.tokens for part in parts]),
        token_types=_joined([part.token_types for part in parts]),
        pad_token=tokenizer.pad_token_id,
    )


@lru_cache(maxsize=8)  # a worker runs many trials of few tasks
def tokenizer_of(name: str, task: Task, data: str) -> PreTrainedTokenizerBase:
    """The tokenizer of this name (see `load_tokenizer`). Those of tiny backbones know the words of
    `vocabulary_texts`."""
    return load_tokenizer(name, texts=lambda: vocabulary_texts(task, data))


def hold_out_slice(train: Examples) -> tuple[Examples, Examples]:
    """What is left to train on, and the slice of train that stops and selects."""
    train_rows, held_out_rows = hold_out(train.ids.tolist(), HELD_OUT_SHARE, HELD_OUT_SEED)
    return train.take(train_rows), train.take(held_out_rows)


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)  # the copy overlaps with computing


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    if not arrays:
        return np.empty(0)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)  # one stays a memory map
