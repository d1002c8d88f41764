"""The winners of another study, which the searches of a new one try first: --first-from."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from study.plans.plan import First, Plan
from study.status import read_progress
from study.winners import decided, searched_values


def read_winners(folder: Path, plan: Plan) -> dict[str, tuple[First, ...]]:
    """The winners of a study, by the arms of the plan that may begin with them.

    They are of the same method on the same task or, if that has none, on the other tasks.

    Raises:
        ValueError: the study has none of these.
    """
    won = {
        (own.arm.method, own.arm.task): First(origin=f"{folder}, {own.arm.name}", values=searched_values(own))
        for own in decided(read_progress(folder))
    }
    firsts = dict[str, tuple[First, ...]]()
    for method, task in product(plan.methods, plan.tasks):
        on_others = tuple(first for (name, _), first in won.items() if name == method)
        if on_others:
            firsts[f"{method}/{task}"] = (won[method, task],) if (method, task) in won else on_others
    if not firsts:
        names = ", ".join("/".join(arm) for arm in won) or "none"
        raise ValueError(f"--first-from {folder}: its winners are {names}; allowed: a study of {plan.methods[0]}")
    return firsts
