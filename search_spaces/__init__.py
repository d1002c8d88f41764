"""Which configurations of a method are tried: one file per method, data only.

A file may have variants of its method, `VARIANTS`: name -> fields that they fix. `palbert:a` is the variant `a` of
PALBERT, an arm of its own beside PALBERT's.

Importing this package imports nothing heavy; a method's file imports Optuna's distributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from trainables import VARIANT, base_method, method_files
from trainables.schema import Configuration, Value
from trainables.spelling import meant, no_such

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """What one method's file says of the method or of one of its variants."""

    method: str  # "palbert", or "palbert:a"
    file: str  # where it is said
    space: Mapping[str, BaseDistribution]  # the tuned fields; none: nothing is searched
    fixed: Configuration  # every other field of the method's configuration
    fixed_by_task: Mapping[str, Configuration]  # task -> fields, laid over `fixed`
    paper_grid: Mapping[str, Sequence[Value]]  # the paper's grid, over all fields of `space`
    variant: Configuration  # fields that the variant fixes, laid over all others; these are not tuned
    published: Mapping[str, Sequence[Configuration]]  # task -> best configurations known, over fields of `space`
    backbone: Mapping[str, str]  # "mini" and "paper" -> backbone
    tokenizer: Mapping[str, str | None]  # the same -> its tokenizer, where that lies elsewhere
    families: Sequence[str]  # of the backbones that may stand under its name; empty: any
    mini_space: Mapping[str, BaseDistribution]  # on a tiny random backbone, laid over `space`
    mini_grid: Mapping[str, Sequence[Value]]  # the same, laid over `paper_grid`
    mini_fixed: Configuration  # the same, laid over `fixed`; these are not tuned
    seeds: int | None  # confirm trials, where the method has a number of its own


def available() -> list[str]:
    """Names of all methods that have a search space, in alphabetical order; their variants not counted."""
    return method_files.names()


def variants(method: str) -> list[str]:
    """Names of the variants of a method, `palbert:a`, in the order of its file."""
    return [f"{method}{VARIANT}{name}" for name in getattr(_module(method), "VARIANTS", {})]


def meant_method(name: str) -> str:
    """The method or variant that is meant, however it is written: `PALBERT:A` is `palbert:a`.

    Raises:
        ValueError: none is.
    """
    base, colon, given = name.partition(VARIANT)
    method_files.check_whole(base)
    method = meant(base, available(), what="method")
    variant = f"{method}{colon}{given}"
    return meant(variant, variants(method), what=f"variant of {method}") if colon else method


def check(method: str) -> None:
    """Passes if a method or a variant has this name.

    Raises:
        ValueError: none has.
    """
    base = base_method(method)
    method_files.check_whole(base)
    if base not in available():
        raise no_such("method", method, available())
    if method != base and method not in variants(base):
        raise no_such(f"variant of {base}", method, variants(base))


def load(method: str) -> SearchSpace:
    """The search space of a method, or of one of its variants.

    Raises:
        ValueError: none has this name, or its file is none.
    """
    check(method)
    base, _, variant = method.partition(VARIANT)
    module = _module(base)
    return SearchSpace(
        method=method,
        file=method_files.files_of(base)[1].path,
        space=module.SPACE,
        fixed=module.FIXED,
        fixed_by_task=getattr(module, "FIXED_BY_TASK", {}),
        variant=module.VARIANTS[variant] if variant else {},
        paper_grid=module.PAPER_GRID,
        published={} if variant else module.PUBLISHED,
        backbone=module.BACKBONE,
        tokenizer=getattr(module, "TOKENIZER", {}),
        families=getattr(module, "FAMILIES", ()),
        mini_space=module.MINI_SPACE,
        mini_grid=module.MINI_GRID,
        mini_fixed=module.MINI_FIXED,
        seeds=getattr(module, "SEEDS", None),
    )


def _module(method: str) -> ModuleType:
    from search_spaces._shape import check_shape  # Optuna's distributions

    _, file = method_files.files_of(method)
    module = file.load()
    check_shape(file, module)
    return module
