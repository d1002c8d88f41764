"""Methods whose search was repeated: what tuning itself spreads by, and a test with the search as a level.

One search says little of how another would have ended (`search_noise` has to guess it from the search's own scores).
Where whole searches were repeated, the mean score over the confirm trials of each repeat is one draw of what the
method with its tuning comes to, so the repeats are what a test counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.statistics import uncertainty
from analysis.statistics.samples import Place, draw_samples
from analysis.statistics.uncertainty import PairedTest
from analysis.studies.cells import Cell, Row, repeats_of


@dataclass(frozen=True)
class Repeats:
    """The complete searches of a cell, the one in the tables first."""

    scores: list[list[float]]  # of the confirm trials of each repeat
    resampled: np.ndarray | None  # (resamples, repeats) means on shared resamples; None without stored predictions
    examples: str  # which dev examples; "" without stored predictions

    @property
    def medians(self) -> list[float]:
        """Of each repeat, as tables print it."""
        return [float(np.median(scores)) for scores in self.scores]

    @property
    def means(self) -> list[float]:
        return [float(np.mean(scores)) for scores in self.scores]

    @property
    def deviation(self) -> float:
        """Standard deviation of the repeats' means, seeds and search together."""
        return float(np.std(self.means, ddof=1))

    @property
    def search_deviation(self) -> float | None:
        """What of it the seeds do not account for: 0 where they account for all; None with single seeds."""
        if min(map(len, self.scores)) < 2:
            return None
        of_seeds = np.mean([np.var(scores, ddof=1) / len(scores) for scores in self.scores])
        return float(max(0.0, self.deviation**2 - of_seeds) ** 0.5)

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        spread = {"deviation": self.deviation, "search_deviation": self.search_deviation}
        return {"medians": self.medians, "means": self.means} | spread


@dataclass(frozen=True)
class RepeatedComparison:
    """A row against the baseline's on one task, both searched more than once; Holm over the table's."""

    row: str
    baseline: str
    task: str
    test: PairedTest
    adjusted_p_value: float

    @property
    def holds(self) -> bool:
        return self.adjusted_p_value < uncertainty.ALPHA

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        names = {"row": self.row, "baseline": self.baseline, "task": self.task}
        return names | asdict(self.test) | {"adjusted_p_value": self.adjusted_p_value, "holds": self.holds}


def repeats_of_rows(rows: Sequence[Row]) -> dict[Place, Repeats]:
    """Of every cell of which at least two searches have all their confirm trials, the first among them."""
    cells = {(row.label, task): _complete(cell) for row in rows for task, cell in row.cells.items()}
    cells = {place: searches for place, searches in cells.items() if len(searches) > 1}
    flat = [
        Row(f"{label}@{number}", cell.method, {task: cell})
        for (label, task), searches in cells.items()
        for number, cell in enumerate(searches)
    ]
    samples = draw_samples(flat)
    repeats = {}
    for (label, task), searches in cells.items():
        drawn = [samples.get((f"{label}@{number}", task)) for number in range(len(searches))]
        stored = [sample for sample in drawn if sample is not None]
        whole = len(stored) == len(searches) and len({sample.predictions[0].examples for sample in stored}) == 1
        means = np.stack([sample.resampled.mean(axis=1) for sample in stored], axis=1) if whole else None
        examples = stored[0].predictions[0].examples if whole else ""
        repeats[label, task] = Repeats([cell.scores for cell in searches], means, examples)
    return repeats


def _complete(cell: Cell) -> list[Cell]:
    """The repeats of the cell that are whole; none where the first is not."""
    searches = repeats_of(cell)
    return [search for search in searches if search.state == "complete"] if searches[0].state == "complete" else []


def compare_repeats(repeats: dict[Place, Repeats], baseline: str | None) -> list[RepeatedComparison]:
    """Every row against the baseline's, where both have predictions of the same examples for every repeat."""
    pairs = [
        (place, one, repeats[baseline, place[1]])
        for place, one in repeats.items()
        if baseline is not None and place[0] != baseline and (baseline, place[1]) in repeats
    ]
    pairs = [(place, one, other) for place, one, other in pairs if one.examples == other.examples != ""]
    tests = [paired_repeats(one, other) for _, one, other in pairs]
    adjusted = uncertainty.holm([test.p_value for test in tests])
    return [
        RepeatedComparison(label, str(baseline), task, test, p_value)
        for ((label, task), _, _), test, p_value in zip(pairs, tests, adjusted, strict=True)
    ]


def paired_repeats(one: Repeats, other: Repeats) -> PairedTest:
    """The difference of two methods with their searches: the repeats are what varies, each with its mean over seeds.

    The paired test of tables, one level higher: a repeat stands where a seed stood. The seeds within it are part of
    its spread. `python -m benchmarks.statistics repeats` prints its level and its coverage.
    """
    assert one.resampled is not None and other.resampled is not None
    return uncertainty.paired_bootstrap(one.resampled, other.resampled, one.means, other.means)
