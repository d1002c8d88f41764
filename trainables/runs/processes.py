"""The processes that compute a run's steps together, by `torch.distributed`, which whoever started them has set up."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """How many there are, and which of them this one is, from 0."""

    number: int
    rank: int

    @classmethod
    def here(cls) -> Processes:
        """Those of this process's group; it alone where there is none."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls(1, 0)
        return cls(distributed.get_world_size(), distributed.get_rank())

    def purpose(self, name: str) -> str:
        """What random numbers are for that each process draws for its own examples; the first draws those of a run
        of one process."""
        return name if self.rank == 0 else f"{name} in process {self.rank}"

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, whose gradients are then the mean over all processes."""
        if self.number == 1:
            return model
        # ShareBERT's pooler has parameters that no objective uses. Buffers are constants.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the next name of `broadcast_buffers` is not there yet
            return DistributedDataParallel(model, find_unused_parameters=True, broadcast_buffers=False)

    @staticmethod
    def without_exchange(wrapped: nn.Module) -> AbstractContextManager:
        """Gradients of what is computed within stay in this process, and are exchanged with the next ones."""
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    @torch.no_grad()
    def sum(self, share: Tensor) -> Tensor:
        """Of every process's scalar, in all of them."""
        if self.number == 1:
            return share
        total = share.clone()
        distributed.all_reduce(total)
        return total
