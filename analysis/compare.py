"""Test the differences between methods, given predictions that any program wrote.

python -m analysis.compare FILE ... [--baseline METHOD] [--metric [TASK=]METRIC] [--out FOLDER]

Each file has one row per prediction, with the columns method, task, seed, example, label and answer. The tests are the
same as in a study's tables.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd

from analysis.layouts.certainty_tables import tabulate_comparisons
from analysis.layouts.evidence import format_mean
from analysis.layouts.rendering import FORMATS, render
from analysis.layouts.table import Entry, Line, Table
from analysis.statistics.comparisons import compare
from analysis.statistics.samples import Place, Sample, resample
from analysis.studies.stored_predictions import Answers
from analysis.tables import check_own, render_files
from study.storage.addresses import check_folder, make_writable
from study.terminal.command_line import Command, add_once, argument, option
from study.terminal.processes import require_package
from study.terminal.text import counted, format_markdown
from trainables.configuration.error_text import take_first_line
from trainables.configuration.schema import Typed
from trainables.configuration.spelling import is_same_name, resolve_name
from trainables.data.metrics import metric_words
from trainables.data.tasks import TASKS, Task
from trainables.files.atomic_files import write_files

NAMES = ("method", "task", "seed", "split", "draw", "example")  # columns that identify an answer
TEXTS = dict.fromkeys(NAMES, "str")
WITHOUT = {"split": "", "draw": ""}  # default values of columns that a file may lack
COLUMNS = ("method", "task", "seed", "example", "label", "answer")


def _read_parquet(path: Path) -> pd.DataFrame:
    require_package("pyarrow", "this file")
    return pd.read_parquet(path)


_read_csv = partial(pd.read_csv, dtype=TEXTS, na_values=[""], keep_default_na=False, low_memory=False)
READERS: dict[str, Callable[..., Any]] = {  # ending of a file -> function that reads it
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, sep="\t"),
    ".jsonl": partial(pd.read_json, lines=True, dtype=False, precise_float=True),
    ".parquet": _read_parquet,
}
METRICS = {name: name for name in ("accuracy", "f1", "f1_macro", "matthews", "pearson", "spearman")}
METRICS["mcc"] = "matthews"


def compared_tables(paths: Sequence[Path], metrics: Mapping[str, str], baseline: str | None = None) -> list[Table]:
    """Tabulate the mean scores, the comparisons with the baseline, and all other comparisons; skip empty tables.

    Raises:
        ValueError: no two methods share a task, or no method has the name `baseline`.
    """
    samples = resample(read_answers(paths, metrics))
    if baseline is not None:
        baseline = resolve_name(baseline, dict.fromkeys(method for method, _ in samples), what="method in these files")
    compared = compare(samples, baseline)
    if not compared:
        raise ValueError("there is nothing to compare; allowed: at least two methods on one task")
    tables = [_scores(samples), tabulate_comparisons(compared, baseline)]
    return [table for table in tables if table is not None]


def _scores(samples: Mapping[Place, Sample]) -> Table:
    """Tabulate the mean scores with their 95 % intervals."""
    tasks = {task: sample.answers[0].task for (_, task), sample in samples.items()}
    seeds = max(len(sample.scores) for sample in samples.values())
    entries: dict[str, dict[str, Entry]] = {}
    for (method, task), sample in samples.items():
        number = len(sample.scores)
        entries.setdefault(method, {})[task] = replace(format_mean(sample), n=number, off_protocol=number != seeds)
    scored = ", ".join(f"{task.title} by {metric_words(task)}" for task in tasks.values())
    return Table(
        name="scores",
        title=f"Mean scores over {counted(seeds, 'seed')}",
        columns={name: task.title for name, task in tasks.items()},
        lines=[Line(method, line) for method, line in entries.items()],
        caption=(
            f"Scores are in points, with 95 % intervals over seeds and examples; {scored}. The files do not record "
            "searches or earlier analyses of the results, so the tests are not corrected for them."
        ),
    )


# Reading files


def read_answers(paths: Sequence[Path], metrics: Mapping[str, str]) -> dict[tuple[str, str], list[Answers]]:
    """Read all files; return (method, task) -> list of answers, with one entry per seed.

    Args:
        metrics: task -> metric that replaces GLUE's metrics; the key "" stands for all other tasks.

    Raises:
        ValueError: if a file cannot be read, rows contradict each other, or `metrics` lacks or misnames a task.
    """
    rows = pd.concat([_read(path) for path in paths], ignore_index=True)
    rows["task"] = rows["task"].map({name: _task_name(name) for name in rows["task"].unique()})
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
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if path.suffix not in READERS:
        raise ValueError(f"{path}: the type of the file is unknown; allowed: a file that ends in {', '.join(READERS)}")
    try:
        rows: pd.DataFrame = READERS[path.suffix](path)
    except ValueError as error:
        raise ValueError(f"{path}: {take_first_line(error)}") from None
    if missing := [name for name in COLUMNS if name not in rows]:
        raise ValueError(f"{path} lacks the column {missing[0]}; it has {', '.join(map(str, rows.columns))}")
    for name in COLUMNS:
        if len(empty := np.flatnonzero(rows[name].isna())):
            raise ValueError(
                f"{path}: {name} is missing in {len(empty)} of {len(rows)} rows, first in row {empty[0] + 1}"
            )
    for name in ("label", "answer"):
        if len(nested := np.flatnonzero(rows[name].map(pd.api.types.is_list_like))):
            value = rows[name].iloc[nested[0]]
            shown = reprlib.repr(value.tolist() if isinstance(value, np.ndarray) else value)
            raise ValueError(f"{path}: {name} is {shown} in row {nested[0] + 1}; allowed: a class or a number")
    rows = rows.assign(**{name: text for name, text in WITHOUT.items() if name not in rows})
    rows = rows[[*NAMES, "label", "answer"]].astype(TEXTS)
    return rows.assign(**{name: rows[name].fillna(text) for name, text in WITHOUT.items()})


def _task_name(name: str) -> str:
    """Return GLUE's spelling of a task's name, or the name itself if GLUE has no such task."""
    return next((known for known in TASKS if is_same_name(known, name)), name)


def _task(name: str, metric: str | None, splits: Sequence[str]) -> Task:
    """Return GLUE's task of this name, or a task that is scored by `metric`."""
    if metric is not None:
        own = Task(name=name, title=name, text_columns=(), labels=(), metrics=(), file_columns=())
        return msgspec.structs.replace(TASKS.get(name, own), metrics=(metric,), dev_splits=("dev",))
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
    """Sort the answers of every seed by example; return method -> answers of each seed."""
    labels, answers = _as_numbers(task, rows)
    number = pd.to_numeric(rows["example"], errors="coerce")
    rows = rows.assign(label=labels, answer=answers, number=number)
    rows = rows.sort_values(["split", "number", "example"], kind="stable")
    rows = rows.assign(position=rows.groupby(["split", "example"], sort=False).ngroup())
    examples = rows.drop_duplicates("position")
    ids, labels = examples["example"].to_numpy(), examples["label"].to_numpy()
    if len(other := np.flatnonzero(rows["label"].to_numpy() != labels[rows["position"]])):
        raise ValueError(f"{task.name}: example {rows['example'].iloc[other[0]]} has more than one label")
    splits = examples["split"].to_numpy(str) if len(task.dev_splits) > 1 else np.repeat(task.dev_splits, len(ids))
    found: dict[str, list[Answers]] = {}
    for (method, seed), own in rows.groupby(["method", "seed"], sort=False):
        drawn = _arrange_answers(f"{method} on {task.name}, seed {seed}", own, ids)
        found.setdefault(str(method), []).append(Answers(task, ids, splits, labels, drawn))
    if alone := [method for method, seeds in found.items() if len(seeds) < 2]:
        raise ValueError(
            f"{alone[0]} on {task.name} has one seed; allowed: at least two, because a test needs several scores"
        )
    return found


