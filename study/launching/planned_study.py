"""Resolve the study to run, from the options of a launch and the study in the folder, if there is one."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

import search_spaces
import trainables
from study.cluster.resources import count_local_gpus
from study.decisions.asha import list_rungs
from study.decisions.progress import StudyProgress
from study.decisions.scheduler import find_reopenable
from study.facts.code_history import list_edited_methods
from study.facts.events import Reopening, utc_now
from study.facts.plan_file import FILE as PLAN
from study.facts.plan_file import (
    PlanFile,
    blame_plan_file,
    compare_plans,
    describe_data_change,
    describe_lost_folder,
    find_plan,
    include_folder,
    mismatch_error,
    require_plan,
    write_plan,
)
from study.facts.provenance import Provenance
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import ANSWER, DEV_TABLE, RUNS, compute_plan_digest
from study.launching.options import LaunchOptions
from study.launching.reading import plan_from, read_comparing, settings_from
from study.plans.arm_checks import describe_segments
from study.plans.plan import Plan
from study.plans.resolution import list_unsearched_fields, resolve
from study.plans.resolved_plan import (
    Arm,
    ResolvedPlan,
    describe_poolers,
    describe_poolings,
    describe_unlike_values,
    digest,
    format_file_name,
)
from study.plans.settings import list_scopes
from study.plans.sweeps import describe_sweeps
from study.terminal.text import counted, list_first, masked, print_lines
from trainables.configuration.ranges import list_combinations
from trainables.configuration.schema import MOST, Configuration, to_plain
from trainables.data import glue
from trainables.data.repeated_texts import describe_repeats
from trainables.data.tasks import TASKS, trainable_tasks
from trainables.encoders.backbone_files import backbone_fingerprint
from trainables.encoders.backbone_names import is_folder
from trainables.encoders.backbones import count_layers
from trainables.files import method_files

MOST_FAULTS = 10  # maximum number of faults in the data that are reported at once
MOST_ARMS = 5  # maximum number of arms named in one line
_NEW_PATHS = {  # field of a plan -> how to give the current path of a folder that was moved
    "data": "--data with the current path",
    "backbone": "--backbone with the current path",
    "tokenizer": "a --plan file with the line tokenizer = and the current path",
}


class PlannedStudy(NamedTuple):
    """The study that a launch will run. Its plan merges the options with the plan in the folder, if there is one."""

    resolved: ResolvedPlan
    folder: Path
    from_options: Plan  # the plan from this command's options, before it is merged with `earlier`
    earlier: PlanFile | None  # the plan in the folder, if there is one
    origin: str  # of the plan: `profile mini`
    unchecked: tuple[str, ...]  # hub names that a dry run could not check, because the hub was unreachable

    def describe(self) -> str:
        """Format the folder, the protocol hash and the plan's origin: `study runs/NAME (HASH), profile mini`."""
        return f"study {self.folder} ({self.resolved.protocol_hash}), {self.origin}"


def resolve_study(options: LaunchOptions) -> PlannedStudy:
    """Resolve the study that the options ask for, without creating files.

    Raises:
        ValueError: if the study cannot be run. The message names the --plan file if the fault is in that file.
    """
    earlier = None if options.continue_study is None else require_plan(Path(options.continue_study))
    plan, origin = plan_from(options, earlier.plan.request if earlier else None)
    if earlier is not None:
        _check_kept_places(plan, earlier)
    try:
        return prepare(plan, options, earlier=earlier, origin=origin)
    except ValueError as error:
        if options.plan is None:
            raise
        typed = {name for name in Plan.__struct_fields__ if getattr(options, name, None) not in (None, [])}
        fault = blame_plan_file(str(error), plan, path=options.plan, typed=typed | {*settings_from(options)})
        raise ValueError(fault) from None


