"""Which configurations of a method are tried: one file per method, data only. Imports Optuna's distributions only."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """What one method's file says."""

    method: str
    space: Mapping[str, BaseDistribution]  # the tuned fields
    fixed: Mapping[str, Any]  # every other field of the method's configuration
    fixed_by_task: Mapping[str, Mapping[str, Any]]  # task -> fields, laid over `fixed`
    paper_grid: Mapping[str, Sequence[Any]]  # the paper's grid, over all fields of `space`
    published: Mapping[str, Sequence[Mapping[str, Any]]]  # task -> best configurations known, over fields of `space`
    backbone: Mapping[str, str]  # profile -> backbone

    def fixed_for(self, task: str) -> dict[str, Any]:
        """The fields that are not tuned on this task."""
        return {**self.fixed, **self.fixed_by_task.get(task, {})}


def available() -> list[str]:
    """Names of all methods that have a search space, in alphabetical order."""
    return sorted(path.stem.replace("_", "-") for path in Path(__file__).parent.glob("[!_]*.py"))


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
    )
