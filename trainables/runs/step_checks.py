"""What every kind of run looks at while it trains: whether losses are finite, and whose fault missing memory is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from trainables.runs.failures import OutOfMemory, TrainingError
from trainables.runs.optimiser import Optimiser

STEPS_BETWEEN_CHECKS = 50  # that the loss is finite: reading it waits for the device


class FiniteLosses:
    """The losses of an epoch's steps, looked at now and then."""

    def __init__(self, first_step: int) -> None:
        """`first_step`: number of the epoch's first step, from 1."""
        self._first_step = first_step
        self._losses: list[Tensor] = []
        self._rates: list[float] = []
        self._checked = 0

    def add(self, loss: Tensor, learning_rate: float) -> None:
        """Of the next step.

        Raises:
            TrainingError: one of the latest steps has a loss that is not finite.
        """
        self._losses.append(loss)
        self._rates.append(learning_rate)
        if len(self._losses) - self._checked >= STEPS_BETWEEN_CHECKS:
            self._check()

    def mean(self) -> float:
        """Over all steps.

        Raises:
            TrainingError: one of them is not finite.
        """
        self._check()
        return torch.stack(self._losses).mean().item()

    def _check(self) -> None:
        latest = self._losses[self._checked :]
        broken = [] if not latest else (~torch.stack(latest).isfinite()).nonzero().flatten().tolist()
        if broken:
            place = self._checked + broken[0]
            loss, rate, step = self._losses[place].item(), self._rates[place], self._first_step + place
            if self._first_step == 1 and not any(self._rates[:place]):
                raise TrainingError(f"loss is {loss} at step {step}, before any step has changed the model")
            raise TrainingError(f"loss is {loss} at step {step}, learning rate {rate:.3g}; try a lower learning_rate")
        self._checked = len(self._losses)


def diverged(optimiser: Optimiser, what: str) -> TrainingError:
    """What is wrong with a model, after so many steps."""
    step, rate = optimiser.steps, optimiser.peak_learning_rate  # the present one may have come down to 0
    return TrainingError(f"{what} after step {step}, learning rate up to {rate:.3g}; try a lower learning_rate")


@contextmanager
def naming_memory_errors(batch_size: int) -> Iterator[None]:
    """Where memory does not suffice, says so with the batch size and a smaller one."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)):
            raise
        raise OutOfMemory(f"out of memory with batch_size {batch_size}; try {max(1, batch_size // 2)}") from error
