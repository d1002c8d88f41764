"""GLUE as it is on disk, on the hub, or generated: every split as ids, texts and labels.

`data` is `mini` (generated, `mini_glue.py`), `hub` (`nyu-mll/glue` through `datasets`, with its usual cache and
offline variables) or a folder in the original TSV layout (`RTE/train.tsv`, ...).
"""

import codecs
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trainables.data import mini_glue
from trainables.data.tasks import TASKS, TRAINABLE_TASKS, Task
from trainables.sources import HubUnreachable, hash_of_file, reach_or_work_offline
from trainables.spelling import nearest_in_words

if TYPE_CHECKING:
    from datasets import Dataset

HUB_NAME = "nyu-mll/glue"
MOST_DIGITS = 18  # of an index, which is an int64

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

    ids: list[int]  # of train and dev the row number in the file, from 0; of other files their index, if they have it
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
    mini = [TASKS[name] for name in TRAINABLE_TASKS if mini_glue.is_generated(TASKS[name])]
    for one in mini if data == "mini" else [task]:
        for row in load_split(one, one.train_split, data).texts:
            yield from row


def read_texts(task: Task, file: Path) -> Split:
    """The texts of any TSV file that has the task's columns of texts, by their names in GLUE's own files.

    Of other columns the index alone is read, where there is one. CoLA's train and dev files may lack their header line,
    as they come; rows that QQP's hold cut in two are left out, and a row of which every text is empty is refused, as by
    `load_split`.

    Raises:
        ValueError: it is no such file; the line names file, line and value.
    """
    if not file.is_file():
        raise ValueError(f"no file {file}; allowed: a TSV file with {_columns_of(task)}")
    lines = _decoded_lines(file)
    if not lines:
        raise ValueError(f"{file} is empty; allowed: a TSV file with {_columns_of(task)}")
    first = lines[0].split("\t")
    is_bare = bool(task.headerless) and len(first) == len(task.headerless) and task.file_columns[0] not in first
    header, lines = (task.headerless, lines) if is_bare else (first, lines[1:])
    may_be_cut, first_line = task.label_column in header, 1 if is_bare else 2
    read = _reader(
        task, file, header, first_line, index_place=_index_place(task, header), label_place=None, may_be_cut=may_be_cut
    )
    rows = [row for row_id, line in enumerate(lines) if (row := read(row_id, line)) is not None]
    if not rows:
        raise ValueError(f"{file} has no rows; allowed: a header line and a line for each row")
    return _split_of(task, rows)


def _columns_of(task: Task) -> str:
    return f"a header line with {', '.join(task.file_columns)}"


def check_data(task: Task, data: str) -> None:
    """Nothing, if the files that training on the task needs are there. Quick: reads no file and no network.

    Raises:
        ValueError: one is missing; the line names it. Or mini has no such task.
    """
    if kind_of(data) == "mini":
        mini_glue.check_generated(task)
    for split in (task.train_split, *task.dev_splits) if task.dev_splits else task.test_splits:
        if kind_of(data) == "folder":
            _existing_file(task, split, data)


def data_faults(task: Task, data: str, *, most: int) -> list[str]:
    """What is wrong with the files of a folder that training on the task reads: a line for each, so many at most.

    An empty list of other places: what is generated is right, and the hub's data are checked where they are read.
    """
    faults: list[str] = []
    for split in _read_splits(task) if kind_of(data) == "folder" else ():
        try:
            _, lines, read = _file_of(task, split, data)
        except (ValueError, OSError) as error:
            faults.append(str(error))
            continue
        for row_id, line in enumerate(lines):
            try:
                read(row_id, line)
            except ValueError as error:
                faults.append(str(error))
                if len(faults) >= most:
                    return faults
    return faults[:most]


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


def _folder_rows(task: Task, split: str, folder: str) -> tuple[Path, list[_Row]]:
    file, lines, read = _file_of(task, split, folder)
    return file, [row for row_id, line in enumerate(lines) if (row := read(row_id, line)) is not None]


def _file_of(task: Task, split: str, folder: str) -> tuple[Path, list[str], Callable[[int, str], _Row | None]]:
    """The file of a split, its lines below the header, and what reads one."""
    file = _existing_file(task, split, folder)
    labelled = split not in task.test_splits
    header, lines, first_line = _table(task, file, task.headerless if labelled else ())
    if not lines:
        raise ValueError(f"{file}: no rows; the official {task.title} {split} has {task.sizes[split]:,}")
    label = _place_of(task.label_column, header, file) if labelled else None
    index = None if labelled else _index_place(task, header)  # who is held out of train depends on the row's number
    read = _reader(task, file, header, first_line, index_place=index, label_place=label, may_be_cut=labelled)
    return file, lines, read


