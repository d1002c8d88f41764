"""What is there against what it should be, one line per field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainables.schema import to_plain

_LONGEST = 200  # characters of a value in a line


def differences(where: str, found: object, expected: object) -> list[str]:
    """Every field, however deep, in which a plain value is not what it should be: its name and both values."""
    if found == expected:
        return []
    if isinstance(found, dict) and isinstance(expected, dict):
        names = sorted(found.keys() | expected.keys())
        return [line for name in names for line in differences(f"{where} {name}", found.get(name), expected.get(name))]
    return [f"{where} is {_short(found)}; should be {_short(expected)}"]


def unlike(value: Any, expected: Mapping[str, object]) -> list[str]:
    """Every field of `expected` in which a typed value is not what it should be."""
    return [
        line
        for name, wanted in expected.items()
        for line in differences(name, to_plain(getattr(value, name)), to_plain(wanted))
    ]


def first_difference(found: bytes, expected: bytes) -> str:
    """The first line in which two files differ, and both texts; of files that are no text, the first byte."""
    try:
        lines, wanted = found.decode().splitlines(), expected.decode().splitlines()
    except UnicodeDecodeError:
        same = next((i for i, (one, other) in enumerate(zip(found, expected)) if one != other), None)
        return f"byte {min(len(found), len(expected)) if same is None else same}"
    pairs = enumerate(zip(lines, wanted), start=1)
    number, (line, other) = next((pair for pair in pairs if pair[1][0] != pair[1][1]), (0, ("", "")))
    if not number:
        return f"{len(lines)} lines of {len(found)} bytes; should be {len(wanted)} of {len(expected)}"
    start = next((i for i, (a, b) in enumerate(zip(line, other)) if a != b), min(len(line), len(other)))
    around = slice(max(0, start - 40), start + 40)
    return f"line {number} has {line[around]!r}; should be {other[around]!r}"


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
