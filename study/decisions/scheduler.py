"""The scheduler of a study: which trial runs next, how it is trained, when it is stopped and how it ends.

This module does not use Ray.

Every change of state is an event that is written to the journal before it takes effect. A study that was interrupted
at any point therefore continues with the same decisions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from study.decisions import asha
from study.decisions.budget import GpuBudget
from study.decisions.machine_faults import Faults
from study.decisions.progress import ArmProgress, StudyProgress
from study.decisions.proposals import Proposals
from study.facts.events import (
    FORMAT,
    AshaDecided,
    ConfirmClosed,
    EpochReported,
    Event,
    Execution,
    Failure,
    LaunchBegan,
    LaunchEnded,
    LaunchStatus,
    Process,
    Reopening,
    Report,
    SearchClosed,
    StartChosen,
    TrialEnded,
    TrialReopened,
    TrialRestarted,
    TrialRetried,
    TrialStarted,
)
from study.facts.journal import Journal
from study.facts.provenance import Attestation, Provenance, code_of_method, list_contradictions
from study.facts.record import Phase, Record, Status
from study.facts.study_facts import StudyFacts, TrialFacts
from study.plans.resolved_plan import Arm, ResolvedPlan, derive_search_seed
from trainables.configuration.schema import Configuration
from trainables.data import glue
from trainables.encoders import backbone_names
from trainables.runs.trial import TrialSpec


class Scheduler:
    """The object that makes a study's decisions; a driver calls `next_trial`, `report`, `retry` and `end`."""

    def __init__(
        self,
        plan: ResolvedPlan,
        journal: Journal,
        provenance: Provenance,
        *,
        max_gpu_hours: float | None = None,
        faults: Faults | None = None,
        launched: Collection[str] | None = None,
    ):
        """Start from the state that the journal holds.

        `max_gpu_hours` is the limit on GPU time (see `GpuBudget`); None means no limit. `launched` names the arms to
        run; None means all arms. `provenance` describes the code of the launch.
        """
        self.plan = plan
        self.progress = StudyProgress(plan, journal.facts, max_gpu_hours=max_gpu_hours, launched=launched)
        self.faults = faults or Faults()
        self.draining = False
        self._journal = journal
        self.facts = journal.facts
        self.provenance = provenance
        self._proposals = {arm.name: Proposals(arm, sampler=plan.request.sampler) for arm in plan.arms}
        self._handed_out: set[str] = set()  # keys of trials that run in this launch

    def begin_launch(
        self,
        *,
        command: str,
        host: str,
        pid: int,
        storage: str | None = None,
        area: str | None = None,
        folder: str | None = None,
        execution: Execution | None = None,
    ) -> None:
        """Write the start of a launch to the journal; `storage` is None if trials write into the study's folder."""
        self._journal.append(
            LaunchBegan(
                time=self._journal.now(),
                format=FORMAT,
                launch=self.facts.launch_number + 1,
                command=command,
                host=host,
                pid=pid,
                versions=self.provenance.versions,
                git_commit=self.provenance.git_commit,
                code_digest=self.provenance.code_digest,
                included=self.provenance.included or UNSET,
                max_gpu_hours=self.progress.max_gpu_hours,
                storage=storage,
                area=area,
                folder=folder,
                execution=execution,
                plan=self.plan,
            )
        )

    def check_untouched(self) -> None:
        """Raise ValueError if another launch runs the study now, or another process changed its journal."""
        self._journal.check_untouched()

    def end_launch(self, status: LaunchStatus, note: str | None = None) -> None:
        """Write the end of the launch to the journal."""
        now, number = self._journal.now(), self.facts.launch_number
        self._journal.append(LaunchEnded(time=now, launch=number, status=status, note=note))

    def reopen_failed(self, *, retry_failed: bool) -> None:
        """Let failed trials run again.

        With `retry_failed`, all failed trials of the launch's arms run again. Otherwise, a failed trial runs again
        only if the code or the package versions have changed since the failure.
        """
        reopenable = find_reopenable(self.progress, self.provenance, retry_failed=retry_failed)
        for key, reason in reopenable.reasons.items():
            self._journal.append(TrialReopened(time=self._journal.now(), key=key, reason=reason))

    def find_arms_of_other_code(self) -> list[str]:
        """List the arms that have a trial of other code than this launch runs."""
        trained = [record for arm in self.progress.arms for record in arm.facts.records if record.epochs]
        return list(dict.fromkeys(record.arm for record in trained if find_change(record, self.provenance) == "code"))

    def next_trial(self) -> TrialFacts | None:
        """Choose the next trial to run and write its start to the journal; None if no trial can run now.

        Trials that were interrupted by a machine fault or by the end of an earlier launch come first.
        """
        for event in self.faults.take_back_nodes(time=self._journal.now()):
            self._journal.append(event)
        if self.draining or not self.faults.has_room(running=self.running):
            return None
        waiting = (trial for key, trial in self.progress.under_way.items() if key not in self._handed_out)
        interrupted = next((trial for trial in waiting if self.faults.is_due(trial.key)), None)
        trial = interrupted or self._start_one()
        if trial is not None:
            self._handed_out.add(trial.key)
        return trial

    @property
    def running(self) -> int:
        """The number of trials that this launch is running now."""
        return len(self._handed_out)

    @property
    def has_given_up(self) -> bool:
        """True if unfinished trials remain, but machine faults keep this launch from running any of them."""
        under_way = self.progress.under_way
        if self.running or not under_way:
            return False
        is_stuck = all(map(self.faults.is_set_aside, under_way)) and self.faults.has_room(running=0)
        return self.faults.give_up_reason is not None or is_stuck

    def report(self, key: str, report: Report, *, node: str | None = None) -> Literal["continue", "stop"]:
        """Record an epoch of a trial, unless it is already recorded, and decide if the trial continues.

        Raises:
            ValueError: the worker's code, data or backbone differs from the plan's. Then nothing is recorded.
        """
        trial, row = self.facts.trials[key], report.row
        if report.attested is not None:
            self.check_attested(trial, report.attested, host=report.host)
        events: list[Event] = []  # written in one sync
        if row.epoch > trial.epochs:
            self.faults.note_progress(key, node)
            events.append(self._make_epoch_event(trial, report))
        may_stop = trial.phase == "search" and not row.finished
        if may_stop and trial.stopped_at is None and (decided := self._decide(trial, row.epoch, row.selection_score)):
            events.append(decided)
        if events:
            self._journal.append(*events)
        is_stopped = trial.stopped_at is not None and row.epoch >= trial.stopped_at
        return "stop" if may_stop and is_stopped else "continue"

    def _make_epoch_event(self, trial: TrialFacts, report: Report) -> EpochReported:
        """Make the event that records a report in the journal; omit values that the journal already has."""
        row, outcome, process = report.row, report.outcome, None
        selected = trial.best.row if trial.best and row.best_epoch != row.epoch else row
        if outcome is not None and outcome.reported == selected.reported:
            outcome = replace(outcome, reported=None)
        if attested := report.attested:
            digests = {"tokens_digest": attested.tokens_digest, "backbone_digest": attested.backbone_digest}
            process = Process(host=report.host, device=report.device, **digests)
        return EpochReported(
            time=self._journal.now(),
            key=trial.key,
            row=row,
            outcome=outcome,
            wall_seconds=report.wall_seconds,
            gpu_seconds=report.gpu_seconds,
            process=process,
        )

    def retry(self, key: str, failure: Failure, *, seconds: tuple[float, float] = (0.0, 0.0)) -> None:
        """Record that a trial was interrupted and waits to run again.

        `seconds` are the wall-clock and GPU seconds of the trial so far; zeros mean that they are unknown.
        """
        wall, gpu = seconds
        now = self._journal.now()
        self._journal.append(TrialRetried(time=now, key=key, failure=failure, wall_seconds=wall, gpu_seconds=gpu))
        self._handed_out.discard(key)
        if failure.cause != "preemption":
            for event in self.faults.add(key, failure, running=self.running, time=self._journal.now()):
                self._journal.append(event)

    def is_final(self, key: str, failure: Failure) -> bool:
        """Check if the failure ends the trial. A crash does not while the trials of other methods fail as well."""
        failing = {self._method_of(each) for each in self.faults.failing}
        if failure.cause == "crash" and failing - {self._method_of(key)}:
            return False
        return self.faults.is_final(key, failure)

    def _method_of(self, key: str) -> str:
        return self.facts.trials[key].arm.method

    def refuse(self, key: str, attested: Attestation, *, host: str, node: str | None, others: bool) -> None:
        """Record that a worker refused a trial because the worker's code or data differ from the launch's.

        `others` is True if another node may have the right code and data; the trial will then run there.

        Raises:
            ValueError: `others` is False, or only the digests of tokenised data or of backbone files differ.
        """
        trial = self.facts.trials[key]
        expected = self.make_expected_attestation(trial)
        has_other_code_or_data = list_contradictions(
            attested, replace(expected, tokens_digest=None, backbone_digest=None)
        )
        if not others or not has_other_code_or_data:
            self.check_attested(trial, attested, host=host)
        error = f"the node differs from the plan: {'; '.join(list_contradictions(attested, expected))}"
        self.retry(key, Failure(cause="node", error=error, host=host, node=node))

    def make_expected_attestation(self, trial: TrialFacts) -> Attestation:
        """Describe the code and data that the trial's worker must have.

        The digests of tokenised data and backbone files come from the arm's first worker.
        """
        arm, facts = self.plan.arm(trial.started.arm), self.facts.arms[trial.started.arm]
        code = code_of_method(self.provenance, arm.method)
        return Attestation(
            data_fingerprint=arm.data_fingerprint,
            tokens_digest=facts.tokens_digests.get(trial.max_length),
            backbone_fingerprint=arm.backbone_fingerprint,
            backbone_digest=facts.backbone_digest,
            tokenizer_fingerprint=arm.tokenizer_fingerprint,
            code_digest=code.code_digest,
            versions=code.versions,
        )

    def check_attested(self, trial: TrialFacts, attested: Attestation, *, host: str) -> None:
        """Raise ValueError if the code or data of the worker on `host` differ from the plan's; list all differences."""
        if differences := list_contradictions(attested, self.make_expected_attestation(trial)):
            raise ValueError(
                f"trial {trial.key} of {trial.started.arm} on {host} differs from the plan: {'; '.join(differences)}; "
                "nothing was recorded; remove the difference and run the same command again"
            )

    def restart(self, key: str, reason: str) -> None:
        """Record that a trial starts again from its beginning because its saved state is unusable."""
        self._journal.append(TrialRestarted(time=self._journal.now(), key=key, reason=reason))

    def end(
        self,
        key: str,
        *,
        failure: Failure | None = None,
        seconds: tuple[float, float] = (0.0, 0.0),
        predictions_digest: str | None = None,
        model_digest: str | None = None,
    ) -> Record:
        """Write the end of a trial to the journal and return the trial's record.

        The status is "failed" if `failure` is given, "stopped" if ASHA stopped the trial, and else "completed".
        `seconds` are the wall-clock and GPU seconds of a failed trial; zeros mean those of its last report.
        The digests are those of the trial's predictions file and of its model; None if there is none.
        """
        trial = self.facts.trials[key]
        status: Status = "failed" if failure else "stopped" if trial.stopped_at is not None else "completed"
        ending = TrialEnded(
            time=self._journal.now(),
            key=key,
            status=status,
            failure=failure,
            predictions_digest=predictions_digest,
            model_digest=model_digest,
            wall_seconds=seconds[0],
            gpu_seconds=seconds[1],
        )
        self._journal.append(ending)
        self._handed_out.discard(key)
        assert trial.record is not None, "a trial that has ended has a record"
        return trial.record

    def _start_one(self) -> TrialFacts | None:
        while True:
            budget = GpuBudget(self.progress)
            arms = [arm for arm in budget.sort_by_turn() if arm in self.progress.launched]
            for arm in arms:
                if self.progress.can_start(arm) and (trial := self._start_next(arm, budget)):
                    return trial
            if not self._give_up_unaffordable():
                return None

    def _start_next(self, arm: ArmProgress, budget: GpuBudget) -> TrialFacts | None:
        if arm.search_trials_to_start:
            if not budget.allows(arm, "search"):
                return None
            point = self._proposals[arm.name].next(arm.facts)
            if point is not None:
                config = arm.planned.make_search_configuration(point)
                return self._start(arm, "search", config, derive_search_seed(arm.name, len(arm.facts.search)))
            closed = SearchClosed(time=self._journal.now(), arms=[arm.name], max_gpu_hours=None)
            self._journal.append(closed)
        if arm.missing_seeds and budget.allows(arm, "confirm"):
            assert arm.winner is not None
            return self._start(arm, "confirm", arm.winner.config, arm.missing_seeds[0])
        return None

    def _start(self, arm: ArmProgress, phase: Phase, config: Configuration, seed: int) -> TrialFacts:
        if arm.planned.start_from is not None and arm.facts.start is None:
            source = self.progress.find_start(arm)
            assert source is not None and source.model is not None
            chosen = StartChosen(time=self._journal.now(), arm=arm.name, key=source.key, model=source.model)
            self._journal.append(chosen)
        start = arm.facts.start_key
        key = self.plan.trial_key(arm.planned, phase=phase, config=config, seed=seed, start=start)
        self._journal.append(
            TrialStarted(
                time=self._journal.now(),
                key=key,
                arm=arm.name,
                phase=phase,
                trial=len(arm.facts.phase(phase)),
                seed=seed,
                config={name: value for name, value in config.items() if not arm.planned.fixes(name, value)},
                start=start,
            )
        )
        return self.facts.trials[key]

    def _give_up_unaffordable(self) -> bool:
        """End all searches for which no GPU time is left.

        If there are no such searches, cancel the confirm trials for which no GPU time is left.

        Return True if any search was ended or any confirm trial was cancelled.
        """
        budget, limit = GpuBudget(self.progress), self.progress.max_gpu_hours
        if searches := budget.list_searches_to_close():
            self._journal.append(SearchClosed(time=self._journal.now(), arms=searches, max_gpu_hours=limit))
        elif confirms := budget.list_confirms_to_close():
            assert limit is not None
            self._journal.append(ConfirmClosed(time=self._journal.now(), arms=confirms, max_gpu_hours=limit))
        else:
            return False
        return True

    def _decide(self, trial: TrialFacts, epoch: int, score: float) -> AshaDecided | None:
        """Return ASHA's decision on the trial; None if the plan has no early stopping or this epoch has no decision."""
        stopping = self.plan.protocol.early_stopping
        if stopping is None:
            return None
        rungs, epochs = self.progress.arm(trial.started.arm).facts.rungs, trial.config["epochs"]
        assert isinstance(epochs, int)
        now = self._journal.now()
        return asha.decide(rungs, trial.key, time=now, epoch=epoch, score=score, epochs=epochs, stopping=stopping)


