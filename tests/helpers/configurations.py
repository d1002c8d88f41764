"""Configurations of methods for tests: the first point of the paper's grid, with changes."""

from __future__ import annotations

from typing import Any

import search_spaces
import trainables
from trainables.configuration import TrainingConfig

SIZES = {  # of a small backbone, for configurations of transformers
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,  # large, so that a wrong layer shows
}


def values_of(method: str, task: str = "rte") -> dict[str, Any]:
    """Every field of the method's configuration on the task."""
    space = search_spaces.load_space(method)
    first = {field: menu[0] for field, menu in space.paper_grid.items()}
    return {**space.fixed, **space.fixed_by_task.get(task, {}), **first, **space.variant}


def config_of(method: str, task: str = "rte", **changes: Any) -> TrainingConfig:
    """The method's configuration with changes. ValueErrors as a user would see them."""
    return trainables.configure(method, values_of(method, task) | changes)