def _index_place(task: Task, header: Sequence[str]) -> int | None:
    return next((header.index(column) for column in task.index_columns if column in header), None)


def _reader(
    task: Task,
    file: Path,
    header: Sequence[str],
    first_line: int,
    *,
    index_place: int | None,
    label_place: int | None,
    may_be_cut: bool,
) -> Callable[[int, str], _Row | None]:
    """Reads a line as a row of this number, the first of which is the file's line `first_line`; None for one that was
    cut in two. A row's id is its index where that has a place. It raises a ValueError."""
    text_places = [_place_of(column, header, file) for column in task.file_columns]
    may_be_cut = may_be_cut and task.has_cut_rows

    def read(row_id: int, line: str) -> _Row | None:
        cells = line.split("\t")
        if len(cells) != len(header):
            if may_be_cut and len(cells) < len(header):
                return None
            told = f"{len(cells)} columns instead of {len(header)}: {' | '.join(cells)[:80]!r}"
            raise ValueError(f"{file}, line {row_id + first_line}: {told}; allowed: {', '.join(header)}")
        texts = tuple([cells[place] for place in text_places])
        if not any(map(str.strip, texts)):
            columns = ", ".join(task.file_columns)
            told = f"row {row_id} has no text in {columns}; allowed: some text"
            raise ValueError(f"{file}, line {row_id + first_line}: {told}")
        try:
            index = row_id if index_place is None else _parsed_index(cells[index_place])
            label = None if label_place is None else _parsed_label(task, cells[label_place])
        except ValueError as error:
            raise ValueError(f"{file}, line {row_id + first_line}: {error}") from None
        return _Row(index, texts, label)

    return read


def _table(task: Task, file: Path, header: Sequence[str]) -> tuple[Sequence[str], list[str], int]:
    """Column names, the first line's if none are given; each further line, and the number of the first of these."""
    lines = _decoded_lines(file)
    if header or not lines:
        return header, lines, 1
    header = lines[0].split("\t")
    for column in header:
        if column not in task.header:
            told = f"unknown column {column[:80]!r}; {task.title} has {', '.join(task.header)}"
            raise ValueError(f"{file}, line 1: {told}")
        _place_of(column, header, file)
    return header, lines[1:], 2


def _place_of(column: str, header: Sequence[str], file: Path) -> int:
    if column not in header:
        raise ValueError(f"{file}, line 1: no column {column!r}; the columns are {', '.join(header)}")
    if header.count(column) > 1:
        raise ValueError(f"{file}, line 1: several columns {column!r}; the columns are {', '.join(header)}")
    return header.index(column)


def _existing_file(task: Task, split: str, folder: str) -> Path:
    inside = Path(task.folder) / (f"{split}.tsv" if task.dev_splits else "diagnostic.tsv")
    file, above = Path(folder) / inside, Path(os.path.abspath(folder)).parent
    if not file.is_file():
        near = f"; did you mean {above}?" if (above / inside).is_file() else nearest_in_words(folder, ("mini", "hub"))
        missing = f"file {file}" if Path(folder).is_dir() else f"folder {folder}"
        raise ValueError(f"no {missing}; data is mini, hub or a folder in the original GLUE layout{near}")
    return file


def _decoded_lines(file: Path) -> list[str]:
    content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{file}, line {line}: not UTF-8, byte {content[error.start]:#04x}; allowed: UTF-8") from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # str.splitlines also cuts at U+2028
    return lines[:-1] if lines[-1] == "" else lines


def _parsed_index(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise ValueError(f"index {text[:80]!r}; allowed: a whole number from 0, of at most {MOST_DIGITS} digits")
    return int(text)


def _parsed_label(task: Task, text: str) -> int | float:
    if task.is_regression:
        return _parsed_score(text)
    if text not in task.file_labels:
        raise ValueError(f"unknown label {text!r}; {task.title} has {', '.join(task.file_labels)}")
    return task.file_labels.index(text)


def _parsed_score(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"score {text!r} is not a number; allowed: 0..5") from None
    if not 0 <= value <= 5:
        raise ValueError(f"score {text} is outside 0..5")
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
