"""Read predictions that any program wrote as CSV, TSV, JSON Lines or Parquet files, with one row per answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analysis.studies.stored_predictions import Answers
from trainables.data.tasks import TASKS, Task
from trainables.spelling import is_same_name, resolve_name

NAMES = ("method", "task", "seed", "split", "draw", "example")  # columns that identify an answer
WITHOUT = {"split": "", "draw": ""}  # default values of columns that a file may lack
COLUMNS = ("method", "task", "seed", "example", "label", "answer")
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
METRICS = {name: name for name in ("accuracy", "f1", "f1_macro", "matthews", "pearson", "spearman")} | {
    "mcc": "matthews"
}
OF_TWO_CLASSES = ("f1", "matthews")
OF_NUMBERS = ("pearson", "spearman")


def resolve_metric(name: str) -> str:
    """Return the metric that a user's spelling means: `MCC` gives `matthews`.

    Raises:
        ValueError: if no metric has this name.
    """
    return METRICS[resolve_name(name, METRICS, what="metric")]


def read_answers(paths: Sequence[Path], metrics: Mapping[str, str]) -> dict[tuple[str, str], list[Answers]]:
    """Read all files; return (method, task) -> list of answers, one entry per seed.

    Args:
        metrics: task -> metric that replaces GLUE's metrics. The metric under the key "" applies to all other tasks.

    Raises:
        ValueError: if a file cannot be read, rows contradict each other, or a metric is missing or fits no task.
    """
    rows = pd.concat([_read(path) for path in paths], ignore_index=True)
    rows["task"] = rows["task"].map({name: _task_name(name) for name in rows["task"].unique()})
    metrics = {_task_name(name): metric for name, metric in metrics.items()}
    if unknown := [name for name in metrics if name and name not in {*rows["task"]}]:
        raise ValueError(f"--metric {unknown[0]}={metrics[unknown[0]]}: allowed: {', '.join(rows['task'].unique())}")
    answered = {}
    for name, own in rows.groupby("task", sort=False):
        task = _task(str(name), metrics.get(str(name), metrics.get("")), list(own["split"].unique()))
        for method, seeds in _answers(task, own).items():
            answered[method, task.name] = seeds
    return answered


def _read(path: Path) -> pd.DataFrame:
    """Read the rows of a file. Names become text. Labels and answers become numbers if their column is numeric."""
    texts = dict.fromkeys(NAMES, "str")
    table = partial(pd.read_csv, dtype=texts, na_values=[""], keep_default_na=False, low_memory=False)
    readers: dict[str, Callable[..., Any]] = {
        ".csv": table,
        ".tsv": partial(table, sep="\t"),
        ".jsonl": partial(pd.read_json, lines=True, dtype=False, precise_float=True),
        ".parquet": pd.read_parquet,
    }
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if path.suffix not in readers:
        raise ValueError(f"{path}: the type of the file is unknown; allowed: a file that ends in {', '.join(readers)}")
    try:
        rows: pd.DataFrame = readers[path.suffix](path)
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from None
    if missing := [name for name in COLUMNS if name not in rows]:
        raise ValueError(f"{path} lacks the column {missing[0]}; it has {', '.join(map(str, rows.columns))}")
    for name in COLUMNS:
        if len(empty := np.flatnonzero(rows[name].isna())):
            raise ValueError(
                f"{path}: {name} is missing in {len(empty)} of {len(rows)} rows, first in row {empty[0] + 1}"
            )
    rows = rows.assign(**{name: text for name, text in WITHOUT.items() if name not in rows})
    return rows[[*NAMES, "label", "answer"]].astype(texts)


def _task_name(name: str) -> str:
    """Return GLUE's spelling of a task's name, or the name itself if GLUE has no such task."""
    return next((known for known in TASKS if is_same_name(known, name)), name)


def _task(name: str, metric: str | None, splits: Sequence[str]) -> Task:
    """Return GLUE's task of this name, or a task that is scored by `metric`."""
    if metric is not None:
        own = Task(name=name, title=name, text_columns=(), labels=(), metrics=(), file_columns=())
        return replace(TASKS.get(name, own), metrics=(metric,), dev_splits=("dev",))
    if name not in TASKS:
        menu = ", ".join(METRICS)
        raise ValueError(
            f"{name} is not a GLUE task; give its metric with --metric {name}=METRIC, where METRIC is one of {menu}"
        )
    task = TASKS[name]
    if len(task.dev_splits) > 1 and {*splits} != {*task.dev_splits}:
        has, both = ", ".join(filter(None, splits)) or "no values", " and ".join(task.dev_splits)
        raise ValueError(f"{name} has {has} in the column `split`; allowed: {both}, or --metric {name}=accuracy")
    return task


