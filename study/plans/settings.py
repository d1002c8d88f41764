"""The settings of a plan: the fields that a user fixes or searches.

The key `FIELD` applies to every method that has the field. The key `SCOPE:FIELD` applies to one method, variant or arm:
`palbert:a:beta`, `palbert/rte:epochs`. A field with a single value is fixed. A field with choices or an interval is
searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from trainables import base_method, is_value_variant
from trainables.configuration.ranges import Choices, Interval, format_range, list_extremes
from trainables.configuration.schema import Value, from_plain, read_value

FORMS = "LOW..HIGH, LOW..HIGH:log, A,B,C"
NONE = "none"  # stands for null, which TOML lacks
_LOG = ":log"


Setting = Value | Choices | Interval
Settings = Mapping[str, Setting]


def is_searched(setting: Setting) -> bool:
    """Check if the setting is an interval or choices, not a single value."""
    return isinstance(setting, Interval | tuple)


def format_option(key: str, setting: Setting) -> str:
    """Format the option of a setting without its value: `--search palbert:beta`."""
    return f"{'--search' if is_searched(setting) else '--set'} {key}"


def format_setting(setting: Setting) -> str:
    """Format a setting for captions: `1e-05 to 0.0001 log`, `16 | 32`, `5`."""
    return format_range(setting) if isinstance(setting, Interval | tuple) else json.dumps(setting)


def split_key(key: str) -> tuple[str, str]:
    """Split a key into scope and field; the scope is empty for a setting of every method."""
    scope, _, field = key.rpartition(":")
    return scope, field


def shorten(key: str) -> str:
    """Shorten a setting's key for captions: `palbert/rte:beta` becomes `beta of single arms`."""
    scope, field = split_key(key)
    return f"{field} of single arms" if "/" in scope else key


def list_scopes(method: str) -> list[str]:
    """List the methods whose settings apply to a method: itself, after its method for `METHOD:FIELD=VALUE`."""
    return [base_method(method), method] if is_value_variant(method) else [method]


def find_keys(settings: Settings, arm: str) -> dict[str, str]:
    """Map each field to the key that applies to the arm.

    The order of precedence is `METHOD/TASK:FIELD`, `METHOD:FIELD`, `FIELD`; a method's keys hold for its values.
    """
    scopes = _list_wider_scopes(arm)
    parts = {key: split_key(key) for key in settings}
    return {field: key for scope in scopes for key, (own_scope, field) in parts.items() if own_scope == scope}


def _list_wider_scopes(scope: str) -> tuple[str, ...]:
    """List the scopes whose keys hold for a method or an arm, from the widest to itself."""
    method, slash, task = scope.partition("/")
    return ("", *list_scopes(method), *(f"{each}/{task}" for each in list_scopes(method) if slash))


def override_settings(base: Settings, over: Settings) -> dict[str, Setting]:
    """Merge the settings in `base` and `over`. If both have a key, the value in `over` is used.

    A key in `over` also replaces narrower keys in `base`: `palbert:beta` replaces `palbert/rte:beta`.
    """
    replaced = [split_key(key) for key in over]

    def is_replaced(scope: str, field: str) -> bool:
        scopes = _list_wider_scopes(scope)
        return any(field == other and other_scope in scopes for other_scope, other in replaced)

    return {key: value for key, value in base.items() if not is_replaced(*split_key(key))} | dict(over)


def merge_settings(fixed: Mapping[str, Value], searched: Mapping[str, Choices | Interval]) -> dict[str, Setting]:
    """Merge fixed and searched settings.

    Raises:
        ValueError: a key is both fixed and searched.
    """
    if repeated := fixed.keys() & searched.keys():
        raise ValueError(f"{min(repeated)} is both set and searched; allowed: only one of the two")
    return {**fixed, **searched}


