"""What a trial is expected to cost in GPU time, by what the study has measured so far."""

from __future__ import annotations

from functools import cached_property

from study.decisions.progress import ArmProgress, StudyProgress
from study.facts.totals import Totals


class TrialCosts:
    """GPU seconds of trials, by the facts of this moment."""

    def __init__(self, progress: StudyProgress):
        self._progress = progress

    @property
    def are_known(self) -> bool:
        """Whether any epoch was measured; all costs are 0 before."""
        return self._pace is not None

    def of_trial(self, arm: ArmProgress) -> float:
        """Of one that is not stopped: the dearest that completed; else by the arm's epochs, or by those of all."""
        completed = arm.facts.ended_by(statuses=["completed"])
        if completed.trials:
            return completed.most_gpu_seconds
        reported = Totals.of(arm.facts.reported.values())
        if reported.epochs:
            return reported.gpu_seconds / reported.epochs * arm.arm.epochs
        return (self._pace or 0.0) * self.length(arm)

    def of_confirm_trial(self, arm: ArmProgress) -> float:
        """What the search trial that it repeats has cost, once that is known."""
        winner = arm.winner if arm.is_search_over else None
        return winner.search.gpu_seconds if winner and winner.search else self.of_trial(arm)

    def length(self, arm: ArmProgress) -> int:
        """Training examples that a full trial sees."""
        return self._progress.examples_per_epoch(arm) * arm.arm.epochs

    @cached_property
    def _pace(self) -> float | None:
        """GPU seconds of a training example, over all arms; None before any epoch."""
        reported = [(arm, totals) for arm in self._progress.arms for totals in arm.facts.reported.values()]
        examples = sum(totals.epochs * self._progress.examples_per_epoch(arm) for arm, totals in reported)
        return sum(totals.gpu_seconds for _, totals in reported) / examples if examples else None
