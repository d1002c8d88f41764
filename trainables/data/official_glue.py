"""Whether data are the official GLUE: a check of their content, by rows and labels of every split.

Rows: `Task.sizes`. Labels: counted in the official files (gluebenchmark.com) of SST-2, RTE, CoLA, MRPC and QNLI's dev
set; for MNLI, QQP, QNLI's training set and WNLI as the dataset viewer of `nyu-mll/glue` shows them. STS-B has scores:
there only rows are counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainables.data.tasks import Task

# task -> split -> rows of each class, in class order
CLASS_COUNTS: dict[str, dict[str, tuple[int, ...]]] = {
    "sst2": {"train": (29_780, 37_569), "dev": (428, 444)},
    "rte": {"train": (1_249, 1_241), "dev": (146, 131)},
    "qnli": {"train": (52_366, 52_377), "dev": (2_702, 2_761)},
    "cola": {"train": (2_528, 6_023), "dev": (322, 721)},
    "mrpc": {"train": (1_194, 2_474), "dev": (129, 279)},
    "mnli": {
        "train": (130_899, 130_900, 130_903),
        "dev_matched": (3_479, 3_123, 3_213),
        "dev_mismatched": (3_463, 3_129, 3_240),
    },
    "qqp": {"train": (229_468, 134_378), "dev": (25_545, 14_885)},
    "wnli": {"train": (323, 312), "dev": (40, 31)},
}


def differences(task: Task, labels: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """How labelled splits differ from the official ones, a line for each that does; empty: they are official.

    Args:
        labels: of each split that was read, classes (int64) or scores (float32), shape (rows,).
    """
    lines = []
    for split, values in labels.items():
        if len(values) != task.sizes[split]:
            lines.append(f"{split} has {len(values):,} rows, the official {task.sizes[split]:,}")
        elif not task.is_regression:
            counts = tuple(np.bincount(values, minlength=task.num_labels).tolist())
            official = CLASS_COUNTS[task.name][split]
            if counts != official:
                lines.append(f"{split} has {_in_words(counts)} rows per class, the official {_in_words(official)}")
    return tuple(lines)


def _in_words(counts: tuple[int, ...]) -> str:
    return "/".join(f"{count:,}" for count in counts)
