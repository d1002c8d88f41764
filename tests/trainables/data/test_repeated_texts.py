"""Texts that occur in train and dev, and contradictory labels: pytest tests/trainables/data/test_repeated_texts.py"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from helpers.places import GLUE
from syrupy.assertion import SnapshotAssertion

from trainables.data.glue import count_repeated_texts
from trainables.data.own_tasks import read_tasks
from trainables.data.repeated_texts import RepeatedTexts, count_repeats, describe_repeats, hash_texts
from trainables.data.tasks import TASKS

TOML = 'texts = ["text"]\nlabels = ["0", "1"]\nmetrics = ["accuracy"]\n'


def count(folder: Path, train: list[tuple[str, int]], dev: list[tuple[str, int]]) -> RepeatedTexts:
    place = folder / "tasks" / "mine"
    place.mkdir(parents=True)
    (place / "task.toml").write_text(TOML)
    for split, rows in (("train", train), ("dev", dev)):
        lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in rows)]
        (place / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    (task,) = read_tasks(place.parent)
    counted = count_repeated_texts(task, "mini")
    assert counted is not None
    return counted


def test_repeated_and_contradictory_rows_are_counted(tmp_path: Path) -> None:
    train = [("good", 1), ("bad", 0), ("odd", 1), ("odd", 0), ("odd", 0), ("fine", 1), ("fine", 1)]
    dev = [
        (" GOOD ", 1),
        ("bad", 1),
        ("odd", 0),
        ("new", 0),
        ("new", 1),
        ("fine", 1),
        ("good  film", 1),
        ("Good\u00a0", 1),
    ]
    assert count(tmp_path, train, dev) == RepeatedTexts(
        dev_rows=8, dev_in_train=5, contradictory_in_train=3, contradictory_in_dev=2
    )


def test_dev_equal_to_train_with_random_labels_is_seen(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    draw = random.Random(0)
    rows = [(f"film {number}", draw.randrange(2)) for number in range(50)]
    counted = count(tmp_path, rows, rows)
    assert counted.share == 1 and counted.is_notable
    assert counted.describe_effect("Mine") == snapshot


def test_pairs_are_compared_in_their_order() -> None:
    assert hash_texts(("a b", "c")) == hash_texts(("A  b", " c ")) == hash_texts(("a\nb", "c"))
    assert (
        len({hash_texts(texts) for texts in (("a b", "c"), ("c", "a b"), ("a", "b c"), ("ab", "c"), ("a b c",))}) == 5
    )


def test_scores_contradict_each_other_if_they_differ() -> None:
    texts = np.array([1, 1, 2])
    counted = count_repeats((texts, np.array([0.5, 1.0, 2.0])), (np.array([2, 2]), np.array([2.0, 2.5])))
    assert (counted.contradictory_in_train, counted.contradictory_in_dev) == (2, 1)


@pytest.mark.parametrize("name", ["rte", "mnli", "stsb"])
def test_generated_tasks_repeat_no_text(name: str) -> None:
    counted = count_repeated_texts(TASKS[name], "mini")
    assert counted is not None and counted.dev_in_train == counted.contradictory_in_train == 0


def test_data_of_the_hub_are_not_counted() -> None:
    assert count_repeated_texts(TASKS["rte"], "hub") is None


@pytest.mark.skipif(not GLUE.is_dir(), reason=f"no GLUE files in {GLUE}")
def test_repeated_texts_of_real_files(snapshot: SnapshotAssertion) -> None:
    tasks = {
        TASKS[name].title: count_repeated_texts(TASKS[name], str(GLUE)) for name in ("cola", "sst2", "mrpc", "rte")
    }
    assert describe_repeats({title: counted for title, counted in tasks.items() if counted}) == snapshot
