"""The parts of the loss during an epoch, as means over consecutive training steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainables.runs.trial import Losses

STEPS_BETWEEN_POINTS = 50  # at least so many, so that a point is a mean over many batches
MOST_POINTS = 20  # of an epoch; a journal has those of all trials
DIGITS = 6  # significant digits of a mean


class LossCurve:
    """Collects the parts of the loss step by step. Values stay on the device until the epoch has ended."""

    def __init__(self, num_steps: int) -> None:
        """Choose the steps of an epoch of `num_steps` steps after which there is a point; the last step is one."""
        number = min(MOST_POINTS, max(1, num_steps // STEPS_BETWEEN_POINTS))
        self._ends = [round(num_steps * (place + 1) / number) for place in range(number)]
        self._sums: list[dict[str, Tensor | float]] = [{} for _ in self._ends]
        self._counts: list[dict[str, int]] = [{} for _ in self._ends]
        self._place = 0  # of the point to which the current step belongs
        self._steps = 0

    def add(self, parts: Mapping[str, Any], *, share: float = 1.0, is_first: bool = True) -> None:
        """Add the result of a model's `loss`. Entries that are no single number are ignored.

        Args:
            share: share of these examples in the step's batch.
            is_first: whether this is the step's first call; with gradient accumulation, there are several.
        """
        sums, counts = self._sums[self._place], self._counts[self._place]
        for name, value in parts.items():
            if not isinstance(name, str):
                continue
            if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
                value = value.detach().float().reshape(())
            elif not isinstance(value, int | float):
                continue
            sums[name] = sums.get(name, 0.0) + share * value
            counts[name] = counts.get(name, 0) + is_first

    def end_step(self) -> None:
        """Close a step; the next values belong to the next step."""
        self._steps += 1
        if self._steps >= self._ends[self._place] and self._place + 1 < len(self._ends):
            self._place += 1

    def read(self) -> Losses:
        """Return the means of all parts at each point. This waits for the device."""
        names = dict.fromkeys(name for sums in self._sums for name in sums)
        return Losses(steps=tuple(self._ends), means={name: self._read_means(name) for name in names})

    def _read_means(self, name: str) -> tuple[float | None, ...]:
        sums = [sums.get(name, math.nan) for sums in self._sums]
        tensors = [value for value in sums if isinstance(value, Tensor)]
        read = iter(torch.stack(tensors).tolist() if tensors else ())
        values = [next(read) if isinstance(value, Tensor) else value for value in sums]
        means = [value / max(1, counts.get(name, 0)) for value, counts in zip(values, self._counts, strict=True)]
        return tuple(float(f"{mean:.{DIGITS}g}") if math.isfinite(mean) else None for mean in means)
