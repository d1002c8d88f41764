"""GLUE as it is on disk, on the hub, or generated: every split as ids, texts and labels.

`data` is `mini` (generated, `mini_glue.py`), `hub` (`nyu-mll/glue` through `datasets`, with its usual cache and
offline variables) or a folder in the original TSV layout (`RTE/train.tsv`, ...).
"""

import codecs
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trainables.data import mini_glue
from trainables.data.tasks import TASKS, TRAINABLE_TASKS, Task
from trainables.file_hashes import hash_of_file
from trainables.hub import HubUnreachable, reach_or_work_offline

if TYPE_CHECKING:
    from datasets import Dataset

HUB_NAME = "nyu-mll/glue"

Kind = Literal["mini", "hub", "folder"]


def kind_of(data: str) -> Kind:
    """What kind of place `data` is."""
    return data if data in ("mini", "hub") else "folder"  # type: ignore[return-value]


def seen_from_anywhere(data: str) -> str:
    """`data` with the whole path of a folder: whoever reads it may stand elsewhere."""
    return str(Path(data).resolve()) if kind_of(data) == "folder" else data


@dataclass(frozen=True)
class Split:
    """The rows of one split."""

    ids: list[int]  # row number in the file, from 0, for pairing predictions
    texts: list[tuple[str, ...]]  # one string per text column
    labels: np.ndarray | None  # int64 classes or float32 scores, shape (n,); None on test


def load_split(task: Task, split: str, data: str) -> Split:
    """One split of a task, e.g. `load_split(TASKS["mnli"], "dev_matched", "mini")`.

    Warns where the number of rows is not the official one (not for mini, which has sizes of its own).

    Raises:
        ValueError: the data are not there or not as they should be; the line names file, line and value.
    """
    if split not in task.splits:
        raise ValueError(f"{task.title} has no split {split!r}; available: {', '.join(task.splits)}")
    if data == "mini":
        return _split_of(task, [_Row(*row) for row in mini_glue.generate(task, split)])
    source, rows = _hub_rows(task, split) if data == "hub" else _folder_rows(task, split, data)
    if not rows:
        raise ValueError(f"{source}: no rows; the official {task.title} {split} has {task.sizes[split]:,}")
    if len(rows) != task.sizes[split]:
        official = f"the official {task.title} {split} has {task.sizes[split]:,}"
        warnings.warn(f"{source}: {len(rows):,} rows; {official}", stacklevel=2)
    return _split_of(task, rows)


def vocabulary_texts(task: Task, data: str) -> Iterator[str]:
    """The texts whose words a tiny backbone's tokenizer knows: those to train on.

    Of mini-GLUE, of all tasks, so that one task can start from another's model.

    Raises:
        ValueError: see `load_split`.
    """
    for one in [TASKS[name] for name in TRAINABLE_TASKS] if data == "mini" else [task]:
        for row in load_split(one, one.train_split, data).texts:
            yield from row


def read_texts(task: Task, file: Path) -> Split:
    """The texts of any TSV file that has the task's columns of texts, by their names in GLUE's own files.

    Other columns are not read. CoLA's train and dev files may lack their header line, as they come; rows that QQP's
    hold cut in two are left out, and a row of which every text is empty is refused, as by `load_split`.

    Raises:
        ValueError: it is no such file; the line names file, line and value.
    """
    if not file.is_file():
        raise ValueError(f"no file {file}; allowed: a TSV file with {_columns_of(task)}")
    lines = _lines_of(file)
    if not lines:
        raise ValueError(f"{file} is empty; allowed: a TSV file with {_columns_of(task)}")
    first = lines[0][1]
    is_bare = bool(task.headerless) and len(first) == len(task.headerless) and task.file_columns[0] not in first
    header, lines = (task.headerless, lines) if is_bare else (first, lines[1:])
    rows = _rows(task, file, header, lines, label_place=None, may_be_cut=task.label_column in header)
    if not rows:
        raise ValueError(f"{file} has no rows; allowed: a header line and a line for each row")
    return _split_of(task, rows)


