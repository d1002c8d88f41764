"""The plan that a study's folder holds: `plan.json`, or what its journal says of it."""

from __future__ import annotations

from pathlib import Path

from study.facts.events import LaunchBegan, read_events
from study.plans.plan_file import FILE, PlanFile, read_plan
from trainables.spelling import nearest_in_words

MOST_NAMED = 5  # studies, in a message


def plan_on_disk(folder: Path) -> PlanFile | None:
    """The plan of a study folder, where `plan.json` is lost that of its last launch; None where there is neither.

    Raises:
        ValueError: the plan is none or was edited, or the journal that is read in its place is broken.
    """
    return read_plan(folder) or _plan_in_journal(folder)


def require_plan(folder: Path) -> PlanFile:
    """The plan of a study folder; its launch has the plan of the journal too, everything else the file alone.

    Raises:
        ValueError: there is none, it is no plan, or was edited; where the journal has it, the line says how the file
            comes back.
    """
    if found := read_plan(folder):
        return found
    if lost := _plan_in_journal(folder):
        raise ValueError(
            f"{folder} has lost its {FILE}; its journal has the plan, and the same launch writes the file again: "
            f"{lost.command}"
        )
    raise ValueError(f"no {FILE} in {folder}; allowed: the folder of a study{_near(folder)}")


def _near(folder: Path) -> str:
    """The studies that a folder holds, or the one beside it whose name is nearest, in words."""
    if held := sorted(str(path.parent) for path in folder.glob(f"*/{FILE}")):
        return f", {', '.join(held[:MOST_NAMED])}{', ...' * (len(held) > MOST_NAMED)}"
    if folder.exists():
        return ""
    return nearest_in_words(str(folder), [str(path.parent) for path in folder.parent.glob(f"*/{FILE}")])


def _plan_in_journal(folder: Path) -> PlanFile | None:
    began = [event for event in read_events(folder) if isinstance(event, LaunchBegan)]
    if not began:
        return None
    last = began[-1]
    return PlanFile(
        name=folder.name,
        created=began[0].time,
        command=last.command,
        versions=last.versions,
        git_commit=last.git_commit,
        code_digest=last.code_digest,
        protocol_hash=last.plan.protocol_hash,
        plan=last.plan,
    )