def prepare(plan: Plan, options: LaunchOptions, *, earlier: PlanFile | None = None, origin: str = "") -> PlannedStudy:
    """Resolve `plan` into the study to run, without creating files.

    Args:
        earlier: the plan in the folder of --continue. If None, use the plan in the study's folder, if there is one.
        origin: the origin of `plan`, for display, such as `profile mini`.

    Raises:
        ValueError: if the plan cannot be run, or the folder holds a different study.
    """
    folder = Path(options.continue_study or Path(options.out or RUNS) / (options.name or build_default_name(plan)))
    earlier = earlier or find_plan(folder)
    if options.retry_failed and earlier is None:
        raise ValueError(
            f"--retry-failed needs an existing study, but {folder} has none; name a study with --continue, or leave "
            "--retry-failed out"
        )
    unchecked: list[str] | None = [] if options.dry_run else None
    resolved = resolve_in(folder, plan, earlier, is_continued=options.continue_study is not None, unchecked=unchecked)
    if options.baseline and plan.baseline not in resolved.request.methods:
        studied = ", ".join(resolved.request.methods)
        raise ValueError(
            f"--baseline {options.baseline} is not studied; allowed: {studied}; to add it to the study: --method "
            f"{plan.baseline}"
        )
    if options.compare and len(resolved.request.methods) == 1:
        raise ValueError(f"--compare methods needs two methods, but the study has only {resolved.request.methods[0]}")
    if options.max_gpu_hours is not None and resolved.request.search_precision is not UNSET:
        raise ValueError(
            "--max-gpu-hours uses the cost of search trials as an estimate for confirm trials, but with "
            "search_precision their costs differ; leave out one of the two"
        )
    _check_tensorfloat32(options, resolved)
    return PlannedStudy(resolved, folder, plan, earlier, origin, tuple(unchecked or ()))


def _check_kept_places(plan: Plan, earlier: PlanFile) -> None:
    """Raise ValueError if a path in the plan of the continued study leads nowhere, perhaps from the current folder."""
    request, arms = earlier.plan.request, earlier.plan.arms
    loaded = {arm.backbone: arm.backbone_fingerprint for arm in arms}
    loaded |= {arm.tokenizer: arm.tokenizer_fingerprint or "" for arm in arms if arm.tokenizer}
    is_folder = {
        "data": glue.classify_data(request.data) == "folder",
        "backbone": "@" not in loaded.get(request.backbone or "", "@"),  # fingerprints of other names contain "@"
        "tokenizer": "@" not in loaded.get(request.tokenizer or "", "@"),
    }
    for name, value in ((name, getattr(request, name)) for name in is_folder if is_folder[name]):
        if value == getattr(plan, name) and not Path(value).exists():
            raise ValueError(describe_lost_folder(name, value, remedy=f"add {_NEW_PATHS[name]}"))


def build_default_name(plan: Plan) -> str:
    """Build the default name of a study from its methods and a hash of all settings that affect the scores.

    Local backbones and tokenizers are hashed by content. Those from the hub are hashed by name.
    """
    names = plan.methods if len(plan.methods) < 3 else (f"{len(plan.methods)}-methods",)
    loaded = {
        kind: backbone_fingerprint(name, kind=kind) if name and is_folder(name) else name
        for kind, name in (("backbone", plan.backbone), ("tokenizer", plan.tokenizer))
    }
    content = {**plan.score_fields, **loaded, "data": glue.make_absolute(plan.data)}
    return "-".join([*map(format_file_name, names), digest(to_plain(content), length=6)])


