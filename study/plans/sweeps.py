"""Sweeps: values of one field, each studied as a method of its own, such as `palbert:beta=0.1` (`--vary`, `[vary]`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces import name_value_variant, resolve_method
from study.plans.resolved_plan import ResolvedPlan
from study.terminal.text import joined
from trainables import VALUE, VARIANT, is_value_variant
from trainables.configuration.schema import Value


def list_value_variants(method: str, field: str, values: Sequence[Value]) -> list[str]:
    """List the variants of a method that fix the field at one of the values each.

    Raises:
        ValueError: if there are fewer than two values, a value occurs twice, or the method has no such field or value.
    """
    names = [
        resolve_method(name_value_variant(method, field, value.strip() if isinstance(value, str) else value))
        for value in values
    ]
    if len(names) < 2:
        raise ValueError(f"{method}:{field} has one value; allowed: two or more, or --set for a single value")
    if len({*names}) < len(names):
        raise ValueError(f"{method}:{field} repeats a value; allowed: each value once")
    return names


def read_vary_table(table: object) -> list[str]:
    """Read the table `vary` of a plan file, such as `palbert.beta = [0.1, 0.3]`, as variants.

    Raises:
        ValueError: if the table is invalid; the message begins with its key.
    """
    form = "[vary.METHOD] with FIELD = [A, B, C]"
    if not isinstance(table, Mapping) or not all(isinstance(fields, Mapping) for fields in table.values()):
        raise ValueError(f"vary is {table!r}; allowed: {form}")
    names = list[str]()
    for method, fields in table.items():
        for field, values in fields.items():
            if not isinstance(values, list):
                raise ValueError(f"[vary.{method}] {field} is {values!r}; allowed: {form}")
            try:
                names += list_value_variants(method, field, values)
            except ValueError as error:
                raise ValueError(f"[vary.{method}] {field}: {error}") from None
    return names


def add_vary_table(fields: Mapping[str, Any], table: object, *, is_searched: bool) -> dict[str, Any]:
    """Add the variants of the table `vary` to the fields of a plan file; without a search, set `samples` to 0.

    Raises:
        ValueError: if the table is invalid, or `methods` is not a list.
    """
    methods = fields.get("methods", [])
    if not isinstance(methods, list):
        raise ValueError(f"methods is {methods!r}; allowed: a list")
    added = {} if is_searched or "search_only" in fields else {"samples": 0}
    return {**added, **fields, "methods": [*methods, *read_vary_table(table)]}


def describe_sweeps(plan: ResolvedPlan) -> list[str]:
    """Describe by field the values that a plan varies, and which other fields are searched for each of them."""
    values = dict[str, list[str]]()
    for method in filter(is_value_variant, plan.request.methods):
        base, _, key = method.partition(VARIANT)
        field, _, value = key.partition(VALUE)
        values.setdefault(f"{base}:{field}", []).append(value)
    return [
        f"{key} has the values {joined(each)}, each with all seeds and {_describe_search(plan, key)}"
        for key, each in values.items()
    ]


def _describe_search(plan: ResolvedPlan, key: str) -> str:
    arms = [arm for arm in plan.arms if arm.method.startswith(f"{key}{VALUE}")]
    fields = dict.fromkeys(field for arm in arms if arm.samples for field in arm.space)
    return f"a search of {joined([*fields])}" if fields else "without a search"
