"""Asynchronous successive halving (ASHA) for the search trials of one arm: arXiv:1810.05934.

Rungs stand at `grace * factor**k` epochs. A trial that reaches a rung goes on if its score is at least the
(1 - 1/factor) quantile of the scores recorded there before it, as Ray Tune's `AsyncHyperBandScheduler` decides with
one bracket. There is no other state, so replaying the recorded scores restores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Decision:
    rung: int  # epochs
    score: float
    cutoff: float | None  # null at an empty rung
    recorded: int  # scores at the rung before this one
    decision: Literal["continue", "stop"]


class Asha:
    """The rungs of one arm."""

    def __init__(self, *, grace: int, factor: int, max_epochs: int):
        self._factor = factor
        self._rungs: dict[int, dict[str, float]] = {}  # epochs -> trial key -> score
        rung = grace
        while rung < max_epochs:  # at the last epoch there is nothing left to stop
            self._rungs[rung] = {}
            rung *= factor

    def decide(self, key: str, *, epoch: int, score: float) -> Decision | None:
        """What happens to trial `key` at `epoch`; None where there is no rung, or it passed this rung before."""
        recorded = self._rungs.get(epoch)
        if recorded is None or key in recorded:
            return None
        cutoff = float(np.percentile(list(recorded.values()), 100 * (1 - 1 / self._factor))) if recorded else None
        stop = cutoff is not None and score < cutoff
        return Decision(epoch, score, cutoff, len(recorded), "stop" if stop else "continue")

    def apply(self, event: dict[str, Any]) -> None:
        """Records an `asha_decided` event."""
        self._rungs.setdefault(event["rung"], {})[event["key"]] = event["score"]
