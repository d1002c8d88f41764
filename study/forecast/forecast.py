"""What a dry run says: what would run, what it is expected to cost, and how much of it is done."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from study.decisions.progress import last_progress
from study.facts.durations import clock
from study.facts.plain_words import counted
from study.facts.study_facts import StudyFacts, read_facts
from study.forecast.estimate import Cost, Measured, describe_estimate, estimate, measured_in, total_in_words
from study.forecast.remaining_time import remaining_seconds
from study.plans.resolved_plan import ResolvedPlan
from trainables.schema import Typed


class Done(Typed, frozen=True, kw_only=True):
    """How much of a plan the study on disk has done."""

    ended: int
    under_way: int
    remaining_seconds: float | None


class ForecastFacts(Typed, frozen=True, kw_only=True):
    """The forecast as `--json` says it."""

    estimates: dict[str, Cost]
    done: Done | None


@dataclass(frozen=True)
class Forecast:
    """The forecast of a plan, for programs and for people."""

    facts: ForecastFacts
    lines: list[str]


def forecast_plan(plan: ResolvedPlan, folder: Path, *, with_probe: bool) -> Forecast:
    """What the plan is expected to cost, by the study's own records or by a probe of this machine."""
    facts = read_facts(folder)
    estimates = estimate(plan, _probed(plan) if with_probe else measured_in(facts.records))
    done = _done(plan, facts) if facts.launches else None
    search, confirm = sum(arm.samples for arm in plan.arms), sum(len(arm.seeds) for arm in plan.arms)
    lines = [f"  {describe_estimate(item)}" for item in estimates]
    trials = f"{counted(len(plan.arms), 'arm')}, {search} search and {confirm} confirm trials"
    lines.append(f"{trials}, {total_in_words(estimates)}")
    if done:
        left = "unknown" if done.remaining_seconds is None else f"{clock(done.remaining_seconds)} of one slot"
        lines.append(f"of these {done.ended} trials have ended and {done.under_way} are under way; left: {left}")
    costs = {item.arm.name: item.cost for item in estimates}
    return Forecast(ForecastFacts(estimates=costs, done=done), lines)


def _done(plan: ResolvedPlan, facts: StudyFacts) -> Done:
    progress = last_progress(plan, facts)
    left = remaining_seconds(progress)
    return Done(ended=progress.ended_trials, under_way=len(facts.under_way), remaining_seconds=left)


def _probed(plan: ResolvedPlan) -> dict[str, Measured]:
    from study.forecast.probe import probe  # torch

    measured = {}
    for name, cost in probe(plan):
        print(f"probed {name}: {cost.epoch_seconds:.2f} s per epoch", file=sys.stderr)
        measured[name] = cost
    return measured
