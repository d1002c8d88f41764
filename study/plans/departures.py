"""Where a plan is not what the papers did: of the plan's rules, and of each of its methods."""

from __future__ import annotations

from collections.abc import Sequence

import trainables
from study.plans.plan import Plan
from study.plans.resolved_plan import Arm

SEEDS_OF_PAPERS = 5  # PALBERT, section 4.1; lmtuners


def departures(asked: Plan, arms: Sequence[Arm]) -> dict[str, tuple[str, ...]]:
    """A line for each, under "protocol" and under each method's name."""
    methods = dict.fromkeys(arm.base_method for arm in arms)
    return {"protocol": _of_protocol(asked, arms)} | {method: trainables.departures(method) for method in methods}


def _of_protocol(asked: Plan, arms: Sequence[Arm]) -> tuple[str, ...]:
    lines = {
        "generated tasks and tiny random backbones: the numbers say nothing of GLUE": asked.data == "mini",
        "ASHA stops search trials, which the papers run to their own stop": asked.early_stopping is not None,
        f"{asked.sampler} search over ranges, where the papers try a grid": asked.sampler != "grid",
        "part of the grid": asked.sampler == "grid" and any(arm.samples < len(arm.first) for arm in arms),
        "selected on a slice of train, where the papers select on dev": asked.selection == "holdout",
        f"{asked.seeds} seeds, where the papers have {SEEDS_OF_PAPERS}": asked.seeds != SEEDS_OF_PAPERS,
        f"at most {asked.epochs} epochs": asked.epochs is not None,
    }
    return tuple(line for line, holds in lines.items() if holds)
