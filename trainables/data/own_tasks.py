"""Tasks of one's own: folders with `task.toml` and files `train` and `dev`. docs/own_task.md has an example."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from trainables.data.tasks import TRAINABLE_TASKS, Task
from trainables.schema import Typed, from_plain
from trainables.spelling import is_same_name, no_such

FILE = "task.toml"
FORMATS = (".tsv", ".csv", ".jsonl")
MOST_LABELS = 127  # answers are stored as int8
METRICS = {  # as scikit-learn and scipy name them -> as records do
    "accuracy": "accuracy",
    "f1": "f1",
    "f1_macro": "f1_macro",
    "matthews_corrcoef": "matthews",
    "pearsonr": "pearson",
    "spearmanr": "spearman",
}
_OF_CLASSES, _OF_SCORES = ("accuracy", "f1_macro"), ("pearsonr", "spearmanr")
_OF_TWO_CLASSES = (*_OF_CLASSES, "f1", "matthews_corrcoef")
_IS_NAME = re.compile("[a-z][a-z0-9_-]*")
_TAKEN = ("ax", "all", "macro", "mean", "parameters", "relative", "speed_up")  # stand beside tasks in menus and tables


class TaskFile(Typed, frozen=True, kw_only=True):
    """The fields of a task.toml."""

    texts: tuple[str, ...]  # columns
    label: str = "label"  # column
    labels: tuple[str | int, ...] = ()  # as the files write them, in class order
    regression: bool = False
    metrics: tuple[str, ...]  # the score is their mean
    title: str = ""  # in tables; "": the task's name


def read_tasks(folder: str | Path) -> list[Task]:
    """Read the tasks in the folders of a folder, by name; only their task.toml is opened.

    Raises:
        ValueError: a task.toml has an error, or a name is taken; file and value are named.
    """
    return [_read_task(file) for file in sorted(Path(folder).resolve().glob(f"*/{FILE}"))]


def _read_task(file: Path) -> Task:
    name = file.parent.name
    if not _IS_NAME.fullmatch(name):
        allowed = "a small letter, then small letters, digits, - and _"
        raise ValueError(f"{file}: the folder's name, {name!r}, names no task; allowed: {allowed}")
    if taken := next((taken for taken in (*TRAINABLE_TASKS, *_TAKEN) if is_same_name(taken, name)), None):
        raise ValueError(f"{file}: a task cannot be named {name!r}, {taken} is taken; rename the folder")
    try:
        fields = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {getattr(error, 'strerror', None) or error}; allowed: a TOML file") from None
    content = from_plain(TaskFile, fields, where=str(file))
    try:
        return _make_task(name, content, place=str(file.parent))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _make_task(name: str, content: TaskFile, *, place: str) -> Task:
    labels = tuple(map(str, content.labels))
    if not 1 <= len(content.texts) <= 2 or len({*content.texts, content.label}) <= len(content.texts):
        allowed = f"one or two columns, other ones than label {content.label!r}"
        raise ValueError(f"texts is {list(content.texts)}; allowed: {allowed}")
    if content.regression == bool(labels):
        raise ValueError("a task has either labels = [...] or regression = true")
    if labels and not 2 <= len({*labels}) == len(labels) <= MOST_LABELS:
        raise ValueError(f"labels is {list(labels)}; allowed: 2 to {MOST_LABELS} labels, each once")
    if odd := next((text for text in (content.title, *labels) if not text.isprintable()), None):
        raise ValueError(f"{odd!r} has characters that no table shows; allowed: a title and labels of one line")
    menu = _OF_SCORES if content.regression else _OF_TWO_CLASSES if len(labels) == 2 else _OF_CLASSES
    for metric in content.metrics or ("",):
        if metric not in menu:
            what = "regression" if content.regression else f"{len(labels)} labels"
            raise no_such(f"metric of {what}", metric, menu, known=METRICS)
    return Task(
        name=name,
        title=content.title or name,
        place=place,
        formats=FORMATS,
        text_columns=content.texts,
        file_columns=content.texts,
        label_column=content.label,
        labels=labels,
        file_labels=labels,
        metrics=tuple(METRICS[metric] for metric in dict.fromkeys(content.metrics)),
        index_columns=(),
        test_splits=(),
    )
