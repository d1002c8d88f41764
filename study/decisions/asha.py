"""Asynchronous successive halving (ASHA) for the search trials of one arm: arXiv:1810.05934.

Rungs stand at `grace * factor**k` epochs. A trial that reaches a rung goes on if its score is at least the
(1 - 1/factor) quantile of the scores recorded there before it, as Ray Tune's `AsyncHyperBandScheduler` decides with
one bracket. The scores are facts of the arm, so there is no other state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from study.plans.plan import EarlyStopping

Rungs = Mapping[int, Mapping[str, float]]  # epochs -> trial key -> score


@dataclass(frozen=True)
class Decision:
    """What happens to a trial at a rung."""

    rung: int  # epochs
    score: float
    cutoff: float | None  # None at an empty rung
    recorded: int  # scores at the rung before this one
    decision: Literal["continue", "stop"]


def decide(
    rungs: Rungs, key: str, *, epoch: int, score: float, epochs: int, stopping: EarlyStopping
) -> Decision | None:
    """What happens to trial `key` at `epoch` of `epochs`; None where no rung stands, or it passed this one before."""
    if epoch not in rungs_of(epochs, stopping):
        return None
    recorded = rungs.get(epoch, {})
    if key in recorded:
        return None
    cutoff = cutoff_of(list(recorded.values()), stopping) if recorded else None
    stop = cutoff is not None and score < cutoff
    return Decision(epoch, score, cutoff, len(recorded), "stop" if stop else "continue")


def cutoff_of(recorded: Sequence[float], stopping: EarlyStopping) -> float:
    """The score that a trial must reach to go on from a rung where these scores were recorded before."""
    return float(np.percentile(recorded, 100 * (1 - 1 / stopping.factor)))


def rungs_of(epochs: int, stopping: EarlyStopping) -> list[int]:
    """The epochs at which rungs stand; at the last epoch there is nothing left to stop."""
    rungs, rung = [], stopping.grace
    while rung < epochs:
        rungs.append(rung)
        rung *= stopping.factor
    return rungs
