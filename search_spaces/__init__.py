"""Which configurations of a method are tried: one file per method, data only.

Importing this package imports nothing heavy; a method's file imports Optuna's distributions.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.schema import Configuration, Value

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """What one method's file says."""

    method: str
    space: Mapping[str, BaseDistribution]  # the tuned fields; none: nothing is searched
    fixed: Configuration  # every other field of the method's configuration
    fixed_by_task: Mapping[str, Configuration]  # task -> fields, laid over `fixed`
    paper_grid: Mapping[str, Sequence[Value]]  # the paper's grid, over all fields of `space`
    published: Mapping[str, Sequence[Configuration]]  # task -> best configurations known, over fields of `space`
    backbone: Mapping[str, str]  # profile -> backbone
    mini_space: Mapping[str, BaseDistribution]  # on a tiny random backbone, laid over `space`
    mini_grid: Mapping[str, Sequence[Value]]  # the same, laid over `paper_grid`
    mini_fixed: Configuration  # the same, laid over `fixed`; these are not tuned
    seeds: int | None  # confirm trials, where the method has a number of its own


def available() -> list[str]:
    """Names of all methods that have a search space, in alphabetical order."""
    files = [file for folder in __path__ for file in Path(folder).glob("[!_]*.py")]
    return sorted(file.stem.replace("_", "-") for file in files)


def load(method: str) -> SearchSpace:
    """The search space of a method.

    Raises:
        ValueError: no method has this name.
    """
    if method not in available():
        raise ValueError(f"no method named {method!r}; available: {', '.join(available())}")
    module = importlib.import_module(f"search_spaces.{method.replace('-', '_')}")
    return SearchSpace(
        method=method,
        space=module.SPACE,
        fixed=module.FIXED,
        fixed_by_task=getattr(module, "FIXED_BY_TASK", {}),
        paper_grid=module.PAPER_GRID,
        published=module.PUBLISHED,
        backbone=module.BACKBONE,
        mini_space=module.MINI_SPACE,
        mini_grid=module.MINI_GRID,
        mini_fixed=module.MINI_FIXED,
        seeds=getattr(module, "SEEDS", None),
    )
