"""The format of a study's folder: its number, and how folders of older formats are read.

`plan.json` says its format, and in `events.jsonl` each launch says that of its lines: a study that a newer version
continues has lines of both. 2 is the first format that was released. What older folders cannot fill in with a default
(a field renamed, removed, of another meaning) takes a new number and a `Step` from the one before. A folder of each
format is kept in tests/study/formats. tests/study/test_formats.py opens all of them, and notices what changes a format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FIRST = 2  # of plans without the field
FORMAT = 2

Plain = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A conversion of plain values from one format to the next; neither function changes its argument."""

    plan: Callable[[Plain], Plain]  # a resolved plan, of `plan.json` and of `launch_began`
    event: Callable[[Plain], Plain]  # a line of the journal; its plan is made new already


STEPS: Mapping[int, Step] = {}  # format -> to the next


def check_format(number: int, *, where: str) -> None:
    """Raise ValueError for a format that is newer than this version, or was never released."""
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
    """Convert a resolved plan of this format to today's."""
    for step in _steps(number):
        plan = step.plan(plan)
    return plan


def migrate_event(event: Plain, number: int) -> Plain:
    """Convert a line of a journal of this format to today's; a launch keeps the number that it says."""
    for step in _steps(number):
        if "plan" in event:
            event = {**event, "plan": step.plan(event["plan"])}
        event = step.event(event)
    return event


def _steps(number: int) -> list[Step]:
    return [STEPS[each] for each in range(number, FORMAT)]
