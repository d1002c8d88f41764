"""The decisions of a study: what runs next, what is stopped, what a trial amounts to. No Ray; all state is from events.

Every change of state is an event: it is safe in the journal before it is a fact. So a study that was interrupted
anywhere decides on as if it never was.
"""

from __future__ import annotations

from typing import Literal, Protocol

from study.decisions import asha
from study.decisions.budget import GpuBudget
from study.decisions.progress import ArmProgress, StudyProgress
from study.decisions.proposals import Proposals
from study.decisions.specs import Provenance, build_record
from study.facts.events import (
    AshaDecided,
    ConfirmClosed,
    EpochReported,
    Event,
    LaunchBegan,
    LaunchEnded,
    LaunchStatus,
    Report,
    SearchClosed,
    StartChosen,
    TrialEnded,
    TrialRetried,
    TrialStarted,
)
from study.facts.record import Phase, Record
from study.facts.study_facts import StudyFacts, TrialFacts
from study.plans.identity import search_seed
from study.plans.resolved_plan import ResolvedPlan
from trainables.schema import Configuration


class EventLog(Protocol):
    """Where events go: the journal of a study's folder."""

    facts: StudyFacts  # after all events so far

    def now(self) -> str:
        """The time of an event that happens now."""
        ...

    def append(self, event: Event) -> None:
        """Makes the event safe, and a fact."""
        ...


