"""Objectives to pretrain an encoder for: one file each, over shared parts. Importing this imports nothing heavy.

An objective is a file here that has a twin of the same name in `search_spaces/objectives/`; `-` in its name is `_` in
the file's. The file has a `Config`, `FAMILIES` (of the backbones that it has models for), `ORDER` (whether a pair's
segments are swapped at random) and `build(config, encoder)`, which draws the weights from PyTorch's global generator;
`encoder` is the configuration of `transformers` of the encoder that is to be pretrained.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trainables.spelling import no_such

if TYPE_CHECKING:
    from trainables.pretraining_configuration import PretrainingConfig
    from trainables.schema import Configuration


def available() -> list[str]:
    """List all objectives, in alphabetical order."""
    files = [file for folder in __path__ for file in Path(folder).glob("[!_]*.py")]
    return sorted(file.stem.replace("_", "-") for file in files)


def load(objective: str) -> ModuleType:
    """Import the module of an objective.

    Raises:
        ValueError: the name is unknown.
    """
    if objective not in available():
        raise no_such("objective", objective, available())
    return importlib.import_module(module_of(objective))


def module_of(objective: str) -> str:
    """Name the module that an objective is imported from."""
    return f"trainables.objectives.{objective.replace('-', '_')}"


def configure(objective: str, values: Configuration) -> PretrainingConfig:
    """Build the configuration of an objective, and check every field.

    Raises:
        ValueError: no objective has this name; a field is missing, unknown or outside of what is allowed.
    """
    from trainables.schema import from_plain

    return from_plain(load(objective).Config, values, where=objective)


def check_family(objective: str, family: str, *wanted: str) -> None:
    """Check that the objective has a model for this family of backbones.

    Raises:
        ValueError: it has none.
    """
    if family not in wanted:
        raise ValueError(f"objective {objective} has no model of family {family!r}; available: {', '.join(wanted)}")
