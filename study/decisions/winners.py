"""The winners of a study's searches, which another study may try first."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from study.decisions.progress import ArmProgress, StudyProgress, read_progress
from study.plans.plan import First, Plan
from trainables.configuration.schema import Configuration


def list_arms_with_winner(progress: StudyProgress) -> list[ArmProgress]:
    """List the searched arms that have a winner. Arms that repeat a search are left out."""
    return [arm for arm in progress.arms if arm.planned.space and not arm.planned.repeat and arm.winner]


def searched_values(arm: ArmProgress) -> Configuration:
    """Return the winner's values of the searched fields."""
    assert arm.winner is not None
    return {name: arm.winner.config[name] for name in arm.planned.searched_fields}


def read_winners(folder: Path, plan: Plan) -> dict[str, tuple[First, ...]]:
    """Read the winners of another study: the configurations that the searches of `plan` try first.

    The result maps arms to winners. An arm without a winner gets the winners of the same method on other tasks.

    Raises:
        ValueError: if the other study has no winner of the plan's methods.
    """
    place = folder.resolve()  # so that the plan's digest does not depend on how the user named the folder
    won = {
        (arm.planned.method, arm.planned.task): First(origin=f"{place}, {arm.name}", values=searched_values(arm))
        for arm in list_arms_with_winner(read_progress(folder))
    }
    firsts = dict[str, tuple[First, ...]]()
    for method, task in product(plan.methods, plan.tasks):
        on_others = tuple(first for (name, _), first in won.items() if name == method)
        if on_others:
            firsts[f"{method}/{task}"] = (won[method, task],) if (method, task) in won else on_others
    if not firsts:
        names = ", ".join("/".join(arm) for arm in won) or "none"
        raise ValueError(
            f"--first-from {folder}: the study has these winners: {names}; allowed: a study with a winner of "
            f"{plan.methods[0]}"
        )
    return firsts
