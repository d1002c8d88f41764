"""Paired comparisons of methods, over dev examples and seeds: by task, over all tasks, and of repeated searches.

A p-value is of the two chosen configurations: would they differ on fresh seeds and other examples? Whether the methods
would differ, had each searched again, is known of repeated searches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal, Protocol

import numpy as np
from scipy import special

from analysis.statistics import uncertainty
from analysis.statistics.samples import Place, draw_samples
from analysis.statistics.uncertainty import PairedTest, Variance
from analysis.studies.cells import Row, find_repeats

POWER = 0.8  # with which `detectable_difference` would be found
DETECTABLE_RANGE = (0.7, 1.4)  # of itself: how far five seeds know the spread that it is made of
_NORMAL_FROM = 1e4  # degrees of freedom; scipy's noncentral t is unsure of itself far beyond

Family = Literal["baseline", "others", "means"]  # "means": over tasks, with the baseline
Pair = tuple[str, str, str]  # row, other row, task


@dataclass(frozen=True)
class Comparison:
    """One pair of rows on one task; with the baseline, the other row minus the baseline's.

    Its p-values are adjusted (Holm) over its family in the table. The family of the marks is every comparison with the
    baseline's row, over all rows and tasks: whatever the number of methods, at most one table in twenty marks a
    difference that does not exist. Comparisons between two other rows mark nothing, so they take nothing from the
    marks and are a family of their own; if no row is the baseline's, all comparisons are that family.

    A table that was looked at before it was extended pays for each look (Bonferroni), in p-values and intervals.
    """

    row: str
    other: str
    task: str
    family: Family
    test: PairedTest  # of the two chosen configurations
    adjusted_p_value: float
    # found with 80 % power, by the first test of the family that Holm looks at; None if nothing spreads
    detectable_difference: float | None
    looks: int = 1

    @property
    def holds(self) -> bool:
        """Whether the difference of the chosen configurations is marked."""
        return self.adjusted_p_value < uncertainty.ALPHA

    @property
    def arrow(self) -> str:
        """The mark of the row: ↑ if it is better than the baseline's, ↓ if it is worse; empty without a mark."""
        if self.family != "baseline" or not self.holds:
            return ""
        return "↑" if self.test.difference > 0 else "↓"

    def to_json(self) -> dict[str, Any]:
        """Return all fields for a table's sidecar."""
        facts: dict[str, Any] = asdict(self) | {"holds": self.holds}
        return {**facts.pop("test"), **facts}


class Scored(Protocol):
    """The scores of a method with several seeds, or searches, on the same examples."""

    @property
    def scores(self) -> list[float]:
        """One per seed, or per search."""

    @property
    def resampled(self) -> np.ndarray:
        """(resamples, scores), on resamples of the examples that methods share."""

    @property
    def examples(self) -> str:
        """Tells which; empty if the answers are not stored."""


def compare(
    samples: Mapping[Place, Scored],
    baseline: str | None,
    *,
    are_alike: Callable[[str, str, str], bool] = lambda row, other, task: True,
    looks: int = 1,
) -> list[Comparison]:
    """Compare every pair of rows, on every task on which both have a sample of the same examples.

    Args:
        are_alike: whether two rows may be tested against each other on a task.
        looks: how often differences were looked at, see `analysis.statistics.alike`.
    """
    families: dict[Family, dict[Pair, PairedTest]] = {"baseline": {}, "others": {}}
    for one, two in combinations(dict.fromkeys(row for row, _ in samples), 2):
        row, other = (two, one) if one == baseline else (one, two)
        tests = families["baseline" if other == baseline else "others"]
        for task in (task for place, task in samples if place == row and (other, task) in samples):
            own, its = samples[row, task], samples[other, task]
            if own.examples == its.examples != "" and are_alike(row, other, task):
                tests[row, other, task] = uncertainty.welch_test(own.resampled, its.resampled, own.scores, its.scores)
    return [one for family, tests in families.items() for one in _family(family, tests, looks)]


def find_baseline_row(rows: list[Row]) -> str | None:
    """Name the row that marks compare with; None unless exactly one row with numbers is the baseline's."""
    labels = find_baseline_rows(rows)
    return labels[0] if len(labels) == 1 else None


def find_baseline_rows(rows: list[Row]) -> list[str]:
    """Name the baseline's rows with numbers."""
    filled = [row for row in rows if any(cell.records for cell in row.cells.values())]
    return [row.label for row in filled if row.method == find_baseline_method(rows)]


def find_baseline_method(rows: list[Row]) -> str | None:
    """Name the method with which the plans compare the others; None if they do not agree on one."""
    studies = [study for row in rows for cell in row.cells.values() for study in cell.studies]
    named = {study.file.plan.asked.baseline for study in studies}
    return named.pop() if len(named) == 1 else None


def _family(family: Family, tests: Mapping[Pair, PairedTest], looks: int) -> list[Comparison]:
    """Make the comparisons of a family from their tests; the intervals of means over tasks hold all together."""
    together = looks * (len(tests) if family == "means" else 1)
    return [
        Comparison(
            row=row,
            other=other,
            task=task,
            family=family,
            test=uncertainty.at_level(test, 1 - uncertainty.ALPHA / together),
            adjusted_p_value=min(1.0, looks * p_value),
            detectable_difference=detectable_difference(
                test.standard_error, test.freedom, comparisons=len(tests) * looks
            ),
            looks=looks,
        )
        for ((row, other, task), test), p_value in zip(
            tests.items(), uncertainty.holm([test.p_value for test in tests.values()]), strict=True
        )
    ]