def specify_trial(plan: ResolvedPlan, facts: StudyFacts, trial: TrialFacts) -> TrialSpec:
    """Make the specification of a trial: everything on which the results of the trial depend."""
    start, arm = facts.arms[trial.started.arm].start, plan.arm(trial.started.arm)
    is_confirm = trial.phase == "confirm"
    spec = specify_arm(plan, arm, trial.config, seed=trial.seed, reads_dev=is_confirm)
    return replace(spec, post_hoc=UNSET if is_confirm else arm.post_hoc, start=start.model if start else None)


def specify_arm(
    plan: ResolvedPlan, arm: Arm, config: Configuration, *, seed: int, reads_dev: bool = False
) -> TrialSpec:
    """Make the specification of a trial that starts from the backbone.

    The trial reports dev scores if `reads_dev` is true or the plan selects on dev.
    """
    tokenizer = arm.pinned_tokenizer
    return TrialSpec(
        method=arm.method,
        task=arm.task,
        own_task=plan.own_task(arm.task),
        config=config,
        seed=seed,
        data=glue.make_absolute(plan.request.data),
        backbone=backbone_names.make_absolute(arm.pinned_backbone),
        tokenizer=tokenizer and backbone_names.make_absolute(tokenizer),
        selection=plan.request.selection,
        select_by=plan.request.select_by,
        report_dev=reads_dev or plan.request.selection == "dev",
    )


