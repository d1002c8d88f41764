"""Score the stored predictions of table cells (one method on one task) on bootstrap resamples of dev.

A resample gives each example a weight: the number of times that the example was drawn. Every GLUE metric is a function
of weighted means, so one matrix product scores all resamples of all models. Spearman's correlation uses the ranks in
the whole dev set. Scores on the dev set itself come from `trainables.data.metrics`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.statistics import uncertainty
from analysis.statistics.exit_settings import DIGITS
from analysis.studies.cells import Cell, Row
from analysis.studies.load import TOLERANCE
from analysis.studies.stored_predictions import Answers, Predictions, read_cell_predictions, read_predictions
from study.facts.study_folder import predictions_file
from study.facts.winner import best_search_record
from trainables.data.tasks import Task

RESAMPLES = 1_000
CORRELATIONS = {"matthews", "pearson", "spearman"}  # metrics whose lowest value is -1; other metrics start at 0
PLAIN_METHOD = "albert"  # fine-tunes a backbone without early exits
_WEIGHTS_AT_ONCE = 4_000_000
_ROUNDED = 1e-12  # a variance below this share of the mean square is a rounding error

Place = tuple[str, str]  # row label, task


@dataclass(frozen=True)
class Scored:
    """Scores of a method on a task, one for each seed or repeated search, all on the same examples."""

    scores: list[float]  # in [-1, 1]
    resampled: np.ndarray  # (resamples, scores) on bootstrap resamples of the examples, which all methods share
    examples: str  # digest of the examples; empty if the predictions are not stored


def subtract(own: Scored, other: Scored) -> Scored:
    """Subtract the scores of each model under another exit rule from its own, on all examples and on each resample.

    Differences that are only rounding errors become 0, because a test would take them for a small but sure difference.
    """
    scores = np.subtract(own.scores, other.scores).round(DIGITS)
    return Scored(scores.tolist(), (own.resampled - other.resampled).round(DIGITS), own.examples)


@dataclass(frozen=True)
class Sample(Scored):
    """Predictions and scores of a method on a task, for several seeds.

    If the exit is random, each score is the mean over the stored draws.
    """

    answers: list[Answers]
    constant: np.ndarray | None = None  # (resamples,) scores of the best constant answer; None for a regression

    @property
    def mean_interval(self) -> uncertainty.ConfidenceInterval:
        """95 % interval of the mean score over seeds and dev examples, clipped to possible scores."""
        interval = uncertainty.mean_interval(self.resampled, self.scores)
        lowest = float(np.mean([-1.0 if name in CORRELATIONS else 0.0 for name in self.answers[0].task.metrics]))
        return replace(interval, low=max(interval.low, lowest), high=min(interval.high, 1.0))

    @property
    def spread_over_seeds(self) -> float:
        """Standard deviation of the score over seeds, on the whole dev set."""
        return float(np.std(self.scores, ddof=1))

    @property
    def spread_over_examples(self) -> float:
        """Standard deviation of one seed's score over bootstrap resamples of the dev examples."""
        return float(np.var(self.resampled, axis=0, ddof=1).mean() ** 0.5)

    @property
    def is_above_constant(self) -> bool:
        """Whether the mean score is significantly above the score of the best constant answer.

        A constant answer is one class for all examples. The 95 % bootstrap interval of the difference must lie above 0.
        """
        assert self.constant is not None
        difference = self.resampled.mean(axis=1) - self.constant
        return uncertainty.bootstrap_interval(difference).low > TOLERANCE


def draw_samples(rows: list[Row]) -> dict[Place, Sample]:
    """Score the cells on bootstrap resamples of dev. Cells with one seed or incomplete predictions are left out.

    Dropped final runs count: if they did not, a user could drop the trials that hide a difference.

    Raises:
        ValueError: if predictions do not match the score in their record, or two seeds have the same predictions.
    """
    cells = {(row.label, task): cell for row in rows for task, cell in row.cells.items()}
    stored = {place: predictions for place, cell in cells.items() if (predictions := _stored(cell))}
    return resample(stored)


def _stored(cell: Cell) -> list[Predictions]:
    """Read and check the predictions of every seed.

    Return an empty list if there is only one seed, a file is missing, or the seeds have different examples.
    """
    read = [(record, read_predictions(cell.find_study(record), record)) for record in cell.tested]
    stored = [(record, predictions) for record, predictions in read if predictions is not None]
    seeds: dict[bytes, int] = {}  # logits -> first seed with these logits
    for record, predictions in stored:
        folder = cell.find_study(record).folder
        if record.score is None or abs(record.score - predictions.score) > TOLERANCE:
            raise ValueError(
                f"the predictions in {predictions_file(folder, record.key)} do not belong to their record: "
                f"their score is {predictions.score:.6f}, but the record has {record.score}"
            )
        first = seeds.setdefault(predictions.logits.tobytes(), record.seed)
        if first != record.seed:
            raise ValueError(
                f"{folder}: {cell.name}: seeds {first} and {record.seed} have the same predictions to the last bit; "
                "their training seems to ignore the seed"
            )
    if len(stored) < len(read) > 1:
        missing = f"{len(read) - len(stored)} of {len(read)} predictions are missing"
        folder = cell.find_study(cell.tested[0]).folder
        warnings.warn(f"{folder}: {cell.name}: {missing}, so this cell is not tested", stacklevel=2)
    has_same_examples = len({predictions.examples for _, predictions in stored}) == 1
    return [own for _, own in stored] if len(stored) == len(read) > 1 and has_same_examples else []


