"""How long what is left of a study takes: measured seconds per epoch times the epochs that its trials really run."""

from __future__ import annotations

from statistics import fmean
from typing import get_args

from study.decisions.progress import ArmProgress, StudyProgress
from study.facts.record import Phase
from study.forecast.estimate import expected_epochs

PHASES: tuple[Phase, ...] = get_args(Phase)


def remaining_seconds(progress: StudyProgress) -> float | None:
    """Expected seconds of one slot for all that is left; None before any epoch was measured."""
    pace = _seconds_per_example(progress, progress.arms)
    if pace is None:
        return None
    shares = {phase: _shares(progress.arms, phase) for phase in PHASES}
    return sum(
        _remaining_epochs(progress, arm, shares) * _seconds_per_epoch(progress, arm, pace) for arm in progress.arms
    )


def _seconds_per_epoch(progress: StudyProgress, arm: ArmProgress, pace: float) -> float:
    """By the arm's own epochs; by those of all arms, per example, while it has none."""
    own = _seconds_per_example(progress, [arm])
    return (pace if own is None else own) * progress.examples_per_epoch(arm)


def _seconds_per_example(progress: StudyProgress, arms: list[ArmProgress]) -> float | None:
    reported = [
        (trial.epochs * progress.examples_per_epoch(arm), trial.last.report.wall_seconds)
        for arm in arms
        for trial in arm.facts.trials
        if trial.last
    ]
    examples = sum(examples for examples, _ in reported)
    return sum(seconds for _, seconds in reported) / examples if examples else None


def _remaining_epochs(progress: StudyProgress, arm: ArmProgress, shares: dict[Phase, list[float]]) -> float:
    """Of trials to start, and of those under way at least the epoch that they are in."""
    epochs = {phase: _expected_epochs(progress, arm, phase, shares[phase]) for phase in PHASES}
    under_way = sum(max(epochs[trial.phase] - trial.epochs, 1) for trial in arm.facts.under_way)
    search = arm.search_trials_to_start * epochs["search"]
    to_the_end = arm.confirm_trials_to_start * epochs["confirm"] + len(arm.to_audit) * epochs["audit"]
    return search + to_the_end + under_way


def _expected_epochs(progress: StudyProgress, arm: ArmProgress, phase: Phase, shares_of_all: list[float]) -> float:
    """Of a trial: by the arm's ended trials, with what all arms' say as one trial more, and with the plan before."""
    everywhere = fmean([*shares_of_all, _planned_share(progress, arm, phase)])
    return fmean([*_shares([arm], phase), everywhere]) * arm.arm.epochs


def _planned_share(progress: StudyProgress, arm: ArmProgress, phase: Phase) -> float:
    samples, epochs = arm.arm.samples, arm.arm.epochs
    if phase != "search" or samples == 0:
        return 1.0
    return expected_epochs(samples, epochs, progress.plan.protocol.early_stopping) / (samples * epochs)


def _shares(arms: list[ArmProgress], phase: Phase) -> list[float]:
    """How much of their epochs the ended trials of a phase ran."""
    ended = [(record, arm) for arm in arms for record in arm.facts.records if record.phase == phase]
    return [record.epochs / arm.arm.epochs for record, arm in ended if record.status != "failed"]
