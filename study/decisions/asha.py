"""Asynchronous successive halving (ASHA) for the search trials of one arm: arXiv:1810.05934.

The rungs are at `grace * factor**k` epochs. A trial stops at a rung if its score is below the (1 - 1/factor) quantile
of the earlier scores at this rung. Ray Tune's `AsyncHyperBandScheduler` with one bracket has the same rule, but also
counts the scores of failed trials. The journal holds the scores, so ASHA keeps no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from study.facts.events import AshaDecided
from study.plans.plan import EarlyStopping

Rungs = Mapping[int, Mapping[str, float]]  # epochs -> trial key -> score


def decide(
    rungs: Rungs, key: str, *, time: str, epoch: int, score: float, epochs: int, stopping: EarlyStopping
) -> AshaDecided | None:
    """Decide if a trial continues after an epoch; return None if the epoch is not a rung or already has a decision."""
    if epoch not in list_rungs(epochs, stopping):
        return None
    recorded = rungs.get(epoch, {})
    if key in recorded:
        return None
    cutoff = compute_cutoff(sorted(recorded.values()), stopping) if recorded else None
    decision: Literal["continue", "stop"] = "stop" if cutoff is not None and score < cutoff else "continue"
    return AshaDecided(time=time, key=key, rung=epoch, cutoff=cutoff, recorded=len(recorded), decision=decision)


def compute_cutoff(ascending: Sequence[float], stopping: EarlyStopping) -> float:
    """Compute the (1 - 1/factor) quantile of one or more sorted scores by linear interpolation.

    The result is bit-identical to that of `numpy.percentile`.
    """
    position = 100 * (1 - 1 / stopping.factor) / 100 * (len(ascending) - 1)
    below = int(position)
    part = position - below
    low, high = ascending[below], ascending[min(below + 1, len(ascending) - 1)]
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def list_rungs(epochs: int, stopping: EarlyStopping) -> list[int]:
    """List the epochs that are rungs; the last epoch is not a rung, because the trial ends there anyway."""
    rungs, rung = [], stopping.grace
    while rung < epochs:
        rungs.append(rung)
        rung *= stopping.factor
    return rungs
