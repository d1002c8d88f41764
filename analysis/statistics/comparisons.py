"""Paired comparisons of methods on a task, from per-example predictions with the seeds as a second level.

Two questions, two p-values. `adjusted_p_value`: would these two chosen configurations differ on fresh seeds and other
examples? `adjusted_p_value_with_search`: would the methods differ, had each searched again? The second is the wider
claim and is granted less often.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import combinations
from math import inf
from typing import Any, Literal

import numpy as np

from analysis.statistics import uncertainty
from analysis.statistics.power import detectable_difference
from analysis.statistics.resampling import mean_over_draws, plain_scores, resampled_scores
from analysis.statistics.search_noise import search_noise
from analysis.statistics.uncertainty import PairedTest, SearchNoise, Variance
from analysis.studies.cell_sources import Source, baselines_of, sources_of
from analysis.studies.cells import Cell, Row
from analysis.studies.stored_predictions import TOLERANCE, Predictions
from trainables.data.tasks import TASKS

RESAMPLES = 1_000

Family = Literal["baseline", "others"]
Place = tuple[str, str]  # row label, task


@dataclass(frozen=True)
class Comparison:
    """One pair of rows on one task.

    Its p-values are adjusted (Holm) over its family in the table. The family of the marks is every comparison with the
    baseline's row, over all rows and tasks: whatever the methods' number, at most one table in twenty marks a
    difference that is none. Comparisons between two other rows mark nothing, so they take nothing from the marks and
    are a family of their own; where no row is the baseline's, all comparisons are.
    """

    row: str
    other: str
    task: str
    family: Family
    test: PairedTest  # of the two chosen configurations
    adjusted_p_value: float
    test_with_search: PairedTest | None  # of the methods; None where a search has too few trials to tell
    adjusted_p_value_with_search: float | None
    # found with 80 % power, by the first test of the family that Holm looks at; None where nothing spreads
    detectable_difference: float | None
    mcnemar: list[float]  # p-value per pair of seeds, in ascending order; empty for regression and for a sampled exit

    @property
    def holds(self) -> bool:
        """Whether the difference of the chosen configurations is marked."""
        return self.adjusted_p_value < uncertainty.ALPHA

    @property
    def holds_with_search(self) -> bool | None:
        """Whether the difference of the methods would be; None where that is not known."""
        adjusted = self.adjusted_p_value_with_search
        return None if adjusted is None else adjusted < uncertainty.ALPHA

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        own = {"row": self.row, "other": self.other, "task": self.task, "family": self.family, **asdict(self.test)}
        with_search = self.test_with_search and asdict(self.test_with_search)
        return own | {
            "adjusted_p_value": self.adjusted_p_value,
            "holds": self.holds,
            "with_search": with_search,
            "adjusted_p_value_with_search": self.adjusted_p_value_with_search,
            "holds_with_search": self.holds_with_search,
            "detectable_difference": self.detectable_difference,
            "mcnemar": self.mcnemar,
        }


@dataclass(frozen=True)
class Sample:
    """A cell's predictions of every seed, its scores on the shared resamples, and the luck of its search.

    A seed's score, on the dev set and on a resample of it, is the mean over the draws of a sampled exit: the number
    that tables print.
    """

    predictions: list[Predictions]
    scores: list[float]
    resampled: np.ndarray  # (resamples, seeds)
    search: SearchNoise | None  # None where the search has too few trials to tell

    @property
    def interval(self) -> uncertainty.Interval:
        """What other dev examples could have made of the mean score of these models."""
        return uncertainty.bootstrap_interval(self.resampled.mean(axis=1))


def samples_of(rows: list[Row]) -> dict[Place, Sample]:
    """By row and task, where every one of at least two seeds has stored predictions for the same examples.

    Raises:
        ValueError: the score of stored predictions is not their record's.
    """
    cells = {(row.label, task): cell for row in rows for task, cell in row.cells.items()}
    stored = {place: found for place, cell in cells.items() if (found := _stored(cell))}
    groups: dict[tuple[str, str], list[Place]] = {}
    for place, found in stored.items():
        groups.setdefault((place[1], found[0].examples), []).append(place)
    samples = {}
    for (task, _), places in groups.items():
        noises = {place: search_noise_of(cells[place]) for place in places}
        samples.update(_resample(task, {place: stored[place] for place in places}, noises))
    return samples


def search_noise_of(cell: Cell) -> SearchNoise | None:
    """The luck of the cell's search, in its selection scores; None where its trials are too few to tell."""
    if not cell.arm.space:
        return SearchNoise(given_best=0.0, of_best=Variance(0.0, inf))
    completed = [record for record in cell.arm_records if record.phase == "search" and record.status == "completed"]
    found = [record.selection_score for record in completed if record.selection_score is not None]
    return search_noise(
        found, [record.selection_score for record in cell.records if record.selection_score is not None]
    )


def compare(rows: list[Row], samples: dict[Place, Sample]) -> list[Comparison]:
    """Every pair of rows on every task where both have a sample of the same examples."""
    baseline = baseline_row(rows)
    pairs = [
        (one.label, other.label, task)
        for one, other in combinations(rows, 2)
        for task in one.cells
        if _same_examples(samples.get((one.label, task)), samples.get((other.label, task)))
    ]
    marked = [pair for pair in pairs if baseline in pair[:2]]
    families: dict[Family, list[tuple[str, str, str]]] = {
        "baseline": marked,
        "others": [pair for pair in pairs if pair not in marked],
    }
    compared = {
        (found.row, found.other, found.task): found
        for family, members in families.items()
        for found in _compare_family(family, members, samples)
    }
    return [compared[pair] for pair in pairs]


