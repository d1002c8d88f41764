"""python -m pytest tests/trainables/data/test_mini_glue.py"""

import os
import subprocess
import sys
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from trainables.data import mini_glue
from trainables.data.glue import load_split
from trainables.data.mini_glue import Draw
from trainables.data.tasks import GLUE_TASKS, TASKS, Task

# Of all texts and labels. Where it changes, every number of the mini profile does: say so where you change it.
DIGEST = "78239bf5e5e02848"

_DIGEST_CODE = """
import hashlib
from trainables.data import mini_glue
from trainables.data.tasks import TASKS
rows = [mini_glue.generate(task, split) for task in TASKS.values() for split in task.splits]
print(hashlib.sha256(repr(rows).encode()).hexdigest()[:16])
"""


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_every_process_generates_the_same_text(hash_seed: str) -> None:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    output = subprocess.check_output([sys.executable, "-c", _DIGEST_CODE], text=True, env=environment)
    assert output.strip() == DIGEST


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_no_text_occurs_twice_in_a_task(task: Task) -> None:
    texts = [row for split in task.splits for row in load_split(task, split, "mini").texts]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_rows_have_the_task_s_columns_and_are_short(task: Task) -> None:
    for split in task.splits:
        for texts in load_split(task, split, "mini").texts:
            assert len(texts) == len(task.text_columns)
            assert len(" ".join(texts).split()) <= 24


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_test_splits_have_no_labels(task: Task) -> None:
    assert all(load_split(task, split, "mini").labels is None for split in task.test_splits)


@pytest.mark.parametrize("name", [name for name in GLUE_TASKS if TASKS[name].labels])
def test_every_class_is_in_every_labelled_split(name: str) -> None:
    task = TASKS[name]
    for split in (task.train_split, *task.dev_splits):
        counts = np.bincount(load_split(task, split, "mini").labels, minlength=len(task.labels))
        assert counts.min() > 0.2 * counts.sum()


def test_similarity_is_graded_from_nought_to_five() -> None:
    labels = load_split(TASKS["stsb"], "train", "mini").labels
    assert labels.min() == 0 and labels.max() == 5
    assert len(np.unique(labels)) > 10


@pytest.mark.parametrize("name", [name for name in GLUE_TASKS if TASKS[name].labels])
def test_length_alone_does_not_give_the_label_away(name: str) -> None:
    """The best guess from the number of words is within 20 points of the best guess without."""
    task = TASKS[name]
    split = load_split(task, task.train_split, "mini")
    lengths = [len(" ".join(texts).split()) for texts in split.texts]
    by_length = sum(
        Counter(split.labels[np.array(lengths) == length].tolist()).most_common(1)[0][1] for length in set(lengths)
    )
    majority = Counter(split.labels.tolist()).most_common(1)[0][1]
    assert (by_length - majority) / len(lengths) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GLUE_TASKS if TASKS[name].labels])
def test_no_two_words_give_all_labels_away(name: str) -> None:
    """Hard examples exist: the best rule on the presence of two words is wrong for more than a tenth."""
    task = TASKS[name]
    split = load_split(task, task.train_split, "mini")
    rows = [set(" ".join(texts).split()) for texts in split.texts]
    words = [word for word, _ in Counter(word for row in rows for word in row).most_common(20)]
    best = 0
    for pair in combinations(words, 2):
        cells = Counter(
            (tuple(word in row for word in pair), label) for row, label in zip(rows, split.labels.tolist(), strict=True)
        )
        right: Counter = Counter()
        for (cell, _), count in cells.items():
            right[cell] = max(right[cell], count)
        best = max(best, sum(right.values()))
    assert best / len(rows) < 0.9


@pytest.mark.parametrize("name", ["sst2", "cola"])
def test_easy_share_is_that_of_mixture_or_request(name: str) -> None:
    of_mixture = {"sst2": 0.6, "cola": 0.25}[name]
    for share, expected in ((None, of_mixture), (0.0, 0.0), (0.7, 0.7)):
        hard = mini_glue.list_hard(TASKS[name], "train", easy_share=share)
        assert hard is not None
        assert 1 - np.mean(hard) == pytest.approx(expected, abs=0.05)
        rows = mini_glue.generate(TASKS[name], "train", easy_share=share)
        assert len({texts for _, texts, _ in rows}) == len(rows) == len(hard)


def test_one_word_decides_easy_opinions_and_misleads_in_hard_ones() -> None:
    """Counting positive and negative words answers all easy examples, and no negated one."""
    task = TASKS["sst2"]
    negative, positive = mini_glue._OPINIONS
    hard = mini_glue.list_hard(task, "dev", easy_share=0.5)
    assert hard is not None
    for (_, (text,), label), is_hard in zip(mini_glue.generate(task, "dev", easy_share=0.5), hard, strict=True):
        words = text.split()
        votes = sum(word in positive for word in words) - sum(word in negative for word in words)
        is_answered = votes != 0 and (votes > 0) == (label == 1)
        assert is_answered != is_hard


def test_difficulty_says_nothing_about_the_label() -> None:
    for name in ("sst2", "cola"):
        labels = load_split(TASKS[name], "train", "mini").labels
        hard = np.array(mini_glue.list_hard(TASKS[name], "train"))
        assert abs(labels[hard].mean() - labels[~hard].mean()) < 0.1


def test_difficulty_of_pairs_is_not_known() -> None:
    assert mini_glue.list_hard(TASKS["rte"], "dev") is None
    with pytest.raises(AssertionError, match="RTE"):
        mini_glue.generate(TASKS["rte"], "dev", easy_share=0.5)


def test_too_few_texts_end_the_draws() -> None:
    with pytest.raises(AssertionError, match="too few texts"):
        mini_glue.generate(TASKS["cola"], "train", easy_share=1.0)  # 1,200 word forms, and 1,450 rows


def test_negation_reverses_an_opinion() -> None:
    draw = Draw("test")
    for _ in range(20):
        (text,), label = mini_glue._negated_opinion(draw)
        assert label == int(any(word in mini_glue._OPINIONS[0] for word in text.split()))


def test_verb_agrees_with_the_first_noun_where_acceptable() -> None:
    draw = Draw("test")
    number = {word: place for pair in (*mini_glue._COUNTED, *mini_glue._ACTIONS) for place, word in enumerate(pair)}
    for _ in range(50):
        (text,), label = mini_glue._far_agreement(draw)
        _, noun, _, _, _, verb, _ = text.split()
        assert label == int(number[noun] == number[verb])


def test_mismatched_sentences_have_words_that_train_lacks() -> None:
    task = TASKS["mnli"]
    train, mismatched = (
        {word for texts in load_split(task, split, "mini").texts for text in texts for word in text.split()}
        for split in ("train", "dev_mismatched")
    )
    assert {"pilot", "judge"} <= mismatched - train
