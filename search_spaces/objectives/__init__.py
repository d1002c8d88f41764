"""Hyperparameters of the pretraining objectives: one file each, data only. Nothing is searched.

* `FIXED`: every field of the objective's `Config`, with the value from the paper or its code.
* `MINI_FIXED`: values that replace those of `FIXED` on a tiny random backbone.
* `BACKBONE` and `TOKENIZER`: backbone and tokenizer for each profile (`mini` or `paper`).
* `DEPARTURES`: differences from the paper and its code, the most important first.
* `VARIANTS`: for each variant, such as `bert-small` of `mlm`, the fields of `Recipe` that it changes.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from trainables import VARIANT, Departure
from trainables.configuration.schema import Configuration
from trainables.configuration.spelling import unknown_name_error
from trainables.pretraining import objectives


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The hyperparameters of an objective or variant, as read from the objective's file."""

    name: str  # "mlm", or "mlm:bert-small"
    file: str  # the objective's file, followed by `VARIANTS['NAME']` for a variant
    fixed: Configuration  # the values of all fields
    mini_fixed: Configuration  # replaces fields of `fixed` on a tiny random backbone
    backbone: Mapping[str, str]  # "mini" or "paper" -> backbone
    tokenizer: Mapping[str, str | None]  # keys as in `backbone` -> tokenizer, or None: the backbone's
    departures: tuple[Departure, ...]

    @property
    def objective(self) -> str:
        """The name without the variant."""
        return self.name.partition(VARIANT)[0]


def list_recipes() -> list[str]:
    """List all objectives in alphabetical order, each followed by its variants."""
    names = ((objective, _load_module(objective)) for objective in objectives.list_objectives())
    return [name for own, module in names for name in (own, *(f"{own}{VARIANT}{key}" for key in module.VARIANTS))]


def load_recipe(name: str) -> Recipe:
    """Load the recipe of an objective, or of one of its variants.

    Raises:
        ValueError: if the name is unknown.
    """
    if name not in list_recipes():
        raise unknown_name_error("objective", name, list_recipes())
    objective, _, variant = name.partition(VARIANT)
    module = _load_module(objective)
    file = f"search_spaces/objectives/{module.__name__.rpartition('.')[2]}.py"
    fields = ("fixed", "mini_fixed", "backbone", "tokenizer", "departures")
    content = {field: getattr(module, field.upper()) for field in fields}
    if variant:
        file = f"{file} VARIANTS[{variant!r}]"
        content |= module.VARIANTS[variant]
    content["departures"] = tuple(Departure(*line) for line in content["departures"])
    return Recipe(name=name, file=file, **content)


def _load_module(objective: str) -> ModuleType:
    return importlib.import_module(f"search_spaces.objectives.{objective.replace('-', '_')}")
