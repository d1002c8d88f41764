"""Ask `analysis` which differences a study will find, for `--dry-run`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from study.facts.study_facts import StudyFacts
from study.plans.resolved_plan import ResolvedPlan
from study.terminal.command_line import add_once
from trainables.configuration.schema import to_plain
from trainables.configuration.spelling import resolve_name
from trainables.data.tasks import TASKS


def predict_power(plan: ResolvedPlan, folder: Path, facts: StudyFacts, *, assumed: Sequence[str]) -> list[str]:
    """Describe by task which difference the study will find four times in five.

    Args:
        assumed: the values of --assume-spread.

    Raises:
        ValueError: if a value of --assume-spread is invalid.
    """
    spreads = _read_spreads(assumed, plan.request.tasks)
    has_scores = any(record.phase == "confirm" for record in facts.records)
    if plan.request.search_repeats > 1:
        return ["power: unknown, because tests of methods compare searches, whose spread no kept study has"]
    if plan.request.is_generated and not has_scores and not spreads:
        return ["power: unknown for generated tasks before the first scores; --assume-spread POINTS predicts it"]
    request = {
        "plan": plan,
        "folder": str(folder),
        "rows": {task: _count_dev_rows(plan, task) for task in plan.request.tasks},
        "assumed": spreads,
    }
    command = [sys.executable, "-m", "analysis.statistics.power"]
    done = subprocess.run(command, input=json.dumps(to_plain(request)), capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"power: unknown ({(done.stderr.strip().splitlines() or ['no reason given'])[-1]})"]
    return done.stdout.splitlines()


def _read_spreads(texts: Sequence[str], tasks: Sequence[str]) -> dict[str, float]:
    """Read the values of --assume-spread: `1.5` holds for every task without a value of its own, `rte=1.5` for one."""
    spreads = dict[str, float]()
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            points = float(value)
        except ValueError:
            points = 0.0
        if not 0 < points <= 100:
            raise ValueError(f"--assume-spread {text}: allowed: POINTS or TASK=POINTS, of more than 0 points")
        task = resolve_name(name, tasks, what="task of this study") if equals else ""
        add_once(spreads, task, points, "--assume-spread")
    of_others = dict.fromkeys(tasks, spreads.pop("")) if "" in spreads else {}
    return of_others | spreads


def _count_dev_rows(plan: ResolvedPlan, task: str) -> int:
    """Count the dev rows of a task: in its files, or officially for data of the hub."""
    if task in (counted := plan.repeated_texts or {}):
        return counted[task].dev_rows
    defined = plan.own_task(task) or TASKS[task]
    return sum(defined.sizes[split] for split in defined.dev_splits)
