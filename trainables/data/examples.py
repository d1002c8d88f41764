"""Tokenised rows of one or several splits, and padded batches of them.

A split is tokenised once per machine; every trial then memory-maps the result. A cache entry is a folder of `.npy`
files. The name of an entry is a hash of all inputs (data, tokenizer, maximal length), so an entry is never out of date.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from trainables.data.glue import Split, choose_holdout, fingerprint, load_split, vocabulary_texts
from trainables.data.tasks import Task
from trainables.encoders.loading import fingerprint_tokenizer, load_tokenizer
from trainables.files.sources import cached_folder
from trainables.models.early_exit import Batch

FORMAT = 1  # version of the cache's file format; raise it whenever the files change
_CHUNK = 10_000  # rows tokenised at once; this bounds the memory for QQP and MNLI
_OF_ROWS = ("ids", "labels", "starts", "lengths")
ARRAYS = (*_OF_ROWS, "tokens", "token_types")  # files of a cache entry; also the arrays that a digest covers


@dataclass(frozen=True)
class Examples:
    """Tokenised rows of one or several splits. Row i is `tokens[starts[i] : starts[i] + lengths[i]]`."""

    ids: np.ndarray  # (n,) int64, as `Split.ids`
    splits: np.ndarray  # (n,) str, name of the split
    labels: np.ndarray  # (n,) int64 classes or float32 scores; (0,) for a test split
    starts: np.ndarray  # (n,) int64, position of the first token in `tokens`
    lengths: np.ndarray  # (n,) int64, number of tokens
    tokens: np.ndarray  # (tokens of all rows,) int32
    token_types: np.ndarray  # (tokens of all rows,) uint8, 1 for the second text if the tokenizer marks it
    pad_token: int  # id of the padding token

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.ids)

    def batch(self, rows: np.ndarray, device: torch.device) -> Batch:
        """Collate the rows at positions `rows` (int64) into tensors (batch, tokens), padded to the longest row."""
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
        """Select the rows at positions `rows` (int64), in the order of `rows`. The rows must have labels."""
        return replace(self, **{name: getattr(self, name)[rows] for name in (*_OF_ROWS, "splits")})


def load_examples(
    task: Task, splits: tuple[str, ...], data: str, tokenizer: PreTrainedTokenizerBase, *, max_length: int, cache: Path
) -> Examples:
    """Load and concatenate the tokenised rows of the splits.

    Raises:
        ValueError: if the data are missing or malformed.
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
    """Load a tokenised split from the cache. If the cache lacks it, one process tokenises it and the others wait.

    Args:
        max_length: largest number of tokens per row, special tokens included; in a pair, the longer text is cut first.
        cache: folder on a local disk; created if missing.

    Raises:
        ValueError: if the data are missing or malformed.
    """

    def fill(folder: Path) -> None:
        examples = encode(load_split(task, split, data), tokenizer, max_length=max_length, name=split)
        for name in ARRAYS:
            if len(array := getattr(examples, name)):
                np.save(folder / f"{name}.npy", array, allow_pickle=False)

    content = f"{FORMAT} {task.name} {split} {fingerprint(task, data, split)} {fingerprint_tokenizer(tokenizer)}"
    entry = cached_folder(cache, f"{content} {max_length}", fill)
    arrays = {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in entry.glob("*.npy")}
    splits = np.repeat((split,), len(arrays["ids"]))
    return Examples(**{"labels": np.empty(0)} | arrays, splits=splits, pad_token=tokenizer.pad_token_id)


def encode(rows: Split, tokenizer: PreTrainedTokenizerBase, *, max_length: int, name: str = "file") -> Examples:
    """Tokenise rows without a cache, and cut them to `max_length` tokens. `name` is the name of the returned split."""
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


@lru_cache(maxsize=8)  # a worker runs many trials on few tasks
def prepare_tokenizer(name: str, task: Task, data: str) -> PreTrainedTokenizerBase:
    """Load a backbone's tokenizer, or build the tokenizer of a tiny backbone from the training texts."""
    return load_tokenizer(name, texts=lambda: vocabulary_texts(task, data))


def split_off_holdout(train: Examples) -> tuple[Examples, Examples]:
    """Split the training set into the rows to train on and the rows for early stopping and model selection.

    The choice depends only on the ids of the rows, so all trials hold out the same rows.
    """
    kept, held = choose_holdout(train.ids)
    return train.take(kept), train.take(held)


def choose_spread(number: int, most: int) -> np.ndarray:
    """Choose at most `most` of `number` rows, evenly spread: each split of MNLI's dev, or each corpus, has some."""
    return np.linspace(0, number - 1, min(number, most)).astype(int)


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to the device. A copy to a GPU is asynchronous."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
