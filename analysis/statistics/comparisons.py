"""Test the difference between two methods' scores: on each task, over all tasks, and over repeated searches.

After a single search, a test compares two configurations: would their scores still differ with new seeds and other
examples? Only repeated searches show whether the methods would still differ after new searches.

This module also finds which rows may be tested against each other, and how often the user may have seen scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from scipy import special

from analysis.statistics import uncertainty
from analysis.statistics.samples import Place, Scored, draw_samples
from analysis.statistics.uncertainty import PairedTest, Variance
from analysis.studies.cells import Cell, Row, find_repeats
from study.plans.plan import Plan
from study.plans.resolved_plan import chooses_epoch_on_dev
from study.terminal.text import counted, joined
from trainables.data.tasks import TASKS

POWER = 0.8  # probability of finding a true difference of `detectable_difference`
FEWEST_TO_DETECT = 3  # seeds of either row; two say hardly anything about the spread over seeds
MOST_REALISTIC = 0.2  # methods differ by at most half as much in the papers' tables, unless one failed to train
FEWEST_TASKS = 3  # of a mean over tasks; with two, one task may decide the mean
LAST_EPOCH = "the last epoch"
_ERRORS, _HALVINGS = 100, 30  # of the search for a detectable difference: estimates of the standard error, and steps
_NORMAL_FROM = 1e4  # degrees of freedom; far above this, scipy's noncentral t is inaccurate

Family = Literal["baseline", "others", "means", "claims"]  # "means": over tasks, with the baseline
Pair = tuple[str, str, str]  # row, other row, task


@dataclass(frozen=True)
class Comparison:
    """Test of the difference `row` minus `other` on one task. If the baseline is compared, the baseline is `other`.

    Holm's method adjusts p-values within a family of tests. All comparisons with the baseline, over all rows and tasks,
    are one family. All comparisons without the baseline are a second family. Tables mark the significant differences of
    the first family only. At most one table in twenty has a false mark.

    P-values and intervals are adjusted for the number of times that the user may have seen scores (Bonferroni).
    """

    row: str
    other: str
    task: str
    family: Family
    test: PairedTest  # of the configurations that the two searches chose
    adjusted_p_value: float
    # true difference found with 80 % power at the strictest level of Holm's method; None if it is unknown
    detectable_difference: float | None
    num_analyses: int = 1

    @property
    def holds(self) -> bool:
        """True if the difference is significant after all adjustments of the p-value."""
        return self.adjusted_p_value < uncertainty.ALPHA

    @property
    def missed_difference(self) -> float | None:
        """The detectable difference if no difference was found; None if one was found, or if it is unknown."""
        return None if self.holds else self.detectable_difference

    @property
    def arrow(self) -> str:
        """Arrow beside the row's score in tables: ↑ if significantly above the baseline, ↓ if below, else empty."""
        if self.family != "baseline" or not self.holds:
            return ""
        return "↑" if self.test.difference > 0 else "↓"


def compare(
    samples: Mapping[Place, Scored],
    baseline: str | None,
    *,
    are_comparable: Callable[[str, str, str], bool] = lambda row, other, task: True,
    num_analyses: int = 1,
) -> list[Comparison]:
    """Test every two rows on each task, if both rows have predictions for the same examples.

    Args:
        are_comparable: whether two rows may be tested against each other on a task.
        num_analyses: number of times that the user may have seen scores; see `list_interim_analyses`.
    """
    families: dict[Family, dict[Pair, PairedTest]] = {"baseline": {}, "others": {}}
    for one, two in combinations(dict.fromkeys(row for row, _ in samples), 2):
        row, other = (two, one) if one == baseline else (one, two)
        tests = families["baseline" if other == baseline else "others"]
        for task in (task for place, task in samples if place == row and (other, task) in samples):
            own, its = samples[row, task], samples[other, task]
            if own.examples == its.examples != "" and are_comparable(row, other, task):
                tests[row, other, task] = uncertainty.welch_test(own.resampled, its.resampled, own.scores, its.scores)
    compared = [one for family, tests in families.items() for one in adjust(family, tests, num_analyses)]
    return [
        leave_out_power(one, *(len(samples[row, one.task].scores) for row in (one.row, one.other))) for one in compared
    ]


