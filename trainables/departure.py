"""Departures: how a method, a training recipe or a study's plan differs from the original paper or code."""

from __future__ import annotations

from typing import NamedTuple


class Departure(NamedTuple):
    """One difference from the original, described in short phrases."""

    what: str  # name of the configuration field, or a free description
    paper: str  # value in the paper or the paper's code; empty if nothing there is comparable
    here: str

    def __str__(self) -> str:
        """Format the difference, e.g. `weight_decay: 0 (paper: 0.01)`."""
        names_source = self.paper.endswith((" in the paper", " in the code"))
        paper = self.paper if names_source else f"paper: {self.paper}"
        return f"{self.what}: {self.here}" + f" ({paper})" * bool(self.paper)


Departures = tuple[Departure | str, ...]  # files written before 2026-11-25 contain strings
