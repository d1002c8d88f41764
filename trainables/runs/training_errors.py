"""What ends a trial during training: a loss that is not finite, or memory that runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from trainables.runs.optimiser import Optimiser
from trainables.runs.trial import OutOfMemory, TrainingError

STEPS_BETWEEN_CHECKS = 50  # checks are rare because reading a loss waits for the device


class FiniteLosses:
    """The losses of one epoch, which must be finite."""

    def __init__(self, optimiser: Optimiser) -> None:
        """Start an epoch with the optimiser's next step."""
        self._rate_after = optimiser.learning_rate_after
        self._steps_before = optimiser.steps
        self._losses: list[Tensor] = []
        self._checked = 0

    def add(self, loss: Tensor) -> None:
        """Store the loss of a step. Every `STEPS_BETWEEN_CHECKS` steps, check the new losses.

        Raises:
            TrainingError: one of the checked losses is not finite.
        """
        self._losses.append(loss)
        if len(self._losses) - self._checked >= STEPS_BETWEEN_CHECKS:
            self._check()

    def mean(self) -> float:
        """Compute the mean loss over all steps of the epoch.

        Raises:
            TrainingError: a loss is not finite.
        """
        self._check()
        return torch.stack(self._losses).mean().item()

    def _check(self) -> None:
        latest = self._losses[self._checked :]
        broken = [] if not latest else (~torch.stack(latest).isfinite()).nonzero().flatten().tolist()
        if broken:
            place = self._checked + broken[0]
            steps = self._steps_before + place
            what = f"loss is {self._losses[place].item()} at step {steps + 1}"
            if not any(map(self._rate_after, range(steps))):
                raise TrainingError(f"{what}, before any step has changed the model")
            raise TrainingError(f"{what} with learning rate {self._rate_after(steps):.3g}; try a lower learning_rate")
        self._checked = len(self._losses)


def is_memory_error(error: BaseException) -> bool:
    """Check if an error means that the memory of the machine or of the GPU is full."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)


@contextmanager
def naming_memory_errors(batch_size: int) -> Iterator[None]:
    """Turn out-of-memory errors into `OutOfMemory`, which gives the batch size and suggests a smaller one."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_memory_error(error):
            raise
        smaller = max(1, batch_size // 2)
        raise OutOfMemory(f"out of memory with batch_size {batch_size}; try batch_size {smaller}") from error
