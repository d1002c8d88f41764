"""Reproducibility checklists, filled in for a study, and the table of the study's data.

`checklist.toml` has the items and the texts of the answers; this module chooses Yes, No or n/a. The answer No means
that the study does not show what the item asks for, even if the study's author knows it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from analysis.layouts.evidence import Evidence, add_provenance, make_table
from analysis.layouts.protocol_notes import collect_provenance, list_repeated_texts
from analysis.layouts.search_notes import first_from_notes, format_unequal_counts, seed_notes
from analysis.layouts.table import Entry, Line, Table, text_table
from analysis.statistics.costs import format_time, median_over_seeds, row_ledger, sum_compute
from analysis.studies.cells import Cell, find_repeats
from analysis.studies.load import Study
from analysis.studies.stored_predictions import read_cell_predictions
from study.plans.samplers import describe_sampler, describe_select_by
from study.terminal.text import counted
from trainables.data.metrics import metric_words
from trainables.data.repeated_texts import describe_repeats
from trainables.data.tasks import LICENCES, TASKS
from trainables.encoders.backbone_names import find_licence

FILE = Path(__file__).parents[1] / "checklist.toml"


Found = tuple[bool | None, str]  # the answer to a question (None: it does not apply), and words for its text


class Answer(NamedTuple):
    """The answer to one question about a study, with the evidence for this answer."""

    holds: bool | None  # None: the question does not apply
    evidence: str


def checklist_table(evidence: Evidence, tables: Collection[str]) -> Table:
    """Tabulate every checklist item with its answer; `tables` are the names of the study's other tables."""
    answered, checklists = answers(evidence, tables), _read_checklists()
    sources = "; ".join(
        f"{name}: {checklist['title']} ({checklist['source']})" for name, checklist in checklists.items()
    )
    table = text_table(
        "checklist",
        title="Checklist of reproducibility{data}",
        first_column="item",
        lines=[
            (f"{name} {number}", {"asked": question} | _answer_item([answered[key] for key in keys.split()]))
            for name, checklist in checklists.items()
            for number, question, keys in checklist["items"]
        ],
        caption="The items are paraphrased. The answer No means that this study does not show what the item asks for, "
        f"even if the study's author knows it. {sources}.",
        is_prose=True,
    )
    return add_provenance(evidence, table)


@cache
def _read_file() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text())


def _read_checklists() -> dict[str, dict[str, Any]]:
    return {name: part for name, part in _read_file().items() if "items" in part}


def _answer_item(parts: list[Answer]) -> dict[str, str]:
    """Combine the answers to the questions of one item.

    The item's answer is No if the answer to any question is No. It is n/a if no question applies, and otherwise Yes.
    """
    values = {part.holds for part in parts}
    answer = "No" if False in values else "Yes" if True in values else "n/a"
    return {"answer": answer, "evidence": "; ".join(part.evidence for part in parts)}


def answers(evidence: Evidence, tables: Collection[str]) -> dict[str, Answer]:
    """Answer every question of the checklists. The keys are the names of the answers in `checklist.toml`."""
    studies, cells = evidence.studies, [cell for _, cell in evidence.cells]
    records = [record for cell in cells for record in cell.arm_records]
    made, unlicensed, analyses = collect_provenance(records), _find_licence_gaps(evidence), evidence.interim_analyses
    seeds = sorted({seed for study in studies for arm in study.plan.arms for seed in arm.seeds})
    kinds = sorted({record.device for record in records if record.device})
    found: dict[str, Found] = {
        "splits": ({cell.task for cell in cells} == {cell.task for cell in cells if _read_sizes(cell)}, ""),
        "parameters": (bool(records), _describe_parameters(evidence)),
        "compute": (bool(records), sum_compute(entry.total for entry in row_ledger(evidence.rows)).describe()),
        "runtime": (bool(records), _describe_mean_times(evidence)),
        "devices": (
            bool(kinds) and not any(kind == "cpu" or kind.startswith("cuda:") for kind in kinds),
            ", ".join(kinds) or "no trial",
        ),
        "spread": (bool(evidence.samples), ""),
        "statistic": (True, counted(len(studies[0].seeds), "seed")),
        "packages": (bool(made), str(made.get("versions"))),
        "data": _describe_data_source(studies),
        "code": (False, str(made.get("commit", "unknown"))),
        "licences": (not unlicensed, ", ".join(unlicensed)),
        "validation": (True if "scores_on_test" in tables else None, ""),
        "held_out": (
            studies[0].protocol.selection == "holdout",
            f"{len(analyses)} times: with {', then '.join(analyses)}" if len(analyses) > 1 else "once",
        ),
        "overlap": _describe_overlap(cells),
        "seeds": (True, ", ".join(map(str, seeds))),
        "all_seeds": (all(cell.state == "complete" for cell in cells), "; ".join(seed_notes(evidence.rows))),
    }
    return _fill_answers("answers", found) | _answer_search_questions(evidence, tables)


