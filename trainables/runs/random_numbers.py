"""Random numbers of a trial: each a function of its seed, of what they are for and of the epoch or step.

So evaluating cannot change training, nothing random has to be saved, and the caller's generators stay as they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_random_numbers(seed: int, purpose: str, epoch: int, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's global generators by seed, purpose and epoch; afterwards they go on as before."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(_derive_seed(seed, purpose, epoch))
        yield


def own_generator(seed: int, purpose: str, epoch: int) -> torch.Generator:
    """Make a generator on the CPU for this seed, purpose and epoch."""
    return torch.Generator().manual_seed(_derive_seed(seed, purpose, epoch))


def own_numpy_generator(seed: int, purpose: str, number: int) -> np.random.Generator:
    """Make NumPy's generator for a seed, a purpose and the number of an epoch, a step or a pass."""
    return np.random.default_rng(_derive_seed(seed, purpose, number))


def _derive_seed(seed: int, purpose: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()[:8]) >> 1
