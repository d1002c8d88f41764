"""The files of a reference case, and what a comparison with one says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Comparison:
    """One quantity: how far ours is from the expected one."""

    quantity: str
    difference: float
    allowed: float = TOLERANCE

    @property
    def is_equal(self) -> bool:
        """Whether the difference is allowed; NaN is not."""
        return self.difference <= self.allowed


def read_description(folder: Path) -> dict[str, Any]:
    """What `case.json` holds.

    Raises:
        ValueError: it is not there, or no JSON object.
    """
    try:
        content = json.loads(_file(folder, "case.json").read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{folder} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{folder}/case.json is incomplete: not a JSON object")
    return content


def read_tensors(folder: Path, name: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file by their names.

    Raises:
        ValueError: it is not there, or damaged.
    """
    file = _file(folder, name)
    try:
        return load_file(file)
    except Exception as error:  # safetensors has its own
        raise ValueError(f"{folder} cannot be read: {error}") from error


def largest_difference(ours: Tensor, expected: Any) -> float:
    """Infinity where the shapes differ, NaN where a number is NaN; equal infinities are equal."""
    ours, reference = ours.detach().double(), torch.as_tensor(expected, dtype=torch.float64)
    if ours.shape != reference.shape:
        return float("inf")
    return torch.where(ours == reference, 0.0, (ours - reference).abs()).max().item()


def _file(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise ValueError(f"{folder} is not a reference case: it has no {name}")
    return folder / name
