"""What a launch is asked for, joined with what its study's folder holds already."""

from __future__ import annotations

from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from study.cluster.resources import local_gpus
from study.decisions.progress import StudyProgress
from study.facts.study_facts import read_facts
from study.launch_options import OUT, LaunchOptions
from study.plans.identity import digest, in_file_names
from study.plans.included_folder import check_in_one_folder, include_folder
from study.plans.plan import Plan
from study.plans.plan_file import FILE as PLAN
from study.plans.plan_file import another_study, check_same_study, other_data, plan_changes, plan_on_disk, require_plan
from study.plans.resolution import resolve
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.data import glue
from trainables.data.tasks import TASKS
from trainables.encoders.backbones import is_folder
from trainables.schema import to_plain

MOST_STUDIES = 3  # that are named in a line
MOST_FAULTS = 10  # of data, that are told at once


def prepare(plan: Plan, options: LaunchOptions, *, unchecked: list[str] | None = None) -> tuple[ResolvedPlan, Path]:
    """The plan joined with what its folder holds already, and the folder; nothing is created.

    `unchecked` is as in `resolve`.
    """
    unknown = [] if unchecked is None else unchecked  # a study that has its plan needs no hub to name its commits
    if options.continue_study is not None:
        folder = Path(options.continue_study)
    else:
        folder = Path(options.out or OUT) / (options.name or default_name(resolve(plan, unchecked=unknown)))
    if options.retry_failed and plan_on_disk(folder) is None:
        raise ValueError(
            f"--retry-failed is of a study that is there, and {folder} is none; allowed: --continue runs/NAME, or "
            "leave it out"
        )
    check_files(plan, folder)
    resolved = resolve_in(folder, plan, is_continued=options.continue_study is not None, unchecked=unchecked)
    if options.baseline and resolved.asked.baseline not in resolved.asked.methods:
        studied = ", ".join(resolved.asked.methods)
        raise ValueError(f"--baseline {options.baseline} is not studied; allowed: {studied}, or add it by --method")
    return resolved, folder


def launched_arms(plan: Plan, options: LaunchOptions, resolved: ResolvedPlan) -> frozenset[str]:
    """Names of the arms whose trials this launch runs: those that --method and --task name, and what they start from.

    Raises:
        ValueError: arms are left out beside a limit that is shared by all.
    """
    names = {
        arm.name
        for arm in resolved.arms
        if (options.method is None or arm.method in plan.methods) and (options.task is None or arm.task in plan.tasks)
    }
    sources = {arm.name: arm.start_from for arm in resolved.arms}
    waiting = list(names)
    while waiting:
        if (source := sources[waiting.pop()]) is not None and source not in names:
            names.add(source)
            waiting.append(source)
    if options.max_gpu_hours is not None and (left := [arm.name for arm in resolved.arms if arm.name not in names]):
        raise ValueError(
            f"--max-gpu-hours is shared by all arms of the study, but {left[0]} is not named; leave out --method and "
            "--task, or --max-gpu-hours"
        )
    return frozenset(names)


def plan_notes(options: LaunchOptions, resolved: ResolvedPlan, folder: Path, *, launched: frozenset[str]) -> list[str]:
    """What is said of a plan before it is written into its folder: what was raised, what is left as it is, and which
    other studies beside it have some of its arms."""
    return [
        *_raised(options, resolved),
        *_not_launched(options, resolved, folder, launched=launched),
        *_same_arms_elsewhere(resolved, folder),
    ]


def _not_launched(
    options: LaunchOptions, resolved: ResolvedPlan, folder: Path, *, launched: frozenset[str]
) -> list[str]:
    """Which arms this launch runs, where that is not all, and what runs the others."""
    left = [arm.name for arm in resolved.arms if arm.name not in launched]
    if not left:
        return []
    given = [name for name, value in (("--method", options.method), ("--task", options.task)) if value is not None]
    whole = f"leave out {' and '.join(given)}" if options.continue_study else f"--continue {folder}"
    runs = ", ".join(arm.name for arm in resolved.arms if arm.name in launched)
    notes = [f"this launch runs only {runs}; these arms stay as they are: {', '.join(left)}; to run all: {whole}"]
    progress = StudyProgress(resolved, read_facts(folder), max_gpu_hours=None)
    had = {name: (len(progress.arm(name).confirmed), len(progress.arm(name).arm.seeds)) for name in left}
    if fewer := [f"{name} {number} of {wanted}" for name, (number, wanted) in had.items() if 0 < number < wanted]:
        notes.append(f"of those, these then have fewer seeds than the study asks for: {', '.join(fewer)}")
    return notes


def _same_arms_elsewhere(resolved: ResolvedPlan, folder: Path) -> list[str]:
    """A line if studies beside a new one have arms of it, made of the same: which, or of several the first ones."""
    if plan_on_disk(folder) is not None:
        return []
    having: dict[Path, str] = {}
    for file in sorted(folder.parent.glob(f"*/{PLAN}")):
        try:
            other = require_plan(file.parent).plan
        except ValueError:  # whoever asks for that study is told
            continue
        names = {arm.name for arm in other.arms} & {arm.name for arm in resolved.arms}
        if names and not plan_changes(other, resolved):
            having[file.parent] = ", ".join(sorted(names))
    if len(having) > 1:
        return [_several(folder.parent, [study.name for study in having])]
    return [
        f"{study} has {arms} too, under this protocol; to add to it: --continue {study}"
        for study, arms in having.items()
    ]


