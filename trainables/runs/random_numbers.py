"""Random numbers of a trial, which depend only on the seed, their purpose and the number of the epoch or step.

Thus evaluation cannot change training, no generator state has to be saved, and the caller's generators do not change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded_random(seed: int, purpose: str, epoch: int, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's global generators from seed, purpose and epoch; restore their states after the context."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(_derive_seed(seed, purpose, epoch))
        yield


def seeded_generator(seed: int, purpose: str, epoch: int) -> torch.Generator:
    """Make a generator on the CPU for this seed, purpose and epoch."""
    return torch.Generator().manual_seed(_derive_seed(seed, purpose, epoch))


def seeded_numpy_generator(seed: int, purpose: str, number: int) -> np.random.Generator:
    """Make a NumPy generator for a seed, a purpose and the number of an epoch, step or pass."""
    return np.random.default_rng(_derive_seed(seed, purpose, number))


def _derive_seed(seed: int, purpose: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()[:8]) >> 1
