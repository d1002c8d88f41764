"""The range of a field that a search tunes: choices, or an interval of numbers. This module does not import Optuna."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

from trainables.configuration.schema import Typed, Value

Choices = tuple[Value, ...]
_TOLERANCE = 1e-8  # of a value's place on a step, in steps


class Interval(Typed, frozen=True, kw_only=True):
    """A range of numbers that includes both ends: whole numbers if both ends are, else real numbers."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | UnsetType = UNSET  # distance of the values from `low` on; UNSET: 1 for whole numbers, else none

    def __post_init__(self) -> None:
        """Raise ValueError if the ends are not finite and in order, or do not fit the scale or the step."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low is {self.low} and high is {self.high}; allowed: finite numbers, with low below high")
        if self.log and self.low <= 0:
            raise ValueError(f"low is {self.low}; allowed with a log scale: a number > 0")
        if self.step is UNSET:
            return
        if self.log or not 0 < self.step <= self.high - self.low or (self.is_whole and not isinstance(self.step, int)):
            kind = "whole number" if self.is_whole else "number"
            raise ValueError(f"step is {self.step}; allowed: a {kind} > 0 within the range, and no log scale")

    @property
    def is_whole(self) -> bool:
        """True if all values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def distance(self) -> int | float | None:
        """The distance between neighbouring values; None if the range is continuous."""
        return self.step if self.step is not UNSET else 1 if self.is_whole else None

    @property
    def values(self) -> Sequence[int | float] | None:
        """Every value of the range; None if the range is continuous."""
        if self.is_whole:
            return range(int(self.low), int(self.high) + 1, int(self.distance or 1))
        if self.distance is None:
            return None
        count = 1 + math.floor((self.high - self.low) / self.distance + _TOLERANCE)
        return [min(self.low + number * self.distance, self.high) for number in range(count)]

    @property
    def middle(self) -> int | float:
        """The mean of both ends, which is geometric on a log scale. Steps round it down to a value of the range."""
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        if self.distance is not None:
            middle = self.low + (middle - self.low) // self.distance * self.distance
        return int(middle) if self.is_whole else float(f"{middle:.6g}")

    def contains(self, value: Value) -> bool:
        """Check if the value lies between the ends, and on a step if the range has steps."""
        if not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        steps = (value - self.low) / (self.distance or math.inf)
        return abs(steps - round(steps)) < _TOLERANCE


def list_combinations(menus: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """List every combination of one value per field. If `menus` is empty, list one empty combination."""
    return [dict(zip(menus, values, strict=True)) for values in itertools.product(*menus.values())]


def list_extremes(allowed: Choices | Interval) -> list[Value]:
    """List all choices, or both ends of an interval."""
    return [*allowed] if isinstance(allowed, tuple) else [allowed.low, allowed.high]


def list_allowed(allowed: Choices | Interval) -> Sequence[Value] | None:
    """List every value of a range; None if the range is continuous."""
    return allowed if isinstance(allowed, tuple) else allowed.values


def count_points(ranges: Mapping[str, Choices | Interval]) -> float:
    """Count the combinations of values of all ranges; infinite if a range is continuous."""
    menus = map(list_allowed, ranges.values())
    return math.prod(math.inf if menu is None else len(menu) for menu in menus)


def choose_middle(allowed: Choices | Interval) -> Value:
    """Return the middle choice, or the middle of an interval."""
    return allowed[(len(allowed) - 1) // 2] if isinstance(allowed, tuple) else allowed.middle


def is_allowed(value: Value, allowed: Choices | Interval) -> bool:
    """Check if a range contains a value."""
    return value in allowed if isinstance(allowed, tuple) else allowed.contains(value)


def format_range(allowed: Choices | Interval) -> str:
    """Format a range for captions: `16 | 32`, `1e-05 to 0.0001 log`."""
    if isinstance(allowed, tuple):
        return " | ".join(map(json.dumps, allowed))
    return f"{allowed.low} to {allowed.high}{' log' * allowed.log}"


def format_searched(allowed: Choices | Interval) -> str:
    """Format a range in the syntax of --search: `16,32`, `1e-05..0.0001:log`."""
    if isinstance(allowed, tuple):
        return format_range(allowed).replace('"', "").replace(" | ", ",")
    return f"{allowed.low}..{allowed.high}{':log' * allowed.log}"
