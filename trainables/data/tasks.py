"""The GLUE tasks: one row per task. `trainables.data.metrics` scores them, `trainables.data.own_tasks` reads others.

Sizes, label order and column names are those of `nyu-mll/glue` and of the original TSV files; metrics are those of
the GLUE paper (arXiv:1804.07461, table 1), averaged as the leaderboard does. Classes are counted in the official files
(gluebenchmark.com) of SST-2, RTE, CoLA, MRPC and QNLI's dev set; for MNLI, QQP, QNLI's training set and WNLI as the
dataset viewer of `nyu-mll/glue` shows them.
"""

from collections.abc import Mapping

from trainables.schema import Typed
from trainables.spelling import no_such


class Task(Typed, frozen=True, kw_only=True, omit_defaults=True):
    """One task: its columns, labels, splits and metrics."""

    name: str  # as on the command line: "stsb"
    title: str  # as in tables: "STS-B"
    place: str = ""  # folder of its files, for a task of one's own; "": `folder` in that of --data
    folder: str = ""  # in the original TSV layout
    formats: tuple[str, ...] = (".tsv",)  # endings of its files
    text_columns: tuple[str, ...]  # of `nyu-mll/glue`
    labels: tuple[str, ...]  # names in class order; () is regression
    metrics: tuple[str, ...]  # the score is their mean
    sizes: Mapping[str, int] = {}  # official rows of every split
    class_counts: Mapping[str, tuple[int, ...]] = {}  # and of its classes, in order
    score_range: tuple[float, float] | None = None  # of the labels of a regression, if it is known
    header: tuple[str, ...] = ()  # columns that files with a header line may have, of all splits together; (): any
    file_columns: tuple[str, ...]  # header names of the text columns in the TSV files
    file_labels: tuple[str, ...] = ()  # how the TSV files write the labels, in class order
    label_column: str = "label"  # header name of the label in the TSV files
    index_columns: tuple[str, ...] = ("index",)  # header names of the column that numbers the rows, if there is one
    headerless: tuple[str, ...] = ()  # columns of the train and dev files if these have no header line
    has_cut_rows: bool = False  # the official files hold rows cut in two by a line break, `nyu-mll/glue` does not
    train_split: str = "train"
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)

    @property
    def is_regression(self) -> bool:
        """Whether labels are scores (STS-B) instead of classes."""
        return not self.labels

    @property
    def num_labels(self) -> int:
        """Width of the logits: number of classes, 1 for regression."""
        return len(self.labels) or 1

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of all splits, train first."""
        return tuple(filter(None, (self.train_split, *self.dev_splits, *self.test_splits)))

    @property
    def definition(self) -> tuple[object, ...]:
        """The fields that define the task: tasks of one name are equal only if these are."""
        return self.file_columns, self.label_column, self.file_labels, self.metrics

    def __hash__(self) -> int:
        """Hash the name: the other fields hold dictionaries."""
        return hash(self.name)


_BINARY = ("0", "1")
_PAIR = ("sentence1", "sentence2")
_PAIR_HEADER = ("index", *_PAIR, "label")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")

# In the order of the PALBERT paper's tables (arXiv:2204.03276, table 2), then the others of GLUE, then those of one's
# own that this process has read, from an included folder or from the plan of a study.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="sst2",
            title="SST-2",
            folder="SST-2",
            text_columns=("sentence",),
            labels=("negative", "positive"),
            metrics=("accuracy",),
            sizes={"train": 67_349, "dev": 872, "test": 1_821},
            class_counts={"train": (29_780, 37_569), "dev": (428, 444)},
            header=("index", "sentence", "label"),
            file_columns=("sentence",),
            file_labels=_BINARY,
        ),
        Task(
            name="rte",
            title="RTE",
            folder="RTE",
            text_columns=_PAIR,
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            sizes={"train": 2_490, "dev": 277, "test": 3_000},
            class_counts={"train": (1_249, 1_241), "dev": (146, 131)},
            header=_PAIR_HEADER,
            file_columns=_PAIR,
            file_labels=_ENTAILMENT,
        ),
        Task(
            name="qnli",
            title="QNLI",
            folder="QNLI",
            text_columns=("question", "sentence"),
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            sizes={"train": 104_743, "dev": 5_463, "test": 5_463},
            class_counts={"train": (52_366, 52_377), "dev": (2_702, 2_761)},
            header=("index", "question", "sentence", "label"),
            file_columns=("question", "sentence"),
            file_labels=_ENTAILMENT,
        ),
        Task(
            name="cola",
            title="CoLA",
            folder="CoLA",
            text_columns=("sentence",),
            labels=("unacceptable", "acceptable"),
            metrics=("matthews",),
            sizes={"train": 8_551, "dev": 1_043, "test": 1_063},
            class_counts={"train": (2_528, 6_023), "dev": (322, 721)},
            header=("index", "sentence"),
            file_columns=("sentence",),
            file_labels=_BINARY,
            headerless=("source", "label", "mark", "sentence"),
        ),
        Task(
            name="mrpc",
            title="MRPC",
            folder="MRPC",
            text_columns=_PAIR,
            labels=("not_equivalent", "equivalent"),
            metrics=("accuracy", "f1"),
            sizes={"train": 3_668, "dev": 408, "test": 1_725},
            class_counts={"train": (1_194, 2_474), "dev": (129, 279)},
            header=("index", "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            file_columns=("#1 String", "#2 String"),
            file_labels=_BINARY,
            label_column="Quality",
        ),
        Task(
            name="mnli",
            title="MNLI",
            folder="MNLI",
            text_columns=("premise", "hypothesis"),
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
            file_labels=_THREE_WAY,
            label_column="gold_label",
            dev_splits=("dev_matched", "dev_mismatched"),
            test_splits=("test_matched", "test_mismatched"),
        ),
        Task(
            name="qqp",
            title="QQP",
            folder="QQP",
            text_columns=("question1", "question2"),
            labels=("not_duplicate", "duplicate"),
            metrics=("accuracy", "f1"),
            sizes={"train": 363_846, "dev": 40_430, "test": 390_965},
            class_counts={"train": (229_468, 134_378), "dev": (25_545, 14_885)},
            header=("index", "id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
            file_columns=("question1", "question2"),
            file_labels=_BINARY,
            label_column="is_duplicate",
            index_columns=("index", "id"),
            has_cut_rows=True,
        ),
        Task(
            name="stsb",
            title="STS-B",
            folder="STS-B",
            text_columns=_PAIR,
            labels=(),
            metrics=("pearson", "spearman"),
            sizes={"train": 5_749, "dev": 1_500, "test": 1_379},
            score_range=(0.0, 5.0),
            header=("index", "genre", "filename", "year", "old_index", "source1", "source2", *_PAIR, "score"),
            file_columns=_PAIR,
            label_column="score",
        ),
        Task(
            name="wnli",
            title="WNLI",
            folder="WNLI",
            text_columns=_PAIR,
            labels=("not_entailment", "entailment"),
            metrics=("accuracy",),
            sizes={"train": 635, "dev": 71, "test": 146},
            class_counts={"train": (323, 312), "dev": (40, 31)},
            header=_PAIR_HEADER,
            file_columns=_PAIR,
            file_labels=_BINARY,
        ),
        # Prediction only: an MNLI model is run on it, its labels are not public.
        Task(
            name="ax",
            title="AX",
            folder="diagnostic",
            text_columns=("premise", "hypothesis"),
            labels=_THREE_WAY,
            metrics=("matthews",),
            sizes={"test": 1_104},
            header=("index", *_PAIR),
            file_columns=_PAIR,
            file_labels=_THREE_WAY,
            train_split="",
            dev_splits=(),
        ),
    )
}

TRAINABLE_TASKS: tuple[str, ...] = tuple(name for name, task in TASKS.items() if task.dev_splits)  # GLUE's but AX


def trainable_tasks() -> tuple[str, ...]:
    """List all tasks that a study can have: GLUE's and one's own."""
    return tuple(name for name, task in TASKS.items() if task.dev_splits)


def find_task(name: str) -> Task:
    """Find the task of this name.

    Raises:
        ValueError: no task has this name.
    """
    if name not in TASKS:
        raise no_such("task", name, TASKS)
    return TASKS[name]
