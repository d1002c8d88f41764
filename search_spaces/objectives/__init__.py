"""How an encoder is pretrained: one file per objective, data only; nothing is searched.

A file has `FIXED`, every field of the objective's `Config` as its source has it, `MINI_FIXED`, which is laid over it on
a tiny random backbone, and `BACKBONE` and `TOKENIZER` by profile, as search spaces have them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainables.schema import Configuration
from trainables.spelling import no_such


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What one objective's file says."""

    objective: str
    file: str  # where it is said
    fixed: Configuration  # every field
    mini_fixed: Configuration  # on a tiny random backbone, laid over `fixed`
    backbone: Mapping[str, str]  # "mini" and "paper" -> backbone
    tokenizer: Mapping[str, str | None]  # the same -> its tokenizer, where that lies elsewhere

    def configuration(self, *, mini: bool) -> Configuration:
        """Every field, for a tiny random backbone or for a real one."""
        return {**self.fixed, **self.mini_fixed} if mini else self.fixed


def available() -> list[str]:
    """Names of all objectives that have a recipe, in alphabetical order."""
    files = [file for folder in __path__ for file in Path(folder).glob("[!_]*.py")]
    return sorted(file.stem.replace("_", "-") for file in files)


def load(objective: str) -> Recipe:
    """The recipe of an objective.

    Raises:
        ValueError: none has this name.
    """
    if objective not in available():
        raise no_such("objective", objective, available())
    name = objective.replace("-", "_")
    module = importlib.import_module(f"search_spaces.objectives.{name}")
    return Recipe(
        objective=objective,
        file=f"search_spaces/objectives/{name}.py",
        fixed=module.FIXED,
        mini_fixed=module.MINI_FIXED,
        backbone=module.BACKBONE,
        tokenizer=getattr(module, "TOKENIZER", {}),
    )