def marks(rows: list[Row], comparisons: Iterable[Comparison]) -> dict[tuple[str, str], str]:
    """↑ or ↓ by (row label, task), where a row is better or worse than the baseline's row and the test holds."""
    baseline = baseline_row(rows)
    arrows = {}
    for comparison in comparisons:
        if comparison.holds and baseline in (comparison.row, comparison.other):
            is_other = comparison.row == baseline
            better = (comparison.test.difference > 0) != is_other
            arrows[comparison.other if is_other else comparison.row, comparison.task] = "↑" if better else "↓"
    return arrows


def baseline_row(rows: list[Row]) -> str | None:
    """The label of the row that marks compare with; None where not exactly one row with numbers is the baseline's."""
    labels = baseline_rows(rows)
    return labels[0] if len(labels) == 1 else None


def baseline_rows(rows: list[Row]) -> list[str]:
    """The labels of the rows with numbers that are of the baseline."""
    filled = [row for row in rows if any(cell.records for cell in row.cells.values())]
    return [row.label for row in filled if row.method == baseline_method(rows)]


def baseline_method(rows: list[Row]) -> str | None:
    """The method that the plans say the others are compared with; None where they do not agree on one."""
    named = {baseline for row in rows for cell in row.cells.values() for baseline in baselines_of(cell)}
    return named.pop() if len(named) == 1 else None


def _compare_family(
    family: Family, members: list[tuple[str, str, str]], samples: dict[Place, Sample]
) -> list[Comparison]:
    sides = [(samples[row, task], samples[other, task]) for row, other, task in members]
    tests = [_test(*both) for both in sides]
    with_search = [_test_with_search(*both) for both in sides]
    adjusted = uncertainty.holm([test.p_value for test in tests])
    adjusted_with_search = iter(uncertainty.holm([test.p_value for test in with_search if test]))
    return [
        Comparison(
            row=row,
            other=other,
            task=task,
            family=family,
            test=tests[i],
            adjusted_p_value=adjusted[i],
            test_with_search=with_search[i],
            adjusted_p_value_with_search=next(adjusted_with_search) if with_search[i] else None,
            detectable_difference=detectable_difference(
                tests[i].standard_error, tests[i].freedom, comparisons=len(members)
            ),
            mcnemar=_mcnemar(*sides[i]),
        )
        for i, (row, other, task) in enumerate(members)
    ]


def _test(one: Sample, other: Sample) -> PairedTest:
    return uncertainty.paired_bootstrap(one.resampled, other.resampled, one.scores, other.scores)


def _test_with_search(one: Sample, other: Sample) -> PairedTest | None:
    if one.search is None or other.search is None:
        return None
    searches = (one.search, other.search)
    return uncertainty.paired_bootstrap(one.resampled, other.resampled, one.scores, other.scores, searches=searches)


def _same_examples(one: Sample | None, other: Sample | None) -> bool:
    return bool(one and other and one.predictions[0].examples == other.predictions[0].examples)


def _stored(cell: Cell) -> list[Predictions]:
    """The predictions of every seed of the cell; empty unless there are several, all stored, of the same examples."""
    sources = sources_of(cell)
    stored = [_checked(cell.task, source, source.predictions) for source in sources if source.predictions is not None]
    if stored and len(stored) < len(sources):
        missing = f"{len(sources) - len(stored)} of {len(sources)} predictions are missing"
        folder = sources[0].path.parents[1]
        warnings.warn(f"{folder}: {cell.method}/{cell.task}: {missing}: no tests of this cell", stacklevel=2)
    same_examples = len({predictions.examples for predictions in stored}) == 1
    return stored if len(stored) == len(sources) > 1 and same_examples else []


def _checked(task: str, source: Source, predictions: Predictions) -> Predictions:
    value = float(plain_scores(TASKS[task], predictions.answers, predictions.labels, predictions.split).mean())
    told = source.record.score
    if told is None or abs(told - value) > TOLERANCE:
        raise ValueError(f"{source.path} does not belong to its record: its score is {value:.6f}, the record's {told}")
    return predictions


def _resample(
    task: str, stored: dict[Place, list[Predictions]], searches: dict[Place, SearchNoise | None]
) -> dict[Place, Sample]:
    """The samples of several rows that answered the same examples, all models on the same resamples."""
    models = [predictions for found in stored.values() for predictions in found]
    answers = np.concatenate([predictions.answers for predictions in models])  # (draws of all models, n)
    draws = [predictions.draws for predictions in models]
    data = (TASKS[task], answers, models[0].labels, models[0].split)
    scores = mean_over_draws(plain_scores(*data), draws)
    resampled = mean_over_draws(resampled_scores(*data, resamples=RESAMPLES, seed=0), draws)
    ends = np.cumsum([len(found) for found in stored.values()])
    return {
        place: Sample(
            found, scores[end - len(found) : end].tolist(), resampled[:, end - len(found) : end], searches[place]
        )
        for (place, found), end in zip(stored.items(), ends, strict=True)
    }


def _mcnemar(one: Sample, other: Sample) -> list[float]:
    """Of models that are right or wrong on an example: of a sampled exit each draw is another answer."""
    models = [*one.predictions, *other.predictions]
    if TASKS[models[0].task].is_regression or any(predictions.draws > 1 for predictions in models):
        return []
    return [
        uncertainty.mcnemar(mine.answers[0] == mine.labels, theirs.answers[0] == theirs.labels)
        for mine, theirs in zip(one.predictions, other.predictions, strict=False)
    ]
