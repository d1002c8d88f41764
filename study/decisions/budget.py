"""The rules that keep a study within its limit on GPU time: which trials may start, and which will never start.

A trial starts only if its expected cost fits into the limit. Before a search trial starts, GPU time is reserved for
the running trials, for all confirm trials, and for the first search trial of each arm (a method on a task). The next
search trial goes to the arm that has started the smallest fraction of its search. The study exceeds the limit by at
most a tenth of one confirm trial, unless a trial takes longer than estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

from study.decisions.progress import ArmProgress, StudyProgress
from study.facts.record import Phase
from study.facts.study_facts import TrialFacts

_MARGIN = 1.1  # allowed ratio of a confirm trial's cost to its estimate from the search
_ROUNDING = 1 + 1e-9  # tolerance, since a sum depends slightly on the order of its terms


class GpuBudget:
    """A study's limit on GPU time, and the trials that may start within this limit now. All amounts are GPU seconds."""

    def __init__(self, progress: StudyProgress):
        """Take the limit on GPU hours from `progress`."""
        self._progress = progress
        hours = progress.max_gpu_hours
        self._limit = math.inf if hours is None else 3600 * hours * _ROUNDING

    def allows(self, arm: ArmProgress, phase: Phase) -> bool:
        """Check if one more trial of the arm fits into the limit. The arm must have trials to start.

        Until the study's first epoch is reported, only one trial may run: a trial of the arm with the shortest trials.
        """
        if self._limit in (0, math.inf):
            return self._limit > 0
        if self._pace is None:
            return self._committed < self._limit and arm is self._shortest and not self._progress.facts.under_way
        if phase == "confirm":
            return self._committed + self._sum_cheaper_reserves(arm) + self._confirm_cost(arm) / _MARGIN <= self._limit
        if not arm.facts.search:
            return arm in self._affordable
        return self._are_all_measured and self._committed + (self._reserve_of_all + self._cost(arm)) <= self._limit

    def list_affordable(self, failed: Iterable[TrialFacts]) -> list[str]:
        """List the keys of failed trials that can run again, one after another, within the limit."""
        keys, total = list[str](), self._committed
        for trial in failed:
            arm = self._progress.arm(trial.started.arm)
            cost = self._confirm_cost(arm) if trial.phase == "confirm" else self._cost(arm)
            if total < self._limit and total + cost <= self._limit:
                keys.append(trial.key)
                total += cost
        return keys

    def list_searches_to_close(self) -> list[str]:
        """List the arms that must end their search now, because no GPU time is left for the search.

        The list is empty while any arm can start a trial. It leaves out searches that could continue if all
        running trials ended now.
        """
        if self._limit == math.inf or self._can_start_any:
            return []
        return [arm.name for arm in self._startable if arm.search_trials_to_start and not self._may_fit_later(arm)]

    def list_confirms_to_close(self) -> list[str]:
        """List the arms that cannot start their missing confirm trials for lack of GPU time."""
        if self._limit == math.inf or self._progress.facts.under_way or self._can_start_any:
            return []
        return [arm.name for arm in self._startable if arm.missing_seeds]

    def sort_by_turn(self) -> Sequence[ArmProgress]:
        """Return the arms in the order in which they may start trials.

        Without a limit, arms with longer trials come first. An arm that has started its whole search comes after the
        next arm.

        With a limit, the arm that has started the smallest fraction of its search comes first. In a tie, the arm with
        shorter trials comes first.
        """
        arms = self._progress.arms  # sorting is stable: equals stay in the plan's order
        if self._limit != math.inf:
            return sorted(arms, key=lambda arm: (_part_searched(arm), self._length(arm)))
        by_length = sorted(arms, key=self._length, reverse=True)
        turns = {arm.name: turn + (0 if arm.search_trials_to_start else 1.5) for turn, arm in enumerate(by_length)}
        return sorted(by_length, key=lambda arm: turns[arm.name])

    # ---- amounts used and set aside

    @cached_property
    def _used(self) -> float:
        return sum(arm.facts.gpu_seconds + arm.facts.lost_gpu_seconds for arm in self._progress.arms)

    @cached_property
    def _committed(self) -> float:
        """The seconds used so far plus the expected remaining seconds of running trials."""
        return self._used + sum(map(self._estimate_rest, self._progress.facts.under_way.values()))

    def _estimate_rest(self, trial: TrialFacts) -> float:
        arm = self._progress.arm(trial.started.arm)
        cost = self._confirm_cost if trial.phase == "confirm" else self._cost
        return max(0.0, cost(arm) - trial.gpu_seconds)

    @cached_property
    def _affordable(self) -> list[ArmProgress]:
        """The arms that have begun, and as many new arms as fit into the limit, the cheapest first."""
        affordable, total = list[ArmProgress](), self._committed
        for arm in sorted(self._progress.arms, key=lambda arm: (not arm.facts.trials, self._compute_reserve(arm))):
            total += self._compute_reserve(arm)
            if arm.facts.trials or total <= self._limit:
                affordable.append(arm)
        return affordable

    @cached_property
    def _reserve_of_all(self) -> float:
        return sum(map(self._compute_reserve, self._affordable))

    def _sum_cheaper_reserves(self, arm: ArmProgress) -> float:
        """Sum the time reserved for arms with cheaper confirm trials than `arm`.

        Confirm trials of `arm` must leave this time to the cheaper arms.
        """
        cheaper = [other for other in self._startable if self._confirm_cost(other) < self._confirm_cost(arm)]
        return sum(self._compute_reserve(other) for other in cheaper if other in self._affordable)

    def _compute_reserve(self, arm: ArmProgress) -> float:
        """Compute the time reserved for the missing trials of an arm.

        The time covers all confirm trials still to start. If the arm has not begun its search, the time also covers a
        part of the search: the smallest part that any other arm has started, but at least one trial.
        """
        wanted = max(1, math.ceil(self._least_part_searched * arm.planned.samples)) if arm.search_trials_to_start else 0
        search = max(0, wanted - len(arm.facts.search)) * self._cost(arm)
        return search + _MARGIN * arm.confirm_trials_to_start * self._confirm_cost(arm)

    @cached_property
    def _least_part_searched(self) -> float:
        begun = [arm for arm in self._progress.arms if arm.facts.search]
        return min(map(_part_searched, begun), default=0.0)

    # ---- trials that can start

    @property
    def _are_all_measured(self) -> bool:
        """True if every affordable arm with search trials left has measured costs."""
        return all(
            arm.facts.records or arm.facts.epochs
            for arm in self._startable
            if arm in self._affordable and arm.search_trials_to_start
        )

    @cached_property
    def _startable(self) -> list[ArmProgress]:
        return [arm for arm in self._progress.arms if self._progress.can_start(arm)]

    @cached_property
    def _shortest(self) -> ArmProgress | None:
        """The startable arm with the shortest trials; None if no arm can start a trial."""
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
        """Check if another search trial of the arm would fit if all running trials ended now."""
        if not self._progress.facts.under_way:
            return False
        is_unknown = self._pace is None or not arm.facts.search or not self._are_all_measured
        return is_unknown or self._used + (self._reserve_of_all + self._cost(arm)) <= self._limit

    # ---- expected costs of trials, estimated from the study's measurements so far

    def _cost(self, arm: ArmProgress) -> float:
        """Estimate the GPU seconds that a trial of the arm needs to run to its last epoch.

        The estimate is the cost of the arm's most expensive completed trial. Without such a trial, it is computed from
        the arm's mean cost per epoch. Before the arm's first epoch, it is computed from the mean cost per training
        example in all arms. Before the study's first epoch, it is 0.
        """
        if arm.facts.dearest is not None:
            return arm.facts.dearest
        if arm.facts.epochs:
            return arm.facts.gpu_seconds / arm.facts.epochs * arm.planned.epochs
        return (self._pace or 0.0) * self._length(arm)

    def _confirm_cost(self, arm: ArmProgress) -> float:
        """Estimate the GPU seconds of a confirm trial of the arm.

        After the search, the estimate is the cost of the best search trial. Until then, it is the result of `_cost`.
        """
        winner = arm.winner if arm.is_search_over else None
        if winner is None or winner.search is None:
            return self._cost(arm)
        return self._progress.facts.trials[winner.search.key].gpu_seconds

    def _length(self, arm: ArmProgress) -> int:
        """Count the training examples in all epochs of a trial."""
        return self._progress.count_examples_per_epoch(arm) * arm.planned.epochs

    @cached_property
    def _pace(self) -> float | None:
        """The mean GPU seconds per training example in all arms; None if no epoch has been reported."""
        return self._progress.compute_seconds_per_example(self._progress.arms, "gpu_seconds")


def _part_searched(arm: ArmProgress) -> float:
    """Compute the fraction of the arm's search trials that have started."""
    return len(arm.facts.search) / max(1, arm.planned.samples)
