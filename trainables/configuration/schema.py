"""Converts plain values to typed values.

An error message gives the wrong field, its value and the allowed values in one line. All data from files, other
processes and users pass through this module. The module does not import torch.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from trainables.configuration.spelling import suggest_nearest

T = TypeVar("T")
_OF_NUMBERS = "0123456789.eE+-_"
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
        """Parse one JSON text. Raise the same errors as `from_json`."""
        try:
            try:
                return self._decoder.decode(line)
            except msgspec.ValidationError as error:
                value = msgspec.json.decode(line)  # fails if bytes after the first error are invalid JSON
                raise ValueError(f"{where}: {_explain(str(error), self._kind, value)}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if "surrogate" in str(error):
                fault = "the text has half of a surrogate pair (such as \\ud83d without \\ude00)"
                raise ValueError(f"{where}: {fault}, which is not a character; allowed: whole characters") from None
            start = line[:60].decode(errors="replace").rstrip()
            raise ValueError(f"{where}: the text is not a JSON object: {start!r}") from None


def read_value(text: str) -> Value:
    """Parse the text as a number or other JSON; if that fails, return the text itself."""
    is_number = text.strip(_OF_NUMBERS) == ""
    try:
        if text.lstrip("+-").isdigit():
            return int(text)  # not as a float, which would round large seeds
        value: Value = float(text) if is_number else json.loads(text)
    except ValueError:
        return text
    if is_number and isinstance(value, float):
        if not math.isfinite(value):
            return text
        return int(value) if value.is_integer() else value  # 1e3 becomes 1000; the field's type converts it later
    return value


def to_plain(value: Any) -> Any:
    """Convert a typed value to dicts, lists, numbers and strings."""
    return msgspec.to_builtins(value)


def _explain(message: str, kind: Any, value: object) -> str:
    """Rewrite an error message of msgspec: give the field's name, the value and the allowed values."""
    rule, _, path = message.partition(" - at `$")
    steps = re.findall(r"\.{3}|[^.\[\]`]+", path)
    field = _find_type(kind, steps, value)
    names = [step for step in steps if step != _ANY_KEY]
    structs = [member for member in _list_members(field) if isinstance(member, inspect.StructType)]
    if rule.startswith("Object missing required field "):
        return f"the field {_join_path(names, rule)} is missing"
    if rule.startswith("Object contains unknown field "):
        fields = [each.encode_name for each in structs[0].fields] if len(structs) == 1 else []
        menu = f"; available: {', '.join(fields)}{suggest_nearest(rule.split('`')[1], fields)}" if fields else ""
        return f"no field named {_join_path(names, rule)}{menu}"
    if not rule.startswith(("Expected ", "Invalid ")):
        return rule  # the message of an error that the type's `__post_init__` raised
    literals = [member for member in _list_members(field) if isinstance(member, inspect.LiteralType)]
    choices = [str(choice) for literal in literals for choice in literal.values] or [str(each.tag) for each in structs]
    present, near = _follow(value, steps), ""
    if choices and rule.startswith(("Invalid ", "Expected `str`")):
        allowed, near = ", ".join(choices), suggest_nearest(present, choices) if isinstance(present, str) else ""
    else:
        allowed = re.sub("`([^`]+)`", _name_types, rule.removeprefix("Expected ").partition(", got ")[0])
        allowed = _name_both_bounds(allowed, field)
    return f"{'.'.join(names) or 'the value'} is {present!r}; allowed: {allowed}{near}"


_ANY_KEY = "..."  # stands for a dictionary key, which msgspec's message leaves out
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


def _follow(value: Any, steps: list[str]) -> object:
    """Find the value at the path `steps`; if a key is unknown, return the dictionary."""
    for name in steps:
        if name == _ANY_KEY:
            return value
        value = value[int(name)] if isinstance(value, list | tuple) else value[name]
    return value


def _find_type(kind: Any, steps: list[str], value: Any) -> inspect.Type:
    """Find the type of the field at the path `steps`; below a dictionary or a list, return its type."""
    found = inspect.type_info(kind)
    for name in steps:
        structs = [member for member in _list_members(found) if isinstance(member, inspect.StructType)]
        matching = [each for each in structs if each.tag is None or each.tag == value.get(each.tag_field)]
        if name == _ANY_KEY or not matching:
            break
        found, value = next(each.type for each in matching[0].fields if each.encode_name == name), value[name]
    return found


def _list_members(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _name_both_bounds(allowed: str, kind: inspect.Type) -> str:
    """Complete a phrase such as `a number <= 1.0` with the other bound of the type, unless that bound is `MOST`."""
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    of_members = [(sign, getattr(member, name, None)) for member in _list_members(kind) for name, sign in signs.items()]
    bounds = [f"{sign} {bound}" for sign, bound in of_members if bound is not None]
    if len(bounds) < 2 or (f"<= {MOST}" in bounds and " < " not in allowed and " <= " not in allowed):
        return allowed
    return re.sub(" [<>]=? .*", f" {' and '.join(bounds)}", allowed)
