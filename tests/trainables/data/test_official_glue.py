"""pytest tests/trainables/data/test_official_glue.py"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.places import SHARED

from trainables.data.glue import load_split
from trainables.data.tasks import TASKS, TRAINABLE_TASKS
from trainables.data.tasks import differences_from_official as differences

GLUE = SHARED / "glue"


def official(name: str, split: str) -> np.ndarray:
    return np.repeat(np.arange(TASKS[name].num_labels), TASKS[name].class_counts[split])


@pytest.mark.parametrize("name", [name for name in TRAINABLE_TASKS if not TASKS[name].is_regression])
def test_every_split_has_counts_that_add_up_to_its_rows(name: str) -> None:
    task = TASKS[name]
    assert set(TASKS[name].class_counts) == {task.train_split, *task.dev_splits}
    assert all(sum(counts) == task.sizes[split] for split, counts in task.class_counts.items())


def test_rows_and_labels_are_both_looked_at() -> None:
    train, dev = official("rte", "train"), official("rte", "dev")
    assert differences(TASKS["rte"], {"train": train, "dev": dev}) == ()
    assert differences(TASKS["rte"], {"train": train[:-10], "dev": dev}) == (
        "train has 2,480 rows, the official 2,490",
    )
    flipped = dev.copy()
    flipped[0] = 1
    assert differences(TASKS["rte"], {"dev": flipped}) == ("dev has 145/132 rows per class, the official 146/131",)


def test_scores_are_counted_only() -> None:
    assert differences(TASKS["stsb"], {"dev": np.zeros(1_500, np.float32)}) == ()


@pytest.mark.skipif(not GLUE.exists(), reason="the real GLUE files are not beside the repository")
@pytest.mark.parametrize("name", ["sst2", "rte", "cola", "mrpc"])
def test_the_official_files_are_official(name: str) -> None:
    splits = {split: load_split(TASKS[name], split, str(GLUE)).labels for split in ("train", "dev")}
    assert differences(TASKS[name], {split: labels for split, labels in splits.items() if labels is not None}) == ()


@pytest.mark.skipif(not GLUE.exists(), reason="the real GLUE files are not beside the repository")
def test_a_folder_with_a_row_less_is_not_the_official_glue(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    lines = (GLUE / "RTE" / "dev.tsv").read_text().splitlines()
    (tmp_path / "RTE" / "dev.tsv").write_text("\n".join(lines[:-1]) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = load_split(TASKS["rte"], "dev", str(tmp_path)).labels
    assert labels is not None
    assert differences(TASKS["rte"], {"dev": labels}) == ("dev has 276 rows, the official 277",)
