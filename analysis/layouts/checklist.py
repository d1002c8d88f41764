"""Checklists of reproducibility, filled in: `checklist.toml` has the items, this the answers that a study gives.

Also the table of the data that the answers are about. An answer is Yes, No, or n/a; No stands where the study cannot
show what is asked for, also where an author may know it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from analysis.layouts.evidence import Evidence, make_table
from analysis.layouts.notes import own_task_notes, provenance, seed_notes
from analysis.layouts.table import Column, Entry, Line, Table
from analysis.statistics.costs import SECONDS, UNITS, Compute, row_ledger, speed_facts
from analysis.studies.cells import Cell
from analysis.studies.load import Study
from analysis.studies.stored_predictions import predictions_of
from study.facts.plain_words import counted
from study.facts.record import Record
from study.plans.samplers import describe_sampler
from study.plans.select_by import describe_select_by
from trainables.data.metrics import metric_words
from trainables.data.tasks import TASKS
from trainables.licences import OF_TASKS, UNKNOWN, licence_of_backbone

FILE = Path(__file__).parents[1] / "checklist.toml"


class Answer(NamedTuple):
    """What a study answers to one question, and where that is shown or why it is not."""

    holds: bool | None  # None: the question does not apply
    evidence: str


def checklist_table(evidence: Evidence, tables: Collection[str]) -> Table:
    """Every item of every checklist with its answer; `tables` are the names of the other tables of the study."""
    answered, checklists = answers(evidence, tables), _checklists()
    columns: list[Column[None]] = [Column(name, name, lambda _: None) for name in ("asked", "answer", "evidence")]
    sources = "; ".join(f"{name}: {own['title']} ({own['source']})" for name, own in checklists.items())
    return make_table(
        evidence,
        "checklist",
        title="Checklist of reproducibility{data}",
        columns=columns,
        lines=[_line(name, item, answered) for name, own in checklists.items() for item in own["items"]],
        first_column="item",
        caption=f"Items in our words; No: this study does not show it, though its author may know. {sources}.",
        unit="",
        is_prose=True,
    )


@cache
def _checklists() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text())


def _line(name: str, item: list[str], answered: Mapping[str, Answer]) -> Line:
    number, asked, keys = item
    own = [answered[key] for key in keys.split()]
    holds = None if all(one.holds is None for one in own) else all(one.holds is not False for one in own)
    texts = {
        "asked": asked,
        "answer": "n/a" if holds is None else "Yes" if holds else "No",
        "evidence": "; ".join(one.evidence for one in own),
    }
    return Line(f"{name} {number}", {column: Entry.of_text(text) for column, text in texts.items()})


def answers(evidence: Evidence, tables: Collection[str]) -> dict[str, Answer]:
    """The answers by their names in `checklist.toml`."""
    studies, rows, cells = evidence.studies, evidence.rows, [cell for _, cell in evidence.cells]
    records = [record for cell in cells for record in cell.arm_records]
    made, rules = provenance(records), studies[0].protocol
    data = _licence_gaps(evidence)
    return _search_answers(evidence, tables) | {
        "splits": _shown(
            all(map(_sizes, cells)), "tables/data.md, columns train and dev", "a task without a completed trial"
        ),
        "parameters": _shown(bool(records), _parameters(evidence), "no trial has ended"),
        "compute": _shown(
            bool(records), f"{_total(evidence)}: tables/compute.md, column together", "no trial has ended"
        ),
        "runtime": _shown(bool(records), _average(evidence), "no trial has ended"),
        "project": Answer(False, "time of all studies in a folder, failed trials too: python -m study.status FOLDER"),
        "devices": _devices(records),
        "memory": Answer(False, "the memory of the machines is not recorded"),
        "settings": Answer(True, "plan.json has every field of every arm"),
        "spread": _shown(
            bool(evidence.samples),
            "tables/dev.md, lines mean: 95 % interval over seeds and dev examples",
            "one seed, or no stored predictions: no interval",
        ),
        "statistic": Answer(
            True, f"tables/dev.md: median over {counted(len(studies[0].seeds), 'seed')}, never the best"
        ),
        "packages": _shown(bool(made), f"constraints.txt; {made.get('versions')}", "no trial has ended"),
        "reproduction": Answer(True, "plan.json, field command; python -m analysis.verify makes every number again"),
        "data": _shown(*_data_source(studies)),
        "code": Answer(False, f"no address of the code is recorded; commit {made.get('commit', 'unknown')}"),
        "licences": _shown(not data, "tables/data.md, columns of licences", f"unknown: {', '.join(data)}"),
        "validation": Answer(None, "no test score is reported: all scores are of dev"),
        "held_out": _shown(
            rules.selection == "holdout",
            "a slice of train selects; dev is read once",
            "dev selects epoch and configuration, and is reported; --selection holdout",
        ),
        "seeds": Answer(True, ", ".join(map(str, studies[0].seeds))),
        "all_seeds": _shown(
            all(cell.state == "complete" for cell in cells), "tables/dev.md", "; ".join(seed_notes(rows))
        ),
        "tuning_code": Answer(True, "packages study and search_spaces"),
    }


def _search_answers(evidence: Evidence, tables: Collection[str]) -> dict[str, Answer]:
    """The answers about the search; without one, nothing applies."""
    rules, cells = evidence.studies[0].protocol, evidence.cells
    trials = {label: 0 for label, _ in cells}
    for label, cell in cells:
        trials[label] += sum(record.phase == "search" for record in cell.arm_records)
    keys = ("ranges", "winners", "trials", "sampler", "expected", "metric", "same_ranges", "same_budget")
    if not any(cell.arm.decided for _, cell in cells):
        return dict.fromkeys(
            (*keys, "same_hardware", "all_tuned", "search_seeds"), Answer(None, "nothing was searched")
        )
    numbers = ", ".join(f"{label} {number}" for label, number in trials.items())
    most = max(cell.arm.samples for _, cell in cells)
    untuned = [f"{label}/{cell.task}" for label, cell in cells if not cell.arm.decided]
    unlike = _unlike_ranges([cell for _, cell in cells])
    launches = [launch for study in evidence.studies for launch in study.facts.launches.values()]
    has_limit = any(launch.began.max_gpu_hours is not None for launch in launches)
    devices = sorted({record.device or "unknown" for _, cell in cells for record in cell.arm_records})
    return {
        "ranges": Answer(True, "tables/winners.md, lines searched in"),
        "winners": _shown("winners" in tables, "tables/winners.md; best.toml", "no search is over"),
        "trials": Answer(
            True, f"search trials: {numbers}; with failed and stopped ones tables/compute.md, column trials"
        ),
        "sampler": Answer(
            True,
            f"{describe_sampler(rules.sampler, most, rules.early_stopping)}, by Optuna; chosen by the selection score "
            f"on {rules.selection}{f' ({describe_select_by(rules.select_by)})' if rules.select_by else ''}",
        ),
        "expected": _shown(
            "equal_compute" in tables, "tables/equal_compute.md", "fewer than 10 completed search trials, or one method"
        ),
        "metric": Answer(True, "the task's GLUE metric: tables/data.md, column metric"),
        "same_ranges": _shown(
            not unlike, "tables/winners.md, lines searched in", f"other ranges by method: {', '.join(unlike)}"
        ),
        "same_budget": _shown(len(set(trials.values())) == 1, numbers, f"search trials: {numbers}"),
        "same_hardware": _shown(len(devices) == 1, ", ".join(devices), f"devices differ: {', '.join(devices)}")
        if has_limit
        else Answer(None, "the budget is a number of trials"),
        "all_tuned": _shown(not untuned, "tables/winners.md", f"nothing was searched: {', '.join(untuned)}"),
        "search_seeds": Answer(True, "one of its own for each search trial, none of them a test seed: records.jsonl"),
    }


def _shown(holds: bool, shown: str, missing: str) -> Answer:
    return Answer(holds, shown if holds else missing)


def _devices(records: list[Record]) -> Answer:
    names = sorted({record.device for record in records if record.device})
    is_named = bool(names) and not any(name == "cpu" or name.startswith("cuda:") for name in names)
    return _shown(
        is_named, ", ".join(names), f"the kind of processor is not recorded: {', '.join(names) or 'no trial'}"
    )


def _parameters(evidence: Evidence) -> str:
    sizes = {label: speed_facts(cell)["parameters"] for label, cell in evidence.cells}
    return ", ".join(f"{label} {size:.3g} million" for label, size in sizes.items() if size is not None)


def _total(evidence: Evidence) -> str:
    totals = [entry.total for entry in row_ledger(evidence.rows)]
    return Compute(*(sum(getattr(total, unit) for total in totals) for unit in UNITS)).in_words()


def _average(evidence: Evidence) -> str:
    """Minutes by the clock of a completed confirm trial, by row."""
    seconds: dict[str, list[float]] = {}
    for label, cell in evidence.cells:
        seconds.setdefault(label, []).extend(record.wall_seconds for record in cell.records)
    means = [f"{label} {sum(own) / len(own) / SECONDS['min']:.3g} min" for label, own in seconds.items() if own]
    return f"a confirm trial by the clock: {', '.join(means)}; by arm tables/compute_of_arms.md"


def _data_source(studies: list[Study]) -> tuple[bool, str, str]:
    asked, own = studies[0].file.plan.asked, [name for study in studies for name in study.file.plan.own_tasks or {}]
    sources = {"hub": "nyu-mll/glue on the hub", "mini": "generated by trainables/data/mini_glue.py"}
    missing = f"tasks of one's own: {', '.join(own)}" if own else "files of a folder; their fingerprints: plan.json"
    return asked.data in sources and not own, sources.get(asked.data, ""), missing


def _unlike_ranges(cells: list[Cell]) -> list[str]:
    """Fields that several methods have, and that are not searched alike on one task."""
    values: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        for field in cell.arm.decided:
            others = [str(other.arm.field(field)) for other in cells if other.task == cell.task]
            values.setdefault((field, cell.task), set()).update(text for text in others if text != "absent")
    return list(dict.fromkeys(field for (field, _), texts in values.items() if len(texts) > 1))


def _licence_gaps(evidence: Evidence) -> list[str]:
    """The tasks and backbones without a known licence; what is generated or made here has none to know."""
    arms = [cell.arm for _, cell in evidence.cells]
    tasks = [] if evidence.on_mini else [TASKS[arm.task].title for arm in arms if _licence(arm.task) == UNKNOWN]
    made = {name for study in evidence.studies for name in study.file.plan.untrained}
    unknown = [arm.whole_backbone for arm in arms if licence_of_backbone(arm.whole_backbone) == UNKNOWN]
    backbones = [f"backbone {Path(name).name}" for name in unknown if name not in made and not evidence.on_mini]
    return list(dict.fromkeys([*tasks, *backbones]))


# ---- the data


def _licence(task: str) -> str:
    return OF_TASKS.get(task, UNKNOWN)


def _sizes(cell: Cell) -> tuple[int, int] | None:
    """Rows that trials trained on and that dev has, as the trials have had them; None before one was confirmed."""
    stored = predictions_of(cell)
    record: Record | None = cell.records[0] if cell.records else None
    if record is None or not record.train_examples or not record.epochs or not stored:
        return None
    return record.train_examples // record.epochs, len(stored[0].labels)


def _official(task: str, split: str) -> int | None:
    names = {"train": (TASKS[task].train_split,), "dev": TASKS[task].dev_splits, "test": TASKS[task].test_splits}[split]
    return sum(TASKS[task].sizes.get(name, 0) for name in names) or None


def _count(number: int | None) -> Entry:
    return Entry() if number is None else Entry(f"{number:,}", {"": str(number)})


DATA: list[Column[Cell]] = [
    Column("train", "train", lambda cell: _count((_sizes(cell) or (None, None))[0])),
    Column("dev", "dev", lambda cell: _count((_sizes(cell) or (None, None))[1])),
    *(
        Column(f"official_{split}", f"official {split}", lambda cell, split=split: _count(_official(cell.task, split)))  # type: ignore[misc]
        for split in ("train", "dev", "test")
    ),
    Column("metric", "metric", lambda cell: Entry.of_text(metric_words(TASKS[cell.task]))),
    Column("licence", "licence", lambda cell: Entry.of_text(_licence(cell.task))),
    Column(
        "backbone_licence",
        "backbone's licence",
        lambda cell: Entry.of_text(licence_of_backbone(cell.arm.whole_backbone)),
    ),
]


def data_table(evidence: Evidence) -> Table:
    """The rows of each task by split, here and officially, with metric and licences."""
    cells: dict[str, Cell] = {}
    for _, cell in evidence.cells:
        if cell.task not in cells or not cells[cell.task].records:
            cells[cell.task] = cell
    generated = " The tasks are generated here; official numbers and licences are GLUE's." * evidence.on_mini
    return make_table(
        evidence,
        "data",
        title="Data{data}",
        columns=DATA,
        subjects=[(TASKS[task].title, cell) for task, cell in cells.items()],
        first_column="task",
        caption=f"Rows that trials trained on and were scored on; the test split is not read.{generated}",
        notes=own_task_notes(evidence.studies),
        unit="",
    )
