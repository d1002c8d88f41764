"""Splits as token numbers: made once per machine, then memory-mapped by every trial.

A cache entry is a folder of `.npy` files with the tokens of all rows end to end. An Arrow table would be decoded row
by row; here a batch is one index into a memory map. Entries are named by the content that they come from (data,
tokenizer, length), so nothing in the cache can be out of date.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np
from filelock import FileLock
from transformers import PreTrainedTokenizerBase

from trainables.atomic_files import write_folder
from trainables.data.glue import Split, fingerprint, load_split
from trainables.data.tasks import Task

FORMAT = 1  # of an entry; raise it whenever what is written changes
_CHUNK = 10_000  # rows tokenised at once, which bounds the memory for QQP and MNLI


def cache_folder() -> Path:
    """Where a machine keeps tokenised data for all trials and studies, unless a caller has a place of its own."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "glue-exit-study"


@dataclass(frozen=True)
class TokenisedSplit:
    """The rows of one split, memory-mapped. Tokens lie end to end, not padded."""

    ids: np.ndarray  # (n,) int64, row number in the file
    labels: np.ndarray | None  # (n,) int64 classes or float32 scores; None on test
    starts: np.ndarray  # (n,) int64, place of a row's first token
    lengths: np.ndarray  # (n,) int64, tokens of a row; evaluation in their order pads least
    tokens: np.ndarray  # (all tokens,) int32
    token_types: np.ndarray  # (all tokens,) uint8: 1 in the second text, for tokenizers that tell it apart

    def __len__(self) -> int:
        return len(self.ids)


def tokenise(
    task: Task, split: str, data: str, tokenizer: PreTrainedTokenizerBase, *, max_length: int, cache: Path
) -> TokenisedSplit:
    """A split as tokens, from the cache, or made and put there. One process makes it while others wait.

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
        lambda folder: _write(folder, encode(load_split(task, split, data), tokenizer, max_length)),
    )
    arrays = {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in entry.glob("*.npy")}
    return TokenisedSplit(**{"labels": None} | arrays)


def cached_folder(cache: Path, content: str, fill: Callable[[Path], object]) -> Path:
    """The entry of this content: there, or made by `fill` and put there. One process makes it while others wait.

    What a killed process left half-written is never taken for an entry.
    """
    entry = cache / hashlib.sha256(content.encode()).hexdigest()[:32]
    if not entry.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{entry}.lock"):
            if not entry.is_dir():
                for left in cache.glob(f".{entry.name}.*"):
                    shutil.rmtree(left)
                write_folder(entry, fill)
    return entry


@lru_cache(maxsize=1)
def fingerprint_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of all that decides how a text is tokenised: vocabulary, rules, special tokens; 16 hexadecimal digits."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    for setting_of_last_call in ("truncation", "padding"):
        del rules[setting_of_last_call]
    content = json.dumps([rules, tokenizer.truncation_side, tokenizer.model_input_names], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def encode(split: Split, tokenizer: PreTrainedTokenizerBase, max_length: int) -> TokenisedSplit:
    """A split as tokens, in memory; see `tokenise`."""
    tokens: list[np.ndarray] = []
    token_types: list[np.ndarray] = []
    lengths: list[int] = []
    for start in range(0, len(split.texts), _CHUNK):
        columns = [list(column) for column in zip(*split.texts[start : start + _CHUNK], strict=True)]
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
    return TokenisedSplit(
        ids=np.array(split.ids, dtype=np.int64),
        labels=split.labels,
        starts=np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        lengths=np.array(lengths, dtype=np.int64),
        tokens=np.concatenate(tokens),
        token_types=np.concatenate(token_types),
    )


def _write(entry: Path, split: TokenisedSplit) -> None:
    for field in fields(split):
        array = getattr(split, field.name)
        if array is not None:
            np.save(entry / f"{field.name}.npy", array, allow_pickle=False)