def leave_out_power(comparison: Comparison, *seeds: int) -> Comparison:
    """Leave out the difference that would have been found if a row has too few seeds; `seeds` are those of each row."""
    return comparison if min(seeds) >= FEWEST_TO_DETECT else replace(comparison, detectable_difference=None)


def find_baseline_row(rows: list[Row]) -> str | None:
    """Return the label of the row with scores of the baseline, or None if there is no such row, or more than one."""
    labels = find_baseline_rows(rows)
    return labels[0] if len(labels) == 1 else None


def find_baseline_rows(rows: list[Row]) -> list[str]:
    """List the labels of all rows that have scores of the baseline method."""
    filled = [row for row in rows if any(cell.records for cell in row.cells.values())]
    return [row.label for row in filled if row.method == find_baseline_method(rows)]


def find_baseline_method(rows: list[Row]) -> str | None:
    """Return the baseline method of the plans, or None if the plans have different baselines."""
    studies = [study for row in rows for cell in row.cells.values() for study in cell.studies]
    named = {study.plan.request.baseline for study in studies}
    return named.pop() if len(named) == 1 else None


def adjust(family: Family, tests: Mapping[Pair, PairedTest], num_analyses: int) -> list[Comparison]:
    """Adjust the p-values and intervals of one family of tests for `num_analyses`; see `compare`.

    P-values are also adjusted for the number of tests, and so are the intervals of the family "means".
    """
    together = num_analyses * (len(tests) if family == "means" else 1)
    return [
        Comparison(
            row=row,
            other=other,
            task=task,
            family=family,
            test=uncertainty.at_level(test, 1 - uncertainty.ALPHA / together),
            adjusted_p_value=min(1.0, num_analyses * p_value),
            detectable_difference=detectable_difference(
                test.standard_error, test.freedom, comparisons=len(tests) * num_analyses
            ),
            num_analyses=num_analyses,
        )
        for ((row, other, task), test), p_value in zip(
            tests.items(), uncertainty.holm([test.p_value for test in tests.values()]), strict=True
        )
    ]


def detectable_difference(standard_error: float, freedom: float, *, comparisons: int = 1) -> float | None:
    """Estimate the true difference that a t-test finds with 80 % power, for studies that found no difference.

    The standard error is only estimated, and studies that find nothing more often overestimate it. The result is the
    multiple of it that other studies find in 80 % of cases, as the mean over the errors of such estimates.
    `python -m benchmarks.statistics power` measures how often a study finds the difference that another study printed.
    Return None if the standard error is 0.

    Args:
        standard_error: standard error of the estimated difference.
        freedom: degrees of freedom of the standard error.
        comparisons: number of tests in the family. The strictest level of Holm's method is 0.05 / `comparisons`.
    """
    if standard_error == 0:
        return None
    level = 1 - uncertainty.ALPHA / comparisons / 2
    if freedom > _NORMAL_FROM:
        return standard_error * float(special.ndtri(level) + special.ndtri(POWER))
    critical = special.stdtrit(freedom, level)
    places = (np.arange(_ERRORS) + 0.5) / _ERRORS
    errors = np.sqrt(special.chdtri(freedom, places) / freedom)  # of the estimate, relative to the true standard error
    weights = 1 - 2 * special.ndtr(-critical * errors)  # how often a study finds nothing, if there is no difference
    low, high = 0.0, float(special.nctdtrinc(freedom, 1 - POWER, critical)) / float(errors.min())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        missed = special.nctdtr(freedom, middle * errors, critical) @ weights / weights.sum()
        is_found = 1 - missed > POWER
        low, high = (low, middle) if is_found else (middle, high)
    return standard_error * high


def over_tasks(comparisons: Iterable[Comparison]) -> dict[str, Comparison]:
    """Average each row's differences from the baseline over the tasks; return row label -> test of the mean.

    Rows with fewer than `FEWEST_TASKS` tasks are left out. The tests are a separate family: Holm's method adjusts their
    p-values, and Bonferroni's method their intervals.
    """
    by_row: dict[str, list[Comparison]] = {}
    for one in (one for one in comparisons if one.family == "baseline"):
        by_row.setdefault(one.row, []).append(one)
    tests = {
        (row, own[0].other, f"mean over {len(own)} tasks"): macro_test([one.test for one in own])
        for row, own in by_row.items()
        if len(own) >= FEWEST_TASKS
    }
    num_analyses = max((own[0].num_analyses for own in by_row.values()), default=1)
    known = {row for row, own in by_row.items() if all(one.detectable_difference is not None for one in own)}
    return {
        one.row: one if one.row in known else replace(one, detectable_difference=None)
        for one in adjust("means", tests, num_analyses)
    }


