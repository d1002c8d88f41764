"""A study without Ray: the real scheduler on a virtual clock, with trials that follow curves.

Trials have deterministic scores and durations, keep their progress as a saved state would, and can be cut off with
the whole study at any event.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from helpers.journals import Killed, MadeJournal, outcome_of, report_of, row_of
from msgspec.structs import replace

from study.decisions.scheduler import Scheduler
from study.facts.events import Report
from study.facts.provenance import Provenance
from study.facts.study_facts import TrialFacts
from study.plans.resolved_plan import ResolvedPlan

NO_PROVENANCE = Provenance(versions={}, git_commit=None, code_digest="")


def unit(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:8], 16) / 2**32


def curve(trial: TrialFacts, epoch: int) -> float:
    """The selection score of the trial at an epoch: rises to a plateau that its configuration and seed decide."""
    plateau = unit(trial.arm.task, sorted(trial.config.items()), trial.seed)
    return round(plateau * (1 - 0.5**epoch), 6)


def report(trial: TrialFacts, epoch: int, *, epoch_gpu_seconds: float = 1.0) -> Report:
    """What the trial reports after an epoch; every other cost is one per epoch."""
    is_last = epoch == epochs_of(trial)
    costs = {"train_examples": epoch, "train_seconds": epoch, "eval_seconds": epoch}
    menus = trial.arm.exit_settings if trial.phase == "search" else {}
    setting = {name: values[int(len(values) * unit(trial.key, epoch))] for name, values in menus.items()}
    row = replace(row_of(epoch, curve(trial, epoch), finished=is_last), **costs, exit_setting=setting)
    outcome = outcome_of(row, model=f"/models/{trial.key}") if is_last else None
    return report_of(row, outcome=outcome, wall_seconds=epoch, gpu_seconds=epoch * epoch_gpu_seconds)


def epochs_of(trial: TrialFacts) -> int:
    """Of a trial that is not stopped."""
    return trial.config["epochs"]


def epoch_seconds(trial: TrialFacts) -> float:
    return 1 + 4 * unit(trial.arm.task) + unit(trial.started.arm, trial.phase, trial.started.trial)


def scheduler_of(
    plan: ResolvedPlan,
    journal: MadeJournal,
    *,
    max_gpu_hours: float | None = None,
    launched: Collection[str] | None = None,
) -> Scheduler:
    """The scheduler of a launch that goes on where the journal is."""
    return Scheduler(plan, journal, NO_PROVENANCE, max_gpu_hours=max_gpu_hours, launched=launched)


@dataclass
class Simulation:
    """One study through as many launches as it takes. What trials `saved` outlives a launch, as on disk."""

    resolved: ResolvedPlan
    slots: int = 3
    journal: MadeJournal = field(default_factory=MadeJournal)
    saved: dict[str, int] = field(default_factory=dict)  # epochs by key
    max_gpu_hours: float | None = None
    epoch_seconds: Callable[[TrialFacts], float] = epoch_seconds
    epoch_gpu_seconds: Callable[[TrialFacts], float] = lambda trial: 1.0

    def launch(self, *, kill_at: int | None = None, launched: Collection[str] | None = None) -> Scheduler | None:
        """Runs until the study is finished, or the arms that are `launched`, or until the journal's event number
        `kill_at`; then None."""
        self._reopen()
        self.journal.kill_at = kill_at
        try:
            return self._run(launched)
        except Killed:
            return None

    def _reopen(self) -> None:
        """A launch knows only what is in the journal."""
        reopened = MadeJournal()
        for event in self.journal.events:
            reopened.append(event)
        reopened.clock = self.journal.clock
        self.journal = reopened

    def _run(self, launched: Collection[str] | None) -> Scheduler:
        limit = self.max_gpu_hours
        scheduler = scheduler_of(self.resolved, self.journal, max_gpu_hours=limit, launched=launched)
        for trial in scheduler.progress.unsettled:
            scheduler.end(trial.key)
        scheduler.begin_launch(command="", host="", pid=0)
        running: list[tuple[float, str, int, TrialFacts]] = []  # when its next row comes, key, epoch, trial
        while not scheduler.progress.is_done:
            while len(running) < self.slots and (trial := scheduler.next_trial()) is not None:
                self._schedule(running, trial, epoch=1)
            if running:
                self._report(scheduler, running)
        return scheduler

    def _schedule(self, running: list, trial: TrialFacts, *, epoch: int) -> None:
        known = epoch <= self.saved.get(trial.key, 0)  # trained before: repeated at once
        seconds = 0.0 if known else self.epoch_seconds(trial)
        heapq.heappush(running, (self.journal.clock + seconds, trial.key, epoch, trial))

    def _report(self, scheduler: Scheduler, running: list) -> None:
        self.journal.clock, key, epoch, trial = heapq.heappop(running)
        self.saved[key] = max(epoch, self.saved.get(key, 0))
        said = report(trial, epoch, epoch_gpu_seconds=self.epoch_gpu_seconds(trial))
        decision = scheduler.report(key, said)
        if decision == "stop" or said.row.finished:
            scheduler.end(key)
        else:
            self._schedule(running, trial, epoch=epoch + 1)
