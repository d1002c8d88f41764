"""Rules for testing differences: the rows that may be compared, and the looks at their scores so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from analysis.studies.cells import Cell, Row
from study.facts.plain_words import counted, joined
from study.plans.plan import Plan
from trainables.data.tasks import TASKS

LAST_EPOCH = "the last epoch"


def choice_of_epoch(cell: Cell) -> str:
    """Describe the rule that chose the epoch of each of the cell's numbers.

    Cells with different rules are not tested if dev chose the epoch: the best of many epochs beats the last one by luck
    alone, and by more if scores vary more from epoch to epoch.
    """
    config = cell.config or cell.arm.any_configuration
    epochs, stop_after = (int(config.get(name) or 0) for name in ("epochs", "stop_after"))
    if config.get("select") == "last":
        return LAST_EPOCH
    patience = f", the last {stop_after} of them without improvement" if 0 < stop_after < epochs else ""
    return f"the best of {epochs} epochs{' at most' * bool(patience)}{patience}"


class FamilyFact(NamedTuple):
    """Fact that two cells must share before their scores may be tested against each other."""

    reason: str  # printed if two cells differ in this fact
    key: Callable[[Cell], str]  # cells are compared if their keys are equal
    words: Callable[[Cell], str]  # the fact as text
    remedy: str  # the option that allows the test, as text


def _choice_on_dev(cell: Cell) -> str:
    return choice_of_epoch(cell) if any(study.protocol.selection == "dev" for study in cell.studies) else ""


def _backbone_unless_asked(cell: Cell) -> str:
    asked = all(study.file.plan.asked.test_across == "backbones" for study in cell.studies)
    return "" if asked else cell.arm.backbone_fingerprint


FACTS_OF_FAMILY = (
    FamilyFact(
        "dev chose their epochs in unlike ways", _choice_on_dev, choice_of_epoch, "--selection holdout allows it"
    ),
    FamilyFact(
        "their backbones differ",
        _backbone_unless_asked,
        lambda cell: cell.arm.pinned_backbone,
        "--test-across backbones asks for it",
    ),
)


def are_alike(one: Cell, other: Cell) -> bool:
    """Check whether the scores of two cells may be tested against each other."""
    return all(fact.key(one) == fact.key(other) for fact in FACTS_OF_FAMILY)


def unlike_groups(rows: Sequence[Row], fact: FamilyFact) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """Group the rows that `fact` keeps from being tested against each other.

    Returns:
        ((labels, value that they share), ...), one pair per group -> tasks on which the rows form these groups.
    """
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for task in dict.fromkeys(task for row in rows for task in row.cells):
        groups: dict[str, list[tuple[str, Cell]]] = {}
        for label, cell in ((row.label, row.cells[task]) for row in rows if task in row.cells):
            if cell.records:
                groups.setdefault(fact.key(cell), []).append((label, cell))
        if len(groups) > 1:
            named = [(", ".join(label for label, _ in cells), fact.words(cells[0][1])) for cells in groups.values()]
            found.setdefault(tuple(named), []).append(task)
    return found


def find_looks(rows: Sequence[Row], *, at_searches: bool = False) -> list[str]:
    """Name the looks for which p-values of these rows are adjusted, each by what was new in it: `5 seeds`.

    Every launch that ran to its end is a look, and so is the present plan, which comes last. Launches with the same
    seeds and tasks are one look. In tables of repeated searches (`at_searches`), only launches with several searches
    count, and different numbers of searches are different looks. If more search trials have replaced a winner,
    different numbers of search trials are different looks. Of several studies, the one with the most looks counts.
    """
    cells = [cell for row in rows for cell in row.cells.values()]
    is_replaced = any(cell.former_scores for cell in cells)
    studies = [study for cell in cells for study in cell.studies]
    plans = [[asked for asked in study.looks if asked.search_repeats > 1 or not at_searches] for study in studies]
    looks = max((dict.fromkeys(_look(asked, at_searches, is_replaced) for asked in own) for own in plans), key=len)
    columns = list(zip(*looks, strict=True))
    new = [texts for texts in columns if len({*texts}) > 1] or columns[:1]
    return [", ".join(texts) for texts in zip(*new, strict=True)]


def _look(asked: Plan, at_searches: bool, is_replaced: bool) -> tuple[str, ...]:
    return (
        f"{asked.search_repeats} searches of " * at_searches + counted(asked.seeds, "seed"),
        ("all search trials" if asked.samples is None else counted(asked.samples, "search trial")) * is_replaced,
        joined([TASKS[task].title for task in asked.tasks]),
    )


def find_former(rows: Iterable[Row]) -> list[str]:
    """List the methods and baselines of these studies' earlier tables, if they differ from the present ones."""
    former: dict[str, None] = {}
    for study in (study for row in rows for cell in row.cells.values() for study in cell.studies):
        *earlier, now = (f"{joined(asked.methods)}, baseline {asked.baseline}" for asked in study.looks)
        former |= dict.fromkeys(seen for seen in earlier if seen != now)
    return [*former]