def macro_test(tests: Sequence[PairedTest]) -> PairedTest:
    """Test the mean difference between two rows over several tasks, given the test on each task.

    The tasks are independent, because they share neither models nor dev examples.
    """
    number = len(tests)
    variances = [Variance((test.standard_error / number) ** 2, test.freedom) for test in tests]
    return uncertainty.paired_test(float(np.mean([test.difference for test in tests])), variances)


# Repeated searches. A test of methods, tuning included, needs several searches of each, because one search shows little
# about the result of another. Each search gives one value: the mean score over the seeds of its winning configuration.


@dataclass(frozen=True)
class Repeats(Scored):
    """Mean score of each repeated search, for one method on one task.

    `compare` treats these scores like the scores of seeds. `python -m benchmarks.statistics repeats` prints how often
    the test rejects a true null, and how often the interval covers the true value.
    """

    confirmed: list[list[float]]  # the scores of the confirm trials of each search

    @property
    def deviation(self) -> float:
        """Standard deviation of the searches' mean scores. It includes the variation over seeds."""
        return float(np.std(self.scores, ddof=1))

    @property
    def search_deviation(self) -> float | None:
        """The value of `deviation` without the variation over seeds; None if a search has a single seed."""
        if min(map(len, self.confirmed)) < 2:
            return None
        of_seeds = np.mean([np.var(scores, ddof=1) / len(scores) for scores in self.confirmed])
        return float(max(0.0, self.deviation**2 - of_seeds) ** 0.5)


