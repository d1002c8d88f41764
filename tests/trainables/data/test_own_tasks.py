"""python -m pytest tests/trainables/data/test_own_tasks.py"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.edited_files import replace_in
from helpers.messages import one_line
from helpers.own_tasks import write_learnable_tasks, write_page_task
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from trainables.data.glue import check_data, find_data_faults, fingerprint, load_split, read_texts, with_sizes
from trainables.data.metrics import compute_metrics, score
from trainables.data.own_tasks import read_tasks
from trainables.data.tasks import TASKS, Task


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    return write_page_task(tmp_path / "tasks") / "claims"


def task_of(folder: Path) -> Task:
    (task,) = read_tasks(folder.parent)
    return task


def test_task_of_the_page_is_read(claims: Path) -> None:
    task = task_of(claims)
    assert (task.name, task.title, task.num_labels) == ("claims", "Claims", 3)
    dev = load_split(task, "dev", "mini")
    assert dev.texts[0] == ("The train is late.", "It comes an hour after its time.")
    assert dev.labels is not None and dev.labels.tolist() == [0, 1, 2]
    assert with_sizes(task).sizes == {"train": 6, "dev": 3}


def test_place_of_the_task_is_read_whatever_data_is_said(claims: Path) -> None:
    task = task_of(claims)
    for data in ("mini", "hub", "nowhere"):
        check_data(task, data)
        assert [*find_data_faults(task, data)] == []
        assert len(load_split(task, "train", data).texts) == 6


def test_texts_to_predict_keep_the_numbers_of_their_column_index(claims: Path, tmp_path: Path) -> None:
    task, file = task_of(claims), tmp_path / "input.csv"
    file.write_text(",".join(["index", *task.text_columns]) + "\n1017,one,two\n88,three,four\n")
    assert read_texts(task, file).ids == [1017, 88]


def test_a_column_index_of_texts_is_ignored(claims: Path, tmp_path: Path) -> None:
    task, file = task_of(claims), tmp_path / "input.csv"
    file.write_text(",".join(["index", *task.text_columns]) + "\n17,one,two\nb-2,three,four\n")
    assert read_texts(task, file).ids == [0, 1]


def test_formats_hold_the_same_rows(tmp_path: Path) -> None:
    rows = [['He said "no", twice', "one", "yes"], ["a\u2028b", "two", "no"]]
    files = {
        "t.csv": 'a,b,label\n"He said ""no"", twice",one,yes\na\u2028b,two,no\n',
        "t.tsv": "a\tb\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows),
        "t.jsonl": '{"a": "He said \\"no\\", twice", "b": "one", "label": "yes"}\n'
        '{"b": "two", "label": "no", "a": "a\u2028b"}\n',
    }
    task = replace(TASKS["rte"], file_columns=("a", "b"), header=(), index_columns=())
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        assert read_texts(task, tmp_path / name).texts == [(row[0], row[1]) for row in rows]


def test_csv_text_with_line_breaks_keeps_line_numbers(claims: Path, snapshot: SnapshotAssertion) -> None:
    replace_in(claims / "dev.csv", "It came on time.,refuted", '"It came\non time.",rejected')
    with pytest.raises(ValueError) as raised:
        load_split(task_of(claims), "dev", "mini")
    assert one_line(raised.value, claims) == snapshot


def test_labels_of_json_may_be_numbers(tmp_path: Path) -> None:
    tasks = {task.name: task for task in read_tasks(write_learnable_tasks(tmp_path / "tasks", train=20, dev=9))}
    labels = load_split(tasks["stars"], "dev", "mini").labels
    assert labels is not None and labels.dtype == np.float32 and set(labels) <= {0, 0.5, 1, 1.5, 2}


def test_metrics_are_computed_under_the_names_of_records(claims: Path) -> None:
    found = compute_metrics(task_of(claims), np.array([0, 1, 1]), np.array([0, 1, 2]))
    assert found == {"accuracy": pytest.approx(2 / 3), "f1_macro": pytest.approx((1 + 2 / 3 + 0) / 3)}
    assert score(task_of(claims), found) == pytest.approx((2 / 3 + 5 / 9) / 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"supported", "refuted"', '"refuted", "supported"'),
        ('"accuracy", ', ""),
        ('["claim", "evidence"]', '["evidence"]'),
    ],
)
def test_fingerprint_counts_what_task_toml_says(claims: Path, old: str, new: str) -> None:
    before = fingerprint(task_of(claims), "mini")
    replace_in(claims / "task.toml", old, new)
    assert fingerprint(task_of(claims), "mini") != before


def test_fingerprint_counts_rows_and_neither_title_nor_place(claims: Path, tmp_path: Path) -> None:
    before = fingerprint(task_of(claims), "mini")
    replace_in(claims / "task.toml", '"Claims"', '"Other"  # a comment')
    moved = shutil.copytree(claims, tmp_path / "moved" / "claims")
    assert fingerprint(task_of(moved), "hub") == before
    replace_in(moved / "dev.csv", "six cars", "ten cars")
    assert fingerprint(task_of(moved), "hub") != before


TOML = {
    'title = "Claims"\n': ['titel = "Claims"\n', 'title = "A\\nB"\n', "title = \n"],
    'texts = ["claim", "evidence"]\n': ["", 'texts = ["claim", "evidence", "verdict"]\n', 'texts = "claim"\n'],
    'labels = ["supported", "refuted", "open"]\n': ['labels = ["supported"]\n', "", 'labels = ["a", "a"]\n'],
    'metrics = ["accuracy", "f1_macro"]\n': [
        'metrics = ["acuracy"]\n',
        'metrics = ["f1macro"]\n',
        'metrics = ["f1"]\n',
        "metrics = []\n",
    ],
}


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, mistakes in TOML.items() for new in mistakes])
def test_mistake_in_task_toml_is_one_line_with_its_file(
    claims: Path, old: str, new: str, snapshot: SnapshotAssertion
) -> None:
    replace_in(claims / "task.toml", old, new)
    with pytest.raises(ValueError) as error:
        task_of(claims)
    assert one_line(error.value, claims) == snapshot


ROWS = {
    "column": ("train.csv", "claim,evidence", "claims,evidence"),
    "label": ("dev.csv", "late.,It came on time.,refuted", "late.,It came on time.,refutd"),
    "empty": ("dev.csv", "The train is late.,It came on time.", " ,"),
    "cells": ("dev.csv", "It came on", "It came, on"),
    "quote": ("dev.csv", "It came on time.,refuted", '"It came'),
}


@pytest.mark.parametrize("mistake", ROWS)
def test_mistake_in_a_row_is_one_line_with_its_place(claims: Path, mistake: str, snapshot: SnapshotAssertion) -> None:
    name, old, new = ROWS[mistake]
    replace_in(claims / name, old, new)
    (fault,) = find_data_faults(task_of(claims), "mini")
    assert one_line(fault, claims) == snapshot


def test_a_score_that_is_no_number_is_named(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    folder = write_learnable_tasks(tmp_path / "tasks", train=9, dev=1)
    (folder / "stars" / "dev.jsonl").write_text('{"text": "good", "stars": "many"}\n{"text": "bad"}\n')
    stars = read_tasks(folder)[1]
    (fault,) = find_data_faults(stars, "mini")
    assert one_line(fault, folder) == snapshot
    replace_in(folder / "stars" / "dev.jsonl", '{"text": "bad"}\n', "")
    (fault,) = find_data_faults(stars, "mini")
    assert one_line(fault, folder) == snapshot


def test_a_missing_file_is_named_with_its_formats(claims: Path, snapshot: SnapshotAssertion) -> None:
    (claims / "dev.csv").unlink()
    with pytest.raises(ValueError) as error:
        check_data(task_of(claims), "mini")
    assert one_line(error.value, claims) == snapshot


def test_two_files_of_a_split_are_refused(claims: Path, snapshot: SnapshotAssertion) -> None:
    (claims / "dev.tsv").write_text("claim\tevidence\tverdict\na\tb\topen\n")
    with pytest.raises(ValueError) as error:
        check_data(task_of(claims), "mini")
    assert one_line(error.value, claims) == snapshot


@pytest.mark.parametrize("name", ["sst2", "st-s_b", "macro", "source", "Claims"])
def test_name_of_a_task_is_checked(claims: Path, name: str, snapshot: SnapshotAssertion) -> None:
    moved = claims.rename(claims.parent / name)
    with pytest.raises(ValueError) as raised:
        read_tasks(moved.parent)
    assert one_line(raised.value, moved.parent) == snapshot
