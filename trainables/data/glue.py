"""Loads the splits of GLUE and of users' own tasks as ids, texts and labels.

The argument `data` names the source of GLUE: `mini` (generated, `mini_glue.py`), `hub` (`nyu-mll/glue`, read with
`datasets`) or a folder. The folder has the original TSV layout (`RTE/train.tsv`, ...), or files that `datasets` has
exported from `nyu-mll/glue` (`rte/train.csv`, `rte/validation.parquet`, ...). A user's own task is read from the folder
`Task.place` instead.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec.structs import replace

from trainables.configuration.spelling import suggest_nearest
from trainables.data import mini_glue
from trainables.data.repeated_texts import RepeatedTexts, count_repeats, hash_texts
from trainables.data.table_files import Line, describe_header_fault, is_quoted, read_lines, split_cells
from trainables.data.tasks import GLUE_TASKS, TASKS, Task
from trainables.files.sources import go_offline_if_unreachable, hash_of_file, hub_errors

HUB_NAME = "nyu-mll/glue"
MOST_DIGITS = 18  # largest number of digits in a row's index; a longer index may not fit into an int64
EXPORTED = (".csv", ".jsonl", ".parquet", "-00000-of-00001.parquet")  # endings of the files that `datasets` exports
MOST_FAULTS = 10  # maximum number of faults that are reported for one file
LARGEST_SCORE = 1e6  # largest label of a regression without `score_range`; its square must not overflow a float32

HELD_OUT_SHARE = 0.1  # share of train that `selection: holdout` holds out

Kind = Literal["mini", "hub", "folder"]


def classify_data(data: str) -> Kind:
    """Classify the source of the data: generated, the hub, or a folder."""
    return data if data in ("mini", "hub") else "folder"  # type: ignore[return-value]


def make_absolute(data: str) -> str:
    """Make the path of a folder that is there absolute, because workers run in other working directories."""
    return str(Path(data).resolve()) if classify_data(data) == "folder" and Path(data).is_dir() else data


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
    tasks = [TASKS[name] for name in GLUE_TASKS] if (task.place or data) == "mini" else [task]
    for chosen in tasks:
        for row in load_split(chosen, chosen.train_split, data).texts:
            yield from row


def read_texts(task: Task, file: Path) -> Split:
    """Read the texts of a TSV, CSV, JSON Lines or Parquet file that has the task's text columns.

    Row ids come from the index column if the file has one; that of a user's own task counts only if it has whole
    numbers alone. Other columns are ignored. A CoLA file may lack the header line, as the official files do. Rows of
    QQP that contain a line break are skipped, as in `load_split`.

    Raises:
        ValueError: if the file is missing or malformed, or a row has no text. The message names file, line and value.
    """
    allowed = f"allowed: a file in TSV, .csv, .jsonl or .parquet with the columns {', '.join(task.file_columns)}"
    if not file.is_file():
        raise ValueError(f"there is no file {file}; {allowed}")
    lines = read_lines(file)
    if not lines:
        raise ValueError(f"{file} is empty; {allowed}")
    header = split_cells(lines[0])
    if task.headerless and len(header) == len(task.headerless) and task.file_columns[0] not in header:
        return _Table(task, file, task.headerless, lines).split()
    may_be_cut = task.has_cut_rows and task.label_column in header
    index = _find_index(task, file, header)
    if task.place and index is not None:  # a user's column of this name may have other content
        cells = (split_cells(line) for line in lines[1:])
        index = index if all(_is_index(row[index]) for row in cells if len(row) == len(header)) else None
    return _Table(task, file, header, lines[1:], index=index, may_be_cut=may_be_cut).split()


def read_labelled(task: Task, file: Path) -> Split:
    """Read the texts and labels of a file. If there is no column `label`, the task's label column is read.

    Raises:
        ValueError: if the file is malformed. The message names file, line and value.
    """
    lines = read_lines(file)
    header = split_cells(lines[0]) if lines else []
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
    """Find the faults in the task's train and dev files; describe each in one line. A file gives at most ten.

    Generated data have no faults. Data on the hub are checked when a trial loads them.
    """
    data = task.place or data
    for split in _read_splits(task) if classify_data(data) == "folder" else ():
        try:
            yield from _scan(task, split, data).faults
        except (ValueError, OSError) as error:
            yield str(error)


def count_repeated_texts(task: Task, data: str) -> RepeatedTexts | None:
    """Count the dev rows whose texts occur in train, and the rows with contradictory labels; None for the hub's data.

    Raises:
        ValueError: if the data are missing or malformed.
    """
    data = task.place or data
    if data == "hub":
        return None
    scans = [_scan(task, split, data) for split in _read_splits(task)]
    if fault := next((fault for scan in scans for fault in scan.faults), None):
        raise ValueError(fault)
    train, *dev = scans
    texts, labels = (np.concatenate(parts) for parts in zip(*((scan.texts, scan.labels) for scan in dev), strict=True))
    return count_repeats((train.texts, train.labels), (texts, labels))


def count_train_rows(task: Task, data: str) -> int | None:
    """Count the train rows of a GLUE task in a folder, which may have fewer rows than GLUE; None for any other data."""
    if task.place or classify_data(data) != "folder":
        return None
    return len(_scan(task, task.train_split, data).texts)


def choose_holdout(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose the positions, ascending, of the rows to train on and of those to hold out; only the rows' ids count."""
    ranks = [hashlib.sha256(f"0:{row}".encode()).digest() for row in ids.tolist()]
    order = sorted(range(len(ids)), key=ranks.__getitem__)
    num_held = max(1, round(HELD_OUT_SHARE * len(ids)))
    return np.sort(order[num_held:]), np.sort(order[:num_held])