def repeats_of_rows(rows: Sequence[Row]) -> dict[Place, Repeats]:
    """Collect the complete searches of each cell. The first search and at least one repeat must be complete.

    Dropped final runs count.
    """
    cells = {
        (row.label, task): [own for search in find_repeats(cell) if (own := search.with_dropped).state == "complete"]
        for row in rows
        for task, cell in row.cells.items()
        if cell.with_dropped.state == "complete"
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
        means = [sample.resampled.mean(axis=1) for sample in stored]
        repeats[label, task] = Repeats(
            scores=[float(np.mean(cell.scores)) for cell in searches],
            resampled=np.stack(means, axis=1) if whole else np.empty((0, len(searches))),
            examples=stored[0].examples if whole else "",
            confirmed=[cell.scores for cell in searches],
        )
    return repeats


def choice_of_epoch(cell: Cell) -> str:
    """Describe which epoch the cell's trials report: the last epoch, or the best of several epochs."""
    config = cell.config or cell.arm.any_configuration
    epochs, stop_after = (int(config.get(name) or 0) for name in ("epochs", "stop_after"))
    if config.get("select") == "last":
        return LAST_EPOCH
    patience = f", stopped after {stop_after} epochs without improvement" if 0 < stop_after < epochs else ""
    return f"the best of {'at most ' * bool(patience)}{epochs} epochs{patience}"


def is_epoch_chosen_on_dev(cell: Cell) -> bool:
    """Check whether a trial of the cell kept the epoch that scored best on the dev rows of the tables."""
    config = cell.config or cell.arm.any_configuration
    return any(chooses_epoch_on_dev(config, study.protocol) for study in cell.studies)


def is_selected_on_dev(cell: Cell) -> bool:
    """Check whether a study of the cell selects by scores on dev, and not on a slice of train."""
    return any(study.protocol.selection == "dev" for study in cell.studies)


class FamilyFact(NamedTuple):
    """Property that two cells must share to be tested against each other."""

    reason: str  # printed if two cells differ in this property
    key: Callable[[Cell], str]  # two cells share the property if their keys are equal
    words: Callable[[Cell], str]  # the property as text
    remedy: str  # the option that allows the test, as text


def _choice_on_dev(cell: Cell) -> str:
    return choice_of_epoch(cell) if is_selected_on_dev(cell) else ""


def _backbone_unless_asked(cell: Cell) -> str:
    asked = all(study.plan.request.test_across == "backbones" for study in cell.studies)
    return "" if asked else cell.arm.backbone_fingerprint


FACTS_OF_FAMILY = (
    FamilyFact(
        "their epochs were chosen on dev by different rules",
        _choice_on_dev,
        choice_of_epoch,
        "--selection holdout allows the test",
    ),
    FamilyFact(
        "their backbones differ",
        _backbone_unless_asked,
        lambda cell: cell.arm.pinned_backbone,
        'test_across = "backbones" in a --plan file allows the test',
    ),
)


def are_comparable(one: Cell, other: Cell) -> bool:
    """Check whether the scores of two cells may be tested against each other."""
    return all(fact.key(one) == fact.key(other) for fact in FACTS_OF_FAMILY)


def group_rows(rows: Sequence[Row], fact: FamilyFact) -> dict[str, list[str]]:
    """Group the rows of each task by the property `fact`. Tasks with a single group are left out.

    Returns:
        Text that lists the groups, `LABELS: PROPERTY; LABELS: PROPERTY` -> tasks with these groups.
    """
    tasks: dict[str, list[str]] = {}
    for task in dict.fromkeys(task for row in rows for task in row.cells):
        groups: dict[str, list[tuple[str, Cell]]] = {}
        for label, cell in ((row.label, row.cells[task]) for row in rows if task in row.cells):
            if cell.records:
                groups.setdefault(fact.key(cell), []).append((label, cell))
        if len(groups) > 1:
            named = (f"{', '.join(label for label, _ in own)}: {fact.words(own[0][1])}" for own in groups.values())
            tasks.setdefault("; ".join(named), []).append(task)
    return tasks


def list_interim_analyses(rows: Sequence[Row], *, at_searches: bool = False) -> list[str]:
    """List the analyses (times at which the user may have seen scores of these rows) as texts such as `5 seeds`.

    Every launch that ran to its end is an analysis, and so is the present plan. Launches with the same seeds and tasks
    count as one. If a winner was replaced, the number of search trials must be the same, too. The texts name only
    numbers and tasks that differ between analyses. If there are several studies, the one with the most counts.

    With `at_searches`, only launches with repeated searches count, and the number of searches must be the same, too.
    """
    cells = [cell for row in rows for cell in row.cells.values()]
    is_replaced = any(cell.former_scores for cell in cells)
    studies = [study for cell in cells for study in cell.studies]
    plans = [[one for one in study.analysed_plans if one.search_repeats > 1 or not at_searches] for study in studies]
    analyses = max((list_analyses(seen, at_searches=at_searches, is_replaced=is_replaced) for seen in plans), key=len)
    columns = list(zip(*analyses, strict=True))
    new = [texts for texts in columns if len({*texts}) > 1] or columns[:1]
    return [", ".join(texts) for texts in zip(*new, strict=True)]


def list_analyses(
    plans: Iterable[Plan], *, at_searches: bool = False, is_replaced: bool = False
) -> list[tuple[str, ...]]:
    """List the different analyses of launches with these plans; see `list_interim_analyses`."""
    return list(dict.fromkeys(_describe(plan, at_searches, is_replaced) for plan in plans))


def _describe(plan: Plan, at_searches: bool, is_replaced: bool) -> tuple[str, ...]:
    return (
        f"{plan.search_repeats} searches of " * at_searches + counted(plan.seeds, "seed"),
        ("all search trials" if plan.samples is None else counted(plan.samples, "search trial")) * is_replaced,
        joined([TASKS[task].title for task in plan.tasks]),
    )


def list_former_baselines(rows: Iterable[Row]) -> list[str]:
    """Describe the methods and baseline of earlier launches. Launches that match the present plan are left out."""
    former: dict[str, None] = {}
    for study in (study for row in rows for cell in row.cells.values() for study in cell.studies):
        *earlier, now = (f"{joined(plan.methods)}, baseline {plan.baseline}" for plan in study.analysed_plans)
        former |= dict.fromkeys(seen for seen in earlier if seen != now)
    return [*former]
