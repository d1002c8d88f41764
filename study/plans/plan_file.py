"""`plan.json` of a study's folder: its one reader and writer, and what may change when a study is extended."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from study.facts.events import LaunchBegan, read_events
from study.plans.identity import digest
from study.plans.plan import Plan
from study.plans.resolved_plan import ResolvedPlan
from trainables.atomic_files import write_json
from trainables.schema import Typed, from_plain, to_plain
from trainables.spelling import nearest_in_words

FILE = "plan.json"
MOST_NAMED = 5  # studies, in a message

# Facts of an arm that may not change when a study is extended: what its numbers are made of.
FACTS_OF_ARM = (
    "space",
    "fixed",
    "backbone_fingerprint",
    "tokenizer_fingerprint",
    "data_fingerprint",
    "start_from",
)


class PlanFile(Typed, frozen=True, kw_only=True):
    """What the file says: the plan, and the launch that wrote it last."""

    name: str  # of the study
    created: str  # UTC, ISO 8601
    command: str
    versions: Mapping[str, str]
    git_commit: str | None
    code_digest: str
    protocol_hash: str
    plan: ResolvedPlan


def read_plan(folder: Path) -> PlanFile | None:
    """The plan of a study folder; None where there is none.

    Raises:
        ValueError: it is no plan, or was edited.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text())
        written = content.pop("digest")
    except FileNotFoundError:
        return None
    except OSError as error:  # a file in the place of a folder, or a folder in that of the file
        raise ValueError(f"{path} cannot be read: {error.strerror}; allowed: the folder of a study") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        again = "delete it and give the same launch again, which makes it from the journal"
        raise ValueError(f"{path} is not a plan: {fault}; {again}") from None
    if digest(content) != written:
        raise ValueError(f"{path} was edited: its digest is {written}, its content has {digest(content)}")
    try:
        return from_plain(PlanFile, content, where=str(path))
    except ValueError as error:  # and nobody has edited it
        raise ValueError(f"{error}; another version of glue-exit-study wrote it") from None


def write_plan(folder: Path, content: PlanFile) -> None:
    """Replaces the plan of a study folder, whole or not at all."""
    plain = to_plain(content)
    write_json(folder / FILE, {**plain, "digest": digest(plain)})


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


def check_same_study(
    resolved: ResolvedPlan,
    earlier: ResolvedPlan,
    folder: Path,
    *,
    settled: Collection[str] | None = None,
    is_continued: bool = False,
) -> None:
    """Passes if both plans have one protocol, and their common arms the same facts; `settled` as in `plan_changes`.
    `is_continued`: by --continue.

    Raises:
        ValueError: they do not; every field that differs is named.
    """
    if changed := plan_changes(earlier, resolved, settled=settled):
        raise another_study(folder, changed, is_continued=is_continued)


def other_data(earlier: Plan, later: Plan) -> str:
    """The data of two plans, as a person names them."""
    return f"--data {earlier.data} against --data {later.data}"


def another_study(folder: Path, changed: Iterable[str], *, is_continued: bool) -> ValueError:
    """The error that a study is not the one that is asked for; `changed` as of `plan_changes`."""
    more = f", or --continue {folder} for what is not said"
    return ValueError(
        f"study {folder} is another than this command asks for; on disk against asked for: {'; '.join(changed)}. "
        f"Choose another --name{' instead of --continue' if is_continued else more}"
    )


def plan_changes(earlier: ResolvedPlan, later: ResolvedPlan, *, settled: Collection[str] | None = None) -> list[str]:
    """Every field in which two plans are not of one study: its name and both values.

    `settled` are the arms of which a trial was started: what the others are made of, no number depends on. None: all.
    """
    changed = changes("protocol", to_plain(earlier.protocol), to_plain(later.protocol))
    before = {arm.name: to_plain(arm) for arm in earlier.arms}
    for arm in later.arms:
        if arm.name in before and (settled is None or arm.name in settled):
            now = to_plain(arm)
            for fact in FACTS_OF_ARM:
                found = changes(f"{fact} of {arm.name}", before[arm.name].get(fact), now.get(fact))
                is_named = fact == "data_fingerprint" and earlier.asked.data != later.asked.data
                changed += [other_data(earlier.asked, later.asked)] if found and is_named else found
    return list(dict.fromkeys(changed))


def changes(where: str, before: object, after: object) -> list[str]:
    """Every field, however deep, in which two plain values differ: its name and both values."""
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted(before.keys() | after.keys())
        return [line for name in names for line in changes(f"{where} {name}", before.get(name), after.get(name))]
    return [f"{where} {json.dumps(before)} against {json.dumps(after)}"]