def describe_holdout_fault(task: Task, data: str) -> str:
    """Describe rows held out from train that all have the same label; "" if they do not, and for the hub's data."""
    data = task.place or data
    if data == "hub":
        return ""
    train = _scan(task, task.train_split, data)
    labels = train.labels[choose_holdout(train.ids)[1]]
    if (labels != labels[0]).any():
        return ""
    rows = "1 row" if len(labels) == 1 else f"{len(labels):,} rows"
    return (
        f"the tenth of train of {task.title} that selects epochs has only the label "
        f"{_describe_label(task, labels[0])} ({rows}), so no score there has a meaning; --selection dev or more rows"
    )


def _describe_label(task: Task, label: float) -> str:
    return f"{label:g}" if task.is_regression else task.file_labels[int(label)]


@dataclass(frozen=True)
class _Scan:
    """The faults of a split (at most `MOST_FAULTS`), and, if there are none, its ids, text hashes and labels."""

    faults: tuple[str, ...]
    ids: np.ndarray  # (rows,) int64
    texts: np.ndarray  # (rows,) int64
    labels: np.ndarray  # (rows,) float64


def _scan(task: Task, split: str, data: str) -> _Scan:
    return _scan_content(task, split, data, "" if data == "mini" else hash_of_file(_find_file(task, split, data)))


@cache  # a plan is resolved several times; the content of the file is part of the key
def _scan_content(task: Task, split: str, data: str, content: str) -> _Scan:
    faults, ids, texts, labels = list[str](), list[int](), list[int](), list[int | float | None]()
    if data == "mini":
        for number, row_texts, label in mini_glue.generate(task, split):
            ids.append(number)
            texts.append(hash_texts(row_texts))
            labels.append(label)
    else:
        table = _read_table(task, split, data)
        for number in range(len(table.lines)):
            try:
                row = table.row(number)
            except ValueError as error:
                faults.append(str(error))
                if len(faults) == MOST_FAULTS:
                    break
                continue
            if row is not None:
                ids.append(row[0])
                texts.append(hash_texts(row[1]))
                labels.append(row[2])
        if not (faults or texts):
            faults.append(table.describe_unusable())
        if not faults:
            faults += table.find_quoted_texts()
            faults += _find_label_faults(task, split, table.file, np.array(labels))
    columns = np.array(ids, dtype=np.int64), np.array(texts, dtype=np.int64), np.array(labels, dtype=np.float64)
    return _Scan(tuple(faults), *columns)


