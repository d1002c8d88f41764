"""An epoch of which a part is trained: what the rest goes on with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from trainables.runs.optimiser import Optimiser
from trainables.runs.random_numbers import RandomStream
from trainables.runs.step_checks import FiniteLosses


@dataclass(frozen=True)
class EpochUnderWay:
    """An epoch, at its beginning or behind a part of it."""

    batches: Iterable[np.ndarray]  # to come, of rows
    losses: FiniteLosses
    dropout: RandomStream
    train_seconds: float = 0.0  # of the part
    eval_seconds: float = 0.0

    @classmethod
    def begun(
        cls, batches: Iterable[np.ndarray], seed: int, epoch: int, optimiser: Optimiser, device: torch.device
    ) -> EpochUnderWay:
        """Before its first step."""
        return cls(batches, FiniteLosses(optimiser.steps + 1), RandomStream(seed, "dropout", epoch, device))