def resample(answered: Mapping[Place, Sequence[Answers]]) -> dict[Place, Sample]:
    """Score the answers of each cell on bootstrap resamples; all seeds of a cell must have the same examples."""
    groups: dict[tuple[str, str], dict[Place, Sequence[Answers]]] = {}
    for place, seeds in answered.items():
        groups.setdefault((place[1], seeds[0].examples), {})[place] = seeds
    samples = {place: sample for group in groups.values() for place, sample in _resample_together(group).items()}
    return {place: samples[place] for place in answered}


def _resample_together(answered: Mapping[Place, Sequence[Answers]]) -> dict[Place, Sample]:
    """Score the answers of all rows on the same bootstrap resamples; all rows must have the same examples."""
    models = [answers for seeds in answered.values() for answers in seeds]
    best = best_constant(models[0])
    answers = np.concatenate([*(one.answers for one in models), *([best[None]] if best is not None else [])])
    data = (models[0].task, answers, models[0].labels, models[0].split)
    scores = resampled_scores(*data, seed=0)
    draws = [one.draws for one in models]
    constant = None if best is None else scores[:, -1]
    starts = np.cumsum([0, *draws[:-1]])
    resampled = np.add.reduceat(scores[:, : sum(draws)], starts, axis=1) / np.array(draws)  # (resamples, models)
    ends = np.cumsum([len(seeds) for seeds in answered.values()])
    columns = np.split(resampled, ends[:-1], axis=1)
    return {
        place: Sample([one.score for one in seeds], own, models[0].examples, [*seeds], constant)
        for (place, seeds), own in zip(answered.items(), columns, strict=True)
    }


def count_collapsed(sample: Sample) -> int:
    """Count the models that give one answer to all examples; return 0 for a regression."""
    if sample.constant is None:
        return 0
    return sum(all(len(np.unique(draw)) == 1 for draw in one.answers) for one in sample.answers)


def best_constant(answers: Answers) -> np.ndarray | None:
    """Return the constant answer (one class for all examples) that scores best, (n,).

    Return None for a regression task.
    """
    if answers.task.is_regression:
        return None
    constants = (np.full_like(answers.labels, label) for label in np.unique(answers.labels))
    return max(constants, key=answers.score_answers)


def constant_scores(cells: Mapping[Place, Cell], samples: Mapping[Place, Sample]) -> dict[Place, float]:
    """Compute the score of the best constant answer for each classification cell with stored predictions."""
    scores = {}
    for place, cell in cells.items():
        stored = samples[place].answers if place in samples else read_cell_predictions(cell)
        if stored and (constant := best_constant(stored[0])) is not None:
            scores[place] = stored[0].score_answers(constant)
    return scores


def is_above_constant(cell: Cell, sample: Sample | None, constant: float) -> bool:
    """Check whether the cell scores above `constant`, the score of the best constant answer.

    With a `sample`, the difference must be significant. Without a `sample`, the median must be higher.
    """
    return sample.is_above_constant if sample else cell.median > constant + TOLERANCE


def has_found_nothing(cell: Cell, constant: float) -> bool:
    """Check whether the best search trial scores no higher than `constant`, the score of the best constant answer.

    Return False if no search trial has a score, or if search trials are not selected by dev score.
    """
    best = best_search_record(cell.arm_records)
    on_dev = all(study.protocol.selection == "dev" for study in cell.studies)
    score = best.score if best and on_dev else None
    return score is not None and score <= constant + TOLERANCE


def resampled_scores(
    task: Task, predictions: np.ndarray, labels: np.ndarray, splits: np.ndarray, *, seed: int
) -> np.ndarray:
    """Score predictions (models, n) on bootstrap resamples of the examples; return scores (resamples, models).

    Each draw of a random exit counts as a model. The same `seed` and `splits` give the same resamples. The dev splits
    are resampled separately.
    """
    per_split = []
    for number, name in enumerate(np.unique(splits)):
        chosen, split_labels = predictions[:, splits == name], labels[splits == name]
        score = functools.partial(weighted_scores, task, predictions=chosen, labels=split_labels)
        per_split.append(over_resamples(score, len(split_labels), seed=seed + number))
    return np.asarray(np.mean(per_split, axis=0))


