"""The one journal of tests: real events, in memory and, where a folder is given, in the files that a launch leaves."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from study.facts.events import (
    FILE,
    AshaDecided,
    Cause,
    EpochReported,
    Event,
    Failure,
    LaunchBegan,
    LaunchEnded,
    Report,
    TrialEnded,
    TrialReopened,
    TrialRetried,
    TrialStarted,
)
from study.facts.journal import MemoryJournal
from study.facts.record import Phase, Record
from study.plans.plan import Plan
from study.plans.resolved_plan import Protocol, ResolvedPlan
from trainables.runs.trial import EpochRow, Outcome

E = TypeVar("E")

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_ASKED = Plan(profile="mini", methods=(), tasks=(), data="mini", samples=None, seeds=1, sampler="random")
_PROTOCOL = Protocol(selection="dev", metric="", aggregate="median", sampler="random", early_stopping=None)
NO_PLAN = ResolvedPlan(asked=_ASKED, arms=(), protocol=_PROTOCOL, departures={})
CONFIG = {"learning_rate": 2e-05, "batch_size": 32, "epochs": 3}


class Killed(Exception):
    """The process of the study is gone."""


class MadeJournal(MemoryJournal):
    """A journal that a test writes. Time is a number of seconds that the test sets."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.folder = folder
        self.clock = 0.0  # seconds
        self.kill_at: int | None = None  # number of the event whose writing the process does not survive
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def now(self) -> str:
        return (BEGAN + timedelta(seconds=self.clock)).isoformat(timespec="microseconds")

    def append(self, *events: Event) -> None:
        for event in events:
            self._append_one(event)

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
        self, launch: int = 1, *, pid: int | None = None, max_gpu_hours: float | None = None, storage: str | None = None
    ) -> None:
        self._tick(
            LaunchBegan,
            launch=launch,
            command="study.launch --method palbert",
            host=socket.gethostname(),
            pid=pid or os.getpid(),
            versions={},
            git_commit=None,
            code_digest="",
            max_gpu_hours=max_gpu_hours,
            storage=storage,
            plan=NO_PLAN,
        )

    def end(self, launch: int = 1, status: str = "complete") -> None:
        self._tick(LaunchEnded, launch=launch, status=status)

    def start(
        self,
        key: str,
        *,
        phase: Phase = "search",
        trial: int = 0,
        launch: int = 1,
        arm: str = "palbert/rte",
        config: dict | None = None,
        start: str | None = None,
    ) -> None:
        method, task = arm.split("/")
        self._tick(
            TrialStarted,
            key=key,
            method=method,
            task=task,
            phase=phase,
            trial=trial,
            seed=42 + trial,
            config=CONFIG if config is None else config,
            start=start,
            launch=launch,
        )

    def epoch(self, key: str, epoch: int, score: float, *, best_epoch: int | None = None) -> None:
        row = row_of(epoch, score, best_epoch=best_epoch or epoch)
        self._tick(EpochReported, key=key, report=report_of(row))

    def stop(self, key: str, *, rung: int, score: float, cutoff: float, recorded: int = 1) -> None:
        decided = {"rung": rung, "score": score, "cutoff": cutoff, "recorded": recorded}
        self._tick(AshaDecided, key=key, **decided, decision="stop")

    def retry(self, key: str, error: str) -> None:
        self._tick(TrialRetried, key=key, failure=failure_of("machine", error=error))

    def finish(self, key: str, *, score: float | None, epoch: int | None, **fields: Any) -> None:
        """Ends a trial that was started; `fields` replaces any of the record's."""
        self._end(key, self._record(key, score, epoch, **fields))

    def whole_trial(self, key: str, scores: list[float], **started: Any) -> None:
        """A completed trial with these scores by epoch."""
        best = scores.index(max(scores)) + 1
        self.start(key, **started)
        for epoch, score in enumerate(scores, start=1):
            self.epoch(key, epoch, score, best_epoch=epoch if epoch <= best else best)
        self.finish(key, score=max(scores), epoch=best)

    def take(self, record: Record, *, epochs: list[float] | None = None, launch: int = 1) -> None:
        """A trial that ends with this record; `epochs` are its selection scores."""
        if record.key in self.facts.trials:
            self._tick(TrialReopened, key=record.key, reason="asked")
        else:
            names = ("key", "method", "task", "repeat", "phase", "trial", "seed", "config", "start")
            self._tick(TrialStarted, **{name: getattr(record, name) for name in names}, launch=launch)
        for epoch, score in enumerate(epochs or [], start=1):
            self.epoch(record.key, epoch, score, best_epoch=min(epoch, record.epoch or epoch))
        if record.status == "stopped" and record.selection_score is not None:
            self.stop(record.key, rung=record.epochs, score=record.selection_score, cutoff=1.0, recorded=3)
        self._end(record.key, record)

    def _end(self, key: str, record: Record) -> None:
        failure = failure_of("method", error=record.error) if record.error else None
        self._tick(TrialEnded, key=key, record=record, failure=failure)

    def _record(self, key: str, score: float | None, epoch: int | None, **fields: Any) -> Record:
        started = self.facts.trials[key].started
        values = {
            "key": key,
            "study": "mine",
            "protocol_hash": "aaaa000011112222",
            **{
                name: getattr(started, name) for name in ("method", "task", "phase", "trial", "seed", "config", "start")
            },
            "status": "completed",
            "error": None,
            "score": score,
            "selection_score": score,
            "metrics": {"accuracy": score} if score is not None else {},
            "epoch": epoch,
            "epochs": 3,
            "num_layers": 12,
            "num_parameters": 11_700_000,
            "mean_layers": 9.5 if score is not None else None,
            "train_examples": 300,
            "train_seconds": 30.0,
            "eval_seconds": 3.0,
            "gpu_seconds": 0.0,
            "wall_seconds": 40.0,
            "model": None,
            "predictions_digest": None,
            "backbone_fingerprint": "albert/albert-base-v2",
            "tokenizer_fingerprint": None,
            "data_fingerprint": "f00d",
            "data_differences": (),
            "tokens_digest": None,
            "backbone_digest": None,
            "versions": {},
            "git_commit": None,
            "code_digest": "",
            "host": "node-1",
            "device": "cpu",
            "started": started.time,
            "ended": (BEGAN + timedelta(seconds=self.clock + 1)).isoformat(timespec="microseconds"),
        }
        return Record(**(values | fields))

    def _tick(self, kind: type, **fields: Any) -> None:
        self.clock += 1
        self.append(kind(time=self.now(), **fields))


def row_of(epoch: int, score: float, *, best_epoch: int | None = None, finished: bool = False) -> EpochRow:
    """An epoch with this score."""
    return EpochRow(
        epoch=epoch,
        selection_score=score,
        score=score,
        metrics={"accuracy": score},
        mean_layers=9.5,
        num_layers=12,
        exit_histogram=[0.0] * 6 + [50.0, 50.0, 100.0, 100.0, 50.0, 50.0],
        train_loss=1.0 / epoch,
        train_examples=100 * epoch,
        train_seconds=10.0 * epoch,
        eval_seconds=1.0 * epoch,
        best_epoch=best_epoch or epoch,
        improved=best_epoch in (None, epoch),
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
    assert row.score is not None
    return Outcome(
        score=row.score,
        selection_score=row.selection_score,
        metrics=row.metrics,
        epoch=row.epoch,
        epochs=row.epoch,
        num_layers=row.num_layers,
        mean_layers=row.mean_layers,
        train_examples=row.train_examples,
        train_seconds=row.train_seconds,
        eval_seconds=row.eval_seconds,
        num_parameters=12_000_000,
        data_differences=(),
        model=model,
    )


def _add_line(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line + b"\n")