def _arrange_answers(who: str, rows: pd.DataFrame, ids: np.ndarray) -> np.ndarray:
    """Put the answers of one method and seed into an array, (draws, n)."""
    if len(again := rows[rows.duplicated(["draw", "position"])]):
        raise ValueError(
            f"{who}: example {again['example'].iloc[0]} occurs twice; allowed: once, or once per draw (column draw)"
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

    Unknown class names become further classes.
    """
    classes = {name: number for number, name in enumerate(task.labels)}
    named = pd.concat([rows["label"], rows["answer"]]).astype(object).map(lambda value: classes.get(value, value))
    numbers = np.array(pd.to_numeric(named, errors="coerce"), dtype=float)
    texts = np.isnan(numbers)
    if {"pearson", "spearman"} & {*task.metrics}:
        allowed, words = np.isfinite(numbers), "a number"
    elif {"f1", "matthews"} & {*task.metrics}:
        allowed, words = np.isin(numbers, (0, 1)), ", ".join(["0", "1", *task.labels])
    else:
        allowed, words = texts | (numbers % 1 == 0), "a class, as a whole number or a text"
        numbers[texts] = numbers[~texts].min(initial=0.0) - 1 - pd.factorize(named[texts].astype(str))[0]
    if len(wrong := np.flatnonzero(~allowed)):
        column, row = ("label", "answer")[wrong[0] // len(rows)], rows.iloc[wrong[0] % len(rows)]
        who = f"{row['method']} on {task.name}, seed {row['seed']}, example {row['example']}"
        raise ValueError(f"{who}: {column} is {row[column]}; allowed for {' and '.join(task.metrics)}: {words}")
    return numbers.reshape(2, -1)


# The command


class Options(Typed, frozen=True, kw_only=True):
    """Arguments of `python -m analysis.compare`."""

    files: Annotated[list[str], argument("FILE", f"columns: {', '.join(COLUMNS)}; endings: {', '.join(READERS)}")]
    baseline: Annotated[str | None, option("method with which all other methods are compared", "METHOD")] = None
    metric: Annotated[list[str], option("metric of a task, or of all tasks; default: GLUE's", "[TASK=]METRIC")] = []
    out: Annotated[str | None, option("also write the tables to this folder, in all formats", "FOLDER")] = None


def run(options: Options) -> int:
    """Print the tables; with `--out`, also write them to that folder."""
    metrics = dict[str, str]()
    for text in options.metric:
        task, _, metric = text.rpartition("=")
        add_once(metrics, _task_name(task), METRICS[resolve_name(metric, METRICS, what="metric")], "--metric")
    if options.out is not None:
        check_folder("--out", Path(options.out))
    tables = compared_tables([Path(name) for name in options.files], metrics, options.baseline)
    files = render_files(tables, FORMATS)
    if options.out is not None:
        check_own(Path(options.out), files)
    print(format_markdown("\n".join(render(table, "md") for table in tables), sys.stdout), end="")
    if options.out is not None:
        make_writable(options.out)
        write_files({Path(options.out) / name: content for name, content in files.items()})
    return 0


main = Command(
    "analysis.compare", Options, "Test the differences between methods, given predictions that any program wrote.", run
)

if __name__ == "__main__":
    sys.exit(main())
