"""Small trials for tests: mini-GLUE, tiny untrained backbones."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import search_spaces
import trainables
from trainables.runs.training import TrainingRun, TrialSpec

# What tiny backbones need to learn from nothing; see tests/test_learnability.py.
FROM_NOTHING = {
    "learning_rate": 5e-4,
    "lambda_learning_rate": 5e-4,
    "batch_size": 16,
    "max_length": 48,
    "layer_decay": 1.0,
    "layer_decay_convention": None,
}


def spec_of(
    method: str = "albert", task: str = "sst2", *, seed: int = 1, config: dict | None = None, **spec: Any
) -> TrialSpec:
    """A trial of the method's first grid point, with two layers so that an epoch takes a fraction of a second."""
    space = search_spaces.load(method)
    values = space.fixed_for(task) | {field: menu[0] for field, menu in space.paper_grid.items()}
    names = {field.name for field in fields(trainables.load(method).Config)}
    values |= {name: value for name, value in FROM_NOTHING.items() if name in names and values[name] is not None}
    values |= {"num_hidden_layers": 2, "epochs": 2, "stop_after": 0, "batch_size": 32} | (config or {})
    return TrialSpec(
        method=method,
        task=task,
        config=values,
        seed=seed,
        **{"data": "mini", "backbone": space.backbone["mini"]} | spec,
    )


def run_to_the_end(spec: TrialSpec, cache: Path) -> TrainingRun:
    """The trial after its last epoch."""
    run = TrainingRun(spec, cache=cache)
    while not run.finished:
        run.run_epoch()
    return run