def over_resamples(score: Callable[[np.ndarray], np.ndarray], num_examples: int, *, seed: int) -> np.ndarray:
    """Call `score` on resamples of one dev split, in groups that fit into memory; return all results.

    Args:
        score: maps weights (resamples, n) to results with one row per resample. A weight says how often a resample
            contains an example.
    """
    rng, step = np.random.default_rng(seed), max(1, _WEIGHTS_AT_ONCE // num_examples)
    sizes = (min(step, RESAMPLES - start) for start in range(0, RESAMPLES, step))
    return np.concatenate([score(_draw_weights(rng, size, num_examples)) for size in sizes])


def _draw_weights(rng: np.random.Generator, resamples: int, n: int) -> np.ndarray:
    """Draw bootstrap resamples; return how often each resample contains each example, (resamples, n)."""
    drawn = rng.integers(n, size=(resamples, n)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * n).reshape(resamples, n).astype(float)


def weighted_scores(task: Task, weights: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Score predictions (models, n) on resamples of one dev split; return scores (resamples, models).

    A row of `weights` (resamples, n) has the weights of the examples in one resample, or in one part of the split.
    """
    scores = []
    for metric in metrics_of_split(task):
        values = metric.list_values(metric.rank(predictions), metric.rank(labels[None])[0])
        scores.append(metric.compute(*(weighted_means(weights, own) for own in values)))
    return np.asarray(np.mean(scores, axis=0))


def weighted_means(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Average `values` (models, n) over each resample; return means (resamples, models)."""
    return np.asarray(weights @ values.T.astype(float) / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Metric:
    """A metric that is a function of weighted means over the examples of a dev split.

    The means of a random answer are the expected means. So the score of answers that are drawn at random, such as
    those of a coin toss between two layers, follows from the means of both layers.
    """

    # maps predictions (models, n) and labels (n,) to arrays (models, n), or (1, n) if all models have the same values
    list_values: Callable[[np.ndarray, np.ndarray], list[np.ndarray]]
    compute: Callable[..., np.ndarray]  # maps the means of these values to the metric
    is_of_ranks: bool = False  # whether predictions and labels are replaced by their ranks first

    def rank(self, numbers: np.ndarray) -> np.ndarray:
        """Replace each row of `numbers` (models, n) by its ranks if the metric is one of ranks."""
        if not self.is_of_ranks:
            return numbers
        from scipy.stats import rankdata  # takes a second to import

        return np.asarray(rankdata(numbers, axis=1))


def metrics_of_split(task: Task) -> list[Metric]:
    """List the metrics of one dev split; their mean is the task's score on this split."""
    return [_METRICS[name] for name in (("accuracy",) if len(task.dev_splits) > 1 else task.metrics)]


def _list_hits(predictions: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    return [predictions == labels]


def _list_counts(predictions: np.ndarray, labels: np.ndarray, of: int = 1) -> list[np.ndarray]:
    """Mark the true positives, predicted positives and labelled positives of class `of`."""
    return [(predictions == of) & (labels == of), predictions == of, labels[None] == of]


def _list_counts_of_classes(predictions: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """List the counts of each class that occurs among the labels and predictions."""
    return [counts for one in np.union1d(predictions, labels) for counts in _list_counts(predictions, labels, one)]


def _list_moments(predictions: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    x, y = predictions.astype(float), labels.astype(float)  # float32 scores have only 24 bits
    x, y = x - y.mean(), y[None] - y.mean()  # smaller numbers lose fewer digits
    return [x, y, x * y, x**2, y**2]


def _accuracy(hits: np.ndarray) -> np.ndarray:
    return hits


def _f1(hits: np.ndarray, predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
    return ratio(2 * hits, predicted + actual)


def _macro_f1(*counts: np.ndarray) -> np.ndarray:
    """Compute macro F1 from the counts of all classes, over the classes with a label or a prediction."""
    hits, either = np.stack(counts[::3]), np.stack(counts[1::3]) + np.stack(counts[2::3])
    return ratio(ratio(2 * hits, either).sum(axis=0), (either > 0).sum(axis=0))


def _matthews(hits: np.ndarray, predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
    spread = predicted * (1 - predicted) * actual * (1 - actual)  # rounding errors may make it negative
    return ratio(hits - predicted * actual, np.sqrt(np.maximum(spread, 0)))


def _pearson(x: np.ndarray, y: np.ndarray, xy: np.ndarray, xx: np.ndarray, yy: np.ndarray) -> np.ndarray:
    variances = [
        np.where(square - mean**2 > _ROUNDED * square, square - mean**2, 0) for mean, square in ((x, xx), (y, yy))
    ]
    return ratio(xy - x * y, np.sqrt(variances[0] * variances[1]))


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Divide `above` by `below`; return 0 where `below` is 0, as the metrics in `trainables.data.metrics` do."""
    return np.asarray(np.divide(above, below, out=np.zeros_like(above), where=below > 0))


_METRICS = {
    "accuracy": Metric(_list_hits, _accuracy),
    "f1": Metric(_list_counts, _f1),
    "f1_macro": Metric(_list_counts_of_classes, _macro_f1),
    "matthews": Metric(_list_counts, _matthews),
    "pearson": Metric(_list_moments, _pearson),
    "spearman": Metric(_list_moments, _pearson, is_of_ranks=True),
}
