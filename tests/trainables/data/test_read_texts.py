"""Texts of any file with a task's columns: pytest tests/trainables/data/test_read_texts.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.places import SHARED

from trainables.data.glue import load_split, read_texts
from trainables.data.tasks import TASKS

GLUE = SHARED / "glue"  # the real files, where this machine has them
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
    assert (split.ids, split.texts, split.labels) == ([0], [texts], None)


def test_columns_may_stand_anywhere_and_lines_end_as_they_like(tmp_path):
    file = tmp_path / "any.tsv"
    file.write_bytes(b"\xef\xbb\xbfsentence2\tcolour\tsentence1\r\nTwo .\tred\tOne .\r\n\xe2\x80\xa8\tred\t\r\n")
    assert read_texts(TASKS["rte"], file).texts == [("One .", "Two ."), ("", "\u2028")]


def test_rows_that_qqp_has_cut_in_two_are_left_out_of_labelled_files_alone(tmp_path):
    rows = ["5\t6\t7\tWhy ?\tHow ?\t0", "5\t6\t7\tWhy", "5\t6\t7\tWho ?\tWhat ?\t0"]
    assert read_texts(TASKS["qqp"], write(tmp_path, QQP_HEADER, *rows)).ids == [0, 2]
    with pytest.raises(ValueError, match="any.tsv, line 2: 2 columns instead of 3"):
        read_texts(TASKS["qqp"], write(tmp_path, "id\tquestion1\tquestion2", "0\tWhy ?"))


@pytest.mark.skipif(not GLUE.is_dir(), reason=f"no GLUE files in {GLUE}")
@pytest.mark.parametrize("name", ["cola", "mrpc", "qnli", "rte", "sst2"])
def test_the_real_files_are_read_as_they_are(name):
    task = TASKS[name]
    assert len(read_texts(task, GLUE / task.folder / "test.tsv").ids) == task.sizes["test"]
    dev = read_texts(task, GLUE / task.folder / "dev.tsv")
    assert dev.texts == load_split(task, "dev", str(GLUE)).texts
