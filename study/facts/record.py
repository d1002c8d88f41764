"""The record of an ended trial: one flat row, all of its numbers from one epoch, which `analysis` reads."""

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
    """An ended trial."""

    key: str  # identity: hash of all that decides the training run, see `trial_key`
    protocol_hash: str
    method: str
    task: str
    phase: Phase
    trial: Count  # number within the arm and phase, from 0
    seed: int
    config: Configuration  # every field of the method's, tuned and fixed, with the exit setting that was chosen
    start: str | None = None  # key of the trial whose model it began from
    status: Status  # "stopped" is by ASHA, "dropped" by `study.drop`: it counts nowhere
    error: str | None = None  # last line of the error of a failed trial; why a trial was dropped
    score: Score | None = None  # the task's metric at the selected epoch, on the reported split
    selection_score: Score | None = None  # the same metric on the split used to select
    metrics: Mapping[str, float] = {}  # every component metric of the reported split at that epoch
    epoch: AtLeastOne | None = None  # the selected one
    epochs: Count = 0  # run
    num_layers: AtLeastOne | None = None
    num_parameters: AtLeastOne | None = None  # of the whole model; None before a trial has completed
    mean_layers: NotNegative | None = None  # run per dev example under the method's exit
    train_examples: Count = 0  # seen in training, repeats counted
    train_seconds: NotNegative = 0.0
    eval_seconds: NotNegative = 0.0
    gpu_seconds: NotNegative = 0.0  # share of a GPU x seconds held
    wall_seconds: NotNegative = 0.0  # from the trial's start to its end, waiting after a crash left out
    model: str | None = None  # address of the selected model, a path or a URI
    predictions_digest: str | None = None  # SHA-256 of the predictions file; None if none was stored
    backbone_fingerprint: str
    tokenizer_fingerprint: str | None  # None if the tokenizer comes with the backbone
    data_fingerprint: str
    data_differences: tuple[str, ...] | None = None  # from the official GLUE; None before a trial has completed
    tokens_digest: str | None = None  # of the tokenised rows, as the worker found them; None before its report
    backbone_digest: str | None = None  # of the files that were loaded, likewise
    versions: Mapping[str, str]  # of every launch that trained it, the last one's last: `2.12.0, 2.13.0`
    git_commit: str | None  # likewise
    code_digest: str  # of the sources of what trains, likewise
    host: str = ""  # of the last process that trained it
    device: str = ""
    started: str  # UTC, ISO 8601
    ended: str
    repeat: Count = 0  # of the arm's search
    latency: Latency | None = None  # of a completed confirm trial, measured once

    def __post_init__(self) -> None:
        """Refuse a completed trial without scores."""
        if self.status == "completed" and (self.score is None or self.selection_score is None):
            missing = "score" if self.score is None else "selection_score"
            raise ValueError(f"record {self.key!r}: {missing} of a completed trial is null; allowed: a number")

    @property
    def arm(self) -> str:
        """The name of the arm it belongs to."""
        return format_arm_name(self.method, self.task, self.repeat)


def format_records(records: Iterable[Record]) -> bytes:
    """Format the records as `records.jsonl` has them. The same records give the same bytes."""
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)
