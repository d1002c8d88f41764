"""Texts of any file with a task's columns: pytest tests/trainables/data/test_read_texts.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.messages import one_line
from helpers.places import GLUE

from trainables.data.glue import load_split, read_texts
from trainables.data.tasks import TASKS

QQP_HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"


def write(folder: Path, *lines: str) -> Path:
    (folder / "any.tsv").write_text("".join(f"{line}\n" for line in lines))
    return folder / "any.tsv"


@pytest.mark.parametrize(
    ("name", "lines", "texts"),
    [
        ("cola", ["gj04\t1\t\tIt rained ."], ("It rained .",)),  # as its train and dev files are
        ("cola", ["index\tsentence", "0\tIt rained ."], ("It rained .",)),  # as its test file is
        (
            "mrpc",
            ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\tHe said " no .\tNo .'],
            ('He said " no .', "No ."),
        ),
        ("stsb", ["genre\tsentence1\tsentence2\tscore", "news\tA dog .\tA cat .\tnone"], ("A dog .", "A cat .")),
        ("qqp", [QQP_HEADER, "5\t6\t7\tWhy ?\tHow ?\t0"], ("Why ?", "How ?")),
    ],
)
def test_columns_are_found_by_their_names_and_labels_are_not_read(name, lines, texts, tmp_path):
    split = read_texts(TASKS[name], write(tmp_path, *lines))
    assert (len(split.ids), split.texts, split.labels) == (1, [texts], None)


@pytest.mark.parametrize(
    ("name", "lines", "ids"),
    [
        ("sst2", ["index\tsentence", "98\tfine", "12\tbad"], [98, 12]),
        ("sst2", ["sentence", "fine", "bad"], [0, 1]),
        ("qqp", ["id\tquestion1\tquestion2", "7\tWhy ?\tHow ?", "3\tWho ?\tWhat ?"], [7, 3]),  # as its test file is
    ],
)
def test_a_row_has_the_index_of_the_file_or_its_number(name, lines, ids, tmp_path):
    assert read_texts(TASKS[name], write(tmp_path, *lines)).ids == ids


def test_test_set_has_its_index_dev_has_row_numbers(tmp_path):
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n1\tOne .\tTwo .\n0\tNo .\tYes .\n")
    columns = "index\tsentence1\tsentence2\tlabel"
    (tmp_path / "RTE" / "dev.tsv").write_text(f"{columns}\n7\tOne .\tTwo .\tentailment\n")
    assert load_split(TASKS["rte"], "test", str(tmp_path)).ids == [1, 0]
    assert load_split(TASKS["rte"], "dev", str(tmp_path)).ids == [0]  # who is held out depends on them


def test_columns_may_stand_anywhere_and_lines_end_as_they_like(tmp_path):
    file = tmp_path / "any.tsv"
    file.write_bytes(b"\xef\xbb\xbfsentence2\tcolour\tsentence1\r\nTwo .\tred\tOne .\r\nTwo\xe2\x80\xa8.\tred\t\r\n")
    assert read_texts(TASKS["rte"], file).texts == [("One .", "Two ."), ("", "Two\u2028.")]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        *(("sst2", ["index\tsentence", f"{index}\tfine"]) for index in ("a", "-1", "1.0", "", "9" * 19)),
        ("sst2", ["text", "fine"]),
        ("sst2", ["sentence\tsentence", "fine"]),
        ("sst2", ["sentence", "fine", "", "good"]),
        ("sst2", ["sentence\tlabel", " \t1"]),
        ("rte", ["sentence1\tsentence2", "\t\u3000"]),
        ("qqp", ["id\tquestion1\tquestion2", "0\tWhy ?"]),
    ],
    ids=str,
)
def test_bad_file_is_refused_in_one_line_with_its_place(name, lines, tmp_path, snapshot):
    with pytest.raises(ValueError) as raised:
        read_texts(TASKS[name], write(tmp_path, *lines))
    assert one_line(raised.value, tmp_path) == snapshot


def test_row_without_text_is_refused_in_data_sets(tmp_path, snapshot):
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\nfine\t1\n\t0\n")
    with pytest.raises(ValueError) as raised:
        load_split(TASKS["sst2"], "dev", str(tmp_path))
    assert one_line(raised.value, tmp_path) == snapshot


def test_split_rows_of_qqp_are_skipped_in_labelled_files(tmp_path):
    rows = ["5\t6\t7\tWhy ?\tHow ?\t0", "6\t6\t7\tWhy", "9\t6\t7\tWho ?\tWhat ?\t0"]
    assert read_texts(TASKS["qqp"], write(tmp_path, QQP_HEADER, *rows)).ids == [5, 9]


@pytest.mark.skipif(not GLUE.is_dir(), reason=f"no GLUE files in {GLUE}")
@pytest.mark.parametrize("name", ["cola", "mrpc", "qnli", "rte", "sst2"])
def test_the_real_files_are_read_as_they_are(name):
    task = TASKS[name]
    assert len(read_texts(task, GLUE / task.folder / "test.tsv").ids) == task.sizes["test"]
    dev = read_texts(task, GLUE / task.folder / "dev.tsv")
    assert dev.texts == load_split(task, "dev", str(GLUE)).texts