def _describe_overlap(cells: Iterable[Cell]) -> Found:
    """Return whether train and dev have different texts, and the numbers of repeated texts."""
    repeats = list_repeated_texts(cells)
    if not repeats:
        return None, ""
    return not any(counted.is_notable for counted in repeats.values()), describe_repeats(repeats)


def _answer_search_questions(evidence: Evidence, tables: Collection[str]) -> dict[str, Answer]:
    """Answer the questions about the search; if nothing was searched, every answer is n/a."""
    rules, cells = evidence.studies[0].protocol, [cell for _, cell in evidence.cells]
    if not any(cell.arm.searched_fields for cell in cells):
        return dict.fromkeys(_read_file()["search_answers"], Answer(None, "nothing was searched"))
    trials = dict.fromkeys((label for label, _ in evidence.cells), 0)
    for label, cell in evidence.cells:
        trials[label] += _count_search_trials(cell)
    unlike_budgets, began = format_unequal_counts(evidence.rows, _count_search_trials), first_from_notes(evidence.rows)
    untuned = [f"{label}/{cell.task}" for label, cell in evidence.cells if not cell.arm.searched_fields]
    unlike, numbers = _find_unlike_ranges(cells), ", ".join(f"{label} {number}" for label, number in trials.items())
    launches = [launch for study in evidence.studies for launch in study.facts.launches.values()]
    has_limit = any(launch.began.max_gpu_hours is not None for launch in launches)
    devices = sorted({record.device or "unknown" for cell in cells for record in cell.arm_records})
    sampler = describe_sampler(rules.sampler, max(cell.arm.samples for cell in cells), rules.early_stopping)
    goal = describe_select_by(rules.select_by) if rules.select_by else ""
    chosen = f"chosen by the selection score on {rules.selection}{f' ({goal})' if goal else ''}"
    found: dict[str, Found] = {
        "winners": ("winners" in tables, ""),
        "trials": (True, numbers),
        "sampler": (True, f"{sampler}, by Optuna; {chosen}"),
        "expected": ("equal_compute" in tables, ""),
        "metric": (True, goal or "the task's GLUE metric"),
        "same_ranges": (not unlike, ", ".join(unlike)),
        "same_budget": (not unlike_budgets and not began, "; ".join([unlike_budgets or numbers, *began])),
        "same_hardware": (len(devices) == 1 if has_limit else None, ", ".join(devices)),
        "all_tuned": (not untuned, ", ".join(untuned)),
    }
    return _fill_answers("search_answers", found)


def _count_search_trials(cell: Cell) -> int:
    return sum(record.phase == "search" for repeat in find_repeats(cell) for record in repeat.arm_records)


def _fill_answers(part: str, found: Mapping[str, Found]) -> dict[str, Answer]:
    """Fill in the texts of the answers in one part of `checklist.toml`.

    Args:
        part: name of the part.
        found: question -> (answer, words for the placeholder `{}`). All other questions have a fixed answer.
    """
    holds = {"yes": True, "no": False, "na": None}
    answered = {}
    for name, texts in _read_file()[part].items():
        own, words = found.get(name, (holds[next(iter(texts))], ""))
        text = next(text for key, text in texts.items() if holds[key] == own)
        answered[name] = Answer(own, text.format(words))
    return answered


def _describe_parameters(evidence: Evidence) -> str:
    sizes = {label: median_over_seeds(cell, "num_parameters") for label, cell in evidence.cells}
    return ", ".join(f"{label} {size / 1e6:.3g} million" for label, size in sizes.items() if size is not None)


def _describe_mean_times(evidence: Evidence) -> str:
    """Describe the mean wall-clock time of each row's completed confirm trials, in minutes."""
    seconds: dict[str, list[float]] = {}
    for label, cell in evidence.cells:
        seconds.setdefault(label, []).extend(record.wall_seconds for record in cell.records)
    means = [f"{label} {format_time(fmean(times), 'min')}" for label, times in seconds.items() if times]
    return f"mean wall-clock time of a confirm trial: {', '.join(means)}"


def _describe_data_source(studies: list[Study]) -> tuple[bool, str]:
    """Return whether other people can get the data, and describe the source of the data."""
    sources = {"hub": "nyu-mll/glue on the hub", "mini": "generated by trainables/data/mini_glue.py"}
    if names := [name for study in studies for name in study.plan.own_tasks or {}]:
        return False, f"tasks outside GLUE: {', '.join(names)}"
    used = dict.fromkeys(study.plan.request.data for study in studies)
    texts = [sources.get(data, "files in a folder; plan.json has their fingerprints") for data in used]
    return used.keys() <= sources.keys(), " and ".join(dict.fromkeys(texts))


