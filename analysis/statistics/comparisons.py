"""Paired comparisons of methods, over dev examples and seeds: by task, over all tasks, and of repeated searches.

A p-value is of the two chosen configurations: would they differ on fresh seeds and other examples? Whether the methods
would differ, had each searched again, is known of repeated searches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from scipy import special

from analysis.statistics import uncertainty
from analysis.statistics.samples import Place, Sample, draw_samples
from analysis.statistics.uncertainty import PairedTest, Variance
from analysis.studies.cells import Cell, Row, repeats_of

POWER = 0.8  # with which `detectable_difference` would be found
DETECTABLE_RANGE = (0.7, 1.4)  # of itself: how far five seeds know the spread that it is made of
_NORMAL_FROM = 1e4  # degrees of freedom; scipy's noncentral t is unsure of itself far beyond

Family = Literal["baseline", "others"]


@dataclass(frozen=True)
class Comparison:
    """One pair of rows on one task.

    Its p-values are adjusted (Holm) over its family in the table. The family of the marks is every comparison with the
    baseline's row, over all rows and tasks: whatever the number of methods, at most one table in twenty marks a
    difference that does not exist. Comparisons between two other rows mark nothing, so they take nothing from the
    marks and are a family of their own; if no row is the baseline's, all comparisons are that family.

    A table that was looked at before with fewer seeds pays for each look (Bonferroni), in p-values and intervals.
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

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        facts = {"row": self.row, "other": self.other, "task": self.task, "family": self.family, **asdict(self.test)}
        return facts | {
            "adjusted_p_value": self.adjusted_p_value,
            "holds": self.holds,
            "detectable_difference": self.detectable_difference,
            "looks": self.looks,
        }


def any_pair(row: str, other: str, task: str) -> bool:
    """Passes every pair of rows on every task."""
    return True


def compare(
    samples: Mapping[Place, Sample],
    baseline: str | None,
    *,
    are_alike: Callable[[str, str, str], bool] = any_pair,
    looks: int = 1,
) -> list[Comparison]:
    """The comparisons of every pair of rows, on every task on which both have a sample of the same examples.

    Args:
        are_alike: whether two rows may be tested against each other on a task.
        looks: how often the scores were looked at, with other numbers of seeds.
    """
    pairs = [
        (row, other, task)
        for row, other in combinations(dict.fromkeys(row for row, _ in samples), 2)
        for place, task in samples
        if place == row and _same_examples(samples[row, task], samples.get((other, task)))
        if are_alike(row, other, task)
    ]
    marked = [pair for pair in pairs if baseline in pair[:2]]
    families: dict[Family, list[tuple[str, str, str]]] = {
        "baseline": marked,
        "others": [pair for pair in pairs if pair not in marked],
    }
    compared = {
        (comparison.row, comparison.other, comparison.task): comparison
        for family, members in families.items()
        for comparison in _compare_family(family, members, samples, looks)
    }
    return [compared[pair] for pair in pairs]


def marks(comparisons: Iterable[Comparison], baseline: str | None) -> dict[Place, str]:
    """↑ or ↓ of rows that are better or worse than the baseline's row, if the test holds."""
    arrows = {}
    for comparison in comparisons:
        if comparison.holds and baseline in (comparison.row, comparison.other):
            is_other = comparison.row == baseline
            better = (comparison.test.difference > 0) != is_other
            arrows[comparison.other if is_other else comparison.row, comparison.task] = "↑" if better else "↓"
    return arrows


def baseline_row(rows: list[Row]) -> str | None:
    """The label of the row that marks compare with; None unless exactly one row with numbers is the baseline's."""
    labels = baseline_rows(rows)
    return labels[0] if len(labels) == 1 else None


def baseline_rows(rows: list[Row]) -> list[str]:
    """The labels of the baseline's rows with numbers."""
    filled = [row for row in rows if any(cell.records for cell in row.cells.values())]
    return [row.label for row in filled if row.method == baseline_method(rows)]


def baseline_method(rows: list[Row]) -> str | None:
    """The method with which the plans compare the others; None if they do not agree on one."""
    studies = [study for row in rows for cell in row.cells.values() for study in cell.studies]
    named = {study.file.plan.asked.baseline for study in studies}
    return named.pop() if len(named) == 1 else None


def adjust(tests: Sequence[PairedTest], looks: int) -> list[float]:
    """The p-values of a family that was looked at so often: Holm, then Bonferroni."""
    return [min(1.0, looks * p_value) for p_value in uncertainty.holm([test.p_value for test in tests])]


def _compare_family(
    family: Family, members: list[tuple[str, str, str]], samples: Mapping[Place, Sample], looks: int
) -> list[Comparison]:
    tests = [_test(samples[row, task], samples[other, task]) for row, other, task in members]
    return [
        Comparison(
            row=row,
            other=other,
            task=task,
            family=family,
            test=uncertainty.at_level(test, 1 - uncertainty.ALPHA / looks),
            adjusted_p_value=p_value,
            detectable_difference=detectable_difference(
                test.standard_error, test.freedom, comparisons=len(members) * looks
            ),
            looks=looks,
        )
        for (row, other, task), test, p_value in zip(members, tests, adjust(tests, looks), strict=True)
    ]