def resolve_in(
    folder: Path,
    plan: Plan,
    earlier: PlanFile | None,
    *,
    is_continued: bool = False,
    unchecked: list[str] | None = None,
) -> ResolvedPlan:
    """Merge the plan with the earlier plan, if there is one, and resolve the result.

    Args:
        is_continued: True if --continue named the folder. The advice in error messages depends on this.
        unchecked: list that receives the hub names that cannot be checked. If None, such a name is an error.

    Raises:
        ValueError: if the folder holds a different study, or some data cannot be read.
    """
    if earlier is None:
        _check_files(plan)
        return resolve(plan, unchecked=unchecked)
    had = earlier.plan.request
    plan = plan.extend(had)
    settled = cache(lambda: {trial.started.arm for trial in read_facts(folder).trials.values()})
    if glue.classify_data(plan.data) != glue.classify_data(had.data) and settled():  # raised before reading data
        raise mismatch_error(folder, [describe_data_change(had, plan)], is_continued=is_continued)
    for arm in settled() if plan.first != had.first else ():
        if plan.list_firsts(arm) != had.list_firsts(arm):
            raise ValueError(
                f"--first-from: {arm} of {folder} already has trials, so its first trial cannot change; allowed: "
                "arms without trials (--method, --task), or a new study (--name)"
            )
    _check_files(plan)
    if plan.include is not UNSET:
        include_folder(plan.methods, plan.include)
    resolved = resolve(plan, unchecked=unchecked, pins=earlier.plan.pins)
    if unchecked or not compare_plans(earlier.plan, resolved):
        return resolved
    if changed := compare_plans(earlier.plan, resolved, settled=settled()):
        raise mismatch_error(folder, changed, is_continued=is_continued)
    return resolved


def _check_files(plan: Plan) -> None:
    """Check that every row of the plan's data can be read.

    Raises:
        ValueError: if a file is missing or a row is malformed; the message lists at most `MOST_FAULTS` faults.
    """
    tasks = [TASKS[name] for name in plan.tasks if name in TASKS]
    for task in tasks:
        glue.check_data(task, plan.data)
    found = chain.from_iterable(glue.find_data_faults(task, plan.data) for task in tasks)
    faults = list(islice(found, MOST_FAULTS))
    if len(faults) > 1:
        least = "at least " * (len(faults) >= MOST_FAULTS)
        faults = [f"the data have {least}{len(faults)} faults; correct them, or choose another folder", *faults]
    if faults:
        raise ValueError("\n".join(faults))


def _check_tensorfloat32(options: LaunchOptions, resolved: ResolvedPlan) -> None:
    """Raise ValueError if a trial asks for TF32 but will have no GPU."""
    asking = [arm for arm in resolved.arms if "tensorfloat32" in (*arm.list_values("precision"), arm.search_precision)]
    has_gpus = options.gpus_per_trial != 0 and (options.address is not None or count_local_gpus() > 0)
    if asking and not has_gpus:
        raise ValueError(
            f"trials of {asking[0].name} ask for tensorfloat32, but have no GPU; allowed without a GPU: float32, "
            "bfloat16, float16"
        )


def name_registry(uri: str) -> str:
    """Name the MLflow store in which --register registers a plan, as the journal does."""
    return f"MLflow {masked(uri)}"


def find_reopened(
    progress: StudyProgress, code: Provenance, folder: Path, options: LaunchOptions
) -> dict[str, Reopening]:
    """Find the failed trials that the launch runs again, and map each key to the reason.

    If the limit on GPU time leaves out some of them, print their number.

    Raises:
        ValueError: if --register comes too late, or trials would run after the study was scored on test labels.
    """
    if options.register and progress.facts.trials:
        plan, place = compute_plan_digest(folder), name_registry(options.tracking_uri or "")
        if not any(event.digest == plan and event.place == place for event in progress.facts.registered):
            raise ValueError(
                f"--register: the study {folder} already has trials, and {place} did not register its plan before "
                "them; allowed: a study without trials, or leave out --register"
            )
    reopened = find_reopenable(progress, code, retry_failed=options.retry_failed)
    if left := reopened.beyond_limit:
        line = f"{counted(len(left), 'failed trial')} cannot run again within --max-gpu-hours {options.max_gpu_hours:g}"
        print_lines([f"{line}; a higher limit runs them"], sys.stderr)
    if reopened.reasons or not progress.is_finished:
        progress.facts.check_unscored()
    return reopened.reasons


