"""python -m pytest tests/trainables/data/test_own_tasks.py"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.messages import says
from helpers.own_tasks import write_learnable_tasks, write_page_task
from msgspec.structs import replace

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


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


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


def test_csv_text_with_line_breaks_keeps_line_numbers(claims: Path) -> None:
    edit(claims / "dev.csv", "It came on time.,refuted", '"It came\non time.",rejected')
    with pytest.raises(ValueError, match=r"dev.csv, line 4: .*'rejected'; .* Claims are supported, refuted, open"):
        load_split(task_of(claims), "dev", "mini")


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
    edit(claims / "task.toml", old, new)
    assert fingerprint(task_of(claims), "mini") != before


def test_fingerprint_counts_rows_and_neither_title_nor_place(claims: Path, tmp_path: Path) -> None:
    before = fingerprint(task_of(claims), "mini")
    edit(claims / "task.toml", '"Claims"', '"Other"  # a comment')
    moved = shutil.copytree(claims, tmp_path / "moved" / "claims")
    assert fingerprint(task_of(moved), "hub") == before
    edit(moved / "dev.csv", "six cars", "ten cars")
    assert fingerprint(task_of(moved), "hub") != before


TOML = {
    'title = "Claims"\n': {
        'titel = "Claims"\n': "no field named titel; available: texts, label, labels, regression, metrics, "
        "title; did you mean title?",
        'title = "A\\nB"\n': "'A\\nB' has unprintable characters; title and labels may have only printable ones",
        "title = \n": "Invalid value (at line 1, column 9); allowed: a TOML file",
    },
    'texts = ["claim", "evidence"]\n': {
        "": "the field texts is missing",
        'texts = ["claim", "evidence", "verdict"]\n': "texts is ['claim', 'evidence', 'verdict']; allowed: one or two "
        "different columns, other than the label column 'verdict'",
        'texts = "claim"\n': "texts is 'claim'; allowed: a list",
    },
    'labels = ["supported", "refuted", "open"]\n': {
        'labels = ["supported"]\n': "labels is ['supported']; allowed: 2 to 127 different labels",
        "": "a task must have either labels = [...] or regression = true",
        'labels = ["a", "a"]\n': "labels is ['a', 'a']; allowed: 2 to 127 different labels",
    },
    'metrics = ["accuracy", "f1_macro"]\n': {
        'metrics = ["acuracy"]\n': "no metric of 3 labels named 'acuracy'; available: accuracy, f1_macro; did you mean "
        "accuracy?",
        'metrics = ["f1macro"]\n': "no metric of 3 labels named 'f1macro'; available: accuracy, f1_macro; did you mean "
        "f1_macro?",
        'metrics = ["f1"]\n': "'f1' is not a metric of 3 labels; available: accuracy, f1_macro",
        "metrics = []\n": "no metric of 3 labels named ''; available: accuracy, f1_macro",
    },
}


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, mistakes in TOML.items() for new in mistakes])
def test_mistake_in_task_toml_is_one_line_with_its_file(claims: Path, old: str, new: str) -> None:
    edit(claims / "task.toml", old, new)
    with pytest.raises(ValueError) as error:
        task_of(claims)
    assert str(error.value) == f"{claims}/task.toml: {TOML[old][new]}"


ROWS = {
    "column": (
        ("train.csv", "claim,evidence", "claims,evidence"),
        ["train.csv, line 1: ", "'claim'; ", "claims, evidence, verdict; did you mean claims"],
    ),
    "label": (
        ("dev.csv", "late.,It came on time.,refuted", "late.,It came on time.,refutd"),
        ["dev.csv, line 3: unknown label 'refutd'; ", "supported, refuted, open; ", "did you mean refuted?"],
    ),
    "empty": (
        ("dev.csv", "The train is late.,It came on time.", " ,"),
        ["dev.csv, line 3: ", "no text in claim, evidence; ", "at least one"],
    ),
    "cells": (("dev.csv", "It came on", "It came, on"), ["dev.csv, line 3: ", "4 instead of 3: "]),
    "quote": (
        ("dev.csv", "It came on time.,refuted", '"It came'),
        ["dev.csv, line 4: ", "end of data; allowed: CSV with commas"],
    ),
}


@pytest.mark.parametrize("mistake", ROWS)
def test_mistake_in_a_row_is_one_line_with_its_place(claims: Path, mistake: str) -> None:
    (name, old, new), parts = ROWS[mistake]
    edit(claims / name, old, new)
    (fault,) = find_data_faults(task_of(claims), "mini")
    assert says(fault, f"{claims}/", *parts)


def test_a_score_that_is_no_number_is_named(tmp_path: Path) -> None:
    folder = write_learnable_tasks(tmp_path / "tasks", train=9, dev=1)
    (folder / "stars" / "dev.jsonl").write_text('{"text": "good", "stars": "many"}\n{"text": "bad"}\n')
    stars = read_tasks(folder)[1]
    (fault,) = find_data_faults(stars, "mini")
    assert says(fault, f"{folder}/stars/dev.jsonl, line 2: ", "fields are text; ", "text, stars, as in line 1")
    edit(folder / "stars" / "dev.jsonl", '{"text": "bad"}\n', "")
    (fault,) = find_data_faults(stars, "mini")
    assert says(fault, f"{folder}/stars/dev.jsonl, line 1: ", "'many' is not a number; ", "-1e+06..1e+06")


def test_a_missing_file_is_named_with_its_formats(claims: Path) -> None:
    (claims / "dev.csv").unlink()
    with pytest.raises(ValueError) as error:
        check_data(task_of(claims), "mini")
    assert says(str(error.value), "claims has no dev file ", f"{claims}; ", "dev.tsv, dev.csv, dev.jsonl")


def test_two_files_of_a_split_are_refused(claims: Path) -> None:
    (claims / "dev.tsv").write_text("claim\tevidence\tverdict\na\tb\topen\n")
    with pytest.raises(ValueError) as error:
        check_data(task_of(claims), "mini")
    assert says(str(error.value), "claims has dev.tsv and dev.csv ", f"{claims}; ", "only one")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sst2", "'sst2', .* sst2 is taken; rename the folder"),
        ("st-s_b", "'st-s_b', .* stsb is taken; rename the folder"),
        ("macro", "'macro', .* macro is taken"),
        ("source", "'source', .* source is taken"),
        ("Claims", "'Claims', .*not a valid task name; allowed: "),
    ],
)
def test_name_of_a_task_is_checked(claims: Path, name: str, message: str) -> None:
    moved = claims.rename(claims.parent / name)
    with pytest.raises(ValueError, match=f"^{moved}/task.toml: .*{message}"):
        read_tasks(moved.parent)
