"""The search space of each method: one file per method, data only.

A file may define variants of its method: `VARIANTS` maps a variant's name to the fields that the variant fixes.
`palbert:a` is the variant `a` of PALBERT; it is searched and reported separately from PALBERT. Each value of a
field is a variant, too, such as `palbert:beta=0.1`; --vary names several of them. Importing this package is fast,
because only the methods' files import Optuna.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_type_hints

from msgspec import UNSET

from trainables import VALUE, VARIANT, load_method
from trainables import list_methods as list_methods
from trainables.configuration.ranges import Choices, Interval
from trainables.configuration.schema import Configuration, Value, from_json, from_plain, read_value
from trainables.configuration.spelling import resolve_name, unknown_name_error
from trainables.files import method_files
from trainables.files.method_files import MethodFile

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """The search space of a method or variant, as read from the method's file."""

    method: str  # "palbert", or "palbert:a"
    file: str  # path within the package, or whole path of an included file
    space: Mapping[str, Choices | Interval]  # the tuned fields; empty if nothing is searched
    post_hoc: Mapping[
        str, Choices | Interval
    ]  # exit settings to try on each trained model; in `space` too, unless fixed
    fixed: Configuration  # values of the fields that are not tuned
    fixed_by_task: Mapping[str, Configuration] = field(default_factory=dict)  # task -> fields that replace `fixed`
    fixed_by_family: Mapping[str, Configuration] = field(default_factory=dict)  # family of backbones -> the same
    paper_grid: Mapping[str, Sequence[Value]]  # the paper's grid, over all fields of `space`
    variant: Configuration  # fields that the variant fixes instead of tuning; they replace all others
    published: Mapping[str, Sequence[Configuration]] = field(default_factory=dict)  # task -> best known points
    backbone: Mapping[str, str]  # "mini" or "paper" -> backbone
    tokenizer: Mapping[str, str | None] = field(default_factory=dict)  # keys as in `backbone`; None: the backbone's
    families: Sequence[str] = ()  # families of backbones that the method accepts; empty for any
    mini_space: Mapping[str, Choices | Interval]  # replaces fields of `space` on a tiny random backbone
    mini_grid: Mapping[str, Sequence[Value]]  # replaces fields of `paper_grid` on a tiny random backbone
    mini_fixed: Configuration  # replaces fields of `fixed` on a tiny random backbone; not tuned
    defaults: Mapping[str, Mapping[str, Any]]  # "fixed", "mini_space" ... -> what `_every_method.py` sets of it
    start: str | None = None  # method; each trial starts from that method's best model on the trial's task

    def layers(self, name: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Return two pairs (origin, values) of the field `name`: all its values, then those from `_every_method.py`."""
        return [
            (f"{self.file} {name.upper()}", getattr(self, name)),
            (f"search_spaces/_every_method.py {name.upper()}", self.defaults[name]),
        ]


def variants(method: str) -> list[str]:
    """List the variants of a method, such as `palbert:a`, in the order of the method's file."""
    return [f"{method}{VARIANT}{name}" for name in getattr(_load_module(method), "VARIANTS", {})]


def resolve_method(name: str) -> str:
    """Resolve a user's spelling of a method or variant: `PALBERT:A` gives `palbert:a`, `q=.5` gives `q=0.5`.

    Raises:
        ValueError: if the name is unknown; the message suggests the nearest one.
    """
    base, colon, key = name.partition(VARIANT)
    method_files.check_both_files(base)
    method = resolve_name(base, list_methods(), what="method")
    if VALUE in key:
        ((field, value),) = read_value_variant(method, key).items()
        return name_value_variant(method, field, value)
    variant = f"{method}{colon}{key}"
    return resolve_name(variant, variants(method), what=f"variant of {method}") if colon else method


def name_value_variant(method: str, field: str, value: Value) -> str:
    """Name the variant of a method that fixes one field: `palbert:beta=0.1`."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{method}{VARIANT}{field}{VALUE}{text}"


def read_value_variant(method: str, key: str) -> dict[str, Value]:
    """Read the field and value of a variant such as `beta=0.1`, with the type of the field.

    Raises:
        ValueError: if the method has no such field, or the field cannot have the value.
    """
    field, _, text = key.partition(VALUE)
    kinds = get_type_hints(load_method(method).Config, include_extras=True)
    if field not in kinds:
        raise unknown_name_error(f"field of {method}", field, sorted(kinds))
    value = read_value(text)
    if isinstance(value, str) and not re.fullmatch(r"[\w.-]+", value):
        raise ValueError(f"{method}:{field} is {text!r}; allowed in a name: letters, digits, dots, _ and -")
    return {field: from_plain(kinds[field], value, where=f"{method}:{field}")}


def load_space(method: str) -> SearchSpace:
    """Load the search space of a method, or of one of its variants.

    Raises:
        ValueError: if the method is unknown, or its file is not a valid search space.
    """
    if resolve_method(method) != method:
        raise unknown_name_error("method", method, list_methods())
    base, _, variant = method.partition(VARIANT)
    module = _load_module(base)
    fixed = module.VARIANTS[variant] if variant and VALUE not in variant else {}
    content = {name.lower(): getattr(module, name) for name in (*NEEDED, *_OPTIONAL) if hasattr(module, name)}
    content |= {"space": read_space(module, "SPACE"), "mini_space": read_space(module, "MINI_SPACE")}
    post_hoc = {field: _read_menu(values) for field, values in content.get("post_hoc", {}).items()}
    chosen = {field: values for field, values in post_hoc.items() if field not in module.FIXED}
    content |= {"post_hoc": post_hoc, "space": {**content["space"], **chosen}}
    defaults = _list_defaults(content)
    for name, values in defaults.items():
        content[name] = values | content.get(name, {})
    return SearchSpace(
        method=method,
        file=method_files.locate_files(base)[1].path,
        variant=read_value_variant(base, variant) if VALUE in variant else fixed,
        defaults=defaults,
        **content | ({"published": {}} if variant else {}),
    )


def _list_defaults(content: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """List the values in `_every_method.py` of all fields that the method's file does not mention."""
    from search_spaces import _every_method as every_method

    fixed, tuned = {*content["fixed"]}, {*content["space"]}
    mini = {field for name in _MINI for field in content.get(name.lower(), {})}
    mentioned = {"fixed": tuned | fixed, "mini_space": mini | fixed, "mini_grid": mini | fixed, "mini_fixed": mini}
    values = {name: getattr(every_method, name.upper()) for name in mentioned}
    values["mini_space"] = read_space(every_method, "MINI_SPACE")
    return {
        name: {field: value for field, value in values[name].items() if field not in fields}
        for name, fields in mentioned.items()
    }


def read_space(module: ModuleType, name: str) -> dict[str, Choices | Interval]:
    """Read the ranges of a mapping of a method's file; {} if the file lacks the mapping."""
    return {
        field: _read_distribution(distribution, where=f"{name}[{field!r}]")
        for field, distribution in getattr(module, name, {}).items()
    }


def _read_distribution(distribution: BaseDistribution, *, where: str) -> Choices | Interval:
    """Convert an Optuna distribution to choices or an interval; an interval of one value becomes a single choice."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return from_json(Choices, json.dumps(distribution.choices).encode(), where=where)
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    if distribution.single():
        return (distribution.low,)
    step = None if isinstance(distribution, IntDistribution) and distribution.step == 1 else distribution.step
    low, high, log = distribution.low, distribution.high, distribution.log
    return Interval(low=low, high=high, log=log, step=UNSET if step is None else step)


def _read_menu(values: Sequence[Value]) -> Choices | Interval:
    if isinstance(values, range) and len(values) > 1 and values.step > 0:
        return Interval(low=values[0], high=values[-1], step=UNSET if values.step == 1 else values.step)
    return tuple(values)


def _load_module(method: str) -> ModuleType:
    _, file = method_files.locate_files(method)
    module = file.import_module()
    _check_shape(file, module)
    return module


NEEDED = ("SPACE", "FIXED", "PAPER_GRID", "BACKBONE")
_MINI = ("MINI_SPACE", "MINI_GRID", "MINI_FIXED")
_OPTIONAL = ("POST_HOC", "START", "FIXED_BY_TASK", "FIXED_BY_FAMILY", "PUBLISHED", "TOKENIZER", "FAMILIES", *_MINI)
PROFILES = {"mini", "paper"}  # keys of BACKBONE and TOKENIZER

_OF_A_LAUNCH = ("SAMPLER", "SAMPLES", "SEEDS", "EARLY_STOPPING")  # options of the same name set these
_DISTRIBUTION = "an Optuna distribution"
_VALUE = "a number, text, true, false or None"
_VALUES = "a list of values"
_FIELDS = "fields and their values, {name: value}"
_POINTS = "a list of configurations, each {name: value}"
_TEXT = "text"
_MAPPINGS = {  # name -> type of the values in its mapping
    "SPACE": _DISTRIBUTION,
    "MINI_SPACE": _DISTRIBUTION,
    "FIXED": _VALUE,
    "MINI_FIXED": _VALUE,
    "PAPER_GRID": _VALUES,
    "MINI_GRID": _VALUES,
    "POST_HOC": _VALUES,
    "FIXED_BY_TASK": _FIELDS,
    "FIXED_BY_FAMILY": _FIELDS,
    "VARIANTS": _FIELDS,
    "PUBLISHED": _POINTS,
    "BACKBONE": _TEXT,
    "TOKENIZER": "text or None",
}


def _check_shape(file: MethodFile, module: ModuleType) -> None:
    """Check that a method's file defines every required name, each with the right type.

    Raises:
        ValueError: if a name is missing or has the wrong type.
    """
    if absent := [name for name in NEEDED if not hasattr(module, name)]:
        raise ValueError(f"{file.path} has no {', '.join(absent)}; a search space has {', '.join(NEEDED)}")
    for name in vars(module):
        if remedy := _find_remedy(name):
            raise ValueError(f"{file.format_place(name)}: {name} has no effect in a search space; {remedy}")
    for name, kind in _MAPPINGS.items():
        if hasattr(module, name):
            for fault in _find_faults(name, getattr(module, name), kind):
                raise ValueError(f"{file.format_place(name)}: {fault}")
    for name, values in getattr(module, "POST_HOC", {}).items():
        if not values or name in module.SPACE:
            wrong = f"{name} is in SPACE too; allowed: one of the two" if values else f"{name} has no values"
            raise ValueError(f"{file.format_place('POST_HOC')}: POST_HOC: {wrong}")
    families = getattr(module, "FAMILIES", ())
    if isinstance(families, str) or not all(isinstance(family, str) for family in families):
        raise ValueError(f"{file.format_place('FAMILIES')}: FAMILIES is {families!r}; allowed: a list of names")


def _find_remedy(name: str) -> str:
    """Find the name or option that the user of a name without effect probably meant; return "" if there is none."""
    if name.startswith("_"):  # of the file itself
        return ""
    if name in _OF_A_LAUNCH:
        return f"allowed: --{name.lower().replace('_', '-')} of a launch"
    known = (*NEEDED, *_OPTIONAL, "VARIANTS")
    meant = [each for each in known if each.replace("_", "").rstrip("S") == name.replace("_", "").rstrip("S")]
    return f"did you mean {meant[0]}?" if meant and name not in known else ""


def _find_faults(name: str, value: object, kind: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{name} is {value!r:.60}; allowed: a mapping with {kind} for each name"
        return
    for key, held in value.items():
        if not (isinstance(key, str) and _fits(held, kind)):
            yield f"{name}[{key!r}] is {held!r:.60}; allowed: {kind}"
    if kind.startswith(_TEXT) and {*value} != PROFILES:
        yield f"the keys of {name} are {', '.join(map(str, value)) or 'none'}; allowed: mini and paper"


def _fits(value: object, kind: str) -> bool:
    if kind == _DISTRIBUTION:
        from optuna.distributions import BaseDistribution

        return isinstance(value, BaseDistribution)
    if kind == _VALUE:
        return value is None or isinstance(value, bool | int | float | str)
    if kind == _TEXT:
        return isinstance(value, str)
    if kind == _FIELDS:
        return isinstance(value, Mapping) and all(_fits(held, _VALUE) for held in value.values())
    if kind in (_VALUES, _POINTS):
        each = _VALUE if kind == _VALUES else _FIELDS
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(held, each) for held in value)
    return value is None or isinstance(value, str)
