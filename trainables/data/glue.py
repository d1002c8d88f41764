"""Loads the splits of GLUE and of users' own tasks as ids, texts and labels.

The argument `data` names the source of GLUE: `mini` (generated, `mini_glue.py`), `hub` (`nyu-mll/glue`, read with
`datasets`) or a folder in the original TSV layout (`RTE/train.tsv`, ...). A user's own task is read from the folder
`Task.place` instead.
"""

import codecs
import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec.structs import replace

from trainables.data import mini_glue
from trainables.data.tasks import TASKS, TRAINABLE_TASKS, Task
from trainables.schema import Reader, Value
from trainables.sources import go_offline_if_unreachable, hash_of_file, hub_errors
from trainables.spelling import suggest_nearest

HUB_NAME = "nyu-mll/glue"
MOST_DIGITS = 18  # largest number of digits in a row's index; a longer index may not fit into an int64
LARGEST_SCORE = 1e6  # largest label of a regression without `score_range`; its square must not overflow a float32

Kind = Literal["mini", "hub", "folder"]


def classify_data(data: str) -> Kind:
    """Classify the source of the data: generated, the hub, or a folder."""
    return data if data in ("mini", "hub") else "folder"  # type: ignore[return-value]


def make_absolute(data: str) -> str:
    """Make `data` an absolute path if it is a folder, because workers run in other working directories."""
    return str(Path(data).resolve()) if classify_data(data) == "folder" else data


@dataclass(frozen=True)
class Split:
    """The rows of one split."""

    ids: list[int]  # row numbers from 0, or the index column of a file without labels
    texts: list[tuple[str, ...]]  # one string per text column
    labels: np.ndarray | None  # (n,) int64 classes or float32 scores; None for a test split


def load_split(task: Task, split: str, data: str) -> Split:
    """Load one split of a task, e.g. `load_split(TASKS["mnli"], "dev_matched", "mini")`.

    Raises:
        ValueError: if the data are missing or malformed. The message names file, line and value.
    """
    if split not in task.splits:
        raise ValueError(f"{task.title} has no split {split!r}; available: {', '.join(task.splits)}")
    data = task.place or data
    if data == "mini":
        return _make_split(task, mini_glue.generate(task, split))
    if data == "hub":
        return _make_split(task, _load_hub_rows(task, split))
    return _read_table(task, split, data).split()


def vocabulary_texts(task: Task, data: str) -> Iterator[str]:
    """Read the training texts for the vocabulary of a tiny backbone.

    For mini-GLUE, these are the training texts of all tasks.

    Raises:
        ValueError: if the data are missing or malformed.
    """
    tasks = [TASKS[name] for name in TRAINABLE_TASKS] if (task.place or data) == "mini" else [task]
    for chosen in tasks:
        for row in load_split(chosen, chosen.train_split, data).texts:
            yield from row


def read_texts(task: Task, file: Path) -> Split:
    """Read the texts of a TSV, CSV or JSON Lines file that has the task's text columns.

    Row ids come from the index column if the file has one; other columns are ignored. A CoLA file may lack the header
    line, as the official files do. Rows of QQP that contain a line break are skipped, as in `load_split`.

    Raises:
        ValueError: if the file is missing or malformed, or a row has no text. The message names file, line and value.
    """
    allowed = f"allowed: a TSV file whose header line has {', '.join(task.file_columns)}"
    if not file.is_file():
        raise ValueError(f"there is no file {file}; {allowed}")
    lines = _read_lines(file)
    if not lines:
        raise ValueError(f"{file} is empty; {allowed}")
    header = _split_cells(lines[0])
    if task.headerless and len(header) == len(task.headerless) and task.file_columns[0] not in header:
        return _Table(task, file, task.headerless, lines).split()
    may_be_cut = task.has_cut_rows and task.label_column in header
    return _Table(task, file, header, lines[1:], index=_find_index(task, header), may_be_cut=may_be_cut).split()


