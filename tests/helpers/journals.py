"""The one journal of tests: real events, in memory and, where a folder is given, in the files that a launch leaves."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from study.facts.events import (
    FILE,
    FORMAT,
    AshaDecided,
    Cause,
    EpochReported,
    Event,
    Failure,
    LaunchBegan,
    LaunchEnded,
    Process,
    Report,
    TrialEnded,
    TrialReopened,
    TrialRetried,
    TrialStarted,
)
from study.facts.journal import Journal
from study.facts.plan_file import read_plan
from study.facts.record import Phase, Record, Status
from study.facts.study_facts import StudyFacts
from study.plans.plan import Plan
from study.plans.resolved_plan import Arm, Protocol, ResolvedPlan
from trainables.data.tasks import TASKS
from trainables.runs.trial import EpochRow, Outcome, Reported

E = TypeVar("E")

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
CONTENT_OF_ARM = ("backbone_fingerprint", "tokenizer_fingerprint", "data_fingerprint")


def arm_of(method: str, task: str) -> Arm:
    """An arm of a plan that fixes nothing."""
    return Arm(
        method=method,
        task=task,
        space={},
        fixed={},
        first=(),
        samples=1,
        seeds=(42,),
        backbone="albert/albert-base-v2",
        backbone_fingerprint="albert/albert-base-v2",
        tokenizer=None,
        tokenizer_fingerprint=None,
        data_fingerprint="f00d",
        start_from=None,
    )


_ASKED = Plan(profile="mini", methods=(), tasks=(), data="mini", samples=None, seeds=1, sampler="random")
_PROTOCOL = Protocol(selection="dev", metric="", aggregate="median", sampler="random", early_stopping=None)
ANY_PLAN = ResolvedPlan(
    request=_ASKED,
    arms=tuple(arm_of(method, task) for method in ("albert", "palbert", "pabee", "pondernet") for task in TASKS),
    protocol=_PROTOCOL,
    departures={},
)
CONFIG = {"learning_rate": 2e-05, "batch_size": 32, "epochs": 3}


class Killed(Exception):
    """The process of the study is gone."""


class MadeJournal(Journal):
    """A journal that a test writes. Time is a number of seconds that the test sets."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.facts = StudyFacts()
        self.events: list[Event] = []
        self.clock = 0.0  # seconds
        self.kill_at: int | None = None  # number of the event whose writing the process does not survive
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def now(self) -> str:
        return (BEGAN + timedelta(seconds=self.clock)).isoformat(timespec="microseconds")

    def append(self, *events: Event) -> None:
        for event in events:
            self._append_one(event)

    def check_untouched(self) -> None:
        """No other process writes it."""

    def _append_one(self, event: Event) -> None:
        self.events.append(event)
        if self.folder is not None:
            _add_line(self.folder / FILE, msgspec.json.encode(event))
        if self.kill_at is not None and len(self.events) >= self.kill_at:
            raise Killed
        self.facts.apply(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def records(self) -> list[Record]:
        return self.facts.records

    # What a launch would write, one second apart.

    def begin(
        self,
        launch: int = 1,
        *,
        pid: int | None = None,
        max_gpu_hours: float | None = None,
        storage: str | None = None,
        area: str | None = None,
        plan: ResolvedPlan | None = None,
        code: dict[str, Any] | None = None,
    ) -> None:
        """A launch of the folder's plan, or of one with every arm that tests start."""
        self._tick(
            LaunchBegan,
            format=FORMAT,
            launch=launch,
            command="study.launch --method palbert",
            host=socket.gethostname(),
            pid=pid or os.getpid(),
            **({"versions": {}, "git_commit": None, "code_digest": ""} | (code or {})),
            max_gpu_hours=max_gpu_hours,
            storage=storage,
            area=area,
            folder=str(self.folder) if area else None,
            plan=plan or self._plan_of_folder(),
        )

    def _plan_of_folder(self) -> ResolvedPlan:
        file = read_plan(self.folder) if self.folder else None
        return file.plan if file else ANY_PLAN

    def end(self, launch: int = 1, status: str = "complete") -> None:
        self._tick(LaunchEnded, launch=launch, status=status)

    def start(
        self,
        key: str,
        *,
        phase: Phase = "search",
        trial: int = 0,
        arm: str = "palbert/rte",
        config: dict | None = None,
        start: str | None = None,
    ) -> None:
        config = CONFIG if config is None else config
        self._tick(
            TrialStarted, key=key, arm=arm, phase=phase, trial=trial, seed=42 + trial, config=config, start=start
        )

    def epoch(
        self, key: str, epoch: int, score: float, *, best_epoch: int | None = None, outcome: Outcome | None = None
    ) -> None:
        row = row_of(epoch, score, best_epoch=best_epoch or epoch, finished=outcome is not None)
        self._tick(reported, key=key, report=report_of(row, outcome=outcome))

    def stop(self, key: str, *, rung: int, cutoff: float, recorded: int = 1) -> None:
        self._tick(AshaDecided, key=key, rung=rung, cutoff=cutoff, recorded=recorded, decision="stop")

    def retry(self, key: str, error: str) -> None:
        self._tick(TrialRetried, key=key, failure=failure_of("machine", error=error))

    def finish(self, key: str, *, status: Status = "completed", error: str | None = None) -> None:
        """Ends a trial that was started, with what it has reported."""
        failure = failure_of("method", error=error) if error else None
        self._tick(TrialEnded, key=key, status="failed" if error else status, failure=failure)

    def whole_trial(self, key: str, scores: list[float], **started: Any) -> None:
        """A completed trial with these scores by epoch."""
        best = scores.index(max(scores)) + 1
        self.start(key, **started)
        for epoch, score in enumerate(scores, start=1):
            outcome = Outcome(num_parameters=11_700_000) if epoch == len(scores) else None
            self.epoch(key, epoch, score, best_epoch=epoch if epoch <= best else best, outcome=outcome)
        self.finish(key)

    def take(self, record: Record, *, epochs: list[float] | None = None) -> None:
        """A trial that ends with this record; `epochs` are its selection scores."""
        self._launch_for(record)
        time = {"time": record.started}
        if record.key in self.facts.trials:
            self.append(TrialReopened(**time, key=record.key, reason="asked"))
        else:
            fixed = self.facts.plan.arm(record.arm).fixed if self.facts.plan else {}
            config = {name: value for name, value in record.config.items() if fixed.get(name, self) != value}
            names = ("key", "arm", "phase", "trial", "seed", "start")
            self.append(TrialStarted(**time, **{name: getattr(record, name) for name in names}, config=config))
        for event in _reports(record, epochs or []):
            self.append(event)
        if record.status == "stopped" and record.selection_score is not None:
            decided = {"rung": record.epochs, "cutoff": 1.0, "recorded": 3, "decision": "stop"}
            self.append(AshaDecided(**time, key=record.key, **decided))
        self.append(
            TrialEnded(
                time=record.ended,
                key=record.key,
                status=record.status,
                failure=failure_of("method", error=record.error or "boom") if record.status == "failed" else None,
                predictions_digest=record.predictions_digest,
                model_digest=record.model_digest,
            )
        )

    def _launch_for(self, record: Record) -> None:
        """Begins another launch unless the last one has the code and the arm of the record."""
        code = {name: getattr(record, name) for name in ("versions", "git_commit", "code_digest")}
        plan, last = self.facts.plan or self._plan_of_folder(), self.facts.last_launch
        arms = {arm.name: arm for arm in plan.arms}
        content = {name: getattr(record, name) for name in CONTENT_OF_ARM}
        if record.arm in arms:
            wanted = replace(arms[record.arm], **content)
        else:
            names = {name: getattr(record, name) for name in ("method", "task", "repeat")}
            wanted = replace(arm_of("", ""), **names, **content)
        is_known = last is not None and {name: getattr(last.began, name) for name in code} == code
        if is_known and arms.get(record.arm) == wanted:
            return
        names = [arm.name for arm in plan.arms]
        place = names.index(record.arm) if record.arm in names else len(names)
        plan = replace(plan, arms=(*plan.arms[:place], wanted, *plan.arms[place + 1 :]))
        self.begin(launch=self.facts.launch_number + 1, plan=plan, code=code)

    def _tick(self, kind: type, **fields: Any) -> None:
        self.clock += 1
        self.append(kind(time=self.now(), **fields))


def _reports(record: Record, scores: list[float]) -> list[EpochReported]:
    """The epochs of a trial that ends with this record, with these selection scores; its best and its last at least."""
    if not record.epochs:
        return []
    selected = min(record.epoch or record.epochs, record.epochs)
    by_epoch = dict(enumerate(scores, start=1)) | {record.epochs: scores[-1] if scores else 0.0}
    if record.selection_score is not None:
        by_epoch |= {selected: record.selection_score}
    names = ("num_layers", "train_examples", "train_seconds", "eval_seconds")
    costs = {name: getattr(record, name) for name in names if getattr(record, name) is not None}
    events = []
    for epoch, score in sorted(by_epoch.items()):
        row = row_of(epoch, score, best_epoch=min(epoch, selected), finished=epoch == record.epochs)
        row = replace(row, **costs, metrics=dict(record.metrics), mean_layers=record.mean_layers or 0.0)
        outcome = _outcome(record) if row.finished and record.status == "completed" else None
        report = report_of(row, outcome=outcome, wall_seconds=record.wall_seconds, gpu_seconds=record.gpu_seconds)
        digests = {"tokens_digest": record.tokens_digest, "backbone_digest": record.backbone_digest}
        process = Process(host=record.host, device=record.device, **digests)
        event = reported(time=record.started, key=record.key, report=report)
        events.append(replace(event, process=None if events else process))
    return events


def _outcome(record: Record) -> Outcome:
    assert record.score is not None and record.mean_layers is not None
    numbers = Reported(score=record.score, metrics=dict(record.metrics), mean_layers=record.mean_layers)
    names = ("num_parameters", "model", "text_flops")
    facts = {name: getattr(record, name) for name in names}
    return Outcome(reported=numbers, data_differences=record.data_differences or (), **facts)


def reported(*, time: str, key: str, report: Report) -> EpochReported:
    """The event of a report, as a scheduler notes it."""
    process = Process(host=report.host, device=report.device) if report.row.epoch == 1 else None
    seconds = {"wall_seconds": report.wall_seconds, "gpu_seconds": report.gpu_seconds}
    return EpochReported(time=time, key=key, row=report.row, outcome=report.outcome, **seconds, process=process)


def row_of(epoch: int, score: float, *, best_epoch: int | None = None, finished: bool = False) -> EpochRow:
    """An epoch with this score."""
    return EpochRow(
        epoch=epoch,
        selection_score=score,
        metrics={"accuracy": score},
        mean_layers=9.5,
        num_layers=12,
        train_loss=1.0 / epoch,
        train_examples=100 * epoch,
        train_seconds=10.0 * epoch,
        eval_seconds=1.0 * epoch,
        best_epoch=best_epoch or epoch,
        finished=finished,
    )


def report_of(
    row: EpochRow,
    *,
    outcome: Outcome | None = None,
    wall_seconds: float = 1.0,
    gpu_seconds: float = 0.0,
) -> Report:
    """What an actor says of the epoch."""
    return Report(
        row=row,
        outcome=outcome,
        wall_seconds=wall_seconds,
        gpu_seconds=gpu_seconds,
        host="node-1",
        device="cpu",
    )


def failure_of(cause: Cause, *, error: str = "boom", node: str | None = "node-a") -> Failure:
    """A trial that broke off on a node."""
    return Failure(cause=cause, error=error, traceback=None, host=node and f"host-of-{node}", node=node)


def outcome_of(row: EpochRow, *, model: str | None = None) -> Outcome:
    """The outcome of a trial whose best epoch is this one, its last."""
    return Outcome(reported=row.reported, num_parameters=12_000_000, model=model)


def _add_line(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line + b"\n")
