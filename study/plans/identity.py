"""Identities of arms and protocols, and the seeds of trials."""

from __future__ import annotations

import hashlib
import json

from trainables import VARIANT

FIRST_SEED = 42  # confirm seeds are 42, 43, ...: tinkoff-ai/palbert test.py:34
MOST_SEEDS = 100  # per arm, where a search is repeated
MOST_REPEATS = 9  # of a search: confirm seeds stay below the search seeds


def digest(value: object, length: int = 16) -> str:
    """The first `length` hexadecimal digits of SHA-256 over canonical JSON of a plain value."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:length]


def arm_name(method: str, task: str, repeat: int) -> str:
    """`palbert/rte`; of the second search of that arm, whose `repeat` is 1, `palbert/rte@2`."""
    return f"{method}/{task}@{repeat + 1}" if repeat else f"{method}/{task}"


def confirm_seeds(number: int, *, repeat: int = 0) -> tuple[int, ...]:
    """Seeds of confirm trials; no two repeats of a search share one while there are at most `MOST_SEEDS`."""
    first = FIRST_SEED + repeat * MOST_SEEDS
    return tuple(range(first, first + number))


def search_seed(arm: str, number: int) -> int:
    """The seed of the arm's search trial `number`; never one of the confirm seeds."""
    return 1_000 + int(digest([arm, number], length=7), 16)


def in_file_names(method: str) -> str:
    """A method's name as names of files and of registered models can hold it."""
    return method.replace(VARIANT, "-")
