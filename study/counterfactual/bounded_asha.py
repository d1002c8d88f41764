"""ASHA over curves that end before their time: who stops where, as far as that is known.

A score that is not known may be any, and a trial whose going on is not known may be at a later rung or not. So each
decision is held against the lowest and the highest cutoff that there can be, and what lies between is left open. The
bounds hold whatever the unknown scores are; the order in which trials reach a rung is that of the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from study.counterfactual.curves import Curve
from study.decisions import asha
from study.plans.plan import EarlyStopping

LOWEST, HIGHEST = -1.0, 1.0  # of scores
Sureness = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class Fate:
    """What becomes of a trial."""

    fewest: int  # epochs
    most: int
    completes: Sureness


@dataclass(frozen=True)
class _Entrant:
    """A trial at a rung."""

    number: int
    is_sure: bool  # whether it comes there
    score: float | None  # None: not known
    earliest: float  # moments
    latest: float

    def surely_before(self, other: _Entrant) -> bool:
        return self.is_sure and self.latest < other.earliest

    def perhaps_before(self, other: _Entrant) -> bool:
        return self.earliest < other.latest and not self.surely_before(other)


def fates(curves: Sequence[Curve], *, epochs: int, stopping: EarlyStopping | None) -> list[Fate]:
    """One per curve, of a search of trials of at most so many epochs; `stopping` None: none is stopped."""
    at_large: dict[int, bool] = dict.fromkeys(range(len(curves)), True)  # trial -> whether it is surely not stopped
    stops: dict[int, list[int]] = {number: [] for number in at_large}  # rungs at which it may be
    for rung in [] if stopping is None else asha.whole_rungs_of(epochs, stopping):
        assert stopping is not None
        entrants = [
            entrant for number, sure in at_large.items() if (entrant := _entrant(curves[number], number, rung, sure))
        ]
        for entrant in entrants:
            goes_on = _goes_on(entrant, entrants, stopping)
            if goes_on != "yes":
                stops[entrant.number].append(rung)
                at_large[entrant.number] = False
            if goes_on == "no":
                del at_large[entrant.number]
    return [_fate(curve, stops[n], at_large.get(n), epochs) for n, curve in enumerate(curves)]


def _entrant(curve: Curve, number: int, rung: int, is_sure: bool) -> _Entrant | None:
    """None where the trial is over before the rung, or with it."""
    known = len(curve.epochs)
    if rung <= known:
        if curve.is_over and curve.final is not None and rung == known:
            return None
        epoch = curve.epochs[rung - 1]
        earliest = epoch.moment if epoch.moment < inf else _last_moment(curve)
        return _Entrant(number, is_sure, epoch.score, earliest, epoch.moment)
    if curve.is_over:
        return None
    return _Entrant(number, False, None, _last_moment(curve), inf)  # it may end by itself before


def _last_moment(curve: Curve) -> float:
    return max((epoch.moment for epoch in curve.epochs if epoch.moment < inf), default=-inf)


def _goes_on(entrant: _Entrant, entrants: Sequence[_Entrant], stopping: EarlyStopping) -> Sureness:
    others = [other for other in entrants if other.number != entrant.number]
    sure = [other for other in others if other.surely_before(entrant)]
    perhaps = [other for other in others if other.perhaps_before(entrant)]
    if not sure and not perhaps:
        return "yes"
    if entrant.score is None:
        return "unknown"
    if entrant.score >= _most_extreme_cutoff(sure, perhaps, stopping, extreme=max, unknown=HIGHEST):
        return "yes"
    if not sure:
        return "unknown"  # it may be the first
    lowest = _most_extreme_cutoff(sure, perhaps, stopping, extreme=min, unknown=LOWEST)
    return "no" if entrant.score < lowest else "unknown"


def _most_extreme_cutoff(
    sure: Sequence[_Entrant],
    perhaps: Sequence[_Entrant],
    stopping: EarlyStopping,
    *,
    extreme: Callable[[Sequence[float]], float],
    unknown: float,
) -> float:
    """The highest cutoff that there can be, or the lowest: with each of `perhaps` at the end of all that are there.

    A score that is added at the top, or is raised, never lowers a quantile.
    """
    end = extreme([unknown if other.score is None else other.score for other in (*sure, *perhaps)])
    scores = [unknown if other.score is None else other.score for other in sure]
    return asha.cutoff_of(sorted(scores + [end] * len(perhaps)), stopping)


def _fate(curve: Curve, stops: Sequence[int], at_large: bool | None, epochs: int) -> Fate:
    known = len(curve.epochs)
    end = known if curve.is_over else epochs
    first_end = known if curve.is_over else min(known + 1, epochs)  # of its own
    failed = curve.is_over and curve.final is None
    if at_large is None:
        return Fate(min(stops), max(stops), "no")
    completes: Sureness = "no" if failed else "yes" if at_large else "unknown"
    return Fate(min([first_end, *stops]), end, completes)
