"""Random numbers of a trial. They depend only on seed, purpose, and the number of the epoch or step.

Therefore evaluation cannot change training, and no generator state has to be saved. The functions leave the states of
the caller's generators unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded_random(seed: int, purpose: str, epoch: int, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's global generators inside the context, and restore their states afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(_derive_seed(seed, purpose, epoch))
        yield


def seeded_generator(seed: int, purpose: str, epoch: int) -> torch.Generator:
    """Make a PyTorch generator on the CPU, seeded with a seed, a purpose and an epoch."""
    return torch.Generator().manual_seed(_derive_seed(seed, purpose, epoch))


def seeded_numpy_generator(seed: int, purpose: str, number: int) -> np.random.Generator:
    """Make a NumPy generator, seeded with a seed, a purpose and the number of an epoch, step or pass."""
    return np.random.default_rng(_derive_seed(seed, purpose, number))


def _derive_seed(seed: int, purpose: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()[:8]) >> 1
