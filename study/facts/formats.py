"""The format number of a study's folder, and the conversion of older formats.

`plan.json` contains its format number. In `events.jsonl`, each launch gives the number for its own lines. If a newer
version continues a study, the file therefore contains lines in two formats. Format 2 was the first in a release. A new
field with a default value does not change the number. If a field is renamed, removed or changes its meaning, increase
the number and add a `Step` from the previous format. tests/study/test_formats.py opens a study in each format.
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
    """The two functions that convert data from one format to the next; neither changes its argument."""

    plan: Callable[[Plain], Plain]  # for a resolved plan, in `plan.json` or `launch_began`
    event: Callable[[Plain], Plain]  # for a journal line; its plan, if any, is already converted


STEPS: Mapping[int, Step] = {}  # format -> conversion to the next format


def check_format(number: int, *, where: str) -> None:
    """Raise ValueError if the format is newer than this version of the package or was never released."""
    if FIRST <= number <= FORMAT:
        return
    is_newer = number > FORMAT
    fault = "was written by a newer version of glue-exit-study" if is_newer else "was never released"
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
    """Convert a journal line from format `number` to the current one; a `launch_began` line keeps the old number."""
    for step in _steps(number):
        if "plan" in event:
            event = {**event, "plan": step.plan(event["plan"])}
        event = step.event(event)
    return event


def _steps(number: int) -> list[Step]:
    return [STEPS[each] for each in range(number, FORMAT)]
