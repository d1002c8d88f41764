"""How much better the best search trial looked than the same configuration is on fresh seeds, and on dev."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.statistics.uncertainty import median_interval
from study.facts.record import Record


@dataclass(frozen=True)
class Gap:
    """A difference of scores, with bounds that cover it with this probability."""

    difference: float
    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class Optimism:
    """What a search score promises beyond what is reported, in its two parts; scores in [-1, 1].

    `of_search`: the best search trial's selection score minus the median of the confirm trials' selection scores.
    Both are of the same split, so only the luck of the seed that was chosen for it is in it.
    `of_slice`: the median over the confirm trials of selection score minus reported score: how much easier the split
    is that selects. Zero where the reported split selects.
    """

    of_search: Gap
    of_slice: Gap

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        return asdict(self)


def optimism_of_search(best: Record, confirmed: Sequence[Record]) -> Optimism | None:
    """From the best search trial and the completed confirm trials; None with fewer than two of these.

    The bounds are order statistics: they cover the median over all seeds, whatever the scores' distribution; of five
    seeds with 93.75 %.
    """
    selection = [record.selection_score for record in confirmed if record.selection_score is not None]
    reported = [record.score for record in confirmed if record.score is not None]
    if best.selection_score is None or len(selection) < 2:
        return None
    search = best.selection_score - np.array(selection)
    slice_gaps = np.array(selection) - np.array(reported)
    return Optimism(of_search=_median_gap(search), of_slice=_median_gap(slice_gaps))


def _median_gap(differences: np.ndarray) -> Gap:
    interval = median_interval(differences.tolist())
    return Gap(float(np.median(differences)), interval.low, interval.high, interval.coverage)