class Reopenable(NamedTuple):
    """The failed trials that a launch would run again: reasons by key, and the keys beyond the limit on GPU time."""

    reasons: dict[str, Reopening]
    beyond_limit: list[str]


def find_reopenable(progress: StudyProgress, now: Provenance, *, retry_failed: bool) -> Reopenable:
    """Find the failed trials that a launch of the code `now` would run again."""
    launched = {arm.name for arm in progress.launched}
    failures = [record for record in progress.failures if record.arm in launched]
    reasons = {record.key: "asked" if retry_failed else find_change(record, now) for record in failures}
    wanted = {key: reason for key, reason in reasons.items() if reason}
    affordable = GpuBudget(progress).list_affordable(progress.facts.trials[key] for key in wanted)
    return Reopenable({key: wanted[key] for key in affordable}, [key for key in wanted if key not in affordable])


def find_change(record: Record, now: Provenance) -> Reopening | None:
    """Return what has changed since the trial was last trained: the code, or only the versions of packages.

    Return None if neither the code nor the versions have changed.
    """
    # `join_code` puts the latest value last.
    if record.code_digest.rpartition(", ")[2] != code_of_method(now, record.method).code_digest:
        return "code"
    versions = {name: version.rpartition(", ")[2] for name, version in record.versions.items()}
    return "versions" if versions != dict(now.versions) else None
