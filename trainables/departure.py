"""Departures: differences between a method, a recipe or a plan here and the paper or its code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Departure(NamedTuple):
    """One difference from the original; each field has about five words."""

    what: str  # name of the configuration field, or a free description
    paper: str  # value in the paper or its code; empty if they have nothing comparable
    here: str

    def __str__(self) -> str:
        """Format the difference as captions and screens show it."""
        names_source = self.paper.endswith((" in the paper", " in the code"))
        paper = self.paper if names_source else f"paper: {self.paper}"
        return f"{self.what}: {self.here}" + f" ({paper})" * bool(self.paper)


Departures = tuple[Departure | str, ...]  # files written before 2026-11-25 contain strings


def in_words(departures: Iterable[Departure | str]) -> str:
    """Join departures into one line, for captions and screens."""
    return "; ".join(map(str, departures))
