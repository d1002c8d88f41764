"""The search of an arm under another rule: what it would have cost and chosen, with bounds where that is not known."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from study.counterfactual.bounded_asha import Fate, fates
from study.counterfactual.curves import Curve, Epochs, curves_of, untried
from study.decisions.progress import ArmProgress
from study.decisions.proposals import Proposals
from study.facts.events import TrialStarted
from study.facts.study_facts import ArmFacts, TrialFacts
from study.facts.winner import Winner
from study.plans.plan import EarlyStopping
from study.plans.resolved_plan import Arm
from trainables.schema import Configuration, Typed


class Bounds(Typed, frozen=True, kw_only=True):
    """What a number is at least and at most; equal where it is known."""

    low: float
    high: float


class Choice(Typed, frozen=True, kw_only=True):
    """A search trial that is chosen, or that may be."""

    trial: int  # its number in the arm's search
    selection_score: float
    median: float | None  # of the confirm trials of its configuration; None: there are none


class Search(Typed, frozen=True, kw_only=True):
    """A search, as it was or as it would have been."""

    trials: int
    epochs: Bounds
    seconds: Bounds  # of one slot
    chosen: Choice | None  # the best of the trials that surely complete; None: there is none
    rivals: int  # trials that may be better than it, for all that the journal knows
    unknown: int  # configurations that were never tried


def search_under(arm: ArmProgress, epochs: Epochs, *, stopping: EarlyStopping | None, is_random: bool) -> Search:
    """The search of the arm with this early stopping; with configurations of a random sampler where `is_random`."""
    curves = curves_of(arm.facts, epochs)
    if is_random:
        curves = _drawn_at_random(arm.arm, curves)
    outcomes = list(zip(curves, fates(curves, epochs=arm.arm.epochs, stopping=stopping), strict=True))
    chosen = _best_of([curve for curve, fate in outcomes if fate.completes == "yes"])
    pace = _seconds_per_epoch(curves_of(arm.facts, epochs))
    return Search(
        trials=len(curves),
        epochs=Bounds(low=sum(fate.fewest for _, fate in outcomes), high=sum(fate.most for _, fate in outcomes)),
        seconds=Bounds(
            low=sum(_seconds(curve, fate.fewest, pace) for curve, fate in outcomes),
            high=sum(_seconds(curve, fate.most, pace) for curve, fate in outcomes),
        ),
        chosen=_choice(arm, chosen) if chosen else None,
        rivals=sum(_may_beat(curve, fate, chosen) for curve, fate in outcomes),
        unknown=sum(curve.key is None for curve in curves),
    )


def _drawn_at_random(arm: Arm, tried: Sequence[Curve]) -> list[Curve]:
    """The configurations that a random sampler draws for the arm, with the curves of those that were tried."""
    proposals, facts = Proposals(arm, sampler="random"), ArmFacts()
    by_config = {repr(sorted(curve.config.items())): curve for curve in tried}
    drawn: list[Curve] = []
    for number in range(len(tried)):
        point = proposals.next(facts)
        if point is None:
            break
        config = arm.searched(point)
        drawn.append(by_config.get(repr(sorted(config.items()))) or untried(config))
        facts.search.append(_as_started(arm, config, number))
    return drawn


def _as_started(arm: Arm, config: Configuration, number: int) -> TrialFacts:
    started = TrialStarted(
        time="",
        key=str(number),
        method=arm.method,
        task=arm.task,
        phase="search",
        trial=number,
        seed=0,
        config=config,
        start=None,
        launch=1,
    )
    return TrialFacts(started, 1)


def _best_of(completed: Sequence[Curve]) -> Curve | None:
    """The best of those whose score is known, the first of equals, as `winner_of` decides."""
    known = [(curve.final, curve) for curve in completed if curve.final is not None]
    return max(known, key=lambda pair: pair[0], default=(None, None))[1]


def _may_beat(curve: Curve, fate: Fate, chosen: Curve | None) -> bool:
    """Whether the trial may complete with a score that is better, or is not known."""
    if curve is chosen or fate.completes == "no":
        return False
    known = curve.final is not None and chosen is not None and chosen.final is not None
    return not known or (curve.final > chosen.final and fate.completes == "unknown")  # type: ignore[operator,union-attr]


def _choice(arm: ArmProgress, chosen: Curve) -> Choice:
    number = next(place for place, trial in enumerate(arm.facts.search) if trial.key == chosen.key)
    winner = Winner(arm.arm.repeated(chosen.config), arm.facts.search[number].start, None)
    repeated = winner.confirm_trials(arm.facts.confirm)
    scores = [trial.record.score for trial in repeated if trial.record and trial.record.score is not None]
    assert chosen.final is not None
    return Choice(trial=number, selection_score=chosen.final, median=median(scores) if scores else None)


def _seconds_per_epoch(curves: Sequence[Curve]) -> float:
    """Mean of the epochs that were run; of none 0."""
    ends = [(curve.epochs[-1].seconds, len(curve.epochs)) for curve in curves if curve.epochs]
    return sum(seconds for seconds, _ in ends) / max(1, sum(epochs for _, epochs in ends))


def _seconds(curve: Curve, epochs: int, pace: float) -> float:
    """Of the first epochs of a trial; of those that are not known as of the trial's others, or of the arm's."""
    known = len(curve.epochs)
    if epochs <= known:
        return curve.epochs[epochs - 1].seconds if epochs else 0.0
    last = curve.epochs[-1].seconds if known else 0.0
    return last + (epochs - known) * (last / known if known else pace)
