"""How long what is left of a study takes: measured seconds per epoch times the epochs that its trials really run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from study.decisions.progress import ArmProgress, StudyProgress
from study.facts.record import Phase
from study.forecast.estimate import expected_epochs

PHASES: tuple[Phase, ...] = get_args(Phase)


def remaining_seconds(progress: StudyProgress) -> float | None:
    """Expected seconds of one slot for all that is left of this launch; None before any epoch was measured."""
    pace = _seconds_per_example(progress, progress.arms)
    if pace is None:
        return None
    shares = {phase: Shares.of(progress.arms, phase) for phase in PHASES}
    return sum(
        _remaining_epochs(progress, arm, shares) * _seconds_per_epoch(progress, arm, pace) for arm in progress.launched
    )


def _seconds_per_epoch(progress: StudyProgress, arm: ArmProgress, pace: float) -> float:
    """By the arm's own epochs; by those of all arms, per example, while it has none."""
    own = _seconds_per_example(progress, [arm])
    return (pace if own is None else own) * progress.examples_per_epoch(arm)


def _seconds_per_example(progress: StudyProgress, arms: list[ArmProgress]) -> float | None:
    reported = [(arm, totals) for arm in arms for totals in arm.facts.reported.values()]
    examples = sum(totals.epochs * progress.examples_per_epoch(arm) for arm, totals in reported)
    return sum(totals.wall_seconds for _, totals in reported) / examples if examples else None


def _remaining_epochs(progress: StudyProgress, arm: ArmProgress, shares: dict[Phase, Shares]) -> float:
    """Of trials to start, and of those under way at least the epoch that they are in."""
    epochs = {phase: _expected_epochs(progress, arm, phase, shares[phase]) for phase in PHASES}
    under_way = sum(max(epochs[trial.phase] - trial.epochs, 1) for trial in arm.facts.under_way.values())
    search = arm.search_trials_to_start * epochs["search"]
    return search + arm.confirm_trials_to_start * epochs["confirm"] + under_way


def _expected_epochs(progress: StudyProgress, arm: ArmProgress, phase: Phase, shares_of_all: Shares) -> float:
    """Of a trial: by the arm's ended trials, with what all arms' say as one trial more, and with the plan before."""
    everywhere = shares_of_all.mean_with(_planned_share(progress, arm, phase))
    return Shares.of([arm], phase).mean_with(everywhere) * arm.arm.epochs


def _planned_share(progress: StudyProgress, arm: ArmProgress, phase: Phase) -> float:
    samples, epochs = arm.arm.samples, arm.arm.epochs
    if phase != "search" or samples == 0:
        return 1.0
    return expected_epochs(samples, epochs, progress.plan.protocol.early_stopping) / (samples * epochs)


@dataclass(frozen=True)
class Shares:
    """How much of their epochs ended trials ran."""

    trials: int
    total: float

    @staticmethod
    def of(arms: list[ArmProgress], phase: Phase) -> Shares:
        """Of a phase, those that failed left out."""
        ended = [(arm.facts.ended_by(phases=[phase], statuses=["completed", "stopped"]), arm) for arm in arms]
        return Shares(
            trials=sum(totals.trials for totals, _ in ended),
            total=sum(totals.epochs / arm.arm.epochs for totals, arm in ended),
        )

    def mean_with(self, share: float) -> float:
        """Their mean, with this one as one trial more."""
        return (self.total + share) / (self.trials + 1)