def read_labelled(task: Task, file: Path) -> Split:
    """Read the texts and labels of a file. If there is no column `label`, the task's label column is read.

    Raises:
        ValueError: if the file is malformed. The message names file, line and value.
    """
    lines = _read_lines(file)
    header = _split_cells(lines[0]) if lines else []
    column = "label" if "label" in header else task.label_column
    return _Table(task, file, header, lines[1:], label=_find_column(column, header, file)).split()


def check_data(task: Task, data: str) -> None:
    """Check that the task's train and dev files exist. The files are not opened, and the network is not used.

    Raises:
        ValueError: if a file is missing.
    """
    data = task.place or data
    for split in _read_splits(task) if classify_data(data) == "folder" else ():
        _find_file(task, split, data)


def find_data_faults(task: Task, data: str) -> Iterator[str]:
    """Find the faults in the task's train and dev files; describe each in one line.

    Generated data have no faults. Data on the hub are checked when a trial loads them.
    """
    data = task.place or data
    for split in _read_splits(task) if classify_data(data) == "folder" else ():
        try:
            table = _read_table(task, split, data)
        except (ValueError, OSError) as error:
            yield str(error)
            continue
        for number in range(len(table.lines)):
            try:
                table.row(number)
            except ValueError as error:
                yield str(error)


def fingerprint(task: Task, data: str, split: str | None = None) -> str:
    """Hash one split to 16 hexadecimal digits. If `split` is None, hash train and dev together.

    The hash covers the bytes of the files, the generated rows, or the revision of the hub's data set. For a user's own
    task it also covers the definition in task.toml.
    """
    digest = hashlib.sha256()
    for name in (split,) if split else _read_splits(task):
        place = task.place or data
        if place == "mini":
            content = hashlib.sha256(repr(mini_glue.generate(task, name)).encode()).hexdigest()
        elif place == "hub":
            content = f"{HUB_NAME} {_find_hub_revision(task)}"
        else:
            content = hash_of_file(_find_file(task, name, place))
        digest.update(f"{task.name} {name} {content}\n".encode())
    if task.place:
        digest.update(repr(task.definition).encode())
    return digest.hexdigest()[:16]


def with_sizes(task: Task) -> Task:
    """Count the rows in the files of a user's own task; return a copy of the task with these sizes."""
    rows = {split: len(_read_table(task, split, task.place).lines) for split in _read_splits(task)}
    return replace(task, sizes=rows)


def _read_splits(task: Task) -> tuple[str, ...]:
    """List the train and dev splits of a task, or the test split of AX."""
    return (task.train_split, *task.dev_splits) if task.dev_splits else task.test_splits


_Row = tuple[int, tuple[str, ...], int | float | None]  # id, texts, label


def _make_split(task: Task, rows: Sequence[_Row]) -> Split:
    ids, texts, labels = zip(*rows, strict=True)
    kind = np.float32 if task.is_regression else np.int64
    return Split([*ids], [*texts], None if labels[0] is None else np.array(labels, dtype=kind))


# Files in the original TSV layout. Fields are never quoted: a stray `"` is a character like any other. The files of a
# user's own task may also be CSV, as spreadsheets and pandas write it, or JSON Lines.

_JSON = Reader(dict[str, Value])
_Line = tuple[int, str | list[str]]  # number in the file, and a line of TSV or the cells of a row of CSV or JSON Lines


