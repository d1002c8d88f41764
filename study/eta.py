"""How long what is left of a study takes: measured seconds per epoch times the epochs that its trials really run."""

from __future__ import annotations

from statistics import fmean
from typing import get_args

from study.estimate import expected_epochs
from study.record import Phase
from study.state import ArmState, StudyState

PHASES: tuple[Phase, ...] = get_args(Phase)


def remaining_seconds(state: StudyState) -> float | None:
    """Expected seconds of one slot for all that is left; None before any epoch was measured."""
    pace = _seconds_per_example(state, state.arms)
    if pace is None:
        return None
    shares = {phase: _shares(state.arms, phase) for phase in PHASES}
    return sum(_remaining_epochs(state, arm, shares) * _seconds_per_epoch(state, arm, pace) for arm in state.arms)


def _seconds_per_epoch(state: StudyState, arm: ArmState, pace: float) -> float:
    """By the arm's own epochs; by those of all arms, per example, while it has none."""
    own = _seconds_per_example(state, [arm])
    return (pace if own is None else own) * state.examples_per_epoch(arm)


def _seconds_per_example(state: StudyState, arms: list[ArmState]) -> float | None:
    rows = [(trial.last, state.examples_per_epoch(arm)) for arm in arms for trial in arm.trials.values() if trial.last]
    examples = sum(row["epoch"] * of_epoch for row, of_epoch in rows)
    return sum(row["wall_seconds"] for row, _ in rows) / examples if examples else None


def _remaining_epochs(state: StudyState, arm: ArmState, shares: dict[Phase, list[float]]) -> float:
    """Of trials to start, and of those under way at least the epoch that they are in."""
    search, confirm = state.still_to_start(arm)
    epochs = {phase: _expected_epochs(state, arm, phase, shares[phase]) for phase in PHASES}
    running = [trial for trial in arm.trials.values() if not trial.record]
    under_way = sum(max(epochs[trial.phase] - (trial.last["epoch"] if trial.last else 0), 1) for trial in running)
    return search * epochs["search"] + confirm * epochs["confirm"] + under_way


def _expected_epochs(state: StudyState, arm: ArmState, phase: Phase, shares_of_all: list[float]) -> float:
    """Of a trial: by the arm's ended trials, with what all arms' say as one trial more, and with the plan before."""
    everywhere = fmean([*shares_of_all, _planned_share(state, arm, phase)])
    return fmean([*_shares([arm], phase), everywhere]) * arm.arm.epochs


def _planned_share(state: StudyState, arm: ArmState, phase: Phase) -> float:
    if phase == "confirm":
        return 1.0
    plan, samples, epochs = state.resolved.plan, arm.arm.samples, arm.arm.epochs
    return expected_epochs(samples, epochs, grace=plan.asha_grace, factor=plan.asha_factor) / (samples * epochs)


def _shares(arms: list[ArmState], phase: Phase) -> list[float]:
    """How much of their epochs the ended trials of a phase ran."""
    ended = [(trial.record, arm) for arm in arms for trial in arm.phase(phase) if trial.record]
    return [record.epochs / arm.arm.epochs for record, arm in ended if record.status != "failed"]
