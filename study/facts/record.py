"""The record of an ended trial, for `analysis`. All scores in a record are from the same epoch.

This module also sums the compute of several records, and computes summary statistics of scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from study.plans.resolved_plan import format_arm_name
from trainables.configuration import AtLeastOne, Count, NotNegative
from trainables.configuration.schema import Configuration, Typed
from trainables.runs.trial import Score, TextFlops

Phase = Literal["search", "confirm"]
Status = Literal["completed", "stopped", "failed", "dropped"]


class Record(Typed, frozen=True, kw_only=True, gc=False):
    """The configuration, results, costs and origin of an ended trial."""

    key: str  # identity: hash of everything that determines the training run, see `trial_key`
    protocol_hash: str
    method: str
    task: str
    phase: Phase
    trial: Count  # number within the arm and phase, from 0
    seed: int
    config: Configuration  # every field of the method, tuned or fixed, with the chosen exit setting
    start: str | None = None  # key of the trial whose model this trial began from
    status: Status  # "stopped" by ASHA; "dropped" by `study.drop` (see docs/decisions.md#dropped-trials)
    error: str | None = None  # last line of a failed trial's error, or the reason for dropping a trial
    score: Score | None = None  # the task's metric at the selected epoch, on the reported split
    selection_score: Score | None = None  # the same metric on the split used to select
    metrics: Mapping[str, float] = {}  # every component metric of the reported split at that epoch
    epoch: AtLeastOne | None = None  # selected epoch
    epochs: Count = 0  # number of epochs run
    num_layers: AtLeastOne | None = None
    num_parameters: AtLeastOne | None = None  # of the whole model; None before a trial has completed
    mean_layers: NotNegative | None = None  # layers run per dev example under the method's exit
    train_examples: Count = 0  # seen in training; each repeat counts
    train_seconds: NotNegative = 0.0
    eval_seconds: NotNegative = 0.0
    gpu_seconds: NotNegative = 0.0  # share of a GPU times the seconds it was held
    wall_seconds: NotNegative = 0.0  # from the trial's start to its end, without waits after crashes
    model: str | None = None  # address of the selected model, a path or a URI
    predictions_digest: str | None = None  # SHA-256 of the predictions file; None if none was stored
    model_digest: str | None = None  # of the model's folder; None if none was stored, or by an older version
    backbone_fingerprint: str
    tokenizer_fingerprint: str | None  # None if the tokenizer comes with the backbone
    data_fingerprint: str
    data_differences: tuple[str, ...] | None = None  # from the official GLUE; None before a trial has completed
    tokens_digest: str | None = None  # of the tokenised rows, from the worker; None before the first report
    backbone_digest: str | None = None  # of the loaded files, from the worker; None before the first report
    versions: Mapping[str, str]  # of all launches that trained the trial, each value once: `2.12.0, 2.13.0`
    git_commit: str | None  # of the same launches, each value once
    code_digest: str  # of the training code in the same launches, each value once
    host: str = ""  # of the last process that trained the trial
    device: str = ""
    started: str  # UTC, ISO 8601
    ended: str
    repeat: Count = 0  # number of the arm's search, from 0
    text_flops: tuple[TextFlops, ...] = ()  # FLOPs of a few texts; only of a completed confirm trial

    def __post_init__(self) -> None:
        """Raise ValueError if a completed trial has no scores."""
        if self.status == "completed" and (self.score is None or self.selection_score is None):
            missing = "score" if self.score is None else "selection_score"
            raise ValueError(f"record {self.key!r}: {missing} of a completed trial is null; allowed: a number")

    @property
    def arm(self) -> str:
        """The name of the trial's arm."""
        return format_arm_name(self.method, self.task, self.repeat)


def find_trials(records: Iterable[Record], key: str) -> list[Record]:
    """Return the newest record of each trial whose key is `key` or begins with it."""
    return list({record.key: record for record in records if record.key.startswith(key)}.values())


def format_records(records: Iterable[Record]) -> bytes:
    """Format the records for `records.jsonl`; equal records give equal bytes."""
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


class Spent(Typed, frozen=True, kw_only=True):
    """The compute of the ended trials of one arm (a method on a task) in one phase, search or confirm."""

    arm: str
    phase: Phase
    trials: dict[str, int]  # number by status
    epochs: int
    train_examples: int  # each repeat counts
    train_seconds: float
    eval_seconds: float
    wall_seconds: float  # includes start-up and waiting for data
    gpu_seconds: float  # share of a GPU times the seconds it was held
    cpu_seconds: float  # wall-clock seconds of the trials that held no GPU

    @property
    def task(self) -> str:
        """The task of the arm."""
        return self.arm.rpartition("/")[2].partition("@")[0]


_SUMMED = ("epochs", "train_examples", "train_seconds", "eval_seconds", "wall_seconds", "gpu_seconds")


def compute_ledger(records: Iterable[Record]) -> list[Spent]:
    """Sum the compute of trials by arm and phase.

    Arms are in the order of their first records. Within an arm, search trials come first.
    """
    phases: dict[str, dict[Phase, list[Record]]] = {}
    for record in records:
        by_phase = phases.setdefault(record.arm, {phase: [] for phase in get_args(Phase)})
        by_phase[record.phase].append(record)
    return [
        Spent(
            arm=arm,
            phase=phase,
            trials=_sort_by_status(Counter(record.status for record in trials)),
            cpu_seconds=sum(record.wall_seconds for record in trials if record.gpu_seconds == 0),
            **{name: sum(getattr(record, name) for record in trials) for name in _SUMMED},
        )
        for arm, by_phase in phases.items()
        for phase, trials in by_phase.items()
        if trials
    ]


def count_by_status(entries: Iterable[Spent]) -> dict[str, int]:
    """Count the trials of each status in ledger entries. A status without trials is omitted."""
    return _sort_by_status(sum((Counter(entry.trials) for entry in entries), Counter[str]()))


def _sort_by_status(counts: Mapping[str, int]) -> dict[str, int]:
    return {status: counts[status] for status in get_args(Status) if status in counts}


def format_counts(trials: dict[str, int]) -> str:
    """Format the number of trials with each status: `3 completed, 1 stopped`."""
    return ", ".join(f"{number} {status}" for status, number in trials.items())


def summarise(scores: Sequence[float]) -> dict[str, float]:
    """Compute mean, standard deviation (if there are two scores or more), median and range."""
    import numpy as np

    low, middle, high = np.percentile(scores, [0, 50, 100]).tolist()
    deviation = {"standard_deviation": float(np.std(scores, ddof=1))} if len(scores) > 1 else {}
    return {"mean": float(np.mean(scores)), **deviation, "median": middle, "lowest": low, "highest": high}