@dataclass
class _Table:
    """The header and the rows of a file. Rows are parsed on demand."""

    task: Task
    file: Path
    header: Sequence[str]
    lines: Sequence[_Line]
    label: int | None = None  # position of the label's column; None: labels are not read
    index: int | None = None  # position of the id's column; None: the id is the row number
    may_be_cut: bool = False  # True: skip lines with too few columns, the parts of a split row; False: raise an error
    texts: list[int] = field(init=False)  # positions of the text columns

    def __post_init__(self) -> None:
        self.texts = [_find_column(column, self.header, self.file) for column in self.task.file_columns]

    def rows(self) -> Iterator[_Row]:
        """Parse all rows. If `may_be_cut`, skip lines with too few columns."""
        return filter(None, map(self.row, range(len(self.lines))))

    def split(self) -> Split:
        """Parse all rows and return them as a split.

        Raises:
            ValueError: if the file has no rows, or a row is malformed.
        """
        if not (rows := list(self.rows())):
            raise ValueError(f"{self.file} has no rows; allowed: a header line and a line for each row")
        return _make_split(self.task, rows)

    def row(self, number: int) -> _Row | None:
        """Parse row `number`, counted from 0. If `may_be_cut`, return None for a line with too few columns.

        Raises:
            ValueError: if the row is malformed. The message names file, line and value.
        """
        cells = _split_cells(self.lines[number])
        if self.may_be_cut and len(cells) < len(self.header):
            return None
        try:
            return self._parse(number, cells)
        except ValueError as error:
            raise ValueError(f"{self.file}, line {self.lines[number][0]}: {error}") from None

    def _parse(self, number: int, cells: list[str]) -> _Row:
        if len(cells) != len(self.header):
            content = " | ".join(cells)[:80]
            raise ValueError(
                f"the number of columns is {len(cells)} instead of {len(self.header)}: {content!r}; "
                f"the columns must be {', '.join(self.header)}"
            )
        texts = tuple([cells[place] for place in self.texts])
        if not any(map(str.strip, texts)):
            raise ValueError(
                f"there is no text in {', '.join(self.task.file_columns)}; allowed: text in at least one column"
            )
        index = number if self.index is None else _parse_index(cells[self.index])
        label = None if self.label is None else _parse_label(self.task, cells[self.label])
        return index, texts, label


def _read_table(task: Task, split: str, folder: str) -> _Table:
    file, is_labelled = _find_file(task, split, folder), split not in task.test_splits
    lines = _read_lines(file)
    header: Sequence[str] = task.headerless if is_labelled else ()
    if lines and not header:
        header, lines = _split_cells(lines[0]), lines[1:]
        for column in header if task.header else ():
            if column not in task.header:
                menu = ", ".join(task.header)
                raise ValueError(
                    f"{file}, line 1: unknown column {column[:80]!r}; the columns of {task.title} are {menu}"
                )
    if not lines:
        size = task.sizes.get(split)
        official = f"the official {task.title} {split} has {size:,}" if size else "at least one row is needed"
        raise ValueError(f"{file} has no rows; {official}")
    for column in header:
        _find_column(column, header, file)
    if not is_labelled:
        return _Table(task, file, header, lines, index=_find_index(task, header))
    # The ids stay row numbers, even if there is an index column: the choice of held-out rows depends on the ids.
    label = _find_column(task.label_column, header, file)
    return _Table(task, file, header, lines, label=label, may_be_cut=task.has_cut_rows)


def _find_index(task: Task, header: Sequence[str]) -> int | None:
    return next((header.index(column) for column in task.index_columns if column in header), None)


def _find_column(column: str, header: Sequence[str], file: Path) -> int:
    if header.count(column) != 1:
        fault = f"there are several columns {column!r}" if column in header else f"there is no column {column!r}"
        near = "" if column in header else suggest_nearest(column, header)
        raise ValueError(f"{file}, line 1: {fault}; the columns are {', '.join(header)}{near}")
    return header.index(column)


def _find_file(task: Task, split: str, folder: str) -> Path:
    names = [f"{split if task.dev_splits else 'diagnostic'}{ending}" for ending in task.formats]
    present = [name for name in names if (Path(folder) / task.folder / name).is_file()]
    if len(present) > 1:
        raise ValueError(f"task {task.name} has {' and '.join(present)} in {folder}; allowed: only one of them")
    inside = Path(task.folder) / [*present, *names][0]
    file, above = Path(folder) / inside, Path(folder).resolve().parent
    if not present and task.place:
        if not Path(folder).is_dir():
            raise ValueError(
                f"there is no folder {folder} for task {task.name}; "
                "if the folder was moved, give its new parent folder with --include"
            )
        raise ValueError(f"task {task.name} has no {split} file in {folder}; allowed: one of {', '.join(names)}")
    if not present:
        near = f"; did you mean {above}?" if (above / inside).is_file() else suggest_nearest(folder, ("mini", "hub"))
        missing = f"file {file}" if Path(folder).is_dir() else f"folder {folder}"
        raise ValueError(f"there is no {missing}; data must be mini, hub or a folder in the original GLUE layout{near}")
    return file


