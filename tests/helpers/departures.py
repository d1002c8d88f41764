"""Departures as text, for tests that look for words in them."""

from __future__ import annotations

from collections.abc import Iterable

from trainables import Departure


def join_departures(departures: Iterable[Departure | str]) -> str:
    """The departures in one line, separated by semicolons."""
    return "; ".join(map(str, departures))
