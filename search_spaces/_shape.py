"""What a search space's file must define, and as what: one line where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType

from optuna.distributions import BaseDistribution

from trainables.method_files import MethodFile

NEEDED = ("SPACE", "FIXED", "PAPER_GRID", "PUBLISHED", "BACKBONE", "MINI_SPACE", "MINI_GRID", "MINI_FIXED")
PROFILES = {"mini", "paper"}  # what BACKBONE and TOKENIZER are named for

_DISTRIBUTION = "an Optuna distribution"
_VALUE = "a number, text, true, false or None"
_VALUES = "a list of values"
_FIELDS = "fields and their values, {name: value}"
_POINTS = "a list of configurations, each {name: value}"
_TEXT = "text"
# Of every name whose value is a mapping: what its values are.
_HOLDS = {
    "SPACE": _DISTRIBUTION,
    "MINI_SPACE": _DISTRIBUTION,
    "FIXED": _VALUE,
    "MINI_FIXED": _VALUE,
    "PAPER_GRID": _VALUES,
    "MINI_GRID": _VALUES,
    "FIXED_BY_TASK": _FIELDS,
    "VARIANTS": _FIELDS,
    "PUBLISHED": _POINTS,
    "BACKBONE": _TEXT,
    "TOKENIZER": "text or None",
}


def check_shape(file: MethodFile, module: ModuleType) -> None:
    """Passes if all names that a search space needs are there, each of its type.

    Raises:
        ValueError: one is not.
    """
    if absent := [name for name in NEEDED if not hasattr(module, name)]:
        raise ValueError(f"{file.path} has no {', '.join(absent)}; a search space has {', '.join(NEEDED)}")
    for name, kind in _HOLDS.items():
        if hasattr(module, name):
            for fault in _faults(name, getattr(module, name), kind):
                raise ValueError(f"{file.place_of(name)}: {fault}")
    seeds = getattr(module, "SEEDS", None)
    if seeds is not None and (type(seeds) is not int or seeds < 1):
        raise ValueError(f"{file.place_of('SEEDS')}: SEEDS is {seeds!r}; allowed: a whole number >= 1")
    families = getattr(module, "FAMILIES", ())
    if isinstance(families, str) or not all(isinstance(family, str) for family in families):
        raise ValueError(f"{file.place_of('FAMILIES')}: FAMILIES is {families!r}; allowed: a list of names")


def _faults(name: str, value: object, kind: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{name} is {value!r:.60}; allowed: a mapping, of each name {kind}"
        return
    for key, held in value.items():
        if not (isinstance(key, str) and _is(held, kind)):
            yield f"{name}[{key!r}] is {held!r:.60}; allowed: {kind}"
    if kind.startswith(_TEXT) and {*value} != PROFILES:
        yield f"{name} names {', '.join(map(str, value)) or 'nothing'}; allowed: mini and paper"


def _is(value: object, kind: str) -> bool:
    if kind == _DISTRIBUTION:
        return isinstance(value, BaseDistribution)
    if kind == _VALUE:
        return value is None or isinstance(value, bool | int | float | str)
    if kind == _TEXT:
        return isinstance(value, str)
    if kind == _FIELDS:
        return isinstance(value, Mapping) and all(_is(held, _VALUE) for held in value.values())
    if kind in (_VALUES, _POINTS):
        each = _VALUE if kind == _VALUES else _FIELDS
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_is(held, each) for held in value)
    return value is None or isinstance(value, str)
