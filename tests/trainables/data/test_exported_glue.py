"""GLUE as the library `datasets` exports it: pytest tests/trainables/data/test_exported_glue.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
from helpers.glue_folders import write_glue
from helpers.messages import one_line
from helpers.places import GLUE
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from trainables.data.glue import check_data, find_data_faults, fingerprint, load_split, read_labelled, read_texts
from trainables.data.tasks import GLUE_TASKS, TASKS, Task

real_files = pytest.mark.skipif(not GLUE.is_dir(), reason=f"no GLUE files in {GLUE}")
WRITERS = {
    ".csv": lambda rows, file: rows.to_csv(file),
    ".jsonl": lambda rows, file: rows.to_json(file),
    ".parquet": lambda rows, file: rows.to_parquet(file),
    "-00000-of-00001.parquet": lambda rows, file: rows.to_parquet(file),
}
EXPORTS = (".csv", ".jsonl", ".parquet")


def export(task: Task, source: str, folder: Path, ending: str, *, splits: tuple[str, ...] | None = None) -> str:
    """Write the splits as `load_dataset("nyu-mll/glue", ...)` holds them, with `datasets` itself; return the folder."""
    import datasets

    datasets.disable_progress_bars()
    (folder / task.name).mkdir(parents=True, exist_ok=True)
    for split in splits or task.splits:
        rows = load_split(task, split, source)
        labels = [-1] * len(rows.ids) if rows.labels is None else rows.labels.tolist()
        columns: dict[str, Any] = dict(zip(task.text_columns, map(list, zip(*rows.texts, strict=True)), strict=True))
        columns |= {"label": labels, "idx": rows.ids}
        kind = datasets.Value("float32") if task.is_regression else datasets.ClassLabel(names=list(task.labels))
        exported = datasets.Dataset.from_dict(columns).cast_column("label", kind)
        WRITERS[ending](exported, str(folder / task.name / f"{split.replace('dev', 'validation')}{ending}"))
    return str(folder)


def assert_same_rows(task: Task, split: str, one: str, other: str) -> None:
    mine, theirs = load_split(task, split, one), load_split(task, split, other)
    assert mine.ids == theirs.ids and mine.texts == theirs.texts
    if theirs.labels is None:
        assert mine.labels is None
    else:
        assert mine.labels is not None
        assert mine.labels.dtype == theirs.labels.dtype and mine.labels.tolist() == theirs.labels.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("name", GLUE_TASKS)
def test_exported_rows_are_those_of_the_source(tmp_path: Path, name: str, ending: str) -> None:
    task = TASKS[name]
    data = export(task, "mini", tmp_path, ending)
    check_data(task, data)
    assert [*find_data_faults(task, data)] == []
    for split in task.splits:
        assert_same_rows(task, split, data, "mini")


@real_files
@pytest.mark.parametrize("ending", EXPORTS)
@pytest.mark.parametrize(
    "name", ["cola", *(pytest.param(name, marks=pytest.mark.long) for name in ("sst2", "mrpc", "rte"))]
)
def test_exported_real_files_have_the_rows_of_the_official_ones(tmp_path: Path, name: str, ending: str) -> None:
    data = export(TASKS[name], str(GLUE), tmp_path, ending)
    assert [*find_data_faults(TASKS[name], data)] == []
    for split in TASKS[name].splits:
        assert_same_rows(TASKS[name], split, data, str(GLUE))


@real_files
@pytest.mark.parametrize("ending", EXPORTS)
def test_exported_qnli_has_the_rows_of_the_official_dev_file(tmp_path: Path, ending: str) -> None:
    data = export(TASKS["qnli"], str(GLUE), tmp_path, ending, splits=("dev", "test"))
    for split in ("dev", "test"):
        assert_same_rows(TASKS["qnli"], split, data, str(GLUE))


def test_entailment_is_class_nought_of_exported_rte(tmp_path: Path) -> None:
    (tmp_path / "rte").mkdir()
    rows = "sentence1,sentence2,label,idx\nOne .,Two .,0,0\nThree .,Four .,1,1\nFive .,Six .,not_entailment,2\n"
    (tmp_path / "rte" / "train.csv").write_text(rows)
    labels = load_split(TASKS["rte"], "train", str(tmp_path)).labels
    assert labels is not None and [TASKS["rte"].labels[label] for label in labels] == [
        "entailment",
        "not_entailment",
        "not_entailment",
    ]


def test_class_names_in_parquet_win_over_numbers(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset

    swapped = ClassLabel(names=["not_entailment", "entailment"])  # the reverse of nyu-mll/glue
    rows = {"sentence1": ["One .", "Two ."], "sentence2": ["1", "2"], "label": [1, 0], "idx": [0, 1]}
    (tmp_path / "rte").mkdir()
    Dataset.from_dict(rows).cast_column("label", swapped).to_parquet(str(tmp_path / "rte" / "train.parquet"))
    labels = load_split(TASKS["rte"], "train", str(tmp_path)).labels
    assert labels is not None and labels.tolist() == [0, 1]


@real_files
def test_classes_numbered_in_another_order_are_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rte = TASKS["rte"]
    data = export(rte, str(GLUE), tmp_path, ".csv", splits=("train", "dev"))
    file = tmp_path / "rte" / "train.csv"
    head, *lines = file.read_text().splitlines()
    swapped = [f"{text},{1 - int(label)},{row}" for text, label, row in (line.rsplit(",", 2) for line in lines)]
    file.write_text("\n".join([head, *swapped]) + "\n")
    (fault,) = find_data_faults(rte, data)
    assert one_line(fault, tmp_path) == snapshot


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("rte/train.csv", "sentence1,sentence2,label,idx\nOne .,Two .,-1,0\n"),
        ("rte/train.csv", "sentence1,sentence2,label,idx\nOne .,Two .,2,0\n"),
        ("rte/train.csv", "question,sentence2,label,idx\nOne .,Two .,1,0\n"),
        ("rte/train.csv", "sentence1,sentence2,idx\nOne .,Two .,0\n"),
        ("rte/train.csv", "sentence1;sentence2;label;idx\nOne .;Two .;0;0\n"),
        ("RTE/train.tsv", "sentence1\tsentence2\tlabel\tidx\nOne .\tTwo .\t0\t0\n"),
    ],
)
def test_mistake_in_an_exported_file_is_one_line(
    tmp_path: Path, file: str, content: str, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError) as raised:
        load_split(TASKS["rte"], "train", str(tmp_path))
    assert one_line(raised.value, tmp_path) == snapshot


def test_original_layout_wins_and_two_exports_are_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    data = export(TASKS["rte"], "mini", tmp_path, ".csv", splits=("train", "dev"))
    export(TASKS["rte"], "mini", tmp_path, ".jsonl", splits=("train",))
    with pytest.raises(ValueError) as raised:
        check_data(TASKS["rte"], data)
    assert one_line(raised.value, tmp_path) == snapshot
    write_glue(tmp_path, rows=40)
    check_data(TASKS["rte"], data)
    assert len(load_split(TASKS["rte"], "train", data).ids) == 40


def test_index_of_pandas_in_parquet_is_ignored(tmp_path: Path) -> None:
    rows = {"sentence1": ["One .", "Two ."], "sentence2": ["1", "2"], "label": [1, 0], "idx": [0, 1]}
    (tmp_path / "rte").mkdir()
    days = pandas.to_datetime(["2026-01-02", "2026-01-01"])
    pandas.DataFrame(rows, index=days).to_parquet(tmp_path / "rte" / "train.parquet")
    assert "__index_level_0__" in parquet.read_schema(tmp_path / "rte" / "train.parquet").names
    labels = load_split(TASKS["rte"], "train", str(tmp_path)).labels
    assert labels is not None and labels.tolist() == [1, 0]


def test_damaged_parquet_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rte").mkdir()
    (tmp_path / "rte" / "train.parquet").write_bytes(b"no Parquet")
    with pytest.raises(ValueError, match=r"rte/train.parquet cannot be read: .*Parquet"):
        load_split(TASKS["rte"], "train", str(tmp_path))


def test_fingerprint_of_an_export_follows_its_bytes(tmp_path: Path) -> None:
    data = export(TASKS["rte"], "mini", tmp_path, ".csv")
    before = fingerprint(TASKS["rte"], data)
    file = tmp_path / "rte" / "validation.csv"
    file.write_text(file.read_text().replace(",0,", ",1,", 1))
    assert fingerprint(TASKS["rte"], data) != before


@pytest.mark.parametrize("ending", WRITERS)
def test_exported_files_can_be_predicted_and_scored(tmp_path: Path, ending: str) -> None:
    task = TASKS["mrpc"]
    file = Path(export(task, "mini", tmp_path, ending, splits=("dev", "test"))) / "mrpc" / f"test{ending}"
    rows, official = read_texts(task, file), load_split(task, "test", "mini")
    assert rows.texts == official.texts and rows.ids == official.ids
    labelled = read_labelled(task, tmp_path / "mrpc" / f"validation{ending}").labels
    assert labelled is not None and labelled.tolist() == load_split(task, "dev", "mini").labels.tolist()