def read_searched(text: str) -> Choices | Interval:
    """Parse an interval or choices: `3e-5..3e-4:log`, `1..3` or `16,32`.

    Raises:
        ValueError: the text is not a valid interval or list of choices.
    """
    if not text:
        raise ValueError(f"the value is empty; allowed: {FORMS}")
    ends = text.removesuffix(_LOG)
    low, dots, high = ends.partition("..")
    if high.startswith("."):
        raise ValueError(f"{text} has three dots; did you mean {low}..{text.removeprefix(low).lstrip('.')}?")
    if dots and ":" in high:
        raise ValueError(f"{text} ends in :{high.partition(':')[2]}; allowed: {_LOG}, or no ending")
    if dots:
        plain = {"low": read_value(low), "high": read_value(high), "log": ends != text}
        return from_plain(Interval, plain, where=text)
    return _check_choices([read_value(choice.strip()) for choice in text.split(",")], text)


def _check_choices(values: list[Value], source: object) -> Choices:
    if len(values) < 2:
        raise ValueError(f"{source} is a single value; allowed: {FORMS}, or --set for a single value")
    if len({*map(json.dumps, values)}) < len(values):
        raise ValueError(f"{source} repeats a choice; allowed: each choice once")
    return tuple(values)


def read_tables(tables: Mapping[str, object]) -> dict[str, Setting]:
    """Read the settings from the tables `set` and `search` of a plan file.

    Raises:
        ValueError: a setting is invalid; the message begins with its table and key.
    """
    fixed = _read_table(tables, "set", lambda value: from_plain(Value, None if value == NONE else value, where=""))  # type: ignore[arg-type]  # a union
    return merge_settings(fixed, _read_table(tables, "search", _read_ranged))


def _read_ranged(value: object) -> Choices | Interval:
    if isinstance(value, list):
        choices = from_plain(list[Value], [None if each == NONE else each for each in value], where="")
        return _check_choices(choices, value)
    if not isinstance(value, dict):
        raise ValueError(
            f"the value is {value!r}; allowed: {{ low = 1e-5, high = 1e-4, log = true }}, or a list of choices"
        )
    return from_plain(Interval, value, where="")


def _read_table(tables: Mapping[str, object], name: str, read: Callable[[object], Any]) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{name} is {table!r}; allowed: a table")
    settings: dict[str, object] = {}
    for key, value in table.items():
        is_scope = isinstance(value, dict) and not {"low", "high"} & {*value}
        settings |= {f"{key}:{field}": each for field, each in value.items()} if is_scope else {key: value}
    result = {}
    for key, value in settings.items():
        try:
            result[key] = read(value)
        except ValueError as error:
            raise ValueError(f"[{name}] {key}: {str(error).removeprefix(': ')}") from None
    return result


def format_toml(fields: Mapping[str, object], settings: Settings) -> str:
    """Format the fields of a plan as TOML; the plan's settings follow as the tables `set` and `search`."""
    import tomli_w

    tables: dict[str, Any] = {}
    for key, setting in settings.items():
        scope, field = split_key(key)
        table = tables.setdefault("search" if is_searched(setting) else "set", {})
        table = table.setdefault(scope, {}) if scope else table
        table[field] = [*map(_convert_interval, setting)] if isinstance(setting, tuple) else _convert_interval(setting)
    return re.sub(r'"({ low = [^"]+ })"', r"\1", tomli_w.dumps({**fields, **tables}))


def _convert_interval(value: Value | Interval) -> Value:
    """Format an interval as a TOML table, and None as `none`. `format_toml` removes the quotes around the table."""
    if isinstance(value, Interval):
        step = "" if value.step is UNSET else f", step = {value.step}"
        return f"{{ low = {value.low}, high = {value.high}{', log = true' * value.log}{step} }}"
    return NONE if value is None else value


def convert_option(kind: Any, value: Value, *, named: str) -> Any:
    """Convert an option's value to `kind`, the type of a field.

    Raises:
        ValueError: the field cannot hold the value; the message begins with `named`, the name of the option.
    """
    try:
        return from_plain(kind, value, where=named)
    except ValueError as error:
        raise ValueError(str(error).replace(": the value is", " is")) from None


def convert_range(setting: Choices | Interval, kind: Any, *, named: str) -> Choices | Interval:
    """Convert the choices or ends of a range to `kind`, the type of a field; `named` is the option's name for messages.

    Raises:
        ValueError: the field cannot hold a choice or an end of the interval.
    """
    converted = tuple(convert_option(kind, value, named=named) for value in list_extremes(setting))
    if isinstance(setting, tuple):
        return converted
    low, high = converted
    return replace(setting, low=low, high=high)
