"""Random numbers of a trial. They depend only on seed, purpose, and the number of the epoch or step.

Therefore evaluation cannot change training, and no generator state has to be saved: a resumed trial draws the same
numbers. The functions leave the states of the caller's generators unchanged.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded_random(seed: int, purpose: str, epoch: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators of PyTorch, Python and NumPy inside the context, and restore their states afterwards.

    This project draws only from PyTorch's; a user's own method may draw from all of them.
    """
    derived, of_python, of_numpy = _derive_seed(seed, purpose, epoch), random.getstate(), np.random.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(derived)
        random.seed(derived)
        np.random.seed(derived % 2**32)
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)


def seeded_generator(seed: int, purpose: str, epoch: int) -> torch.Generator:
    """Make a PyTorch generator on the CPU, seeded with a seed, a purpose and an epoch."""
    return torch.Generator().manual_seed(_derive_seed(seed, purpose, epoch))


def seeded_numpy_generator(seed: int, purpose: str, number: int) -> np.random.Generator:
    """Make a NumPy generator, seeded with a seed, a purpose and the number of an epoch, step or pass."""
    return np.random.default_rng(_derive_seed(seed, purpose, number))


def _derive_seed(seed: int, purpose: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()[:8]) >> 1