def _find_label_faults(task: Task, split: str, file: Path, labels: np.ndarray) -> Iterator[str]:
    """Find the faults of the labels of a whole split: they are all the same, or numbered in another order than GLUE."""
    if len(labels) and (labels == labels[0]).all():
        label = _describe_label(task, labels[0])
        measure = "correlation" if task.is_regression else "score"
        rows = "the only row has" if len(labels) == 1 else f"all {len(labels):,} rows have"
        yield f"{file}: {rows} the label {label}, so no {measure} has a meaning; allowed: at least two different labels"
    official = task.class_counts.get(split)
    if official and _is_exported(task, file):
        counts = np.bincount(labels.astype(np.int64), minlength=task.num_labels).tolist()
        if counts != [*official] and sorted(counts) == sorted(official):
            ours, theirs = (" / ".join(f"{number:,}" for number in each) for each in (counts, official))
            order = ", ".join(f"{number} = {name}" for number, name in enumerate(task.labels))
            yield (
                f"{file} has {ours} rows per class, but {HUB_NAME} has {theirs}, so the classes are numbered in "
                f"another order; allowed: {order}"
            )


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


# Files. Those in the original layout are TSV. All other files of a GLUE task have the columns of `nyu-mll/glue`, with
# class numbers or class names as labels. The files of a user's own task may have any of the formats in `Task.formats`.


def _is_exported(task: Task, file: Path) -> bool:
    return not task.place and file.suffix != ".tsv"


@dataclass
class _Table:
    """The header and the rows of a file. Rows are parsed on demand."""

    task: Task
    file: Path
    header: Sequence[str]
    lines: Sequence[Line]
    label: int | None = None  # position of the label's column; None: labels are not read
    index: int | None = None  # position of the id's column; None: the id is the row number
    may_be_cut: bool = False  # True: skip lines with too few columns, the parts of a split row; False: raise an error
    texts: list[int] = field(init=False)  # positions of the text columns
    spellings: dict[str, int] = field(init=False)  # accepted spelling of a label -> class

    def __post_init__(self) -> None:
        columns, is_exported = self.task.file_columns, _is_exported(self.task, self.file)
        if is_exported and not {*columns} <= {*self.header}:
            columns = self.task.text_columns
        self.texts = [_find_column(column, self.header, self.file) for column in columns]
        self.spellings = _list_spellings(self.task, is_exported=is_exported)

    def rows(self) -> Iterator[_Row]:
        """Parse all rows. If `may_be_cut`, skip lines with too few columns."""
        return filter(None, map(self.row, range(len(self.lines))))

    def split(self) -> Split:
        """Parse all rows and return them as a split.

        Raises:
            ValueError: if the file has no rows, or a row is malformed.
        """
        if not (rows := list(self.rows())):
            raise ValueError(self.describe_unusable())
        return _make_split(self.task, rows)

    def describe_unusable(self) -> str:
        """Describe a file without rows, or one of whose lines `row` leaves out all."""
        cut = f": every line has fewer columns than the header ({', '.join(self.header)})"
        return f"{self.file} has no rows{cut * bool(self.lines)}; allowed: a header line and a line for each row"

    def find_quoted_texts(self) -> Iterator[str]:
        """Describe in one line a TSV file in which all texts with quotes are quoted as in CSV.

        QQP's own files seem to be: their cut rows end with a quote (nyu-mll/GLUE-baselines#5). They are not described.
        """
        if self.file.suffix != ".tsv" or self.task.has_cut_rows:
            return
        with_quotes = [(line[0], self._list_texts_with_quotes(line)) for line in self.lines if '"' in line[1]]
        if not all(is_quoted(text) for _, texts in with_quotes for text in texts):
            return
        if numbers := [number for number, texts in with_quotes if any('""' in text[1:-1] for text in texts)]:
            rows = "1 row" if len(numbers) == 1 else f"{len(numbers):,} rows"
            yield (
                f'{self.file}, line {numbers[0]}: the texts of {rows} are quoted as in CSV, with "" for each "; '
                "allowed: texts without such quotes in .tsv, or a .csv file"
            )

    def _list_texts_with_quotes(self, line: Line) -> list[str]:
        cells = split_cells(line)
        return [cells[place] for place in self.texts if '"' in cells[place]]

    def row(self, number: int) -> _Row | None:
        """Parse row `number`, counted from 0. If `may_be_cut`, return None for a line with too few columns.

        Raises:
            ValueError: if the row is malformed. The message names file, line and value.
        """
        cells = split_cells(self.lines[number])
        if self.may_be_cut and len(cells) < len(self.header):
            return None
        try:
            return self._parse(number, cells)
        except ValueError as error:
            noun = "row" if self.file.suffix == ".parquet" else "line"
            raise ValueError(f"{self.file}, {noun} {self.lines[number][0]}: {error}") from None

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
                f"there is no text in {', '.join(self.header[place] for place in self.texts)}; "
                "allowed: text in at least one column"
            )
        index = number if self.index is None else _parse_index(cells[self.index])
        label = None if self.label is None else self._parse_label(cells[self.label])
        return index, texts, label

    def _parse_label(self, text: str) -> int | float:
        if self.task.is_regression:
            return _parse_score(self.task, text)
        if (label := self.spellings.get(text)) is not None:
            return label
        menu, near = ", ".join(self.task.file_labels), suggest_nearest(text, self.task.file_labels)
        if _is_exported(self.task, self.file):
            menu = ", ".join(f"{number} ({name})" for number, name in enumerate(self.task.labels))
        raise ValueError(f"unknown label {text!r}; the labels of {self.task.title} are {menu}{near}")


