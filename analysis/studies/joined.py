"""One or several studies as the rows of a table: what may stand together, and what is refused.

Studies join by arm: every cell is made of the records of all studies that have its arm, each trial once. They must
have one protocol (`load_studies`), one seed plan, the same data under every column (generated data under all or
none), and the same content under every method that they share. `separate` gives rows of their own instead, a row per
study and method; there only the data must be the same, and a number of fewer seeds than the table's is marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analysis.studies.cells import Cell, Row, made_cell
from analysis.studies.load import Study
from study.facts.record import Record
from study.plans.plan_file import FACTS_OF_ARM, changes
from study.plans.resolved_plan import Arm
from trainables.data.tasks import TASKS
from trainables.schema import to_plain

SAME_NUMBERS = ("status", "score", "selection_score", "metrics", "epoch", "epochs", "mean_layers")
SAME_METHOD = ("backbone_fingerprint", "tokenizer_fingerprint")  # over the tasks of a row


def rows_of(studies: Sequence[Study], *, separate: bool = False) -> list[Row]:
    """The rows of a table, one per method in the plans' order; one per study and method where `separate`.

    Raises:
        ValueError: the studies cannot share a table; both are named with what differs.
    """
    _check_data(studies)
    seeds = table_seeds(studies)
    if separate and len(studies) > 1:
        named = list(zip(names_of(studies), studies, strict=True))
        return [_row([study], method, f"{method} ({name})", seeds) for name, study in named for method in study.methods]
    for other in studies[1:]:
        _check_same_plan(studies[0], other)
    methods = dict.fromkeys(method for study in studies for method in study.methods)
    rows = {method: [study for study in studies if method in study.methods] for method in methods}
    return [_row(holders, method, method, seeds) for method, holders in rows.items()]


def table_seeds(studies: Sequence[Study]) -> tuple[int, ...]:
    """The seed plan of a table: the longest of its studies'."""
    return max((study.seeds for study in studies), key=len)


def names_of(studies: Sequence[Study]) -> list[str]:
    """The names of the studies; the folder of those that share a name."""
    number = Counter(study.name for study in studies)
    return [study.name if number[study.name] == 1 else str(study.folder) for study in studies]


def _row(studies: list[Study], method: str, label: str, seeds: tuple[int, ...]) -> Row:
    tasks = dict.fromkeys(task for study in studies for task in study.tasks)
    cells = {task: _cell([study for study in studies if task in study.tasks], method, task, seeds) for task in tasks}
    _check_one_method(label, cells)
    return Row(label, method, cells)


def _cell(studies: list[Study], method: str, task: str, seeds: tuple[int, ...]) -> Cell:
    arm = studies[0].arm(method, task)
    for other in studies[1:]:
        _check_same_arm(studies[0], other, method, task)
    has_own_seeds = arm.seeds != studies[0].seeds
    return made_cell(arm, studies, _joined(studies, arm.name), seeds_wanted=arm.seeds if has_own_seeds else seeds)


def repeats_of(cell: Cell) -> list[Cell]:
    """The cells of all searches of the cell's arm, its own first."""
    planned = [arm for study in cell.studies for arm in study.file.plan.arms]
    others = {arm.name: arm for arm in planned if arm.repeat and (arm.method, arm.task) == (cell.method, cell.task)}
    return [cell, *(_repeat(cell, arm) for _, arm in sorted(others.items()))]


def _repeat(cell: Cell, arm: Arm) -> Cell:
    holders = [study for study in cell.studies if arm.name in {own.name for own in study.file.plan.arms}]
    return made_cell(arm, holders, _joined(holders, arm.name), seeds_wanted=arm.seeds)


def _joined(studies: list[Study], arm: str) -> list[Record]:
    """The arm's records of all studies, each trial once; a failed one only where no other study completed it."""
    found: dict[str, tuple[Study, Record]] = {}
    for study in studies:
        for record in study.by_arm.get(arm, []):
            earlier = found.get(record.key)
            if earlier is None or earlier[1].status == "failed":
                found[record.key] = (study, record)
            elif record.status != "failed":
                _check_same_numbers(*earlier, study, record)
    return [record for _, record in found.values()]


def _check_data(studies: Sequence[Study]) -> None:
    """Passes if the cells of every column were made of the same data, and all of GLUE's or all of generated data."""
    for other in studies[1:]:
        if other.is_mini != studies[0].is_mini:
            raise ValueError(
                f"generated data and other data never share a table: {_data_of(studies[0])}, {_data_of(other)}; "
                "allowed: studies that are all of --data mini, or none of them"
            )
    first: dict[str, tuple[Study, str]] = {}
    for study in studies:
        for arm in study.file.plan.arms:
            holder, fingerprint = first.setdefault(arm.task, (study, arm.data_fingerprint))
            if fingerprint != arm.data_fingerprint:
                raise ValueError(
                    f"two data sets never share a column: {TASKS[arm.task].title} is {fingerprint} in "
                    f"{_data_of(holder)}, {arm.data_fingerprint} in {_data_of(study)}; "
                    "allowed: studies of the same data"
                )


def _data_of(study: Study) -> str:
    """Its folder, and its data as they were asked for."""
    return f"{study.folder} (--data {study.file.plan.asked.data})"


def _check_same_plan(first: Study, other: Study) -> None:
    if first.seeds != other.seeds:
        raise ValueError(
            f"{first.folder} asks for --seeds {len(first.seeds)}, {other.folder} for {len(other.seeds)}; allowed: the "
            "same --seeds (the same command with more extends a study), or --separate for rows of their own"
        )


def _check_same_arm(first: Study, other: Study, method: str, task: str) -> None:
    mine, theirs = to_plain(first.arm(method, task)), to_plain(other.arm(method, task))
    differing = [line for fact in (*FACTS_OF_ARM, "seeds") for line in changes(fact, mine.get(fact), theirs.get(fact))]
    if differing:
        raise ValueError(
            f"{method}/{task} is not the same in {first.folder} and {other.folder}: {'; '.join(differing)}; "
            "allowed: --separate for rows of their own"
        )


def _check_one_method(label: str, cells: dict[str, Cell]) -> None:
    """Passes if the cells of a row are of one backbone and of the same settings."""
    first = next(iter(cells.values()))
    for cell in cells.values():
        differing = [
            line for fact in SAME_METHOD for line in changes(fact, getattr(first.arm, fact), getattr(cell.arm, fact))
        ]
        settings = [to_plain(one.studies[0].file.plan.asked.settings) for one in (first, cell)]
        differing += changes("settings", *settings)
        if differing:
            raise ValueError(
                f"{label} is not the same in {first.studies[0].folder} and {cell.studies[0].folder}: "
                f"{'; '.join(differing)}; allowed: --separate for rows of their own"
            )


def _check_same_numbers(first: Study, record: Record, other: Study, again: Record) -> None:
    mine, theirs = to_plain(record), to_plain(again)
    differing = [line for name in SAME_NUMBERS for line in changes(name, mine[name], theirs[name])]
    if differing:
        raise ValueError(
            f"trial {record.key} of {record.arm} has other numbers in {first.folder} than in {other.folder}: "
            f"{'; '.join(differing)}; allowed: --separate for rows of their own"
        )
