"""What a trained model answers, as the GLUE server reads it."""

from __future__ import annotations

from trainables.data.tasks import Task

INFERENCE_BATCH = 128  # examples
HIGHEST_SCORE = 5.0  # of STS-B


def label_text(task: Task, value: float) -> str:
    """A prediction as the GLUE server reads it: names for MNLI, QNLI, RTE and AX, 0 or 1, or a score in [0, 5]."""
    if task.is_regression:
        return f"{min(max(value, 0.0), HIGHEST_SCORE):.3f}"
    return task.file_labels[int(value)]
