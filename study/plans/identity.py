"""What tells trials and protocols apart: hashes of their content, and the seeds of trials."""

from __future__ import annotations

import hashlib
import json

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
    phase: str,
    config: Configuration,
    seed: int,
    start: str | None,
) -> str:
    """The identity of a trial: the same key is the same training run. `start` is the key of another trial."""
    identity = [protocol_hash, method, task, phase, config, seed]
    return digest(identity if start is None else [*identity, start])


def confirm_seeds(number: int) -> tuple[int, ...]:
    return tuple(range(FIRST_SEED, FIRST_SEED + number))


def search_seed(arm: str, number: int) -> int:
    """The seed of the arm's search trial `number`; never one of the confirm seeds."""
    return 1_000 + int(digest([arm, number], length=7), 16)
