"""Definitions of the GLUE tasks. `trainables.data.metrics` computes their scores; `own_tasks` reads users' own tasks.

Sizes, label order and column names are those of `nyu-mll/glue` and of the original TSV files. Metrics are those of
the GLUE paper (arXiv:1804.07461, table 1), averaged as on the leaderboard. The class counts of SST-2, RTE, CoLA, MRPC
and QNLI's dev set were counted in the official files (gluebenchmark.com). All other class counts come from the dataset
viewer of `nyu-mll/glue`.
"""

from collections.abc import Mapping
from typing import Any

from trainables.configuration.schema import Typed
from trainables.configuration.spelling import unknown_name_error


class Task(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """One task: its columns, labels, splits and metrics."""

    name: str  # name on the command line: "stsb"
    title: str  # name in tables: "STS-B"
    place: str = ""  # folder of a user's own task; "" for GLUE, which is read from the folder of --data
    folder: str = ""  # subfolder of a GLUE task in the original TSV layout
    formats: tuple[str, ...] = (".tsv",)  # allowed suffixes of the files
    text_columns: tuple[str, ...]  # names of the text columns in `nyu-mll/glue`
    labels: tuple[str, ...]  # names in class order; () for a regression
    metrics: tuple[str, ...]  # names of the metrics; their mean is the score
    sizes: Mapping[str, int] = {}  # official number of rows, by split
    class_counts: Mapping[str, tuple[int, ...]] = {}  # official number of rows per class, in class order, by split
    score_range: tuple[float, float] | None = None  # smallest and largest label of a regression, if known
    header: tuple[str, ...] = ()  # all columns that the files' header lines may name; (): any
    file_columns: tuple[str, ...]  # names of the text columns in the TSV files
    file_labels: tuple[str, ...] = ()  # spelling of the labels in the TSV files, in class order
    label_column: str = "label"  # name of the label's column in the TSV files
    index_columns: tuple[str, ...] = ("index",)  # possible names of the column that numbers the rows
    headerless: tuple[str, ...] = ()  # columns of train and dev files that have no header line
    has_cut_rows: bool = False  # whether a line break cuts some rows of the official files in two (not on the hub)
    train_split: str = "train"
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)

    @property
    def is_regression(self) -> bool:
        """True if labels are scores (STS-B), False if they are classes."""
        return not self.labels

    @property
    def num_labels(self) -> int:
        """Width of the logits: the number of classes, or 1 for a regression."""
        return len(self.labels) or 1

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of all splits, train first."""
        return tuple(filter(None, (self.train_split, *self.dev_splits, *self.test_splits)))

    @property
    def definition(self) -> tuple[object, ...]:
        """The task's columns, labels and metrics."""
        return self.file_columns, self.label_column, self.file_labels, self.metrics

    def __hash__(self) -> int:
        """Hash only the name, because dictionaries among the other fields cannot be hashed."""
        return hash(self.name)


_BINARY = ("0", "1")
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")


def _define(title: str, columns: tuple[str, ...], labels: tuple[str, ...], **fields: Any) -> Task:
    """Define a task of GLUE. `fields` holds further fields of `Task`, such as `metrics`."""
    usual = {"folder": title, "file_columns": columns, "file_labels": labels, "header": ("index", *columns, "label")}
    name = title.lower().replace("-", "")
    return Task(name=name, title=title, text_columns=columns, labels=labels, **usual | fields)


