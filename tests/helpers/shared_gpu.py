"""A study on one GPU that its trials share, without Ray and without training: the real scheduler on a virtual clock.

The GPU does the work of `saturated_at` trials at once at full speed; more of them slow each other down. A trial starts
where its share of the GPU is free, and keeps it until its end, as Ray has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from helpers.journals import MadeJournal, report_of
from helpers.simulation import report, scheduler_of, unit
from msgspec.structs import replace

from study.decisions.packing import gpu_share
from study.decisions.scheduler import Scheduler
from study.facts.study_facts import TrialFacts
from study.plans.resolved_plan import ResolvedPlan

NOISE = 0.04  # of the seconds of an epoch, to each side


@dataclass
class _Running:
    trial: TrialFacts
    share: float
    left: float  # of the epoch's work, in seconds alone on the GPU
    epoch_began: float
    seconds: float = 0.0  # of its epochs so far

    def work(self) -> float:
        """Seconds of an epoch alone on the GPU."""
        started = self.trial.started
        alike = 1 + 4 * unit(started.task) + unit(started.arm, self.trial.config["batch_size"])
        return alike * (1 + NOISE * (2 * unit(self.trial.key, self.trial.epochs) - 1))


@dataclass
class SharedGpu:
    """One study through as many launches as it takes; nothing of a trial but its reported epochs outlives a launch."""

    resolved: ResolvedPlan
    saturated_at: int
    memory: float = 0.05  # of the GPU, that a trial holds
    journal: MadeJournal = field(default_factory=MadeJournal)
    at_once: list[int] = field(default_factory=list)  # trials on the GPU whenever an epoch ended, while more waited

    def launch(self, *, epochs: int | None = None) -> None:
        """Runs to the end of the study, or until so many epochs were reported."""
        scheduler = scheduler_of(self.resolved, self.journal)
        scheduler.begin_launch(command="", host="", pid=0)
        running: list[_Running] = []
        waiting: TrialFacts | None = None
        while not scheduler.progress.is_finished and epochs != 0:
            while (waiting := waiting or scheduler.next_trial()) and self._has_room(running, waiting):
                running.append(self._begun(waiting))
                waiting = None
            if waiting:
                self.at_once.append(len(running))
            self._run_an_epoch(scheduler, running)
            epochs = None if epochs is None else epochs - 1

    def _has_room(self, running: list[_Running], trial: TrialFacts) -> bool:
        return sum(other.share for other in running) + gpu_share(trial, self.journal.facts) <= 1

    def _begun(self, trial: TrialFacts) -> _Running:
        begun = _Running(trial, gpu_share(trial, self.journal.facts), 0.0, self.journal.clock)
        begun.left = begun.work()
        last = trial.last
        begun.seconds = last.report.wall_seconds if last else 0.0
        return begun

    def _run_an_epoch(self, scheduler: Scheduler, running: list[_Running]) -> None:
        """To the first end of one; all trials on the GPU go on at the same speed."""
        slowness = max(1.0, len(running) / self.saturated_at)
        first = min(running, key=lambda own: (own.left, own.trial.key))
        passed = first.left
        for own in running:
            own.left -= passed
        self.journal.clock += passed * slowness
        first.seconds += self.journal.clock - first.epoch_began
        first.epoch_began = self.journal.clock
        if self._report(scheduler, first):
            running.remove(first)
        else:
            first.left = first.work()

    def _report(self, scheduler: Scheduler, own: _Running) -> bool:
        """Whether the trial is over."""
        key, seconds = own.trial.key, own.seconds
        said = report(own.trial, own.trial.epochs + 1)
        row = replace(said.row, train_seconds=seconds, eval_seconds=0.0)
        costs = {"wall_seconds": seconds, "gpu_seconds": seconds * own.share}
        said = report_of(row, outcome=said.outcome, **costs, gpu_share=self.memory, gpu="0")
        is_over = scheduler.report(key, said) == "stop" or row.finished
        if is_over:
            scheduler.end(key)
        return is_over