def _several(beside: Path, studies: list[str]) -> str:
    more = len(studies) - MOST_STUDIES
    shown = ", ".join(studies[:MOST_STUDIES]) + f" and {more} more" * (more > 0)
    to_add = f"to add to one of them: --continue {beside}/NAME"
    return f"{len(studies)} studies in {beside} have arms of this one too, under this protocol: {shown}; {to_add}"


def resolve_in(
    folder: Path, plan: Plan, *, is_continued: bool = False, unchecked: list[str] | None = None
) -> ResolvedPlan:
    """The plan joined with what the folder holds. For good only while nobody else can write there: see `StudyLock`.
    `is_continued`: by --continue.

    Raises:
        ValueError: the folder holds another study.
    """
    earlier = plan_on_disk(folder)
    if earlier is None:
        return resolve(plan, unchecked=unchecked)
    pins, plan = earlier.plan.pins, plan.extended_from(earlier.plan.asked)
    other_kind = glue.kind_of(plan.data) != glue.kind_of(earlier.plan.asked.data)
    if other_kind and read_facts(folder).trials:  # before anything of the data is read
        raise another_study(folder, [other_data(earlier.plan.asked, plan)], is_continued=is_continued)
    if plan.include is not UNSET:
        include_folder(plan.methods, plan.include)
    check_in_one_folder(earlier.plan.asked.methods, plan, earlier.plan.asked)
    resolved = resolve(plan, unchecked=unchecked, pins=pins)
    if not unchecked and plan_changes(earlier.plan, resolved):
        settled = {trial.started.arm for trial in read_facts(folder).trials.values()}
        check_same_study(resolved, earlier.plan, folder, settled=settled, is_continued=is_continued)
    return resolved


def check_files(plan: Plan, folder: Path) -> None:
    """Passes if all rows can be read that trials of the plan, or of the study in `folder`, train on.

    Raises:
        ValueError: some cannot; a line for each, `MOST_FAULTS` at most.
    """
    earlier = plan_on_disk(folder)
    tasks = [name for name in (plan.extended_from(earlier.plan.asked) if earlier else plan).tasks if name in TASKS]
    faults: list[str] = []
    for name in tasks:
        faults += glue.data_faults(TASKS[name], plan.data, most=MOST_FAULTS - len(faults))
        if len(faults) >= MOST_FAULTS:
            break
    if len(faults) > 1:
        least = "at least " * (len(faults) >= MOST_FAULTS)
        faults = [f"--data {plan.data} has {least}{len(faults)} faults; mend them, or choose another folder", *faults]
    if faults:
        raise ValueError("\n".join(faults))


def _raised(options: LaunchOptions, resolved: ResolvedPlan) -> list[str]:
    """What was asked for and is less than the study has, a line each: a study grows, and never shrinks."""
    wanted = {"samples": resolved.asked.samples, "seeds": resolved.asked.seeds}
    return [
        f"--{name} {given}: the study has {'its whole grid' if wanted[name] is None else wanted[name]} already, "
        f"and goes on with {'that' if wanted[name] is None else wanted[name]}"
        for name, given in (("samples", options.samples), ("seeds", options.seeds))
        if given is not None and given != wanted[name]
    ]


def check_tensorfloat32(options: LaunchOptions, resolved: ResolvedPlan) -> None:
    """Passes unless trials are to compute in TF32 that are known to have no GPU.

    Raises:
        ValueError: they are.
    """
    asking = [arm for arm in resolved.arms if "tensorfloat32" in (arm.fixed.get("precision"), arm.search_precision)]
    has_gpus = options.gpus_per_trial != 0 and (options.address is not None or local_gpus() > 0)
    if asking and not has_gpus:
        raise ValueError(
            f"trials of {asking[0].name} are to compute in tensorfloat32, but have no GPU; allowed: float32, bfloat16"
        )


def default_name(resolved: ResolvedPlan) -> str:
    """The methods, and digits that anything else would change that is not an extension.

    The folder of a backbone or tokenizer counts by its content, wherever it lies; a hub name by itself, at whatever
    commit it is.
    """
    asked = resolved.asked
    names = asked.methods if len(asked.methods) < 3 else (f"{len(asked.methods)}-methods",)
    rest = replace(asked, methods=(), tasks=(), samples=None, seeds=0, search_repeats=1, baseline=None)
    rest = replace(rest, include=UNSET)  # its methods count by their names, as the package's do
    rest = replace(rest, data=glue.seen_from_anywhere(asked.data), backbone=None, tokenizer=None)
    content = sorted({_made_of(arm) for arm in resolved.arms}) if asked.backbone or asked.tokenizer else []
    return "-".join([*map(in_file_names, names), digest([to_plain(rest), content], length=6)])


def _made_of(arm: Arm) -> tuple[str, str]:
    tokenizer = _by_content(arm.tokenizer, arm.tokenizer_fingerprint or "") if arm.tokenizer else ""
    return _by_content(arm.backbone, arm.backbone_fingerprint), tokenizer


def _by_content(name: str, fingerprint: str) -> str:
    return fingerprint if is_folder(name) else name


def first_line(folder: Path, plan: ResolvedPlan, why: str) -> str:
    """Which study this is, and where its plan is from."""
    return f"study {folder} ({plan.protocol_hash}), {why}"