def find_launched_arms(study: PlannedStudy, options: LaunchOptions) -> frozenset[str]:
    """Return the names of the arms that this launch runs.

    These are the arms of --method and --task, and the arms that train their starting models.

    Raises:
        ValueError: if --max-gpu-hours is given and some arms are left out.
    """
    arms = study.resolved.arms
    methods = None if options.methods is None else study.from_options.methods
    tasks = None if options.tasks is None else study.from_options.tasks
    named = [arm for arm in arms if methods is None or arm.method in methods]
    names = {arm.name for arm in named if tasks is None or arm.task in tasks}
    sources = {arm.name: arm.start_from for arm in arms}
    while added := {source for name in names if (source := sources[name]) is not None} - names:
        names |= added
    if options.max_gpu_hours is not None and (left_out := [arm.name for arm in arms if arm.name not in names]):
        raise ValueError(
            f"--max-gpu-hours applies to all arms of the study, but --method or --task excludes {left_out[0]}; leave "
            "out --method and --task, or --max-gpu-hours"
        )
    return frozenset(names)


def list_plan_notes(
    study: PlannedStudy, options: LaunchOptions, facts: StudyFacts, *, launched: frozenset[str]
) -> list[str]:
    """List the facts about this launch that may surprise the user, one per line.

    Examples: the backbone has random weights; the launch leaves out some arms.
    """
    notes, request = list[str](), study.resolved.request
    if options.name in trainable_tasks() and not options.tasks:
        notes.append(f"--name {options.name} only names the study; --task {options.name} chooses the task")
    if names := ", ".join(study.resolved.untrained):
        notes.append(f"backbone {names} has random weights; --backbone chooses a pretrained one")
    notes += [*describe_poolers(study.resolved), *describe_poolings(study.resolved)]
    notes += [*describe_segments(study.resolved), *describe_unlike_values(study.resolved)]
    notes += describe_sweeps(study.resolved)
    notes += [*_note_unsearched(study.resolved), *_note_empty_searches(study.resolved, options)]
    notes += [*_note_first_tries(study.resolved), *_note_blocked(study)]
    notes += _note_idle_stopping(study.resolved)
    notes += _note_changed_methods(study.resolved, facts)
    notes += [*_note_repeated_texts(study.resolved), *_note_holdouts(study.resolved)]
    preset, units = read_comparing(options.compare), {"search_repeats": "searches per arm"}
    for name in ("samples", "seeds", "search_repeats"):
        typed, had = getattr(options, name, None), getattr(request, name)
        number = preset.get(name) if typed is None else typed
        if number is not None and number != had:
            given = f"{name} {number} of --compare {options.compare}" if typed is None else f"--{name} {number}"
            kept = "the whole grid" if had is None else f"{had} {units.get(name, name)}"
            notes.append(f"{given} is ignored, because the study already has {kept}")
    return [*notes, *_note_unlaunched(study, options, facts, launched=launched)]


def _note_unsearched(plan: ResolvedPlan) -> list[str]:
    """Note the fields that --samples 0 or --search-only excludes from the search; [] if there are none."""
    if plan.request.searched_alone is UNSET:
        return []
    cause = "--samples 0" if plan.request.samples == 0 else f"--search-only {','.join(plan.request.searched_alone)}"
    lists = [list_unsearched_fields(plan.request, arm.method, arm.task) for arm in plan.arms]
    if not (names := ", ".join(dict.fromkeys(chain.from_iterable(lists)))):
        return []
    return [f"{cause} excludes fields from the search: {names}; --explain METHOD/TASK prints their values and sources"]


def _note_empty_searches(plan: ResolvedPlan, options: LaunchOptions) -> list[str]:
    """Note the arms without search trials if this command asks for a search; [] if there are none."""
    options_of_search = {"--samples": options.samples, "--search-only": ",".join(options.search_only)}
    given = [f"{name} {value}" for name, value in options_of_search.items() if value]
    arms = [arm.name for arm in plan.first_arms if not arm.space]
    if not given or not arms or plan.request.samples == 0:
        return []
    return [
        f"{' and '.join(given)}: no search trials for {list_first(arms, MOST_ARMS)}, because no field is left to tune "
        "(exit settings alone are not searched); --explain METHOD/TASK prints the origin of each value"
    ]


