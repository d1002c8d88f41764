"""Scores from elsewhere, which a user gives in a CSV file (`analysis.tables --beside`), beside the dev table."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from analysis.layouts.table import POINTS, Block, Line, Table
from trainables.configuration.spelling import resolve_name
from trainables.data.tasks import TASKS

COLUMNS = ("method", "task", "score", "source")
TITLE = "Given by hand, not tested"
NOTE = 'the scores under "{title}" come from {file}; nothing here shows how they were measured'


def add_given_scores(table: Table, file: Path) -> Table:
    """Add the scores of a CSV file to the dev table, in a block of their own.

    The file has a line for each score in points, with the columns `method`, `task`, `score` and `source`. A row of the
    table has the scores of one method from one source.

    Raises:
        ValueError: the file is missing or malformed, or a task is not a column of the table.
    """
    scores = dict[tuple[str, str], dict[str, float]]()
    for number, line in enumerate(_read_lines(file), start=2):
        where = f"--beside {file}, line {number}"
        method, task, text, source = (str(line[name] or "").strip() for name in COLUMNS)
        if not (method and source):
            raise ValueError(f"{where}: method or source is empty; allowed: a name, and where the score was printed")
        try:
            task = resolve_name(task, [name for name in table.shown if name in (*TASKS, "macro")], what="column")
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        of_row = scores.setdefault((method, source), {})
        if task in of_row:
            raise ValueError(f"{where}: {method} has two scores on {task} from {source}; allowed: one")
        of_row[task] = _read_score(text, where)
    values = [abs(score) for of_row in scores.values() for score in of_row.values()]
    if 0 < max(values) <= 1:
        raise ValueError(f"--beside {file}: every score is at most 1; allowed: points, such as 72.5 for 0.725")
    lines = []
    for (method, source), of_row in scores.items():
        entries = {task: POINTS.entry(score / 100) for task, score in of_row.items()}
        lines.append(Line(f"{method} ({source})", entries, source="given"))
    note = NOTE.format(title=TITLE, file=file.name)
    return replace(table, blocks=[*table.blocks, Block(TITLE, lines)], notes=[*table.notes, note])


def _read_lines(file: Path) -> list[dict[str, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            reader = csv.DictReader(opened, restval="")
            lines = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise ValueError(f"--beside {file} cannot be read: {reason}; allowed: a CSV file") from None
    if {*(reader.fieldnames or ())} != {*COLUMNS} or not lines:
        fault = "has no lines" if lines == [] and reader.fieldnames else f"has the columns {reader.fieldnames}"
        menu = f"the columns {', '.join(COLUMNS)}, and a line for each score"
        raise ValueError(f"--beside {file} {fault}; allowed: {menu}")
    return lines


def _read_score(text: str, where: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not -100 <= score <= 100:
        raise ValueError(f"{where}: score is {text!r}; allowed: points from -100 to 100")
    return score
