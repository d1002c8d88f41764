"""The files of a reference case, and how far our numbers are from its."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

Batch = dict[str, Tensor]

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Comparison:
    """The difference between one quantity of ours and the expected one."""

    quantity: str
    difference: float
    allowed: float = TOLERANCE

    @property
    def is_equal(self) -> bool:
        """Whether the difference is allowed; NaN is not."""
        return self.difference <= self.allowed


def read_description(folder: Path) -> dict[str, Any]:
    """The content of `case.json`."""
    return json.loads((folder / "case.json").read_text(encoding="utf-8"))


def read_tensors(folder: Path, name: str = "weights.safetensors") -> dict[str, Tensor]:
    """The tensors of one of the case's files by their names."""
    return load_file(folder / name)


def read_batch(values: dict[str, list], *, is_regression: bool = False) -> Batch:
    """The batch of a case: (examples, tokens) each, and labels (examples,)."""
    types = {"labels": torch.float32} if is_regression else {}
    return {name: torch.tensor(rows, dtype=types.get(name, torch.int64)) for name, rows in values.items()}


def single_examples(batch: Batch) -> list[Batch]:
    """A batch of one for each example."""
    return [{name: rows[index, None] for name, rows in batch.items()} for index in range(len(batch["input_ids"]))]


def largest_difference(ours: Tensor, expected: Any) -> float:
    """The largest absolute difference: infinity if the shapes differ, NaN if a number is NaN."""
    ours, reference = ours.detach().double(), torch.as_tensor(expected, dtype=torch.float64)
    if ours.shape != reference.shape:
        return float("inf")
    return torch.where(ours == reference, 0.0, (ours - reference).abs()).max().item()


def check_names(expected: set[str], known: set[str], what: str) -> None:
    """Raises a ValueError if the case names something that is not compared."""
    if unknown := sorted(expected - known):
        raise ValueError(f"unknown {what}: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