def _find_unlike_ranges(cells: list[Cell]) -> list[str]:
    """List the searched fields for which two methods have different ranges or values on the same task."""
    values: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        for field in cell.arm.searched_fields:
            others = [str(other.arm.read_field(field)) for other in cells if other.task == cell.task]
            values.setdefault((field, cell.task), set()).update(text for text in others if text != "absent")
    return list(dict.fromkeys(field for (field, _), texts in values.items() if len(texts) > 1))


def _find_licence_gaps(evidence: Evidence) -> list[str]:
    """List the tasks and backbones without a known licence; omit generated data and untrained backbones."""
    arms = [cell.arm for _, cell in evidence.cells]
    if evidence.on_mini:
        return []
    tasks = [TASKS[arm.task].title for arm in arms if arm.task not in LICENCES]
    made = {name for study in evidence.studies for name in study.plan.untrained}
    unknown = [arm.whole_backbone for arm in arms if not find_licence(arm.whole_backbone)]
    backbones = [f"backbone {Path(name).name}" for name in unknown if name not in made]
    return list(dict.fromkeys([*tasks, *backbones]))


# ---- the data


def _read_sizes(cell: Cell) -> tuple[int, int] | None:
    """Return how many train and dev examples the cell's trials used, or None if this was not recorded."""
    stored = read_cell_predictions(cell)
    if not stored or not cell.records[0].train_examples or not cell.records[0].epochs:
        return None
    return cell.records[0].train_examples // cell.records[0].epochs, len(stored[0].labels)


DATA = {  # columns
    "train": "train",
    "dev": "dev",
    "dev_in_train": "dev in train",
    "contradictory": "contradictory",
    "official_train": "official train",
    "official_dev": "official dev",
    "official_test": "official test",
    "metric": "metric",
    "licence": "licence",
    "backbone_licence": "backbone's licence",
}


def _describe_data(cell: Cell) -> dict[str, Entry]:
    """Return the entries of the cell's task in table `data`; an unknown number becomes a gap."""
    task = TASKS[cell.task]
    splits = {"train": (task.train_split,), "dev": task.dev_splits, "test": task.test_splits}
    sizes = dict(zip(("train", "dev"), _read_sizes(cell) or (0, 0), strict=True))
    sizes |= {f"official_{split}": sum(task.sizes.get(name, 0) for name in names) for split, names in splits.items()}
    texts = {
        "metric": metric_words(task),
        "licence": LICENCES.get(cell.task, "unknown"),
        "backbone_licence": find_licence(cell.arm.whole_backbone) or "unknown",
    }
    counts = {
        column: Entry(f"{size:,}", {"": str(size)}, {"": size}) if size else Entry() for column, size in sizes.items()
    }
    return counts | _describe_repeats(cell) | {column: Entry.from_text(text) for column, text in texts.items()}


def _describe_repeats(cell: Cell) -> dict[str, Entry]:
    counted = cell.repeated_texts
    if counted is None:
        return {"dev_in_train": Entry(), "contradictory": Entry()}
    shared, percent = counted.dev_in_train, 100 * counted.share
    train, dev = counted.contradictory_in_train, counted.contradictory_in_dev
    return {
        "dev_in_train": Entry(
            f"{shared:,} ({percent:.1f} %)",
            {"": str(shared), "_percent": f"{percent:.1f}"},
            {"": shared, "_percent": percent},
        ),
        "contradictory": Entry(
            f"{train:,} + {dev:,}", {"_train": str(train), "_dev": str(dev)}, {"_train": train, "_dev": dev}
        ),
    }


def data_table(evidence: Evidence) -> Table:
    """Tabulate the metric and licences of each task, and its numbers of examples here and in the official data."""
    cells: dict[str, Cell] = {}
    for _, cell in evidence.cells:
        if cell.task not in cells or not cells[cell.task].records:
            cells[cell.task] = cell
    generated = " The data here are generated; official numbers and licences are those of GLUE." * evidence.on_mini
    is_test_read = any(study.facts.scored_on_test for study in evidence.studies)
    unread = " The test split is not read." * (not is_test_read)
    return make_table(
        evidence,
        "data",
        title="Data{data}",
        columns=DATA,
        lines=[Line(TASKS[task].title, _describe_data(cell)) for task, cell in cells.items()],
        first_column="task",
        caption="Train and dev are the numbers of examples for training and scoring. Dev in train are the dev rows "
        "whose texts occur in train, apart from case and white space; contradictory are the rows of train + dev whose "
        "texts occur in train with another label."
        f"{unread}{generated}",
        unit="",
    )
