"""The study that a command line asks for, joined with what its folder holds, and what is worth noting about it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET

from study.cluster.resources import local_gpus
from study.decisions.progress import StudyProgress
from study.facts.plain_words import first_of
from study.facts.study_facts import StudyFacts, read_facts
from study.launch_options import OUT, LaunchOptions, plan_from, settings_of
from study.plans.plan import Plan
from study.plans.plan_file import FILE as PLAN
from study.plans.plan_file import (
    PlanFile,
    another_study,
    blame_plan_file,
    check_in_one_folder,
    compare_plans,
    find_plan,
    include_folder,
    other_data,
    require_plan,
)
from study.plans.resolution import list_papers_values, resolve
from study.plans.resolved_plan import ResolvedPlan, digest, format_file_name
from trainables.data import glue
from trainables.data.tasks import TASKS, trainable_tasks
from trainables.encoders.backbones import backbone_fingerprint, is_folder
from trainables.schema import to_plain

MOST_STUDIES = 3  # that are named in a line
MOST_FAULTS = 10  # of data, that are reported at once
MOST_ARMS = 5  # that are named in a line


class Study(NamedTuple):
    """The study of a command line: what is asked for, joined with what its folder holds already."""

    resolved: ResolvedPlan
    folder: Path
    asked: Plan  # by this command alone
    earlier: PlanFile | None  # the plan that the folder holds
    why: str  # where the plan is from
    unchecked: tuple[str, ...]  # in a dry run: names that an unreachable hub could not be asked for

    def describe(self) -> str:
        """Name the study, its protocol and the origin of its plan in a line."""
        return f"study {self.folder} ({self.resolved.protocol_hash}), {self.why}"


def open_study(options: LaunchOptions) -> Study:
    """Prepare the study of a command line; an error about a setting of the --plan file names the file."""
    earlier = None if options.continue_study is None else require_plan(Path(options.continue_study))
    plan, why = plan_from(options, earlier.plan.asked if earlier else None)
    try:
        return prepare(plan, options, earlier=earlier, why=why)
    except ValueError as error:
        if options.plan is None:
            raise
        typed = {name for name in Plan.__struct_fields__ if getattr(options, name, None) not in (None, [])}
        fault = blame_plan_file(str(error), plan, path=options.plan, typed=typed | {*settings_of(options)})
        raise ValueError(fault) from None


def prepare(plan: Plan, options: LaunchOptions, *, earlier: PlanFile | None = None, why: str = "") -> Study:
    """Resolve the plan of a study; nothing is created.

    Args:
        earlier: the plan of the study of --continue; any other folder's plan is read here.

    Raises:
        ValueError: the plan cannot be run, or the folder holds another study.
    """
    folder = Path(options.continue_study or Path(options.out or OUT) / (options.name or default_name(plan)))
    earlier = earlier or find_plan(folder)
    if options.retry_failed and earlier is None:
        raise ValueError(
            f"--retry-failed needs an existing study, and {folder} holds no study; allowed: --continue runs/NAME, or "
            "leave it out"
        )
    unchecked: list[str] | None = [] if options.dry_run else None
    resolved = resolve_in(folder, plan, earlier, is_continued=options.continue_study is not None, unchecked=unchecked)
    if options.baseline and plan.baseline not in resolved.asked.methods:
        studied = ", ".join(resolved.asked.methods)
        raise ValueError(f"--baseline {options.baseline} is not studied; allowed: {studied}, or add it by --method")
    if options.compare and len(resolved.asked.methods) == 1:
        raise ValueError(f"--compare methods: {resolved.asked.methods[0]} is alone; allowed: several, by --method")
    _check_tensorfloat32(options, resolved)
    return Study(resolved, folder, plan, earlier, why, tuple(unchecked or ()))


def default_name(plan: Plan) -> str:
    """Name a study by its methods and a digest of everything else that decides a number.

    A folder of a backbone or tokenizer enters the digest by its content, not its path; a hub model by its name alone.
    """
    names = plan.methods if len(plan.methods) < 3 else (f"{len(plan.methods)}-methods",)
    loaded = {
        kind: backbone_fingerprint(name, kind=kind) if name and is_folder(name) else name
        for kind, name in (("backbone", plan.backbone), ("tokenizer", plan.tokenizer))
    }
    content = {**plan.of_numbers, **loaded, "data": glue.seen_from_anywhere(plan.data)}
    return "-".join([*map(format_file_name, names), digest(to_plain(content), length=6)])


def resolve_in(
    folder: Path,
    plan: Plan,
    earlier: PlanFile | None,
    *,
    is_continued: bool = False,
    unchecked: list[str] | None = None,
) -> ResolvedPlan:
    """Join the plan with the one that its folder holds, and resolve it; `is_continued`: by --continue.

    Raises:
        ValueError: the folder holds another study, or some data cannot be read.
    """
    if earlier is None:
        _check_files(plan)
        return resolve(plan, unchecked=unchecked)
    had = earlier.plan.asked
    plan = plan.extended_from(had)
    settled = cache(lambda: {trial.started.arm for trial in read_facts(folder).trials.values()})
    if glue.kind_of(plan.data) != glue.kind_of(had.data) and settled():  # before data are read
        raise another_study(folder, [other_data(had, plan)], is_continued=is_continued)
    changed = [arm for arm in settled() if plan.first_of(arm) != had.first_of(arm)] if plan.first != had.first else []
    if changed:
        raise ValueError(
            f"--first-from: {changed[0]} of {folder} has trials already, which nothing can come before; allowed: arms "
            "without trials, by --method and --task, or a new study, by --name"
        )
    _check_files(plan)
    if plan.include is not UNSET:
        include_folder(plan.methods, plan.include)
    check_in_one_folder(had.methods, plan, had)
    resolved = resolve(plan, unchecked=unchecked, pins=earlier.plan.pins)
    if unchecked or not compare_plans(earlier.plan, resolved):
        return resolved
    if changed := compare_plans(earlier.plan, resolved, settled=settled()):
        raise another_study(folder, changed, is_continued=is_continued)
    return resolved


def _check_files(plan: Plan) -> None:
    """Read all rows that trials of the plan train on.

    Raises:
        ValueError: some cannot be read; a line for each, `MOST_FAULTS` at most.
    """
    tasks = [TASKS[name] for name in plan.tasks if name in TASKS]
    for task in tasks:
        glue.check_data(task, plan.data)
    faults: list[str] = []
    for task in tasks:
        if len(faults) < MOST_FAULTS:
            faults += glue.data_faults(task, plan.data, most=MOST_FAULTS - len(faults))
    if len(faults) > 1:
        least = "at least " * (len(faults) >= MOST_FAULTS)
        faults = [f"the data have {least}{len(faults)} faults; mend them, or choose another folder", *faults]
    if faults:
        raise ValueError("\n".join(faults))


def _check_tensorfloat32(options: LaunchOptions, resolved: ResolvedPlan) -> None:
    """Reject TF32 for trials that are known to have no GPU."""
    asking = [arm for arm in resolved.arms if "tensorfloat32" in (*arm.values_of("precision"), arm.search_precision)]
    has_gpus = options.gpus_per_trial != 0 and (options.address is not None or local_gpus() > 0)
    if asking and not has_gpus:
        raise ValueError(
            f"trials of {asking[0].name} are to compute in tensorfloat32, but have no GPU; allowed: float32, bfloat16"
        )


def launched_arms(study: Study, options: LaunchOptions) -> frozenset[str]:
    """Name the arms whose trials this launch runs: those of --method and --task, and what they start from.

    Raises:
        ValueError: some arms are left out, and --max-gpu-hours is shared by all.
    """
    arms = study.resolved.arms
    methods = None if options.methods is None else study.asked.methods
    tasks = None if options.tasks is None else study.asked.tasks
    named = [arm for arm in arms if methods is None or arm.method in methods]
    names = {arm.name for arm in named if tasks is None or arm.task in tasks}
    sources = {arm.name: arm.start_from for arm in arms}
    while added := {source for name in names if (source := sources[name]) is not None} - names:
        names |= added
    if options.max_gpu_hours is not None and (left := [arm.name for arm in arms if arm.name not in names]):
        raise ValueError(
            f"--max-gpu-hours is shared by all arms of the study, but {left[0]} is not named; leave out --method and "
            "--task, or --max-gpu-hours"
        )
    return frozenset(names)


def plan_notes(study: Study, options: LaunchOptions, facts: StudyFacts, *, launched: frozenset[str]) -> list[str]:
    """Note what a person may not expect of a plan: what was raised or left out, and other studies with its arms."""
    asked = study.resolved.asked
    raised = [
        f"--{name} {given}: the study has {'its whole grid' if had is None else had} already, "
        f"and goes on with {'that' if had is None else had}"
        for name, given, had in (("samples", options.samples, asked.samples), ("seeds", options.seeds, asked.seeds))
        if given is not None and given != had
    ]
    elsewhere = _note_same_arms_elsewhere(study) if study.earlier is None else []
    names = ", ".join(study.resolved.untrained)
    untrained = [f"untrained backbone {names}: its weights are random; --backbone names a pretrained one"] * bool(names)
    is_task = options.name in trainable_tasks() and not options.tasks
    name_of_task = [f"--name {options.name} names the study; --task {options.name} is the task"] * is_task
    return [
        *name_of_task,
        *untrained,
        *_note_unsearched(study.resolved),
        *_note_first_tries(study.resolved),
        *raised,
        *_note_unlaunched(study, options, facts, launched=launched),
        *elsewhere,
    ]


def _note_unsearched(plan: ResolvedPlan) -> list[str]:
    """List the fields that could be searched and have one value, and why; empty if there are none."""
    if plan.asked.searched_alone is UNSET:
        return []
    why = "--samples 0" if plan.asked.samples == 0 else f"--search-only {','.join(plan.asked.searched_alone)}"
    left = list(
        dict.fromkeys(name for arm in plan.arms for name in list_papers_values(plan.asked, arm.method, arm.task))
    )
    note = f"{why}: these are not searched; --explain METHOD/TASK prints the value of each and its source"
    return [f"{note}: {', '.join(left)}"] * bool(left)


def _note_first_tries(plan: ResolvedPlan) -> list[str]:
    """List each winner of another study that --first-from takes, with the arms that try it first."""
    arms = dict[str, list[str]]()
    for arm in plan.first_arms:
        for first in plan.asked.first_of(arm.name):
            arms.setdefault(first.origin, []).append(arm.name)
    return [f"tried first: the winner of {origin}, by {first_of(names, MOST_ARMS)}" for origin, names in arms.items()]


def _note_unlaunched(study: Study, options: LaunchOptions, facts: StudyFacts, *, launched: frozenset[str]) -> list[str]:
    """Name the arms that this launch runs and the command for the rest; empty if it leaves none out."""
    left = [arm.name for arm in study.resolved.arms if arm.name not in launched]
    if not left:
        return []
    given = [name for name, value in (("--method", options.methods), ("--task", options.tasks)) if value is not None]
    whole = f"leave out {' and '.join(given)}" if options.continue_study else f"--continue {study.folder}"
    runs = ", ".join(arm.name for arm in study.resolved.arms if arm.name in launched)
    notes = [f"this launch runs only {runs}; these arms stay as they are: {', '.join(left)}; to run all: {whole}"]
    progress = StudyProgress(study.resolved, facts, max_gpu_hours=None)
    had = {name: (len(progress.arm(name).confirmed), len(progress.arm(name).arm.seeds)) for name in left}
    if fewer := [f"{name} {number} of {wanted}" for name, (number, wanted) in had.items() if 0 < number < wanted]:
        notes.append(f"of those, these then have fewer seeds than the study asks for: {', '.join(fewer)}")
    return notes


def _note_same_arms_elsewhere(study: Study) -> list[str]:
    """Name the studies in the same folder that have arms of a new study too; empty if there are none."""
    beside, own = study.folder.parent, {arm.name for arm in study.resolved.arms}
    having: dict[Path, str] = {}
    for file in sorted(beside.glob(f"*/{PLAN}")):
        try:
            other = require_plan(file.parent).plan
        except ValueError:  # a launch of that study reports it
            continue
        names = {arm.name for arm in other.arms} & own
        if names and not compare_plans(other, study.resolved):
            having[file.parent] = ", ".join(sorted(names))
    if len(having) > 1:
        shown = first_of([other.name for other in having], MOST_STUDIES)
        to_add = f"to add to one of them: --continue {beside}/NAME"
        return [f"{len(having)} studies in {beside} have arms of this one too, under this protocol: {shown}; {to_add}"]
    return [
        f"{other} has {arms} too, under this protocol; to add to it: --continue {other}"
        for other, arms in having.items()
    ]