class Scheduler:
    """What a driver asks: `next_trial`, `report`, `retry`, `end`."""

    def __init__(
        self,
        study: str,
        plan: ResolvedPlan,
        journal: EventLog,
        provenance: Provenance,
        *,
        max_gpu_hours: float | None = None,
    ):
        """`study` is its name, `provenance` that of this launch; nothing is started that `max_gpu_hours` cannot pay
        for, see `GpuBudget`."""
        self.study = study
        self.plan = plan
        self.progress = StudyProgress(plan, journal.facts, max_gpu_hours=max_gpu_hours)
        self.draining = False
        self._journal = journal
        self._provenance = provenance
        self._proposals = {arm.name: Proposals(arm, sampler=plan.asked.sampler) for arm in plan.arms}
        self._handed_out: set[str] = set()  # keys of trials that run in this launch

    @property
    def facts(self) -> StudyFacts:
        return self._journal.facts

    def begin_launch(self, *, command: str, host: str, pid: int) -> None:
        """Notes that a launch begins."""
        self._journal.append(
            LaunchBegan(
                time=self._journal.now(),
                launch=self.facts.launch_number + 1,
                command=command,
                host=host,
                pid=pid,
                versions=self._provenance.versions,
                git_commit=self._provenance.git_commit,
                max_gpu_hours=self.progress.max_gpu_hours,
            )
        )

    def end_launch(self, status: LaunchStatus) -> None:
        self._journal.append(LaunchEnded(time=self._journal.now(), launch=self.facts.launch_number, status=status))

    def next_trial(self) -> TrialFacts | None:
        """The trial to run now, its start on disk; None when there is nothing to hand out at present."""
        if self.draining:
            return None
        trial = self._taken_back() or self._start_one()
        if trial is not None:
            self._handed_out.add(trial.key)
        return trial

    def report(self, key: str, report: Report) -> Literal["continue", "stop"]:
        """Takes in one epoch of a trial. Known ones change nothing: a trial that came back repeats its own."""
        trial, row = self.facts.trials[key], report.row
        if row.epoch > trial.epochs:
            self._journal.append(EpochReported(time=self._journal.now(), key=key, report=report))
        if trial.phase == "confirm" or row.finished:
            return "continue"
        if trial.stopped_at is None and self.plan.protocol.early_stopping is not None:
            self._decide(trial, row.epoch, row.selection_score)
        return "stop" if trial.stopped_at is not None and row.epoch >= trial.stopped_at else "continue"

    def retry(self, key: str, error: str, *, counts: bool) -> int:
        """Takes back a trial whose process is gone, to be handed out again; its failures so far.

        `counts` is False where the trial is not to blame: a preempted node.
        """
        failures = self.facts.trials[key].failures + counts
        self._journal.append(TrialRetried(time=self._journal.now(), key=key, error=error, failures=failures))
        self._handed_out.discard(key)
        return failures

    def end(self, key: str, *, error: str | None = None, predictions_digest: str | None = None) -> Record:
        """The record of a trial that is over, safe on disk: failed if there is an error, stopped if ASHA said so.

        `predictions_digest` is that of its predictions file, where it left one.
        """
        trial, now = self.facts.trials[key], self._journal.now()
        record = build_record(
            trial,
            study=self.study,
            protocol_hash=self.plan.protocol_hash,
            arm=self.plan.arm(trial.started.arm),
            error=error,
            predictions_digest=predictions_digest,
            provenance=self._provenance,
            ended=now,
        )
        self._journal.append(TrialEnded(time=now, key=key, record=record))
        return record

    def _taken_back(self) -> TrialFacts | None:
        """A trial that was started and does not run: of an earlier launch, or taken back in this one."""
        return next((trial for key, trial in self.facts.under_way.items() if key not in self._handed_out), None)

    def _start_one(self) -> TrialFacts | None:
        while True:
            budget = GpuBudget(self.progress)
            for arm in budget.in_turn():
                if self.progress.can_start(arm) and (trial := self._start_next_of(arm, budget)):
                    return trial
            if not self._close_unpaid():
                return None

    def _start_next_of(self, arm: ArmProgress, budget: GpuBudget) -> TrialFacts | None:
        if arm.search_trials_to_start:
            if not budget.allows(arm, "search"):
                return None
            self._choose_start(arm)
            point = self._proposals[arm.arm.name].next(arm.facts)
            if point is not None:
                config = {**arm.arm.fixed, **point}
                return self._start(arm, "search", config, search_seed(arm.arm.name, len(arm.facts.search)))
            self._close_search([arm.arm.name], max_gpu_hours=None)
        if arm.is_search_over:
            self._choose_start(arm)
        if arm.missing_seeds and budget.allows(arm, "confirm"):
            assert arm.winner is not None
            return self._start(arm, "confirm", arm.winner.config, arm.missing_seeds[0])
        return None

    def _choose_start(self, arm: ArmProgress) -> None:
        """Once for all trials of the arm: a source that is extended later changes nothing here."""
        if arm.arm.start_from is None or arm.facts.start is not None:
            return
        source = self.progress.start_of(arm)
        assert source is not None and source.model is not None
        self._journal.append(
            StartChosen(time=self._journal.now(), arm=arm.arm.name, key=source.key, model=source.model)
        )

    def _start(self, arm: ArmProgress, phase: Phase, config: Configuration, seed: int) -> TrialFacts:
        start = arm.facts.start_key
        key = self.plan.trial_key(arm.arm, phase=phase, config=config, seed=seed, start=start)
        self._journal.append(
            TrialStarted(
                time=self._journal.now(),
                key=key,
                method=arm.arm.method,
                task=arm.arm.task,
                phase=phase,
                trial=len(arm.facts.phase(phase)),
                seed=seed,
                config=config,
                start=start,
                launch=self.facts.launch_number,
            )
        )
        return self.facts.trials[key]

    def _close_unpaid(self) -> bool:
        """Ends searches, or else confirm trials, that nothing is left for; whether any."""
        budget, limit = GpuBudget(self.progress), self.progress.max_gpu_hours
        if searches := budget.searches_to_close():
            self._close_search(searches, max_gpu_hours=limit)
        elif confirms := budget.confirms_to_close():
            assert limit is not None
            self._journal.append(ConfirmClosed(time=self._journal.now(), arms=confirms, max_gpu_hours=limit))
        else:
            return False
        return True

    def _close_search(self, arms: list[str], *, max_gpu_hours: float | None) -> None:
        self._journal.append(SearchClosed(time=self._journal.now(), arms=arms, max_gpu_hours=max_gpu_hours))

    def _decide(self, trial: TrialFacts, epoch: int, score: float) -> None:
        arm = self.progress.arm(trial.started.arm)
        stopping = self.plan.protocol.early_stopping
        assert stopping is not None
        decision = asha.decide(
            arm.facts.rungs, trial.key, epoch=epoch, score=score, epochs=arm.arm.epochs, stopping=stopping
        )
        if decision is not None:
            self._journal.append(AshaDecided(time=self._journal.now(), key=trial.key, **vars(decision)))