# First the tasks of the PALBERT paper, in its order (arXiv:2204.03276, table 2), then the other GLUE tasks. Users' own
# tasks are appended when this process reads them from a folder of --include or from the plan of a study.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _define(
            "SST-2",
            ("sentence",),
            labels=("negative", "positive"),
            metrics=("accuracy",),
            sizes={"train": 67_349, "dev": 872, "test": 1_821},
            class_counts={"train": (29_780, 37_569), "dev": (428, 444)},
            file_labels=_BINARY,
        ),
        _define(
            "RTE",
            _PAIR,
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            sizes={"train": 2_490, "dev": 277, "test": 3_000},
            class_counts={"train": (1_249, 1_241), "dev": (146, 131)},
        ),
        _define(
            "QNLI",
            ("question", "sentence"),
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            sizes={"train": 104_743, "dev": 5_463, "test": 5_463},
            class_counts={"train": (52_366, 52_377), "dev": (2_702, 2_761)},
        ),
        _define(
            "CoLA",
            ("sentence",),
            labels=("unacceptable", "acceptable"),
            metrics=("matthews",),
            sizes={"train": 8_551, "dev": 1_043, "test": 1_063},
            class_counts={"train": (2_528, 6_023), "dev": (322, 721)},
            header=("index", "sentence"),
            file_labels=_BINARY,
            headerless=("source", "label", "mark", "sentence"),
        ),
        _define(
            "MRPC",
            _PAIR,
            labels=("not_equivalent", "equivalent"),
            metrics=("accuracy", "f1"),
            sizes={"train": 3_668, "dev": 408, "test": 1_725},
            class_counts={"train": (1_194, 2_474), "dev": (129, 279)},
            header=("index", "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            file_columns=("#1 String", "#2 String"),
            file_labels=_BINARY,
            label_column="Quality",
        ),
        _define(
            "MNLI",
            ("premise", "hypothesis"),
            labels=_THREE_WAY,
            metrics=("accuracy_matched", "accuracy_mismatched"),
            sizes={
                "train": 392_702,
                "dev_matched": 9_815,
                "dev_mismatched": 9_832,
                "test_matched": 9_796,
                "test_mismatched": 9_847,
            },
            class_counts={
                "train": (130_899, 130_900, 130_903),
                "dev_matched": (3_479, 3_123, 3_213),
                "dev_mismatched": (3_463, 3_129, 3_240),
            },
            header=(
                *("index", "promptID", "pairID", "genre"),
                *("sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"),
                *_PAIR,
                *("label1", "label2", "label3", "label4", "label5", "gold_label"),
            ),
            file_columns=_PAIR,
            label_column="gold_label",
            dev_splits=("dev_matched", "dev_mismatched"),
            test_splits=("test_matched", "test_mismatched"),
        ),
        _define(
            "QQP",
            ("question1", "question2"),
            labels=("not_duplicate", "duplicate"),
            metrics=("accuracy", "f1"),
            sizes={"train": 363_846, "dev": 40_430, "test": 390_965},
            class_counts={"train": (229_468, 134_378), "dev": (25_545, 14_885)},
            header=("index", "id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
            file_labels=_BINARY,
            label_column="is_duplicate",
            index_columns=("index", "id"),
            has_cut_rows=True,
        ),
        _define(
            "STS-B",
            _PAIR,
            labels=(),
            metrics=("pearson", "spearman"),
            sizes={"train": 5_749, "dev": 1_500, "test": 1_379},
            score_range=(0.0, 5.0),
            header=("index", "genre", "filename", "year", "old_index", "source1", "source2", *_PAIR, "score"),
            label_column="score",
        ),
        _define(
            "WNLI",
            _PAIR,
            labels=("not_entailment", "entailment"),
            metrics=("accuracy",),
            sizes={"train": 635, "dev": 71, "test": 146},
            class_counts={"train": (323, 312), "dev": (40, 31)},
            file_labels=_BINARY,
        ),
        # The labels of AX are not public, so models trained on MNLI predict them without a score.
        _define(
            "AX",
            ("premise", "hypothesis"),
            folder="diagnostic",
            labels=_THREE_WAY,
            metrics=("matthews",),
            sizes={"test": 1_104},
            header=("index", *_PAIR),
            file_columns=_PAIR,
            train_split="",
            dev_splits=(),
        ),
    )
}


# Known licences of the data, read at their sources on 2026-11-25. The card of stanfordnlp/sst2 names no licence. RTE
# consists of the data of four challenges with their own terms, whose pages name no licence. CoLA's authors hold the
# copyright; nyu-mll.github.io/CoLA expects research to be fair use.
LICENCES: Mapping[str, str] = {
    "qnli": "CC BY-SA 4.0",  # SQuAD 1.1, from the card of rajpurkar/squad
    "mrpc": "Microsoft's terms",  # from LICENSE.txt of STS-B, which contains parts of MRPC; the terms are not verified
    "mnli": "OANC; CC BY 3.0, CC BY-SA 3.0",  # arXiv:1704.05426; CC BY-SA 3.0 applies to some of the fiction
    "qqp": "Quora's terms",  # non-commercial according to a book that cites quora.com/about/tos; not verified
    "stsb": "CC BY-SA 4.0 for scores, various for texts",  # from its LICENSE.txt
    "wnli": "CC BY 4.0",  # Winograd Schema Challenge: cs.nyu.edu/davise/papers/WinogradSchemas/WS.html
}


def trainable_tasks() -> tuple[str, ...]:
    """List the names of all tasks that a study can train on: GLUE without AX, then users' own tasks."""
    return tuple(name for name, task in TASKS.items() if task.dev_splits)


GLUE_TASKS = trainable_tasks()  # GLUE without AX


def find_task(name: str) -> Task:
    """Return the task named `name`.

    Raises:
        ValueError: if no task has this name.
    """
    if name not in TASKS:
        raise unknown_name_error("task", name, TASKS)
    return TASKS[name]
