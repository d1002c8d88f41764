"""Bounds hold whatever the unknown epochs are: pytest tests/study/counterfactual/test_bounded_asha.py"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from study.counterfactual.bounded_asha import Fate, fates
from study.counterfactual.curves import Curve, Epoch
from study.decisions import asha
from study.plans.plan import EarlyStopping

pytestmark = pytest.mark.slow

EPOCHS = 9
RULES = st.builds(EarlyStopping, grace=st.integers(1, 3), factor=st.integers(2, 4)) | st.none()
SCORES = st.lists(
    st.lists(st.integers(0, 20).map(lambda n: n / 20), min_size=3, max_size=EPOCHS), min_size=1, max_size=7
)


def run(scores: list[list[float]], order: list[int], stopping: EarlyStopping | None) -> list[tuple[int, bool]]:
    """Epochs run, and whether it was stopped, of every trial of a search; `order`: which trial has the next epoch."""
    rungs: dict[int, dict[str, float]] = {}
    ended = [(0, False)] * len(scores)
    for number in order:
        epoch, is_stopped = ended[number][0] + 1, ended[number][1]
        if is_stopped:
            continue
        score, is_last = scores[number][epoch - 1], epoch == len(scores[number])
        decision = None
        if stopping is not None and not is_last:
            decision = asha.decide(rungs, str(number), epoch=epoch, score=score, epochs=EPOCHS, stopping=stopping)
        if decision is not None:
            rungs.setdefault(epoch, {})[str(number)] = score
        ended[number] = epoch, decision is not None and decision.decision == "stop"
    return ended


def as_known(scores: list[list[float]], order: list[int], ended: list[tuple[int, bool]]) -> list[Curve]:
    """What the journal of that search has."""
    moments = {}
    for moment, number in enumerate(order):
        moments[number, sum(own == number for own in order[: moment + 1])] = float(moment)
    return [
        Curve(
            str(number),
            {},
            tuple(Epoch(own[epoch], epoch + 1.0, moments[number, epoch + 1]) for epoch in range(ran)),
            not is_stopped,
            None if is_stopped else max(own),
        )
        for number, (own, (ran, is_stopped)) in enumerate(zip(scores, ended, strict=True))
    ]


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    scores = draw(SCORES)
    order = draw(st.permutations([number for number, own in enumerate(scores) for _ in own]))
    return scores, order


@settings(max_examples=300, deadline=None)
@given(searches(), RULES, RULES)
def test_what_would_have_been_lies_within_the_bounds(search, was, other):
    scores, order = search
    known = as_known(scores, order, run(scores, order, was))
    for fate, (epochs, is_stopped) in zip(
        fates(known, epochs=EPOCHS, stopping=other), run(scores, order, other), strict=True
    ):
        assert fate.fewest <= epochs <= fate.most
        assert fate.completes in (("no" if is_stopped else "yes"), "unknown")


@settings(max_examples=100, deadline=None)
@given(searches(), RULES)
def test_where_every_epoch_is_known_nothing_is_left_open(search, other):
    scores, order = search
    known = as_known(scores, order, run(scores, order, None))
    truth = [Fate(epochs, epochs, "no" if stopped else "yes") for epochs, stopped in run(scores, order, other)]
    assert fates(known, epochs=EPOCHS, stopping=other) == truth


@settings(max_examples=100, deadline=None)
@given(searches(), RULES)
def test_the_rule_that_it_was_gives_what_was(search, was):
    scores, order = search
    ended = run(scores, order, was)
    truth = [Fate(epochs, epochs, "no" if stopped else "yes") for epochs, stopped in ended]
    assert fates(as_known(scores, order, ended), epochs=EPOCHS, stopping=was) == truth


def curve(*scores: float, is_over: bool = False, moments: tuple[float, ...] = ()) -> Curve:
    epochs = tuple(Epoch(score, 1.0, moment) for score, moment in zip(scores, moments, strict=True))
    return Curve("key", {}, epochs, is_over, max(scores) if is_over else None)


def test_a_stopped_trial_that_would_go_on_costs_at_least_an_epoch_more():
    known = [curve(0.5, 0.6, 0.7, is_over=True, moments=(0, 1, 2)), curve(0.4, moments=(3,))]
    assert fates(known, epochs=3, stopping=None) == [Fate(3, 3, "yes"), Fate(2, 3, "yes")]


def test_an_epoch_of_an_audit_may_come_before_another_trials_or_after_it():
    audited = curve(0.1, 0.9, 0.9, is_over=True, moments=(0, inf, inf))
    late = curve(0.2, 0.5, 0.6, is_over=True, moments=(5, 6, 7))
    found = fates([audited, late], epochs=3, stopping=EarlyStopping(grace=2, factor=2))
    assert found == [Fate(3, 3, "yes"), Fate(2, 3, "unknown")]
