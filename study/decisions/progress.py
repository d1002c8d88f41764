"""The progress of a study: which trials of its plan have ended and which remain."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from statistics import median
from typing import Literal

from study.facts.plan_file import require_plan
from study.facts.record import Record
from study.facts.study_facts import ArmFacts, StudyFacts, TrialFacts, read_facts
from study.facts.winner import Winner, choose_winner
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.data import mini_glue
from trainables.data.tasks import TASKS


class ArmProgress:
    """The progress of one arm (a method on a task): its recorded state, compared with a plan that may be newer."""

    def __init__(self, planned: Arm, facts: ArmFacts, *, max_gpu_hours: float | None):
        """Take the planned arm and its recorded state; `max_gpu_hours` is the launch's limit, None without a limit."""
        self.name = planned.name
        self.planned = planned
        self.facts = facts
        self._limit = math.inf if max_gpu_hours is None else max_gpu_hours
        self._winner: Winner | None = None
        self._winner_of = -1  # number of records from which `_winner` was decided

    @property
    def winner(self) -> Winner | None:
        """The configuration for the confirm trials; None if no trial of the arm's search has completed."""
        if self._winner_of != len(self.facts.records) or not self.planned.space:
            self._winner = choose_winner(self.planned, self.facts.records, start=self.facts.start_key)
            self._winner_of = len(self.facts.records)
        return self._winner

    @property
    def is_search_closed(self) -> bool:
        """True if the search was ended early. If it lacked GPU time, a higher limit opens it again."""
        return any(event.max_gpu_hours is None or event.max_gpu_hours >= self._limit for event in self.facts.closed)

    @property
    def search_trials_to_start(self) -> int:
        """The number of search trials still to start; 0 if the search was ended early."""
        return 0 if self.is_search_closed else max(0, self.planned.samples - len(self.facts.search))

    @property
    def is_search_over(self) -> bool:
        """True if every search trial has ended and no more will start."""
        is_under_way = any(trial.phase == "search" for trial in self.facts.under_way.values())
        return self.search_trials_to_start == 0 and not is_under_way

    @property
    def confirm_trials(self) -> list[TrialFacts]:
        """The trials that repeat the winning configuration, sorted by seed."""
        return self.winner.confirm_trials(self.facts.confirm) if self.winner else []

    @property
    def missing_seeds(self) -> list[int]:
        """The seeds of the confirm trials that can start now.

        Trials that were cancelled for lack of GPU time return when the limit is raised.
        """
        is_closed = any(event.max_gpu_hours >= self._limit for event in self.facts.confirm_closed)
        if not self.is_search_over or is_closed or self.winner is None:
            return []
        present = {trial.seed for trial in self.confirm_trials}
        return [seed for seed in self.planned.seeds if seed not in present]

    @property
    def confirm_trials_to_start(self) -> int:
        """The number of confirm trials still to start. None starts before the arm's search is over."""
        return len(self.missing_seeds) if self.is_search_over else len(self.planned.seeds)

    @property
    def closing_limit(self) -> float | None:
        """The limit on GPU hours that keeps trials of the arm from starting; None if it keeps none.

        A launch with a higher limit starts them.
        """
        is_exhausted = any(event.max_gpu_hours is None for event in self.facts.closed)
        lacks_search = len(self.facts.search) < self.planned.samples and not is_exhausted
        lacks_confirm = not {*self.planned.seeds} <= {trial.seed for trial in self.confirm_trials}
        limits = [event.max_gpu_hours for event in self.facts.closed if lacks_search]
        limits += [event.max_gpu_hours for event in self.facts.confirm_closed if lacks_confirm]
        return max((limit for limit in limits if limit is not None and limit >= self._limit), default=None)

    @property
    def confirmed(self) -> list[Record]:
        """The records of the completed confirm trials."""
        records = [trial.record for trial in self.confirm_trials]
        return [record for record in records if record and record.status == "completed"]

    @property
    def best_confirmed(self) -> Record | None:
        """The record of the best completed confirm trial; None if no confirm trial has completed.

        If several trials have the best score, this is the record of the one with the lowest seed.
        """
        return max(self.confirmed, key=lambda record: (record.score, -record.seed), default=None)

    @property
    def median(self) -> float | None:
        """The median score of the completed confirm trials; None if no confirm trial has completed."""
        scores = [record.score for record in self.confirmed if record.score is not None]
        return median(scores) if scores else None

    @property
    def missing(self) -> str:
        """A description of the results that the arm lacks; empty if the arm is complete."""
        if not self.facts.trials:
            return "not begun"
        if not self.is_search_over:
            ended = sum(1 for trial in self.facts.search if trial.ended)
            return f"{ended} of {self.planned.samples} search trials ended"
        if self.winner is None:
            return "no search trial completed"
        done, wanted = len(self.confirmed), len(self.planned.seeds)
        dropped = sum(1 for trial in self.confirm_trials if trial.record and trial.record.status == "dropped")
        if done >= wanted:
            return ""
        return f"{done} of {wanted} confirm trials completed" + f", {dropped} dropped" * bool(dropped)


