"""The pretraining objectives, one file each. Importing this package does not import torch.

Each objective has a file in this package, and a file of the same name in `search_spaces/objectives/`. File names have
`_` where the objective's name has `-`. The file in this package defines `Config`, `FAMILIES` (the supported families of
backbones), `ORDER` (whether segments are swapped at random) and `build(config, encoder)`. `build` takes the
`transformers` configuration of the encoder, and draws weights from PyTorch's global generator.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trainables.configuration.schema import Configuration, from_plain
from trainables.configuration.spelling import unknown_name_error

if TYPE_CHECKING:
    from trainables.pretraining.configuration import PretrainingConfig


def list_objectives() -> list[str]:
    """List all objectives, in alphabetical order."""
    files = [file for folder in __path__ for file in Path(folder).glob("[!_]*.py")]
    return sorted(file.stem.replace("_", "-") for file in files)


def load_objective(objective: str) -> ModuleType:
    """Import the module of an objective.

    Raises:
        ValueError: if the objective is unknown.
    """
    if objective not in list_objectives():
        raise unknown_name_error("objective", objective, list_objectives())
    return importlib.import_module(f"{__name__}.{objective.replace('-', '_')}")


def configure(objective: str, values: Configuration) -> PretrainingConfig:
    """Build the configuration of an objective, and check every field.

    Raises:
        ValueError: if the objective is unknown, or a field is missing, unknown or out of range.
    """
    return from_plain(load_objective(objective).Config, values, where=objective)


def check_family(objective: str, family: str) -> None:
    """Check that an objective has a model for a family of backbones.

    Raises:
        ValueError: if the objective has no model for the family.
    """
    families = load_objective(objective).FAMILIES
    if family not in families:
        raise ValueError(f"objective {objective} has no model of family {family!r}; available: {', '.join(families)}")
