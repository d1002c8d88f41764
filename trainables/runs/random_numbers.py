"""Random numbers of a trial: each a function of its seed, of what they are for and of the epoch or step.

So evaluating cannot change training, nothing random has to be saved, and the caller's generators stay as they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
from torch import Tensor


class RandomStream:
    """Numbers of a seed, purpose and epoch from PyTorch's global generators, with breaks."""

    def __init__(self, seed: int, purpose: str, epoch: int, device: torch.device) -> None:
        self._seed = _derived_seed(seed, purpose, epoch)
        self._device = device
        self._states: list[Tensor] = []  # where they were left: of the CPU, of the GPU

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Inside, the generators go on where they were left; behind, they are as they were before."""
        is_cuda = self._device.type == "cuda"
        with torch.random.fork_rng([self._device] if is_cuda else []):
            torch.manual_seed(self._seed)
            for state, restore in zip(self._states, (torch.set_rng_state, self._restore_cuda), strict=False):
                restore(state)
            yield
            self._states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(self._device)] if is_cuda else [])]

    def _restore_cuda(self, state: Tensor) -> None:
        torch.cuda.set_rng_state(state, self._device)


def own_random_numbers(seed: int, purpose: str, epoch: int, device: torch.device) -> AbstractContextManager[None]:
    """PyTorch's global generators give numbers of this seed, purpose and epoch, and afterwards go on as before."""
    return RandomStream(seed, purpose, epoch, device).drawn()


def own_generator(seed: int, purpose: str, epoch: int) -> torch.Generator:
    """A generator on the CPU for this seed, purpose and epoch."""
    return torch.Generator().manual_seed(_derived_seed(seed, purpose, epoch))


def own_numpy_generator(seed: int, purpose: str, number: int) -> np.random.Generator:
    """NumPy's generator for this seed, purpose and number of an epoch, a step or a pass."""
    return np.random.default_rng(_derived_seed(seed, purpose, number))


def _derived_seed(seed: int, purpose: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()[:8]) >> 1
