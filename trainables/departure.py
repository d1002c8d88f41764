"""Departures: differences between a method, a recipe or a plan here and the paper or its code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Departure(NamedTuple):
    """One difference, in about five words on either side."""

    what: str  # the name of a field of the configuration if it is one
    paper: str  # in the paper or its code; empty if nothing there is comparable
    here: str

    def __str__(self) -> str:
        """Write it as captions and screens show it."""
        names_source = self.paper.endswith((" in the paper", " in the code"))
        paper = self.paper if names_source else f"paper: {self.paper}"
        return f"{self.what}: {self.here}" + f" ({paper})" * bool(self.paper)


Departures = tuple[Departure | str, ...]  # sentences in files of before 2026-11-25


def in_words(departures: Iterable[Departure | str]) -> str:
    """Write all of them on one line, as captions and screens have them."""
    return "; ".join(map(str, departures))
