"""Values laid over each other: of each field the last one, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
Layers = list[tuple[str, Mapping[str, T]]]  # origin and values, the last one wins


@dataclass(frozen=True)
class Layered(Generic[T]):
    """The value of a field, and the layer that it comes from."""

    value: T
    origin: str


def last_of(layers: Layers[T]) -> dict[str, Layered[T]]:
    """Of each field the value of the last layer that has it; fields in the order in which they first appear."""
    return {name: Layered(value, origin) for origin, values in layers for name, value in values.items()}


def in_columns(rows: list[tuple[str, str, str]]) -> list[str]:
    """Field, value and origin, a line each, by field."""
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"  {name:{widths[0]}}  {value:{widths[1]}}  {origin}" for name, value, origin in sorted(rows)]
