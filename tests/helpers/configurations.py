"""Configurations of methods for tests: the first point of the paper's grid, with changes."""

from __future__ import annotations

from typing import Any

import search_spaces
import trainables
from trainables.configuration import TrainingConfig


def values_of(method: str, task: str = "rte") -> dict[str, Any]:
    """Every field of the method's configuration on the task."""
    space = search_spaces.load(method)
    first = {field: menu[0] for field, menu in space.paper_grid.items()}
    return {**space.fixed, **space.fixed_by_task.get(task, {}), **first, **space.variant}


def config_of(method: str, task: str = "rte", **changes: Any) -> TrainingConfig:
    """The method's configuration with changes. ValueErrors as a user would see them."""
    return trainables.configure(method, values_of(method, task) | changes)