def _split_cells(line: _Line) -> list[str]:
    _, content = line
    return content.split("\t") if isinstance(content, str) else content


def _read_lines(file: Path) -> Sequence[_Line]:
    """Read the lines of a file, header included, each with its line number."""
    text = _decode(file)
    if file.suffix == ".csv":
        return _read_csv(file, text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # str.splitlines also cuts at U+2028
    numbered = [*enumerate(lines[:-1] if lines[-1] == "" else lines, 1)]
    return _read_json(file, numbered) if file.suffix == ".jsonl" else numbered


def _read_csv(file: Path, text: str) -> Sequence[_Line]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return [(reader.line_num, row) for row in reader if row]  # the number of the last line of a multi-line row
    except csv.Error as error:
        raise ValueError(f'{file}, line {reader.line_num}: {error}; allowed: CSV with commas, quoted by "') from None


def _read_json(file: Path, lines: Sequence[tuple[int, str]]) -> Sequence[_Line]:
    """Read one JSON object per line. All objects must have the same fields, which form the header."""
    rows: list[_Line] = []
    header: list[str] = []
    for number, line in lines:
        row = _JSON.read(line.encode(), where=f"{file}, line {number}")
        header = header or [*row]
        if row.keys() != {*header}:
            allowed = f"allowed: {', '.join(header)}, as in line 1"
            raise ValueError(f"{file}, line {number}: the fields are {', '.join(row)}; {allowed}")
        cells = (row[name] for name in header)
        rows.append(
            (number, [cell if isinstance(cell, str) else "" if cell is None else json.dumps(cell) for cell in cells])
        )
    return [(1, header), *rows] if rows else []


def _decode(file: Path) -> str:
    content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{file}, line {line}: byte {content[error.start]:#04x} is not UTF-8; allowed: UTF-8"
        ) from None


def _parse_index(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise ValueError(f"index is {text[:80]!r}; allowed: a whole number from 0, of at most {MOST_DIGITS} digits")
    return int(text)


def _parse_label(task: Task, text: str) -> int | float:
    if not task.is_regression:
        if text not in task.file_labels:
            near = suggest_nearest(text, task.file_labels)
            menu = ", ".join(task.file_labels)
            raise ValueError(f"unknown label {text!r}; the labels of {task.title} are {menu}{near}")
        return task.file_labels.index(text)
    low, high = task.score_range or (-LARGEST_SCORE, LARGEST_SCORE)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"score {text!r} is not a number; allowed: {low:g}..{high:g}") from None
    if not low <= value <= high:
        raise ValueError(f"score {text} is outside {low:g}..{high:g}")
    return value


# The hub.


def _hub_errors() -> AbstractContextManager[None]:
    menu = "--data FOLDER in the original GLUE layout"
    offline = (
        "fill the cache of `datasets` on a machine with a network and set HF_HUB_OFFLINE=1 and HF_DATASETS_OFFLINE=1"
    )
    return hub_errors(HUB_NAME, allowed=menu, offline=offline)


@cache
def _find_hub_revision(task: Task) -> str:
    from datasets import load_dataset_builder

    with _hub_errors():
        go_offline_if_unreachable()
        return str(load_dataset_builder(HUB_NAME, task.name).hash)


def _load_hub_rows(task: Task, split: str) -> list[_Row]:
    from datasets import load_dataset

    with _hub_errors():
        go_offline_if_unreachable()
        dataset = load_dataset(HUB_NAME, task.name, split=split.replace("dev", "validation"))
    table = dataset.with_format("arrow")[:].to_pydict()
    texts = zip(*(table[column] for column in task.text_columns), strict=True)
    labels = table["label"] if split not in task.test_splits else [None] * len(dataset)
    if split not in task.test_splits and not task.is_regression:  # the hub may number the classes in another order
        names = dataset.features["label"].names
        labels = [task.labels.index(names[label]) for label in labels]
    return list(zip(table["idx"], texts, labels, strict=True))