def _read_table(task: Task, split: str, folder: str) -> _Table:
    file, is_labelled = _find_file(task, split, folder), split not in task.test_splits
    lines, is_exported = read_lines(file), _is_exported(task, file)
    header: Sequence[str] = task.headerless if is_labelled and not is_exported else ()
    if lines and not header:
        header, lines = split_cells(lines[0]), lines[1:]
        _check_header(task, file, header)
    if not lines:
        size = task.sizes.get(split)
        official = f"the official {task.title} {split} has {size:,}" if size else "at least one row is needed"
        raise ValueError(f"{file} has no rows; {official}")
    for column in header:
        _find_column(column, header, file)
    if not is_labelled:
        return _Table(task, file, header, lines, index=_find_index(task, file, header))
    # The ids stay row numbers, even if there is an index column: the choice of held-out rows depends on the ids.
    column = "label" if is_exported and task.label_column not in header else task.label_column
    may_be_cut = task.has_cut_rows and not is_exported
    return _Table(task, file, header, lines, label=_find_column(column, header, file), may_be_cut=may_be_cut)


def _check_header(task: Task, file: Path, header: Sequence[str]) -> None:
    """Raise ValueError if the header line of a GLUE file has a column that the official or exported files lack."""
    known, is_exported = task.header, _is_exported(task, file)
    if is_exported:
        known = (*task.text_columns, "label", "idx")
    for column in header if known else ():
        if column not in (*known, *task.header, "") if is_exported else column not in known:  # "": an index of pandas
            endings = "; a file that `datasets` exports must end in .csv, .jsonl or .parquet" * (column == "idx")
            reason = describe_header_fault(file, header) or f"unknown column {column[:80]!r}"
            raise ValueError(f"{file}, line 1: {reason}; the columns of {task.title} are {', '.join(known)}{endings}")


def _find_index(task: Task, file: Path, header: Sequence[str]) -> int | None:
    columns = (*task.index_columns, *["idx"] * _is_exported(task, file))
    return next((header.index(column) for column in columns if column in header), None)


def _find_column(column: str, header: Sequence[str], file: Path) -> int:
    if header.count(column) != 1:
        fault = f"there are several columns {column!r}" if column in header else f"there is no column {column!r}"
        reason = "" if column in header else describe_header_fault(file, header)
        near = "" if column in header or reason else suggest_nearest(column, header)
        menu = "" if reason else f"; the columns are {', '.join(header)}{near}"
        raise ValueError(f"{file}, line 1: {fault}{'; ' * bool(reason)}{reason}{menu}")
    return header.index(column)


def _find_file(task: Task, split: str, folder: str) -> Path:
    names = [f"{split if task.dev_splits else 'diagnostic'}{ending}" for ending in task.formats]
    present = [name for name in names if (Path(folder) / task.folder / name).is_file()]
    if not present and not task.place and (exported := _find_exported(task, split, Path(folder))):
        return exported
    if len(present) > 1:
        raise ValueError(f"task {task.name} has {' and '.join(present)} in {folder}; allowed: only one of them")
    inside = Path(task.folder) / [*present, *names][0]
    file, above = Path(folder) / inside, Path(folder).resolve().parent
    if present:
        return file
    if task.place and not Path(folder).is_dir():
        raise ValueError(
            f"there is no folder {folder} for task {task.name}; "
            "if the folder was moved, give its new parent folder with --include"
        )
    packed = next((path.name for name in names for path in file.parent.glob(f"{name}.*")), None)
    unpack = f"; unpack {packed}" if packed else ""
    if task.place:
        raise ValueError(
            f"task {task.name} has no {split} file in {folder}; allowed: one of {', '.join(names)}{unpack}"
        )
    near = f"; did you mean {above}?" if (above / inside).is_file() else suggest_nearest(folder, ("mini", "hub"))
    missing = f"file {file}" if Path(folder).is_dir() else f"folder {folder}"
    layout = f"or with files that `datasets` exports ({task.name}/{_name_on_hub(split)}.csv, .jsonl or .parquet)"
    raise ValueError(
        f"there is no {missing}; data must be mini, hub or a folder in the original GLUE layout {layout}{unpack}{near}"
    )