def _columns_of(task: Task) -> str:
    return f"a header line with {', '.join(task.file_columns)}"


def check_data(task: Task, data: str) -> None:
    """Nothing, if the files that training on the task needs are there. Quick: reads no file and no network.

    Raises:
        ValueError: one is missing; the line names it.
    """
    for split in (task.train_split, *task.dev_splits) if task.dev_splits else task.test_splits:
        if kind_of(data) == "folder":
            _existing_file(task, split, data)


def fingerprint(task: Task, data: str, split: str | None = None) -> str:
    """Hash of the content of one split, or of all that training reads (train and dev); 16 hexadecimal digits.

    Of a folder: of the bytes of the files. Of mini: of the generated rows. Of the hub: of the dataset's revision.
    """
    digest = hashlib.sha256()
    for name in (split,) if split else _read_splits(task):
        digest.update(f"{task.name} {name} {_split_fingerprint(task, name, data)}\n".encode())
    return digest.hexdigest()[:16]


def hold_out(ids: Sequence[int], fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the rows to train on and of the slice held out, both ascending (int64).

    Who is held out depends on a row's id and the seed only, never on the order of rows or a global generator.
    """
    assert 0 < fraction < 1
    ranks = [hashlib.sha256(f"{seed}:{row}".encode()).digest() for row in ids]
    order = sorted(range(len(ids)), key=ranks.__getitem__)
    num_held = max(1, round(fraction * len(ids)))
    return np.sort(order[num_held:]), np.sort(order[:num_held])


def _read_splits(task: Task) -> tuple[str, ...]:
    """The splits that training on the task reads; of AX, the one there is."""
    return (task.train_split, *task.dev_splits) if task.dev_splits else task.test_splits


def _split_fingerprint(task: Task, split: str, data: str) -> str:
    if data == "mini":
        return hashlib.sha256(repr(mini_glue.generate(task, split)).encode()).hexdigest()
    if data == "hub":
        return f"{HUB_NAME} {_hub_revision(task)}"
    return hash_of_file(_existing_file(task, split, data))


@dataclass(frozen=True)
class _Row:
    id: int
    texts: tuple[str, ...]
    label: int | float | None


def _split_of(task: Task, rows: Sequence[_Row]) -> Split:
    labels = None
    if rows[0].label is not None:
        labels = np.array([row.label for row in rows], dtype=np.float32 if task.is_regression else np.int64)
    return Split([row.id for row in rows], [row.texts for row in rows], labels)


# Files in the original TSV layout. Fields are never quoted: a stray `"` is a character like any other.

_Line = tuple[str, list[str]]  # where it is, and its cells


def _folder_rows(task: Task, split: str, folder: str) -> tuple[Path, list[_Row]]:
    file = _existing_file(task, split, folder)
    labelled = split not in task.test_splits
    header, lines = _table(task, file, task.headerless if labelled else ())
    if not lines:
        return file, []
    label_place = _place_of(task.label_column, header, file) if labelled else None
    return file, _rows(task, file, header, lines, label_place=label_place, may_be_cut=labelled)


def _rows(
    task: Task, file: Path, header: Sequence[str], lines: Sequence[_Line], *, label_place: int | None, may_be_cut: bool
) -> list[_Row]:
    text_places = [_place_of(column, header, file) for column in task.file_columns]
    rows = []
    for row_id, (where, cells) in enumerate(lines):
        if task.has_cut_rows and len(cells) < len(header) and may_be_cut:
            continue
        if len(cells) != len(header):
            raise ValueError(f"{where}: {len(cells)} columns instead of {len(header)}: {' | '.join(cells)[:80]!r}")
        texts = tuple(cells[place] for place in text_places)
        if not any(text.strip() for text in texts):
            raise ValueError(f"{where}: row {row_id} has no text in {', '.join(task.file_columns)}; allowed: some text")
        label = None if label_place is None else _parsed_label(task, cells[label_place], where)
        rows.append(_Row(row_id, texts, label))
    return rows


def _table(task: Task, file: Path, header: Sequence[str]) -> tuple[Sequence[str], list[_Line]]:
    """Column names, the first line's if none are given; and each further line."""
    lines = _lines_of(file)
    if header or not lines:
        return header, lines
    (where, header), *rows = lines
    for column in header:
        if column not in task.header:
            raise ValueError(f"{where}: unknown column {column!r}; {task.title} has {', '.join(task.header)}")
        _place_of(column, header, file)
    return header, rows


def _lines_of(file: Path) -> list[_Line]:
    return [(f"{file}, line {number}", line.split("\t")) for number, line in enumerate(_decoded_lines(file), start=1)]


def _place_of(column: str, header: Sequence[str], file: Path) -> int:
    if column not in header:
        raise ValueError(f"{file}, line 1: no column {column!r}; the columns are {', '.join(header)}")
    if header.count(column) > 1:
        raise ValueError(f"{file}, line 1: several columns {column!r}; the columns are {', '.join(header)}")
    return header.index(column)


def _existing_file(task: Task, split: str, folder: str) -> Path:
    file = Path(folder) / task.folder / (f"{split}.tsv" if task.dev_splits else "diagnostic.tsv")
    if not file.is_file():
        raise ValueError(f"no file {file}; data is mini, hub or a folder in the original GLUE layout")
    return file


def _decoded_lines(file: Path) -> list[str]:
    content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{file}, line {line}: not UTF-8, byte {content[error.start]:#04x}") from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # str.splitlines also cuts at U+2028
    return lines[:-1] if lines[-1] == "" else lines


def _parsed_label(task: Task, text: str, place: str) -> int | float:
    if task.is_regression:
        return _parsed_score(text, place)
    if text not in task.file_labels:
        raise ValueError(f"{place}: unknown label {text!r}; {task.title} has {', '.join(task.file_labels)}")
    return task.file_labels.index(text)


def _parsed_score(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{place}: score {text!r} is not a number") from None
    if not 0 <= value <= 5:
        raise ValueError(f"{place}: score {text} is outside 0..5")
    return value


# The hub.


@contextmanager
def _hub_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # no network, or a cache that lacks this task
        raise HubUnreachable(
            f"{HUB_NAME} is neither in the cache of datasets nor reachable ({str(error).splitlines()[0]}); "
            "ways out: --data FOLDER in the original GLUE layout, or fill the cache on a machine with a network and "
            "set HF_HUB_OFFLINE=1 and HF_DATASETS_OFFLINE=1"
        ) from error


@lru_cache(maxsize=None)
def _hub_revision(task: Task) -> str:
    from datasets import load_dataset_builder

    with _hub_errors():
        reach_or_work_offline()
        return str(load_dataset_builder(HUB_NAME, task.name).hash)


def _hub_rows(task: Task, split: str) -> tuple[str, list[_Row]]:
    from datasets import load_dataset

    with _hub_errors():
        reach_or_work_offline()
        dataset = load_dataset(HUB_NAME, task.name, split=split.replace("dev", "validation"))
    table = dataset.with_format("arrow")[:].to_pydict()
    texts = zip(*(table[column] for column in task.text_columns), strict=True)
    labels = _hub_labels(task, dataset, table["label"]) if split not in task.test_splits else [None] * len(dataset)
    return f"{HUB_NAME} {task.name}", [_Row(*row) for row in zip(table["idx"], texts, labels, strict=True)]


def _hub_labels(task: Task, dataset: "Dataset", labels: list[Any]) -> list[Any]:
    """Classes in our order, matched by name."""
    if task.is_regression:
        return labels
    names = dataset.features["label"].names
    return [task.labels.index(names[label]) for label in labels]
