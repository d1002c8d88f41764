"""How often something happened in simulated studies, beside what is stated of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Relation = Literal["at most", "at least", "about", "for comparison"]


@dataclass(frozen=True)
class Rate:
    """How often something happened in so many simulated studies, and what is stated of it."""

    name: str
    rate: float
    repeats: int
    relation: Relation
    stated: float | None

    @property
    def error(self) -> float:
        """Monte-Carlo standard error; of a rate that was 0 or 1, as if one repetition had gone the other way."""
        rate = min(max(self.rate, 1 / self.repeats), 1 - 1 / self.repeats)
        return (rate * (1 - rate) / self.repeats) ** 0.5

    @property
    def holds(self) -> bool:
        """Whether the rate is as stated (at most, at least or about so much), within three standard errors."""
        if self.stated is None:
            return True
        above = (self.rate - self.stated) / self.error
        return {"at most": above < 3, "at least": above > -3, "about": abs(above) < 3}[self.relation]

    def describe(self) -> str:
        stated = "" if self.stated is None else f"  {self.relation} {100 * self.stated:.4g} %"
        measured = f"{100 * self.rate:6.2f} % ± {100 * self.error:.2f}"
        return f"{'' if self.holds else 'OFF '}{measured}{stated}  {self.name}"
