"""Users' own tasks: each is a folder with a `task.toml` and data files; docs/own_task.md has an example."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from trainables.configuration.schema import Typed, from_plain
from trainables.configuration.spelling import is_same_name, unknown_name_error
from trainables.data.tasks import GLUE_TASKS, Task

FILE = "task.toml"
FORMATS = (".tsv", ".csv", ".jsonl")
MOST_LABELS = 127  # predicted classes are stored as int8
METRICS = {  # name in scikit-learn or scipy -> name in records
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
# Names that menus and the columns of tables use.
_TAKEN = ("ax", "all", "block", "macro", "mean", "method", "parameters", "relative", "source", "speed_up", "unit")


class TaskFile(Typed, frozen=True, kw_only=True):
    """Content of a task.toml, which defines a user's own task."""

    texts: tuple[str, ...]  # names of the one or two text columns
    label: str = "label"  # name of the label's column
    labels: tuple[str | int | bool, ...] = ()  # labels as the files write them, in class order; () for a regression
    regression: bool = False
    metrics: tuple[str, ...]  # keys of METRICS; the task's score is their mean
    title: str = ""  # name in tables; "": the name of the folder


def read_tasks(folder: str | Path) -> list[Task]:
    """Read every `folder/*/task.toml`, in the order of the tasks' names. Data files are not opened.

    Raises:
        ValueError: if a task.toml is invalid, or a task's name is invalid or taken. The message names file and value.
    """
    return [_read_task(file) for file in sorted(Path(folder).resolve().glob(f"[!.]*/{FILE}"))]


def _read_task(file: Path) -> Task:
    name = file.parent.name
    if not _IS_NAME.fullmatch(name):
        allowed = "a lower-case letter, then lower-case letters, digits, - and _"
        raise ValueError(f"{file}: the folder's name, {name!r}, is not a valid task name; allowed: {allowed}")
    if taken := next((taken for taken in (*GLUE_TASKS, *_TAKEN) if is_same_name(taken, name)), None):
        raise ValueError(
            f"{file}: a task cannot be named {name!r}, because the name {taken} is taken; rename the folder"
        )
    try:
        fields = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {getattr(error, 'strerror', None) or error}; allowed: a TOML file") from None
    content = from_plain(TaskFile, fields, where=str(file))
    try:
        return _make_task(name, content, place=str(file.parent))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _make_task(name: str, content: TaskFile, *, place: str) -> Task:
    labels = tuple(str(label).lower() if isinstance(label, bool) else str(label) for label in content.labels)
    if not 1 <= len(content.texts) <= 2 or len({*content.texts, content.label}) <= len(content.texts):
        allowed = f"one or two different columns, other than the label column {content.label!r}"
        raise ValueError(f"texts is {list(content.texts)}; allowed: {allowed}")
    if content.regression == bool(labels):
        raise ValueError("a task must have either labels = [...] or regression = true")
    if labels and not 2 <= len({*labels}) == len(labels) <= MOST_LABELS:
        raise ValueError(f"labels is {list(labels)}; allowed: 2 to {MOST_LABELS} different labels")
    if odd := next((text for text in (content.title, *labels) if not text.isprintable()), None):
        raise ValueError(f"{odd!r} has unprintable characters; title and labels may have only printable ones")
    menu = _OF_SCORES if content.regression else _OF_TWO_CLASSES if len(labels) == 2 else _OF_CLASSES
    for metric in content.metrics or ("",):
        if metric not in menu:
            what = "regression" if content.regression else f"{len(labels)} labels"
            raise unknown_name_error(f"metric of {what}", metric, menu, known=METRICS)
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
        index_columns=() if "index" in (*content.texts, content.label) else ("index",),
        test_splits=(),
    )
