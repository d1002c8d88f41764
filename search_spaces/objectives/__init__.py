"""How an encoder is pretrained: one file per objective, data only; nothing is searched.

A file has `FIXED`, every field of the objective's `Config` as its source has it, `MINI_FIXED`, which is laid over it on
a tiny random backbone, `BACKBONE` and `TOKENIZER` by profile, as search spaces have them, and `DEPARTURES`: the
differences from the original, each with its name, the original's value and ours, those that weigh most first.
`VARIANTS` are other recipes of the same objective, `mlm:bert-small`, each with the fields of `Recipe` that differ.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType

from trainables import VARIANT, objectives
from trainables.departure import Departure
from trainables.schema import Configuration
from trainables.spelling import no_such


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The content of an objective's file, for the objective or one of its variants."""

    name: str  # "mlm", or "mlm:bert-small"
    file: str  # with the variant
    fixed: Configuration  # every field
    mini_fixed: Configuration  # on a tiny random backbone, laid over `fixed`
    backbone: Mapping[str, str]  # "mini" and "paper" -> backbone
    tokenizer: Mapping[str, str | None]  # the same -> its tokenizer, if that lies elsewhere
    departures: tuple[Departure, ...]

    @property
    def objective(self) -> str:
        """The name without the variant."""
        return self.name.partition(VARIANT)[0]

    def configuration(self, *, mini: bool) -> Configuration:
        """Lay the fields for a tiny random backbone over those for a real one, if `mini`."""
        return {**self.fixed, **self.mini_fixed} if mini else self.fixed


def available() -> list[str]:
    """List all recipes: the objectives in alphabetical order, each before its variants."""
    names = ((objective, _load_module(objective)) for objective in objectives.available())
    return [name for own, module in names for name in (own, *(f"{own}{VARIANT}{key}" for key in module.VARIANTS))]


def load(name: str) -> Recipe:
    """Load the recipe of an objective, or of one of its variants.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in available():
        raise no_such("objective", name, available())
    objective, _, variant = name.partition(VARIANT)
    module = _load_module(objective)
    recipe = Recipe(
        name=name,
        file=f"search_spaces/objectives/{module.__name__.rpartition('.')[2]}.py",
        fixed=module.FIXED,
        mini_fixed=module.MINI_FIXED,
        backbone=module.BACKBONE,
        tokenizer=module.TOKENIZER,
        departures=module.DEPARTURES,
    )
    if variant:
        recipe = replace(recipe, file=f"{recipe.file} VARIANTS[{variant!r}]", **module.VARIANTS[variant])
    return replace(recipe, departures=tuple(Departure(*line) for line in recipe.departures))


def _load_module(objective: str) -> ModuleType:
    return importlib.import_module(f"search_spaces.objectives.{objective.replace('-', '_')}")
