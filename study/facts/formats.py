"""The format of a study's folder: its number, and the conversion of older formats.

`plan.json` names its format. In `events.jsonl` each launch names the format of its lines, so a study that a newer
version continues may have lines of both formats. Format 2 was the first to be released. A change that a default value
cannot cover (a field renamed, removed or given another meaning) needs a new number and a `Step` from the previous one.
tests/study/formats has a folder of each format. tests/study/test_formats.py opens all of them and detects changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FIRST = 2  # also the format of a `plan.json` without a format number
FORMAT = 2

Plain = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A conversion of plain values from one format to the next; neither function changes its argument."""

    plan: Callable[[Plain], Plain]  # for a resolved plan, in `plan.json` or `launch_began`
    event: Callable[[Plain], Plain]  # for a journal line; its plan, if any, is already converted


STEPS: Mapping[int, Step] = {}  # format -> conversion to the next format


def check_format(number: int, *, where: str) -> None:
    """Raise ValueError for a format that is newer than this version's or was never released."""
    if FIRST <= number <= FORMAT:
        return
    is_newer = number > FORMAT
    fault = "is of a newer version of glue-exit-study" if is_newer else "was never released"
    reads = f"format {FORMAT}" if FIRST == FORMAT else f"formats {FIRST} to {FORMAT}"
    raise ValueError(
        f"{where}: format {number} {fault}; this version reads {reads}; allowed: the version that wrote it, or a "
        f"{'newer one' if is_newer else 'new study'}"
    )


def migrate_plan(plan: Plain, number: int) -> Plain:
    """Convert a resolved plan from format `number` to the current one."""
    for step in _steps(number):
        plan = step.plan(plan)
    return plan


def migrate_event(event: Plain, number: int) -> Plain:
    """Convert a journal line from format `number` to the current one; a `launch_began` keeps its format number."""
    for step in _steps(number):
        if "plan" in event:
            event = {**event, "plan": step.plan(event["plan"])}
        event = step.event(event)
    return event


def _steps(number: int) -> list[Step]:
    return [STEPS[each] for each in range(number, FORMAT)]