def _name_on_hub(split: str) -> str:
    return split.replace("dev", "validation")


def _find_exported(task: Task, split: str, folder: Path) -> Path | None:
    """Find the file of a split that `datasets` has exported; None if there is none.

    Raises:
        ValueError: if there are several files of the split.
    """
    places = [folder / name for name in dict.fromkeys((task.name, task.folder))]
    names = [f"{name}{ending}" for name in dict.fromkeys((_name_on_hub(split), split)) for ending in EXPORTED]
    files = [place / name for place in places for name in names if (place / name).is_file()]
    files = list({file.stat().st_ino: file for file in files}.values())  # rte and RTE may be the same folder
    if len(files) > 1:
        raise ValueError(f"task {task.name} has {' and '.join(map(str, files))}; allowed: only one of them")
    return files[0] if files else None


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def _parse_index(text: str) -> int:
    if not _is_index(text):
        raise ValueError(f"index is {text[:80]!r}; allowed: a whole number from 0, of at most {MOST_DIGITS} digits")
    return int(text)


def _parse_score(task: Task, text: str) -> float:
    low, high = task.score_range or (-LARGEST_SCORE, LARGEST_SCORE)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"score {text!r} is not a number; allowed: {low:g}..{high:g}") from None
    if not low <= value <= high:
        raise ValueError(f"score {text} is outside {low:g}..{high:g}")
    return value


@cache
def _list_spellings(task: Task, *, is_exported: bool) -> dict[str, int]:
    """Map each accepted spelling of a label to its class.

    Other programs write 1 as 1.0, and true as True or TRUE. If the labels are 0 and 1, true is 1 and false is 0.
    """
    labels = {label: number for number, label in enumerate(task.file_labels)}
    if is_exported:
        labels |= {name: number for number, name in enumerate(task.labels)}
        labels |= {str(number): number for number in range(len(task.labels))}
    spellings: dict[str, set[int]] = {}
    for label, number in labels.items():
        words = [label] if label.lower() in ("true", "false") else []
        if {*task.file_labels} == {"0", "1"} and label in ("0", "1"):
            words = ["true" if label == "1" else "false"]
        others = [way(word) for word in words for way in (str.lower, str.capitalize, str.upper)]
        if re.fullmatch(r"-?\d+", label):
            others.append(f"{label}.0")
        elif re.fullmatch(r"-?\d+\.0", label):
            others.append(label.removesuffix(".0"))
        for other in others:
            spellings.setdefault(other, set()).add(number)
    return {text: min(numbers) for text, numbers in spellings.items() if len(numbers) == 1} | labels


# The hub.


def _hub_errors() -> AbstractContextManager[None]:
    from datasets.config import HF_DATASETS_CACHE

    menu = "--data FOLDER with GLUE's files, such as FOLDER/RTE/train.tsv"
    offline = f"copy {HF_DATASETS_CACHE} from a machine that has loaded {HUB_NAME}, or set HF_HOME to its folder"
    return hub_errors(f"--data hub: {HUB_NAME}", allowed=menu, offline=offline)


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
        dataset = load_dataset(HUB_NAME, task.name, split=_name_on_hub(split))
    table = dataset.with_format("arrow")[:].to_pydict()
    texts = zip(*(table[column] for column in task.text_columns), strict=True)
    labels = table["label"] if split not in task.test_splits else [None] * len(dataset)
    if split not in task.test_splits and not task.is_regression:  # the hub may number the classes in another order
        names = dataset.features["label"].names
        labels = [task.labels.index(names[label]) for label in labels]
    return list(zip(table["idx"], texts, labels, strict=True))
