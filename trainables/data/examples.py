"""Tokenised rows of one or several splits, put into padded batches on demand.

A split is tokenised once per machine, and then memory-mapped by every trial. A cache entry is a folder of `.npy` files
with the tokens of all rows end to end. An Arrow table would be decoded row by row; here a batch is one index into a
memory map. Entries are named by the content that they come from (data, tokenizer, length), so nothing in the cache can
be out of date.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from trainables.data.glue import Split, fingerprint, hold_out, load_split, vocabulary_texts
from trainables.data.tasks import Task
from trainables.encoders.loading import fingerprint_tokenizer, load_tokenizer
from trainables.models.early_exit import Batch
from trainables.sources import cached_folder

HELD_OUT_SHARE = 0.1  # of train, under `selection: holdout`
HELD_OUT_SEED = 0  # the same slice for all trials, or their selection scores could not be compared

FORMAT = 1  # of a cache entry; raise it whenever what is written changes
_CHUNK = 10_000  # rows tokenised at once, which bounds the memory for QQP and MNLI
_OF_ROWS = ("ids", "labels", "starts", "lengths")
ARRAYS = (*_OF_ROWS, "tokens", "token_types")  # of a cache entry, and of a digest


@dataclass(frozen=True)
class Examples:
    """Rows in the order of their splits. Tokens lie end to end; a row is where it starts and how long it is."""

    ids: np.ndarray  # (n,) int64, row number in its file
    splits: np.ndarray  # (n,), name of its split
    labels: np.ndarray  # (n,) int64 classes or float32 scores; (0,) on test
    starts: np.ndarray  # (n,) int64, place of its first token
    lengths: np.ndarray  # (n,) int64, tokens
    tokens: np.ndarray  # (all tokens,) int32
    token_types: np.ndarray  # (all tokens,) uint8: 1 in the second text, for tokenizers that tell it apart
    pad_token: int

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.ids)

    def batch(self, rows: np.ndarray, device: torch.device) -> Batch:
        """Pad the rows of these numbers to the longest of them."""
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
        """Select these labelled rows, in this order."""
        return replace(self, **{name: getattr(self, name)[rows] for name in (*_OF_ROWS, "splits")})


def load_examples(
    task: Task, splits: tuple[str, ...], data: str, tokenizer: PreTrainedTokenizerBase, *, max_length: int, cache: Path
) -> Examples:
    """Load the tokenised rows of the splits; the tokens of a single split are memory-mapped.

    Raises:
        ValueError: see `load_split`.
    """
    parts = [tokenise(task, split, data, tokenizer, max_length=max_length, cache=cache) for split in splits]
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0, *(len(part.tokens) for part in parts[:-1])])
    moved = [replace(part, starts=part.starts + offset) for part, offset in zip(parts, offsets, strict=True)]
    joined = {name: np.concatenate([getattr(part, name) for part in moved]) for name in (*ARRAYS, "splits")}
    return Examples(**joined, pad_token=tokenizer.pad_token_id)


def tokenise(
    task: Task, split: str, data: str, tokenizer: PreTrainedTokenizerBase, *, max_length: int, cache: Path
) -> Examples:
    """Tokenise a split, or read its tokens from the cache. One process does it while others wait.

    Args:
        max_length: tokens of a row at most, special tokens included; the longest text of a pair is cut first.
        cache: a folder on a local disk; it is created.

    Raises:
        ValueError: see `load_split`.
    """
    content = f"{FORMAT} {task.name} {split} {fingerprint(task, data, split)} {fingerprint_tokenizer(tokenizer)}"
    entry = cached_folder(
        cache,
        f"{content} {max_length}",
        lambda folder: _write(
            folder, encode(load_split(task, split, data), tokenizer, max_length=max_length, name=split)
        ),
    )
    arrays = {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in entry.glob("*.npy")}
    splits = np.repeat((split,), len(arrays["ids"]))
    return Examples(**{"labels": np.empty(0)} | arrays, splits=splits, pad_token=tokenizer.pad_token_id)


def encode(rows: Split, tokenizer: PreTrainedTokenizerBase, *, max_length: int, name: str = "file") -> Examples:
    """Tokenise rows in memory; see `tokenise`. `name`: of their split, for rows of a data set."""
    tokens: list[np.ndarray] = []
    token_types: list[np.ndarray] = []
    lengths: list[int] = []
    for start in range(0, len(rows.texts), _CHUNK):
        columns = [list(column) for column in zip(*rows.texts[start : start + _CHUNK], strict=True)]
        encoded = tokenizer(
            *columns,
            truncation="longest_first",
            max_length=max_length,
            return_attention_mask=False,
            return_token_type_ids=True,
        )
        tokens.append(np.concatenate(encoded["input_ids"]).astype(np.int32))
        token_types.append(np.concatenate(encoded["token_type_ids"]).astype(np.uint8))
        lengths.extend(map(len, encoded["input_ids"]))
    return Examples(
        ids=np.array(rows.ids, dtype=np.int64),
        splits=np.repeat((name,), len(rows.ids)),
        labels=np.empty(0) if rows.labels is None else rows.labels,
        starts=np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        lengths=np.array(lengths, dtype=np.int64),
        tokens=np.concatenate(tokens),
        token_types=np.concatenate(token_types),
        pad_token=tokenizer.pad_token_id,
    )


def _write(entry: Path, examples: Examples) -> None:
    for name in ARRAYS:
        if len(array := getattr(examples, name)):
            np.save(entry / f"{name}.npy", array, allow_pickle=False)


@lru_cache(maxsize=8)  # a worker runs many trials of few tasks
def tokenizer_of(name: str, task: Task, data: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of this name; that of a tiny backbone knows the words of `vocabulary_texts`."""
    return load_tokenizer(name, texts=lambda: vocabulary_texts(task, data))


def hold_out_slice(train: Examples) -> tuple[Examples, Examples]:
    """Cut train into the rows to train on and the slice that stops and selects."""
    train_rows, held_out_rows = hold_out(train.ids.tolist(), HELD_OUT_SHARE, HELD_OUT_SEED)
    return train.take(train_rows), train.take(held_out_rows)


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Put an array on the device; the copy to a GPU overlaps with computing."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