def _note_first_tries(plan: ResolvedPlan) -> list[str]:
    """List the winners from another study (--first-from), each with the searches that try it first, or do not."""
    trying, others = dict[str, list[str]](), dict[str, list[str]]()
    for arm in plan.first_arms:
        for first in plan.request.list_firsts(arm.name):
            (trying if arm.tries_first(first.values) else others).setdefault(first.origin, []).append(arm.name)
    fault = "they tune none of its fields, or have too few trials"
    return [
        f"searches of {list_first(names, MOST_ARMS)} first try the winner of {origin}"
        for origin, names in trying.items()
    ] + [
        f"searches of {list_first(names, MOST_ARMS)} do not try the winner of {origin}: {fault}"
        for origin, names in others.items()
    ]


def _note_blocked(study: PlannedStudy) -> list[str]:
    """List the arms in which no example can exit early, because their backbones have too few layers."""
    arms = dict[str, list[str]]()
    for arm in study.resolved.arms:

        def find_earliest(setting: Configuration, arm: Arm = arm) -> int:
            return trainables.configure(arm.method, {**arm.any_configuration, **setting}).earliest_exit(MOST)

        if find_earliest({}) == 1 or arm.backbone in study.unchecked:  # 1 for most methods, without asking the hub
            continue
        depth = arm.find_most("num_hidden_layers") or count_layers(arm.pinned_backbone)
        fields = search_spaces.load_space(arm.base_method).post_hoc
        menus = {field: arm.exit_settings.get(field) or arm.list_values(field) for field in fields}
        setting = min(list_combinations(menus), key=find_earliest)
        if depth is None or find_earliest(setting) < depth:
            continue
        shown = ", ".join(f"{field} {value}" for field, value in setting.items())
        smaller = [{field: value} for field in fields for value in range(depth // 2, 0, -1)]
        early = next((other for other in smaller if find_earliest({**setting, **other}) < depth), {})
        advice = [
            f"; allow exits with --set {list_scopes(arm.method)[0]}:{field}={value}"
            for field, value in early.items()
            if field not in search_spaces.load_space(arm.method).variant
        ]
        reason = f"with {shown}, exits begin after layer {find_earliest(setting)}, but the backbone has {depth} layers"
        arms.setdefault(f"{reason}{''.join(advice)}", []).append(arm.name)
    return [f"no example of {list_first(names, MOST_ARMS)} can exit early: {reason}" for reason, names in arms.items()]


def _note_idle_stopping(plan: ResolvedPlan) -> list[str]:
    """Note the arms whose search trials are too short for early stopping to stop one; [] if there are none."""
    if (stopping := plan.protocol.early_stopping) is None:
        return []
    arms = [arm for arm in plan.arms if arm.samples and not list_rungs(arm.epochs, stopping)]
    if not arms:
        return []
    names, most = list_first([arm.name for arm in arms], MOST_ARMS), max(arm.epochs for arm in arms)
    return [
        f"--early-stopping asha:grace={stopping.grace} stops no search trial of {names}, which have at most "
        f"{counted(most, 'epoch')}{'; to stop some, use a smaller grace' * (most > 1)}"
    ]


def _note_changed_methods(plan: ResolvedPlan, facts: StudyFacts) -> list[str]:
    """Note the user's own methods whose files have changed since they were trained; [] if nothing is left to run."""
    if (methods := method_files.included()) is None or StudyProgress(plan, facts, max_gpu_hours=None).is_finished:
        return []
    if not (changed := list_edited_methods(facts, facts.trials.values())):
        return []
    return [
        f"the files of {list_first(changed, MOST_ARMS)} in {methods.folder} have changed since earlier trials: "
        "completed trials stay, and the tables note the other code; trials under way begin again"
    ]


def _note_repeated_texts(plan: ResolvedPlan) -> list[str]:
    """Note the texts of dev that occur in train, and contradictory labels; generated tasks have neither."""
    counts = (plan.repeated_texts or {}).items()
    repeats = {TASKS[task].title: each for task, each in counts if TASKS[task].place or plan.request.data != "mini"}
    if not repeats:
        return []
    return [
        describe_repeats(repeats),
        *(each.describe_effect(title) for title, each in repeats.items() if each.is_notable),
    ]


def _note_holdouts(plan: ResolvedPlan) -> list[str]:
    """Note the tasks whose rows for the choice of an epoch, held out from train, have only one label."""
    if plan.protocol.selection != "holdout":
        return []
    faults = [glue.describe_holdout_fault(TASKS[task], plan.request.data) for task in plan.request.tasks]
    return list(filter(None, faults))


def _note_unlaunched(
    study: PlannedStudy, options: LaunchOptions, facts: StudyFacts, *, launched: frozenset[str]
) -> list[str]:
    """List the arms that this launch leaves out, and explain how to run them; [] if there are none."""
    left_out = [arm.name for arm in study.resolved.arms if arm.name not in launched]
    if not left_out:
        return []
    flags = [name for name, value in (("--method", options.methods), ("--task", options.tasks)) if value is not None]
    continued = f"--continue {shlex.quote(str(study.folder))}"
    advice = f"leave out {' and '.join(flags)}" if options.continue_study else continued
    runs = ", ".join(arm.name for arm in study.resolved.arms if arm.name in launched)
    notes = [f"this launch runs only {runs}; it does not run {', '.join(left_out)}; to run all: {advice}"]
    progress = StudyProgress(study.resolved, facts, max_gpu_hours=None)
    counts = {name: (len(progress.arm(name).confirmed), len(progress.arm(name).planned.seeds)) for name in left_out}
    if fewer := [f"{name} {number} of {wanted}" for name, (number, wanted) in counts.items() if 0 < number < wanted]:
        notes.append(f"these arms lack seeds, but this launch does not run them: {', '.join(fewer)}")
    return notes


def as_locked(study: PlannedStudy, *, is_continued: bool) -> PlannedStudy:
    """Resolve the study again if another launch changed the plan before this launch locked the folder."""
    now = find_plan(study.folder)
    if now == study.earlier:
        return study
    resolved = resolve_in(study.folder, study.from_options, now, is_continued=is_continued)
    return study._replace(resolved=resolved, earlier=now)


def keep_plan(study: PlannedStudy, code: Provenance, *, is_over: bool) -> None:
    """Write the study's plan to `plan.json`.

    If the study is finished and the plan in this file changes, delete the dev table and the result (`ANSWER`).
    """
    if is_over:
        has_file = (study.folder / PLAN).exists()
        if has_file and study.earlier is not None and study.earlier.plan == _as_counted(study.earlier, study.resolved):
            return
        for name in (DEV_TABLE, ANSWER):
            with suppress(OSError):  # a folder in its place
                (study.folder / name).unlink(missing_ok=True)
    write_plan(study.folder, plan_file(study.folder, study.resolved, code, study.earlier))


def _as_counted(earlier: PlanFile, plan: ResolvedPlan) -> ResolvedPlan:
    """Leave out the plan's repeated texts and train rows if the file was written before these were counted."""
    uncounted = [name for name in ("repeated_texts", "train_rows") if getattr(earlier.plan, name) is UNSET]
    return replace(plan, **dict.fromkeys(uncounted, UNSET))


def plan_file(folder: Path, plan: ResolvedPlan, code: Provenance, earlier: PlanFile | None = None) -> PlanFile:
    """Build the content of `plan.json`. If there is an `earlier` file, keep its creation time."""
    created = earlier.created if earlier else utc_now()
    return PlanFile.build(folder, plan, code, created=created, command=command_line())


def command_line() -> str:
    """Return the command of this process as `python -m study.launch ...`, with passwords and secret addresses hidden.

    Nothing of --then stays: often it is a message to a service whose address is a secret.
    """
    arguments = sys.argv[2:] if sys.argv[1:2] == ["launch"] else sys.argv[1:]  # of `glue-study launch`
    words = ["python", "-m", "study.launch", *arguments]
    hides = [before == "--then" for before in ["", *words]]
    words = ["--then=***" if word.startswith("--then=") else word for word in words]
    return masked(shlex.join("***" if hidden else word for word, hidden in zip(words, hides, strict=False)))