def detectable_difference(standard_error: float, freedom: float, *, comparisons: int = 1) -> float | None:
    """Find the smallest true difference that such a test finds with 80 % power, in the score's unit.

    None if the error is 0: scores that are all alike say nothing of how they spread. `python -m
    benchmarks.statistics power` holds it against the test itself.

    Args:
        freedom: degrees of freedom of the standard error.
        comparisons: of the table; the first that Holm looks at is tested at the level divided by their number.
    """
    if standard_error == 0:
        return None
    level = 1 - uncertainty.ALPHA / comparisons / 2
    if freedom > _NORMAL_FROM:
        return standard_error * float(special.ndtri(level) + special.ndtri(POWER))
    return standard_error * float(special.nctdtrinc(freedom, 1 - POWER, special.stdtrit(freedom, level)))


def over_tasks(comparisons: Iterable[Comparison], *, fewest: int = 2) -> dict[str, Comparison]:
    """Average the difference from the baseline of every row that is tested on so many tasks, by label.

    They are a family of their own: Holm over all of them, and intervals that cover all of them together (Bonferroni).
    """
    by_row: dict[str, list[Comparison]] = {}
    for one in (one for one in comparisons if one.family == "baseline"):
        by_row.setdefault(one.row, []).append(one)
    tests = {
        (row, own[0].other, f"mean over {len(own)} tasks"): macro_test([one.test for one in own])
        for row, own in by_row.items()
        if len(own) >= fewest
    }
    looks = max((own[0].looks for own in by_row.values()), default=1)
    return {one.row: one for one in _family("means", tests, looks)}


def macro_test(tests: Sequence[PairedTest]) -> PairedTest:
    """Test the difference of two rows' mean scores over the tasks jointly, from the test on each.

    Tasks have models and dev examples of their own, so the variance of the mean is the sum of theirs over the number
    of tasks squared; degrees of freedom after Satterthwaite.

    Raises:
        ValueError: no task.
    """
    if not tests:
        raise ValueError("no task is there to take a mean over; allowed: at least one that both rows have")
    number = len(tests)
    variances = [Variance((test.standard_error / number) ** 2, test.freedom) for test in tests]
    return uncertainty.paired_test(float(np.mean([test.difference for test in tests])), variances)


# Methods whose search was repeated. One search says little of how another would have ended. The mean score over the
# confirm trials of each search is one draw of what the method with its tuning comes to: a test counts searches.


@dataclass(frozen=True)
class Repeats:
    """The complete searches of a cell, the one in the tables first.

    `compare` takes them as it takes seeds: a search stands where a seed stood, with its mean score over the seeds,
    which are part of its spread. `python -m benchmarks.statistics repeats` prints level and coverage of that.
    """

    confirmed: list[list[float]]  # the scores of the confirm trials of each search
    resampled: np.ndarray  # (resamples, searches) means on shared resamples; without stored predictions (0, searches)
    examples: str  # which dev examples; "" without stored predictions

    @property
    def medians(self) -> list[float]:
        """The median of each search, as tables print it."""
        return [float(np.median(scores)) for scores in self.confirmed]

    @property
    def scores(self) -> list[float]:
        """The mean score of each search."""
        return [float(np.mean(scores)) for scores in self.confirmed]

    @property
    def deviation(self) -> float:
        """Standard deviation of the searches' means, seeds and search together."""
        return float(np.std(self.scores, ddof=1))

    @property
    def search_deviation(self) -> float | None:
        """The part of it that the seeds do not account for: 0 if they account for all; None with single seeds."""
        if min(map(len, self.confirmed)) < 2:
            return None
        of_seeds = np.mean([np.var(scores, ddof=1) / len(scores) for scores in self.confirmed])
        return float(max(0.0, self.deviation**2 - of_seeds) ** 0.5)

    def to_json(self) -> dict[str, Any]:
        """Return all fields for a table's sidecar."""
        spread = {"deviation": self.deviation, "search_deviation": self.search_deviation}
        return {"medians": self.medians, "means": self.scores} | spread


def repeats_of_rows(rows: Sequence[Row]) -> dict[Place, Repeats]:
    """Collect the cells with two searches or more that have all their confirm trials, the first among them."""
    cells = {
        (row.label, task): [search for search in find_repeats(cell) if search.state == "complete"]
        for row in rows
        for task, cell in row.cells.items()
        if cell.state == "complete"
    }
    cells = {place: searches for place, searches in cells.items() if len(searches) > 1}
    flat = [
        Row(f"{label}@{number}", cell.arm.method, {task: cell})
        for (label, task), searches in cells.items()
        for number, cell in enumerate(searches)
    ]
    samples = draw_samples(flat)
    repeats = {}
    for (label, task), searches in cells.items():
        drawn = [samples.get((f"{label}@{number}", task)) for number in range(len(searches))]
        stored = [sample for sample in drawn if sample is not None]
        whole = len(stored) == len(searches) and len({sample.examples for sample in stored}) == 1
        empty = np.empty((0, len(searches)))
        means = np.stack([sample.resampled.mean(axis=1) for sample in stored], axis=1) if whole else empty
        examples = stored[0].examples if whole else ""
        repeats[label, task] = Repeats([cell.scores for cell in searches], means, examples)
    return repeats
