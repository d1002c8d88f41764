"""How many trials shared a GPU while an epoch ran, by what trials report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from study.facts.events import EpochReported, Report

ROUNDING = 1e-6  # of a GPU
THROUGHOUT = 0.9  # of an epoch, that neighbours are there at least: reports come a little late


@dataclass(frozen=True)
class EpochOnGpu:
    """The last epoch of a trial, and where it ran."""

    host: str
    gpu: str  # Ray's number of it there
    share: float  # of the GPU, that the trial held
    began: float  # POSIX time
    seconds: float  # by the clock
    there_since: float  # POSIX time at which the trial came to this GPU


def epoch_on_gpu(event: EpochReported, before: Report | None, earlier: EpochOnGpu | None) -> EpochOnGpu | None:
    """Of a trial that reported `before`, and `earlier` since it came to its GPU; None without a GPU, or with one in
    other processes."""
    now = event.report
    seconds = now.wall_seconds - (before.wall_seconds if before else 0.0)
    if now.gpu is None or seconds <= 0:
        return None
    share = (now.gpu_seconds - (before.gpu_seconds if before else 0.0)) / seconds
    began = datetime.fromisoformat(event.time).timestamp() - seconds
    return EpochOnGpu(now.host, now.gpu, share, began, seconds, earlier.there_since if earlier else began)


def trials_on_full_gpu(own: EpochOnGpu, others: Iterable[EpochOnGpu | None]) -> int | None:
    """How many trials were on the GPU throughout the epoch; None where that is not known.

    `others` are trials that run now. Where one more like this one had room, one may have been there that has not
    reported yet; and where one came while the epoch ran, there was another number before.
    """
    beside = [other for other in others if other and (other.host, other.gpu) == (own.host, own.gpu)]
    room = 1 - own.share - sum(other.share for other in beside)
    last_came = max((other.there_since for other in beside), default=own.began)
    has_changed = last_came > own.began + (1 - THROUGHOUT) * own.seconds
    return None if has_changed or room > own.share - ROUNDING else 1 + len(beside)


def epoch_seconds(before: Report | None, now: Report) -> float:
    """Of training and evaluation of an epoch, by the part of one that lies between two reports; what a trial's process
    takes to start is left out."""
    reports = [report.row for report in (before, now) if report]
    seconds, epochs = [row.train_seconds + row.eval_seconds for row in reports], [row.epoch for row in reports]
    return (seconds[-1] - seconds[0]) / (epochs[-1] - epochs[0]) if before else seconds[0] / epochs[0]