def _test(one: Sample, other: Sample) -> PairedTest:
    return uncertainty.paired_bootstrap(one.resampled, other.resampled, one.scores, other.scores)


def _same_examples(one: Sample, other: Sample | None) -> bool:
    return other is not None and one.examples == other.examples


def detectable_difference(standard_error: float, freedom: float, *, comparisons: int = 1) -> float | None:
    """The smallest true difference that a test with this standard error finds with 80 % power, in the score's unit.

    None where the error is 0: scores that are all alike say nothing of how they spread. `python -m
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


@dataclass(frozen=True)
class OverTasks:
    """A row's mean difference to the baseline over all tasks that both have; all rows' are one family."""

    test: PairedTest  # its interval is at the level that covers all of them with 95 % (Bonferroni)
    adjusted_p_value: float  # Holm
    tasks: int

    @property
    def holds(self) -> bool:
        """Whether there is a difference over the tasks; no table marks it."""
        return self.adjusted_p_value < uncertainty.ALPHA


def over_tasks(comparisons: Sequence[Comparison], baseline: str | None) -> dict[str, OverTasks]:
    """The mean difference of every row that is tested on several tasks, by label."""
    labels = dict.fromkeys(label for one in comparisons for label in (one.row, one.other))
    by_row = {label: by_task(comparisons, label, baseline) for label in labels if label != baseline}
    tests = {label: macro_test(own) for label, own in by_row.items() if len(own) > 1}
    looks = max((one.looks for one in comparisons), default=1)
    level = 1 - uncertainty.ALPHA / max(1, len(tests) * looks)
    return {
        label: OverTasks(uncertainty.at_level(test, level), p_value, len(by_row[label]))
        for (label, test), p_value in zip(tests.items(), adjust([*tests.values()], looks), strict=True)
    }


def macro_test(tests: Mapping[str, PairedTest]) -> PairedTest:
    """The difference of two rows' mean scores over the tasks, tested jointly, from their tests by task.

    Tasks have models and dev examples of their own, so the variance of the mean is the sum of theirs over the number
    of tasks squared; degrees of freedom after Satterthwaite.

    Raises:
        ValueError: no task.
    """
    if not tests:
        raise ValueError("no task is there to take a mean over; allowed: at least one that both rows have")
    number = len(tests)
    variances = [Variance((test.standard_error / number) ** 2, test.freedom) for test in tests.values()]
    return uncertainty.paired_test(float(np.mean([test.difference for test in tests.values()])), variances)


def by_task(comparisons: Sequence[Comparison], row: str, other: str | None) -> dict[str, PairedTest]:
    """The tests of `row` minus `other` by task, whichever way round they were compared."""
    tests = {}
    for comparison in comparisons:
        if (comparison.row, comparison.other) == (row, other):
            tests[comparison.task] = comparison.test
        elif (comparison.row, comparison.other) == (other, row):
            tests[comparison.task] = _turn(comparison.test)
    return tests


def _turn(test: PairedTest) -> PairedTest:
    return PairedTest(-test.difference, -test.high, -test.low, test.p_value, test.standard_error, test.freedom)


# Methods whose search was repeated. One search says little of how another would have ended (`search_noise` has to guess
# it from the search's own scores). Where whole searches were repeated, the mean score over the confirm trials of each
# repeat is one draw of what the method with its tuning comes to, so the repeats are what a test counts.


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
        means = np.stack([sample.resampled.mean(axis=1) for sample in stored], axis=1) if whole else None
        examples = stored[0].examples if whole else ""
        repeats[label, task] = Repeats([cell.scores for cell in searches], means, examples)
    return repeats


def _complete(cell: Cell) -> list[Cell]:
    """The repeats of the cell that are whole; none where the first is not."""
    searches = repeats_of(cell)
    return [search for search in searches if search.state == "complete"] if searches[0].state == "complete" else []


def compare_repeats(
    repeats: dict[Place, Repeats],
    baseline: str | None,
    *,
    are_alike: Callable[[str, str, str], bool] = any_pair,
    looks: int = 1,
) -> list[RepeatedComparison]:
    """Every row against the baseline's, where both have predictions of the same examples for every repeat.

    The arguments are those of `compare`.
    """
    pairs = [
        (place, one, repeats[baseline, place[1]])
        for place, one in repeats.items()
        if baseline is not None and place[0] != baseline and (baseline, place[1]) in repeats
        if are_alike(place[0], baseline, place[1])
    ]
    pairs = [(place, one, other) for place, one, other in pairs if one.examples == other.examples != ""]
    tests = [paired_repeats(one, other) for _, one, other in pairs]
    level = 1 - uncertainty.ALPHA / looks
    return [
        RepeatedComparison(label, str(baseline), task, uncertainty.at_level(test, level), p_value)
        for ((label, task), _, _), test, p_value in zip(pairs, tests, adjust(tests, looks), strict=True)
    ]


def paired_repeats(one: Repeats, other: Repeats) -> PairedTest:
    """The difference of two methods with their searches: the repeats are what varies, each with its mean over seeds.

    The paired test of tables, one level higher: a repeat stands where a seed stood. The seeds within it are part of
    its spread. `python -m benchmarks.statistics repeats` prints its level and its coverage.
    """
    assert one.resampled is not None and other.resampled is not None
    return uncertainty.paired_bootstrap(one.resampled, other.resampled, one.means, other.means)
