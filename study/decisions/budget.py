"""The shares of a limit on GPU time: which trials may start, and which searches and confirm trials it ends.

Nothing starts that is not paid for: what trials under way may still use is set aside, and so are one search trial and
all confirm trials of every arm, before any arm gets another search trial. The arm with the least part of its search
comes next. So the limit is passed by no more than what trials under way take longer than expected, and a tenth of one
confirm trial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from study.decisions.progress import ArmProgress, StudyProgress
from study.facts.record import Phase
from study.facts.study_facts import TrialFacts

_MARGIN = 1.1  # by how much a confirm trial may be dearer than the search has led to expect
_ROUNDING = 1 + 1e-9  # sums of the same seconds in another order


class GpuBudget:
    """The amounts that a study's limit allows by its facts of this moment, in GPU seconds."""

    def __init__(self, progress: StudyProgress):
        """Read the limit of the launch."""
        self._progress = progress
        hours = progress.max_gpu_hours
        self._limit = math.inf if hours is None else 3600 * hours * _ROUNDING

    def allows(self, arm: ArmProgress, phase: Phase) -> bool:
        """Check if the limit pays for one more trial of an arm that has some to start.

        Before anything was measured it pays for one of the shortest alone: all costs are known from its first epoch on.
        """
        if self._limit in (0, math.inf):
            return self._limit > 0
        if self._pace is None:
            return self._committed < self._limit and arm is self._shortest and not self._progress.facts.under_way
        if phase == "confirm":
            return self._committed + self._owed_to_cheaper(arm) + self._confirm_cost(arm) / _MARGIN <= self._limit
        if not arm.facts.search:
            return arm.arm.name in self._served
        return self._are_all_measured and self._committed + self._with_one_more(arm) <= self._limit

    def searches_to_close(self) -> list[str]:
        """Name the arms whose searches end now.

        Nothing can start, and they get no other search trial, whatever becomes of the trials under way.
        """
        if self._limit == math.inf or self._can_start_any:
            return []
        return [arm.arm.name for arm in self._startable if arm.search_trials_to_start and not self._may_fit_later(arm)]

    def confirms_to_close(self) -> list[str]:
        """Name the arms whose missing confirm trials will not be started, since nothing is left for them."""
        if self._limit == math.inf or self._progress.facts.under_way or self._can_start_any:
            return []
        return [arm.arm.name for arm in self._startable if arm.missing_seeds]

    def sort_by_turn(self) -> Sequence[ArmProgress]:
        """Sort the arms by turn.

        Long trials come first, so that short ones fill the end, and the confirm trials of an arm behind the search of
        the next one, so that they fill the wait for its last trials. Under a limit, the arms with the least part of
        their searches come first, of these the short ones, so that many cells are served.
        """
        arms = self._progress.arms  # sorting is stable: equals stay in the plan's order
        if self._limit != math.inf:
            return sorted(arms, key=lambda arm: (_part_searched(arm), self._length(arm)))
        by_length = sorted(arms, key=self._length, reverse=True)
        turns = {arm.arm.name: turn + (0 if arm.search_trials_to_start else 1.5) for turn, arm in enumerate(by_length)}
        return sorted(by_length, key=lambda arm: turns[arm.arm.name])

    # ---- what is used and set aside

    @cached_property
    def _used(self) -> float:
        return sum(arm.facts.reported.gpu_seconds for arm in self._progress.arms)

    @cached_property
    def _committed(self) -> float:
        """The seconds used so far, and those that trials under way are expected to use yet."""
        return self._used + sum(map(self._to_come, self._progress.facts.under_way.values()))

    def _to_come(self, trial: TrialFacts) -> float:
        arm = self._progress.arm(trial.started.arm)
        cost = self._confirm_cost if trial.phase == "confirm" else self._cost
        return max(0.0, cost(arm) - trial.gpu_seconds)

    @cached_property
    def _served(self) -> list[str]:
        """The names of the arms that the limit pays a whole cell for: those that have begun, then the cheapest."""
        served, total = [], self._committed
        for arm in sorted(self._progress.arms, key=lambda arm: (not arm.facts.trials, self._owed_to(arm))):
            total += self._owed_to(arm)
            if arm.facts.trials or total <= self._limit:
                served.append(arm.arm.name)
        return served

    @cached_property
    def _owed_to_all(self) -> float:
        return sum(self._owed_to(self._progress.arm(name)) for name in self._served)

    def _owed_to_cheaper(self, arm: ArmProgress) -> float:
        """Sum what is set aside for arms of cheaper trials; if costs were underrated, dear cells stay incomplete."""
        cheaper = [other for other in self._startable if self._confirm_cost(other) < self._confirm_cost(arm)]
        return sum(self._owed_to(other) for other in cheaper if other.arm.name in self._served)

    def _owed_to(self, arm: ArmProgress) -> float:
        """Compute what is set aside for the arm: confirm trials, and search trials up to the part that all have had."""
        wanted = max(1, math.ceil(self._part_of_all * arm.arm.samples)) if arm.search_trials_to_start else 0
        search = max(0, wanted - len(arm.facts.search)) * self._cost(arm)
        return search + _MARGIN * arm.confirm_trials_to_start * self._confirm_cost(arm)

    @cached_property
    def _part_of_all(self) -> float:
        begun = [arm for arm in self._progress.arms if arm.facts.search]
        return min(map(_part_searched, begun), default=0.0)

    def _with_one_more(self, arm: ArmProgress) -> float:
        """Compute what is set aside, and one more search trial of the arm."""
        return self._owed_to_all + self._cost(arm)

    # ---- what can start

    @property
    def _are_all_measured(self) -> bool:
        """True if every arm that could have begun has an epoch, or a trial that failed without one."""
        return all(
            arm.facts.records or arm.facts.reported.epochs
            for arm in self._startable
            if arm.arm.name in self._served and arm.search_trials_to_start
        )

    @cached_property
    def _startable(self) -> list[ArmProgress]:
        return [arm for arm in self._progress.arms if self._progress.can_start(arm)]

    @cached_property
    def _shortest(self) -> ArmProgress | None:
        """The shortest of the arms that have something to start now."""
        waiting = [arm for arm in self._startable if arm.search_trials_to_start or arm.missing_seeds]
        return min(waiting, key=self._length, default=None)

    @cached_property
    def _can_start_any(self) -> bool:
        return any(
            (arm.search_trials_to_start and self.allows(arm, "search"))
            or (arm.missing_seeds and self.allows(arm, "confirm"))
            for arm in self._startable
        )

    def _may_fit_later(self, arm: ArmProgress) -> bool:
        """Check if another search trial fits if all trials under way end now."""
        is_under_way = bool(self._progress.facts.under_way)
        if self._pace is None or not arm.facts.search or not self._are_all_measured:
            return is_under_way
        return is_under_way and self._used + self._with_one_more(arm) <= self._limit

    # ---- what trials are expected to cost, by what the study has measured so far

    def _cost(self, arm: ArmProgress) -> float:
        """Estimate the GPU seconds of a trial that is not stopped.

        They are those of the dearest that completed; else by the arm's epochs, or by those of all arms. 0 before any
        epoch was measured.
        """
        if arm.facts.dearest is not None:
            return arm.facts.dearest
        reported = arm.facts.reported
        if reported.epochs:
            return reported.gpu_seconds / reported.epochs * arm.arm.epochs
        return (self._pace or 0.0) * self._length(arm)

    def _confirm_cost(self, arm: ArmProgress) -> float:
        """Estimate the GPU seconds of a confirm trial: those of the search trial that it repeats, if that is known."""
        winner = arm.winner if arm.is_search_over else None
        return winner.search.gpu_seconds if winner and winner.search else self._cost(arm)

    def _length(self, arm: ArmProgress) -> int:
        """Count the training examples that a full trial sees."""
        return self._progress.examples_per_epoch(arm) * arm.arm.epochs

    @cached_property
    def _pace(self) -> float | None:
        """The GPU seconds of a training example, over all arms; None before any epoch."""
        return self._progress.seconds_per_example(self._progress.arms, "gpu_seconds")


def _part_searched(arm: ArmProgress) -> float:
    """Compute the started share of the arm's samples."""
    return len(arm.facts.search) / max(1, arm.arm.samples)
