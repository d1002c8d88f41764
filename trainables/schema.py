"""Converts plain values to typed values.

An error message names the wrong field, its value and the allowed values in one line. All data from files, other
processes and users pass through this module. The module does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from trainables.spelling import suggest_nearest

T = TypeVar("T")
MOST = 10**9  # upper bound of all counts

Value = bool | int | float | str | None  # value of a configuration field
Configuration = Mapping[str, Value]  # the values of a method's configuration by field name


class Typed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of all records. Reading a record fails if a field is missing, unknown or of the wrong type."""


def from_plain(kind: type[T], value: object, *, where: str) -> T:
    """Convert a plain value (dicts, lists, numbers, strings) to the type `kind`.

    Raises:
        ValueError: if the value does not fit the type; the message begins with `where`.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {_explain(str(error), kind, value)}") from None


def from_json(kind: type[T], line: bytes, *, where: str) -> T:
    """Parse a JSON text as a value of the type `kind`.

    Raises:
        ValueError: if the text does not fit the type; the message begins with `where`.
    """
    return Reader(kind).read(line, where=where)


class Reader:
    """A decoder that parses any number of JSON texts as values of one type."""

    def __init__(self, kind: Any) -> None:
        """Prepare a decoder for `kind`: a type, or a union of tagged types."""
        self._kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def read(self, line: bytes, *, where: str) -> Any:
        """Parse one JSON text; errors are those of `from_json`."""
        try:
            try:
                return self._decoder.decode(line)
            except msgspec.ValidationError as error:
                value = msgspec.json.decode(line)  # fails if bytes after the first error are invalid JSON
                raise ValueError(f"{where}: {_explain(str(error), self._kind, value)}") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            start = line[:60].decode(errors="replace").rstrip()
            raise ValueError(f"{where}: not a JSON object: {start!r}") from None


def to_plain(value: Any) -> Any:
    """Convert a typed value to dicts, lists, numbers and strings."""
    return msgspec.to_builtins(value)


def _explain(message: str, kind: Any, value: object) -> str:
    """Rewrite an error message of msgspec, so that it gives the field's name, its value and the allowed values."""
    rule, _, path = message.partition(" - at `$")
    names = re.findall(r"[^.\[\]`]+", path)
    if rule.startswith("Object missing required field "):
        return f"the field {_join_path(names, rule)} is missing"
    if rule.startswith("Object contains unknown field "):
        structs, unknown = _list_structs(_find_kind(kind, names, value)), rule.split("`")[1]
        fields = structs[0].__struct_fields__ if len(structs) == 1 else ()
        menu = f"; available: {', '.join(fields)}{suggest_nearest(unknown, fields)}" if fields else ""
        return f"no field named {_join_path(names, rule)}{menu}"
    if not rule.startswith(("Expected ", "Invalid ")):
        return rule  # the message of an error that the type's `__post_init__` raised
    menu = ", ".join(_list_choices(kind, names, value)) if rule.startswith(("Invalid ", "Expected `str`")) else ""
    allowed = menu or re.sub("`([^`]+)`", _name_types, rule.removeprefix("Expected ").partition(", got ")[0])
    allowed = _add_other_bound(allowed, _list_bounds(_find_kind(kind, names, value)))
    present = _follow(value, names)
    near = suggest_nearest(present, _list_choices(kind, names, value)) if menu and isinstance(present, str) else ""
    return f"{'.'.join(names) or 'the value'} is {present!r}; allowed: {allowed}{near}"


_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def _name_types(match: re.Match[str]) -> str:
    return " or ".join(_TYPES.get(name, name) for name in match[1].split(" | "))


def _join_path(names: list[str], rule: str) -> str:
    return ".".join([*names, rule.split("`")[1]])


def _follow(value: Any, names: list[str]) -> object:
    for name in names:
        if name == "...":  # stands for a dictionary key, which msgspec's message leaves out
            return value
        value = value[int(name)] if isinstance(value, list | tuple) else value[name]
    return value


def _list_structs(kind: Any) -> list[Any]:
    return [member for member in _list_members(kind) if hasattr(member, "__struct_fields__")]


def _list_choices(kind: Any, names: list[str], value: Any) -> list[str]:
    """List the allowed values of the field at the path `names`: the values of a `Literal` or the tags of a union."""
    end = _find_kind(kind, names, value)
    literals = [member for member in _list_members(end) if get_origin(member) is Literal]
    tags = [str(member.__struct_config__.tag) for member in _list_structs(end)]
    return [str(choice) for literal in literals for choice in get_args(literal)] or tags


def _find_kind(kind: Any, names: list[str], value: Any) -> Any:
    """Find the type of the field at the path `names`; stop at the first type that is not a struct."""
    for name in names:
        matching = [member for member in _list_structs(kind) if _has_tag(member, value)]
        if not matching:
            return kind
        kind, value = get_type_hints(matching[0], include_extras=True).get(name), value[name]
    return kind


def _list_bounds(kind: Any) -> list[str]:
    """List the bounds of a number type, as in `>= 0` and `< 1`."""
    of_numbers = [member.__metadata__ for member in _list_members(kind) if get_origin(member) is Annotated]
    metas = [meta for metadata in of_numbers for meta in metadata if isinstance(meta, msgspec.Meta)]
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    bounds = [(sign, getattr(meta, name)) for meta in metas for name, sign in signs.items()]
    return [f"{sign} {bound}" for sign, bound in bounds if bound is not None]


def _add_other_bound(allowed: str, bounds: Sequence[str]) -> str:
    """Add the second bound of a number type to a phrase such as `a number <= 1.0`.

    The phrase comes from msgspec, which names only the violated bound. The upper bound `MOST` is not added, because
    all counts have it.
    """
    overstepped = re.search(" ([<>])=? ", allowed)
    if overstepped is None or len(bounds) < 2:
        return allowed
    is_own = overstepped[1] == "<" or f"<= {MOST}" not in bounds
    return f"{allowed[: overstepped.start()]} {' and '.join(bounds)}" if is_own else allowed


def _list_members(kind: Any) -> tuple[Any, ...]:
    """List the members of a union type. For any other type, list only the type itself.

    An `Annotated` type without `msgspec.Meta` counts as the type that it annotates.
    """
    if get_origin(kind) is Annotated and not any(isinstance(each, msgspec.Meta) for each in kind.__metadata__):
        kind = kind.__origin__
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _has_tag(struct: Any, value: Any) -> bool:
    config = struct.__struct_config__
    return config.tag is None or (isinstance(value, dict) and value.get(config.tag_field) == config.tag)