def _answers(task: Task, rows: pd.DataFrame) -> dict[str, list[Answers]]:
    """Arrange all answers in the same order of examples; return method -> answers, one entry per seed."""
    rows = _numbered(task, rows)
    examples = rows.drop_duplicates("position")
    ids, labels = examples["example"].to_numpy(), examples["label"].to_numpy()
    if len(other := np.flatnonzero(rows["label"].to_numpy() != labels[rows["position"]])):
        raise ValueError(f"{task.name}: example {rows['example'].iloc[other[0]]} has more than one label")
    splits = examples["split"].to_numpy(str) if len(task.dev_splits) > 1 else np.repeat(task.dev_splits, len(ids))
    found: dict[str, list[Answers]] = {}
    for (method, seed), own in rows.groupby(["method", "seed"], sort=False):
        answers = _arrange_answers(f"{method} on {task.name}, seed {seed}", own, ids)
        found.setdefault(str(method), []).append(Answers(task, ids, splits, labels, answers))
    if alone := [method for method, seeds in found.items() if len(seeds) < 2]:
        raise ValueError(
            f"{alone[0]} on {task.name} has one seed; allowed: at least two, because a test needs several scores"
        )
    return found


def _numbered(task: Task, rows: pd.DataFrame) -> pd.DataFrame:
    """Convert labels and answers to numbers; sort rows by example, and number the examples in the column `position`."""
    labels, answers = _as_numbers(task, rows)
    number = pd.to_numeric(rows["example"], errors="coerce")
    rows = rows.assign(label=labels, answer=answers, number=number)
    rows = rows.sort_values(["split", "number", "example"], kind="stable")
    return rows.assign(position=rows.groupby(["split", "example"], sort=False).ngroup())


def _arrange_answers(who: str, rows: pd.DataFrame, ids: np.ndarray) -> np.ndarray:
    """Arrange the answers of one seed of a method as (draws, n)."""
    if len(again := rows[rows.duplicated(["draw", "position"])]):
        raise ValueError(
            f"{who}: example {again['example'].iloc[0]} occurs twice; allowed: once, or once "
            "per number in the column draw"
        )
    answers = rows.pivot(index="draw", columns="position", values="answer").reindex(columns=range(len(ids)))
    if len(missing := np.flatnonzero(answers.isna().any())):
        raise ValueError(
            f"{who}: {len(missing)} of {len(ids)} examples are missing, such as {ids[missing[0]]}; allowed: the same "
            "examples for every seed of every method"
        )
    return answers.to_numpy()


def _as_numbers(task: Task, rows: pd.DataFrame) -> np.ndarray:
    """Convert labels and answers to scores or class numbers, (2, rows).

    Class names that the task does not have become further classes.
    """
    classes = {name: number for number, name in enumerate(task.labels)}
    named = pd.concat([rows["label"], rows["answer"]]).astype(object).map(lambda value: classes.get(value, value))
    numbers = np.array(pd.to_numeric(named, errors="coerce"), dtype=float)
    texts = np.isnan(numbers)
    if {*OF_NUMBERS} & {*task.metrics}:
        allowed, words = np.isfinite(numbers), "a number"
    elif {*OF_TWO_CLASSES} & {*task.metrics}:
        allowed, words = np.isin(numbers, (0, 1)), ", ".join(["0", "1", *task.labels])
    else:
        allowed, words = texts | (numbers % 1 == 0), "a class, as a whole number or a text"
        numbers[texts] = numbers[~texts].min(initial=0.0) - 1 - pd.factorize(named[texts].astype(str))[0]
    if len(wrong := np.flatnonzero(~allowed)):
        column, row = ("label", "answer")[wrong[0] // len(rows)], rows.iloc[wrong[0] % len(rows)]
        who = f"{row['method']} on {task.name}, seed {row['seed']}, example {row['example']}"
        raise ValueError(f"{who}: {column} is {row[column]}; allowed for {' and '.join(task.metrics)}: {words}")
    return numbers.reshape(2, -1)
