"""Metrics of the tasks, and a comparison of row counts with the official GLUE. Does not import torch."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trainables.data.tasks import Task


def differences_from_official(task: Task, labels: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Compare the numbers of rows and the class counts with official GLUE; return one line per difference.

    Args:
        labels: maps each split to its labels, shape (rows,): classes (int64) or scores (float32).
    """
    lines = []
    for split, values in labels.items():
        if len(values) != task.sizes.get(split, len(values)):
            lines.append(f"{split} has {len(values):,} rows, the official {task.sizes[split]:,}")
        elif (official := task.class_counts.get(split)) is not None:
            counts = tuple(np.bincount(values, minlength=task.num_labels).tolist())
            if counts != official:
                ours, theirs = ("/".join(f"{count:,}" for count in both) for both in (counts, official))
                lines.append(f"{split} has {ours} rows per class, the official {theirs}")
    return tuple(lines)


def predictions_from_logits(task: Task, logits: np.ndarray) -> np.ndarray:
    """Turn logits of shape (n, num_labels) into classes (int64) or scores (float), shape (n,)."""
    return logits[:, 0] if task.is_regression else logits.argmax(axis=1)


def compute_metrics(
    task: Task, predictions: np.ndarray, labels: np.ndarray, splits: Sequence[str] | np.ndarray | None = None
) -> dict[str, float]:
    """Compute the task's metrics by name. Each is in [-1, 1].

    A correlation (`pearson`, `spearman`, `matthews`) is 0.0 if predictions or labels are constant.

    Args:
        predictions: predicted classes or scores, shape (n,).
        labels: true classes or scores, shape (n,).
        splits: dev split of each example, shape (n,). If it is None, MNLI has a single accuracy instead of two.
    """
    assert len(predictions) == len(labels) > 0
    if len(task.dev_splits) > 1 and splits is not None:
        correct, of = predictions == labels, np.asarray(splits)
        return {name.replace("dev", "accuracy"): float(correct[of == name].mean()) for name in task.dev_splits}
    names = ("accuracy",) if len(task.dev_splits) > 1 else task.metrics
    return {name: _METRICS[name](predictions, labels) for name in names}


def score(task: Task, metrics: dict[str, float]) -> float:
    """Compute the task's score: the mean of its metrics, in [-1, 1]."""
    return float(np.mean([metrics[name] for name in list_scored_metrics(task, metrics)]))


def list_scored_metrics(task: Task, metrics: Mapping[str, float]) -> tuple[str, ...]:
    """List the metrics whose mean is the score: those of the task, or one accuracy on a slice of MNLI's train."""
    is_slice_of_train = len(task.dev_splits) > 1 and "accuracy" in metrics
    return ("accuracy",) if is_slice_of_train else task.metrics


def metric_words(task: Task) -> str:
    """Describe the task's score in words, e.g. "mean of accuracy and F1"."""
    names = list(dict.fromkeys(_WORDS[metric] for metric in task.metrics))
    words = " and ".join(names)
    return f"mean of {words}" if len(names) > 1 else words


# scikit-learn and scipy have these metrics too, but importing them takes longer than an epoch of a tiny model.


def _f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Compute the F1 of class 1, or return 0 if neither labels nor predictions contain it."""
    positives = predictions.sum() + labels.sum()
    return float(2 * (predictions * labels).sum() / positives) if positives else 0.0


def _macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Average the F1 over the classes that occur in labels or predictions."""
    classes = np.union1d(predictions, labels)
    return float(np.mean([_f1(predictions == label, labels == label) for label in classes]))


def _correlation(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Compute Pearson's correlation, which equals Matthews' for two classes. Return 0 if an array is constant."""
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    return float(np.corrcoef(predictions.astype(np.float64), labels.astype(np.float64))[0, 1])


def _rank(values: np.ndarray) -> np.ndarray:
    """Rank the values from 1. Equal values all get the mean of their ranks."""
    _, groups, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (sizes.cumsum() - (sizes - 1) / 2)[groups]


_METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda predictions, labels: float((predictions == labels).mean()),
    "f1": _f1,
    "f1_macro": _macro_f1,
    "matthews": _correlation,
    "pearson": _correlation,
    "spearman": lambda predictions, labels: _correlation(_rank(predictions), _rank(labels)),
}
_WORDS = {
    "accuracy": "accuracy",
    "accuracy_matched": "accuracy",
    "accuracy_mismatched": "accuracy",
    "f1": "F1",
    "f1_macro": "macro F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