class StudyProgress:
    """The progress of a study."""

    def __init__(
        self,
        plan: ResolvedPlan,
        facts: StudyFacts,
        *,
        max_gpu_hours: float | None,
        launched: Collection[str] | None = None,
    ):
        """Take a plan and the recorded state of its study.

        `max_gpu_hours` is the limit of the launch, None without a limit. `launched` names the arms that the launch
        runs, None for all arms.
        """
        self.plan = plan
        self.facts = facts
        self.max_gpu_hours = max_gpu_hours
        self.arms = [ArmProgress(arm, facts.arms[arm.name], max_gpu_hours=max_gpu_hours) for arm in plan.arms]
        self._by_name = {arm.name: arm for arm in self.arms}
        self.launched = [arm for arm in self.arms if launched is None or arm.name in launched]

    def arm(self, name: str) -> ArmProgress:
        """Return the progress of the arm with this name; KeyError if the plan has no such arm."""
        return self._by_name[name]

    @property
    def total_trials(self) -> int:
        """The expected number of ended trials after this launch."""
        to_start = sum(arm.search_trials_to_start + arm.confirm_trials_to_start for arm in self.runnable)
        return self.ended_trials + len(self.under_way) + to_start

    @property
    def runnable(self) -> list[ArmProgress]:
        """This launch's arms, except those that start from an arm that has failed."""
        return [arm for arm in self.launched if self.can_start(arm) or self.has_work(arm)]

    def list_arms_left(self, reopened: Collection[str]) -> set[str]:
        """Return the names of this launch's arms that have trials left; `reopened` has keys of trials to run again."""
        again = {self.facts.trials[key].started.arm for key in reopened}
        return {arm.name for arm in self.launched if arm.facts.under_way or self.has_work(arm) or arm.name in again}

    @property
    def ended_trials(self) -> int:
        """The number of ended trials; a trial that was run again counts once."""
        return len(self.facts.trials) - len(self.facts.under_way)

    @property
    def trials_left(self) -> int:
        """The expected number of trials that have yet to end in this launch."""
        return self.total_trials - self.ended_trials

    @property
    def is_finished(self) -> bool:
        """True if no trial of the plan is left to run."""
        return not (self.facts.under_way or any(map(self.has_work, self.arms)))

    @property
    def is_done(self) -> bool:
        """True if no trial of this launch's arms is left to run."""
        return not (self.under_way or any(map(self.has_work, self.launched)))

    @property
    def under_way(self) -> dict[str, TrialFacts]:
        """The unfinished trials of this launch's arms, by key."""
        others = {arm.name for arm in self.arms} - {arm.name for arm in self.launched}
        return {key: trial for key, trial in self.facts.under_way.items() if trial.started.arm not in others}

    @property
    def unsettled(self) -> list[TrialFacts]:
        """The trials that finished training or were stopped by ASHA, but have not been recorded as ended."""
        trials = self.facts.under_way.values()
        return [t for t in trials if t.last and (t.last.row.finished or t.stopped_at is not None)]

    @property
    def failures(self) -> list[Record]:
        """The records of failed trials, except confirm trials of a configuration that is no longer the winner."""
        trials = [trial for arm in self.arms for trial in (*arm.facts.search, *arm.confirm_trials)]
        return [trial.record for trial in trials if trial.record and trial.record.status == "failed"]

    @property
    def closed(self) -> dict[str, float]:
        """The limit on GPU hours of each arm that it keeps from starting trials, by the arm's name."""
        return {arm.name: limit for arm in self.arms if (limit := arm.closing_limit) is not None}

    @property
    def missing(self) -> dict[str, str]:
        """The results that each incomplete arm lacks, by the arm's name."""
        return {arm.name: reason for arm in self.arms if (reason := arm.missing)}

    def count_examples_per_epoch(self, arm: ArmProgress) -> int:
        """Return the number of training examples per epoch: the rows of the files, or the official number for the hub.

        It is the same for all tasks of mini-GLUE. Older plans have the official number for a folder, too.
        """
        name = arm.planned.task
        if counted := (self.plan.train_rows or {}).get(name):
            return counted
        task = self.plan.own_task(name) or TASKS[name]
        return mini_glue.TRAIN_ROWS if self.plan.request.data == "mini" and not task.place else task.sizes["train"]

    def compute_seconds_per_example(
        self, arms: Iterable[ArmProgress], unit: Literal["gpu_seconds", "wall_seconds"]
    ) -> float | None:
        """Compute the mean seconds per training example in `arms`; None if no epoch of `arms` has been reported."""
        measured = list(arms)
        examples = sum(arm.facts.epochs * self.count_examples_per_epoch(arm) for arm in measured)
        return sum(getattr(arm.facts, unit) for arm in measured) / examples if examples else None

    def find_start(self, arm: ArmProgress) -> Record | None:
        """Return the record of the trial that provides the starting model for `arm`.

        This trial is the confirm trial of another arm with the best selection score; the one with the lowest seed, if
        several have it. Return None until the other arm has finished.
        """
        assert arm.planned.start_from is not None
        source = self.arm(arm.planned.start_from)
        if self._is_under_way(source):
            return None
        return max(source.confirmed, key=lambda record: (record.selection_score, -record.seed), default=None)

    def can_start(self, arm: ArmProgress) -> bool:
        """Check if the arm's starting model exists. An arm that starts from a backbone can always start."""
        return arm.planned.start_from is None or arm.facts.start is not None or self.find_start(arm) is not None

    def has_work(self, arm: ArmProgress) -> bool:
        """Check if the arm has trials to start, now or once its starting model is trained."""
        if not self.can_start(arm):
            assert arm.planned.start_from is not None
            return self._is_under_way(self.arm(arm.planned.start_from))
        return bool(arm.search_trials_to_start or (arm.is_search_over and arm.missing_seeds))

    def _is_under_way(self, arm: ArmProgress) -> bool:
        return self.has_work(arm) or bool(arm.facts.under_way)


def compute_progress(plan: ResolvedPlan, facts: StudyFacts) -> StudyProgress:
    """Compute the progress of a study under the GPU limit of its last launch."""
    last = facts.last_launch
    return StudyProgress(plan, facts, max_gpu_hours=last.began.max_gpu_hours if last else None)


def read_progress(folder: Path) -> StudyProgress:
    """Read the progress of a study from its plan and its journal. No file is changed.

    Raises:
        ValueError: if the folder is not a study, or is damaged.
    """
    plan = require_plan(folder).plan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hides warnings about the last line, which a launch may be writing
        facts = read_facts(folder)
    return compute_progress(plan, facts)
