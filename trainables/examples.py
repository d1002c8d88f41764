"""Examples ready for a model: tokenised rows of one or several splits, put into padded batches on demand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from trainables.early_exit import Batch
from trainables.glue import hold_out, load_split

HELD_OUT_SHARE = 0.1  # of train, under `selection: holdout`
HELD_OUT_SEED = 0  # the same slice for all trials, or their selection scores could not be compared


@dataclass(frozen=True)
class Examples:
    """Rows in the order of their splits. Tokens lie end to end; a row is where it starts and how long it is."""

    ids: np.ndarray  # (n,), row number in its file
    splits: np.ndarray  # (n,), name of its split
    labels: np.ndarray | None  # (n,)
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
        batch = {name: _on_device(array.astype(np.int64), device) for name, array in arrays.items()}
        if self.labels is not None:
            batch["labels"] = _on_device(self.labels[rows], device)
        return batch

    def take(self, rows: np.ndarray) -> Examples:
        """Only these rows, in this order."""
        labels = None if self.labels is None else self.labels[rows]
        return replace(
            self,
            ids=self.ids[rows],
            splits=self.splits[rows],
            labels=labels,
            starts=self.starts[rows],
            lengths=self.lengths[rows],
        )


def tokenizer_of(checkpoint, task, data):
    from trainables.backbones import load_tokenizer

    return load_tokenizer(
        checkpoint, texts=lambda: [t for row in load_split(task, task.train_split, data).texts for t in row]
    )


def load_examples(task, splits, data, tokenizer, *, max_length, cache):
    parts = [load_split(task, s, data) for s in splits]
    texts = [t for p in parts for t in p.texts]
    enc = tokenizer(*[list(c) for c in zip(*texts)], truncation=True, max_length=max_length, return_token_type_ids=True)
    lengths = np.array([len(x) for x in enc["input_ids"]])
    return Examples(
        ids=np.concatenate([p.ids for p in parts]),
        splits=np.concatenate([[s] * len(p.ids) for s, p in zip(splits, parts)]),
        labels=None if parts[0].labels is None else np.concatenate([p.labels for p in parts]),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        tokens=np.concatenate(enc["input_ids"]),
        token_types=np.concatenate(enc["token_type_ids"]),
        pad_token=tokenizer.pad_token_id,
    )


def hold_out_slice(train: Examples) -> tuple[Examples, Examples]:
    """What is left to train on, and the slice of train that stops and selects."""
    kept, held = hold_out(train.ids.tolist(), HELD_OUT_SHARE, HELD_OUT_SEED)
    return train.take(kept), train.take(held)


def _on_device(array: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)  # the copy overlaps with computing
