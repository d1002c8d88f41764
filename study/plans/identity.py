"""What tells trials and protocols apart: hashes of their content, and the seeds of trials."""

from __future__ import annotations

import hashlib
import json

from trainables import VARIANT
from trainables.schema import Configuration

FIRST_SEED = 42  # confirm seeds are 42, 43, ...: tinkoff-ai/palbert test.py:34


def digest(value: object, length: int = 16) -> str:
    """The first `length` hexadecimal digits of SHA-256 over canonical JSON of a plain value."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:length]


def trial_key(
    protocol_hash: str,
    *,
    method: str,
    task: str,
    backbone: str,
    tokenizer: str | None,
    data: str,
    phase: str,
    config: Configuration,
    seed: int,
    start: str | None,
) -> str:
    """The identity of a trial: the same key is the same training run.

    `backbone`, `tokenizer` and `data` are fingerprints of content, `start` is the key of another trial.
    """
    return digest([protocol_hash, method, task, backbone, tokenizer, data, phase, config, seed, start])


def confirm_seeds(number: int) -> tuple[int, ...]:
    return tuple(range(FIRST_SEED, FIRST_SEED + number))


def search_seed(arm: str, number: int) -> int:
    """The seed of the arm's search trial `number`; never one of the confirm seeds."""
    return 1_000 + int(digest([arm, number], length=7), 16)


def in_file_names(method: str) -> str:
    """A method's name as names of files and of registered models can hold it."""
    return method.replace(VARIANT, "-")
