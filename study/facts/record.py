"""The record of an ended trial: one flat row for `analysis`, with all scores from the same epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from study.plans.resolved_plan import format_arm_name
from trainables.configuration import AtLeastOne, Count, NotNegative
from trainables.runs.trial import Latency, Score
from trainables.schema import Configuration, Typed

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
    status: Status  # "stopped" by ASHA; "dropped" by `study.drop` (the trial counts nowhere)
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
    latency: Latency | None = None  # of a completed confirm trial, measured once

    def __post_init__(self) -> None:
        """Raise ValueError if a completed trial has no scores."""
        if self.status == "completed" and (self.score is None or self.selection_score is None):
            missing = "score" if self.score is None else "selection_score"
            raise ValueError(f"record {self.key!r}: {missing} of a completed trial is null; allowed: a number")

    @property
    def arm(self) -> str:
        """The name of the trial's arm."""
        return format_arm_name(self.method, self.task, self.repeat)


def format_records(records: Iterable[Record]) -> bytes:
    """Format the records for `records.jsonl`; equal records give equal bytes."""
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)
