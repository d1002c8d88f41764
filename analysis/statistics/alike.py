"""Find which rows of a table may be tested against each other, and how often their scores may have been seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from analysis.studies.cells import Cell, Row
from study.facts.plain_words import counted, joined
from study.plans.plan import Plan
from trainables.data.tasks import TASKS

LAST_EPOCH = "the last epoch"


def choice_of_epoch(cell: Cell) -> str:
    """Describe how the cell's trials choose the epoch that they report: the last, or the best of several.

    If epochs are chosen by dev score, cells with different rules are not tested against each other: by luck alone, the
    best of many epochs scores higher than the last.
    """
    config = cell.config or cell.arm.any_configuration
    epochs, stop_after = (int(config.get(name) or 0) for name in ("epochs", "stop_after"))
    if config.get("select") == "last":
        return LAST_EPOCH
    patience = f", the last {stop_after} of them without improvement" if 0 < stop_after < epochs else ""
    return f"the best of {epochs} epochs{' at most' * bool(patience)}{patience}"


class FamilyFact(NamedTuple):
    """Property that two cells must share before their scores are tested against each other."""

    reason: str  # printed if two cells differ in this property
    key: Callable[[Cell], str]  # two cells share the property if their keys are equal
    words: Callable[[Cell], str]  # the property as text
    remedy: str  # the option that allows the test, as text


def _choice_on_dev(cell: Cell) -> str:
    return choice_of_epoch(cell) if any(study.protocol.selection == "dev" for study in cell.studies) else ""


def _backbone_unless_asked(cell: Cell) -> str:
    asked = all(study.file.plan.asked.test_across == "backbones" for study in cell.studies)
    return "" if asked else cell.arm.backbone_fingerprint


FACTS_OF_FAMILY = (
    FamilyFact(
        "their epochs were chosen on dev by different rules",
        _choice_on_dev,
        choice_of_epoch,
        "--selection holdout allows the test",
    ),
    FamilyFact(
        "their backbones differ",
        _backbone_unless_asked,
        lambda cell: cell.arm.pinned_backbone,
        "--test-across backbones allows the test",
    ),
)


def are_comparable(one: Cell, other: Cell) -> bool:
    """Check whether the scores of two cells may be tested against each other."""
    return all(fact.key(one) == fact.key(other) for fact in FACTS_OF_FAMILY)


def unlike_groups(rows: Sequence[Row], fact: FamilyFact) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """Group the rows by `fact`, on every task on which rows differ in it.

    Returns:
        A tuple of (row labels, value of the property), one per group -> tasks on which the rows form these groups.
    """
    tasks: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for task in dict.fromkeys(task for row in rows for task in row.cells):
        groups: dict[str, list[tuple[str, Cell]]] = {}
        for label, cell in ((row.label, row.cells[task]) for row in rows if task in row.cells):
            if cell.records:
                groups.setdefault(fact.key(cell), []).append((label, cell))
        if len(groups) > 1:
            named = [(", ".join(label for label, _ in cells), fact.words(cells[0][1])) for cells in groups.values()]
            tasks.setdefault(tuple(named), []).append(task)
    return tasks


def list_interim_looks(rows: Sequence[Row], *, at_searches: bool = False) -> list[str]:
    """List the looks at the scores of these rows, each described by what sets it apart, such as `5 seeds`.

    A look is an occasion on which scores may have been seen: every launch that ran to its end, and the present plan.
    P-values are adjusted for the number of looks. Launches with the same seeds and tasks count as one look, unless
    they differ in the number of search trials after a winner was replaced. `at_searches` skips launches with a single
    search, and counts different numbers of searches as different looks. The study with the most looks counts.
    """
    cells = [cell for row in rows for cell in row.cells.values()]
    is_replaced = any(cell.former_scores for cell in cells)
    studies = [study for cell in cells for study in cell.studies]
    plans = [[asked for asked in study.looks if asked.search_repeats > 1 or not at_searches] for study in studies]
    looks = max((dict.fromkeys(_look(plan, at_searches, is_replaced) for plan in asked) for asked in plans), key=len)
    columns = list(zip(*looks, strict=True))
    new = [texts for texts in columns if len({*texts}) > 1] or columns[:1]
    return [", ".join(texts) for texts in zip(*new, strict=True)]


def _look(asked: Plan, at_searches: bool, is_replaced: bool) -> tuple[str, ...]:
    return (
        f"{asked.search_repeats} searches of " * at_searches + counted(asked.seeds, "seed"),
        ("all search trials" if asked.samples is None else counted(asked.samples, "search trial")) * is_replaced,
        joined([TASKS[task].title for task in asked.tasks]),
    )


def list_former_baselines(rows: Iterable[Row]) -> list[str]:
    """List the methods and baseline of each earlier launch in which they differed from the present plan."""
    former: dict[str, None] = {}
    for study in (study for row in rows for cell in row.cells.values() for study in cell.studies):
        *earlier, now = (f"{joined(asked.methods)}, baseline {asked.baseline}" for asked in study.looks)
        former |= dict.fromkeys(seen for seen in earlier if seen != now)
    return [*former]
