"""Start, continue or extend a study: `python -m study.launch --method palbert`.

Ray, torch and the drivers are imported when trials are to be run. A finished study needs none of them.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from study.cluster.resources import Nodes, Resources, ThisMachine, check_room, local_gpus
from study.command_line import Command
from study.decisions.machine_faults import Faults
from study.decisions.progress import StudyProgress
from study.decisions.scheduler import Scheduler, arms_of_other_code, reopen_failed, to_reopen
from study.drivers.driver import end_unsettled
from study.drivers.provenance import plan_tag, provenance
from study.drivers.smoke_steps import SmokeSteps, SmokeStepsFailed
from study.drivers.watchdog import Stalled, Watchdog
from study.facts.attestation import Provenance
from study.facts.events import LaunchStatus, PlanRegistered, SmokeStepFailed, utc_now
from study.facts.journal import Journal
from study.facts.plain_words import counted, first_of, for_screen, on_screen
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import ANSWER, BROWSE, DEV_TABLE, WORKERS_LOG, answer, first_plan_digest
from study.forecast import describe_time_limit, forecast_plan, measured_in
from study.launch_options import (
    DESCRIPTION,
    EPILOG,
    OUT,
    LaunchOptions,
    check_options,
    default_driver,
    is_installed,
    origins_of_settings,
    plan_from,
    settings_of,
)
from study.mlflow_mirror.tracking import silence_of
from study.plans.departures import departures_in_words
from study.plans.plan import MOST_REPEATS, Plan
from study.plans.plan_file import FILE as PLAN
from study.plans.plan_file import (
    PlanFile,
    another_study,
    check_in_one_folder,
    in_file,
    include_folder,
    other_data,
    plan_as_toml,
    plan_changes,
    plan_on_disk,
    require_plan,
    write_plan,
)
from study.plans.pretrained_backbone import unknown_in_words
from study.plans.resolution import explain, papers_values, resolve
from study.plans.resolved_plan import ResolvedPlan, digest, in_file_names
from study.rebuild import EXPORTS, write_files
from study.screen.live_view import LiveView
from study.screen.terminal import can_redraw, console_on, lasting_outputs, lost_outputs, waiting_for
from study.screen.words import describe_failure, describe_retries, failures_command, missing_cells, python
from study.storage.addresses import join, make_writable, masked, storage_address
from study.storage.trial_places import storage_for
from study.winners import in_lines
from trainables import method_files
from trainables.data import glue
from trainables.data.tasks import TASKS, trainable_tasks
from trainables.encoders.backbones import backbone_fingerprint, is_folder
from trainables.schema import to_plain
from trainables.sources import NOT_CHECKED, cache_folder
from trainables.spelling import resolve_name

if TYPE_CHECKING:
    from study.drivers.driver import Driver

MOST_STUDIES = 3  # that are named in a line
MOST_FAULTS = 10  # of data, that are reported at once
MOST_ARMS = 5  # that are named in a line
MIRROR_NICENESS = 10  # over the launch's own: where processors are short, driver and trials go first


class Study(NamedTuple):
    """The study of a command line: what is asked for, joined with what its folder holds already."""

    resolved: ResolvedPlan
    folder: Path
    asked: Plan  # by this command alone
    earlier: PlanFile | None  # the plan that the folder holds
    why: str  # where the plan is from
    unchecked: tuple[str, ...]  # in a dry run: names that the hub was to be asked for, and could not be


def run(options: LaunchOptions) -> int:
    """0 if the study is complete, 1 if cells are missing or the launch was interrupted, 2 for bad usage."""
    check_options(options)
    study = open_study(options)
    if options.dry_run:
        return dry_run(study, options)
    with lasting_outputs():
        return run_study(study, options)


def open_study(options: LaunchOptions) -> Study:
    """The study of a command line; see `prepare`. A fault of what the file of --plan says names the file."""
    earlier = None if options.continue_study is None else require_plan(Path(options.continue_study))
    plan, why = plan_from(options, earlier.plan.asked if earlier else None)
    try:
        return prepare(plan, options, earlier=earlier, why=why)
    except ValueError as error:
        if options.plan is None:
            raise
        typed = {name for name in Plan.__struct_fields__ if getattr(options, name, None) not in (None, [])}
        fault = in_file(str(error), plan, path=options.plan, typed=typed | {*settings_of(options)})
        raise ValueError(fault) from None


def prepare(plan: Plan, options: LaunchOptions, *, earlier: PlanFile | None = None, why: str = "") -> Study:
    """The study that is asked for. Its plan is resolved here, and nothing is created.

    Args:
        earlier: the plan of the study of --continue; that of any other folder is read here.

    Raises:
        ValueError: the plan cannot be run, or is of another study than the folder's.
    """
    folder = Path(options.continue_study or Path(options.out or OUT) / (options.name or default_name(plan)))
    earlier = earlier or plan_on_disk(folder)
    if options.retry_failed and earlier is None:
        raise ValueError(
            f"--retry-failed is of a study that is there, and {folder} is none; allowed: --continue runs/NAME, or "
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
    """The methods, and digits that anything else changes that decides a number.

    The folder of a backbone or tokenizer counts by its content, wherever it lies; a hub name by itself, at whatever
    commit it is.
    """
    names = plan.methods if len(plan.methods) < 3 else (f"{len(plan.methods)}-methods",)
    loaded = {
        kind: backbone_fingerprint(name, kind=kind) if name and is_folder(name) else name
        for kind, name in (("backbone", plan.backbone), ("tokenizer", plan.tokenizer))
    }
    content = {**plan.of_numbers, **loaded, "data": glue.seen_from_anywhere(plan.data)}
    return "-".join([*map(in_file_names, names), digest(to_plain(content), length=6)])


def resolve_in(
    folder: Path,
    plan: Plan,
    earlier: PlanFile | None,
    *,
    is_continued: bool = False,
    unchecked: list[str] | None = None,
) -> ResolvedPlan:
    """The plan joined with the one that its folder holds; `is_continued`: by --continue.

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
    if unchecked or not plan_changes(earlier.plan, resolved):
        return resolved
    if changed := plan_changes(earlier.plan, resolved, settled=settled()):
        raise another_study(folder, changed, is_continued=is_continued)
    return resolved


def _check_files(plan: Plan) -> None:
    """Passes if all rows can be read that trials of the plan train on.

    Raises:
        ValueError: some cannot; a line for each, `MOST_FAULTS` at most.
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
    """Rejects TF32 for trials that are known to have no GPU."""
    asking = [arm for arm in resolved.arms if "tensorfloat32" in (*arm.values_of("precision"), arm.search_precision)]
    has_gpus = options.gpus_per_trial != 0 and (options.address is not None or local_gpus() > 0)
    if asking and not has_gpus:
        raise ValueError(
            f"trials of {asking[0].name} are to compute in tensorfloat32, but have no GPU; allowed: float32, bfloat16"
        )


def launched_arms(study: Study, options: LaunchOptions) -> frozenset[str]:
    """Names of the arms whose trials this launch runs: those that --method and --task name, and what they start from.

    Raises:
        ValueError: arms are left out beside a limit that is shared by all.
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
    """Notes on a plan before it is written: what was raised, what stays as it is, and other studies with its arms."""
    asked = study.resolved.asked
    raised = [
        f"--{name} {given}: the study has {'its whole grid' if had is None else had} already, "
        f"and goes on with {'that' if had is None else had}"
        for name, given, had in (("samples", options.samples, asked.samples), ("seeds", options.seeds, asked.seeds))
        if given is not None and given != had
    ]
    elsewhere = _same_arms_elsewhere(study) if study.earlier is None else []
    names = ", ".join(study.resolved.untrained)
    untrained = [f"untrained backbone {names}: its weights are random; --backbone names a pretrained one"] * bool(names)
    is_task = options.name in trainable_tasks() and not options.tasks
    name_of_task = [f"--name {options.name} names the study; --task {options.name} is the task"] * is_task
    return [
        *name_of_task,
        *untrained,
        *_not_searched(study.resolved),
        *_tried_first(study.resolved),
        *raised,
        *_not_launched(study, options, facts, launched=launched),
        *elsewhere,
    ]


def _not_searched(plan: ResolvedPlan) -> list[str]:
    """A line that names what could be searched and has one value, and why."""
    if plan.asked.searched_alone is UNSET:
        return []
    why = "--samples 0" if plan.asked.samples == 0 else f"--search-only {','.join(plan.asked.searched_alone)}"
    left = list(dict.fromkeys(name for arm in plan.arms for name in papers_values(plan.asked, arm.method, arm.task)))
    told = "these are not searched; --explain METHOD/TASK prints the value of each and its source"
    return [f"{why}: {told}: {', '.join(left)}"] * bool(left)


def _tried_first(plan: ResolvedPlan) -> list[str]:
    """A line for each winner of another study that --first-from takes, with the arms that try it first."""
    arms = dict[str, list[str]]()
    for arm in plan.first_arms:
        for first in plan.asked.first_of(arm.name):
            arms.setdefault(first.origin, []).append(arm.name)
    return [f"tried first: the winner of {origin}, by {first_of(names, MOST_ARMS)}" for origin, names in arms.items()]


def _not_launched(study: Study, options: LaunchOptions, facts: StudyFacts, *, launched: frozenset[str]) -> list[str]:
    """The arms that this launch runs and the command for the rest, if it leaves some out."""
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


def _same_arms_elsewhere(study: Study) -> list[str]:
    """A line that names the studies beside a new one with the same arms; nothing if there are none."""
    beside, own = study.folder.parent, {arm.name for arm in study.resolved.arms}
    having: dict[Path, str] = {}
    for file in sorted(beside.glob(f"*/{PLAN}")):
        try:
            other = require_plan(file.parent).plan
        except ValueError:  # a launch of that study reports it
            continue
        names = {arm.name for arm in other.arms} & own
        if names and not plan_changes(other, study.resolved):
            having[file.parent] = ", ".join(sorted(names))
    if len(having) > 1:
        shown = first_of([other.name for other in having], MOST_STUDIES)
        to_add = f"to add to one of them: --continue {beside}/NAME"
        return [f"{len(having)} studies in {beside} have arms of this one too, under this protocol: {shown}; {to_add}"]
    return [
        f"{other} has {arms} too, under this protocol; to add to it: --continue {other}"
        for other, arms in having.items()
    ]


def dry_run(study: Study, options: LaunchOptions) -> int:
    """Prints what would run, what it is expected to cost and where it departs from the papers; nothing is created."""
    resolved = study.resolved
    if options.explain is not None:
        names = [arm.name for arm in resolved.arms if not arm.repeat]
        known = [f"{method}/{task}" for method in method_files.names() for task in trainable_tasks()]
        method, _, task = resolve_name(options.explain, names, what="arm of this study", known=known).partition("/")
        print(explain(resolved.asked, method, task, origins=origins_of_settings(options, resolved.asked)))
        return 0
    if options.toml:
        print(plan_as_toml(resolved.asked), end="")
        return 0
    here = Resources.of(ThisMachine(), cpus=options.cpus_per_trial, gpus=options.gpus_per_trial)
    slots = 1 if options.address else here.slots()
    forecast = forecast_plan(resolved, study.folder, with_probe=options.probe, slots=slots)
    _warn(unknown_in_words(resolved))
    if options.json:
        facts = {"folder": str(study.folder), "plan": to_plain(resolved), **to_plain(forecast.facts)}
        print(json.dumps(facts, indent=1))
        return 0
    notes = plan_notes(study, options, read_facts(study.folder), launched=launched_arms(study, options))
    if options.max_minutes is not None:
        notes.append(describe_time_limit(options.max_minutes, forecast.measured))
    if len(resolved.asked.methods) > 1 and resolved.asked.baseline:
        notes.append(f"baseline {resolved.asked.baseline}: the other methods are tested against it")
    for line in [_first_line(study), *notes, *forecast.lines]:
        print(on_screen(line, sys.stdout))
    number = sum(map(len, resolved.departures.values()))
    in_short = [f"differs from the papers and their code in {number} ways: --departures lists them"] * (number > 0)
    for line in departures_in_words(resolved) if options.departures else in_short:
        print(line)
    if study.earlier is None and not study.unchecked:
        tag = f"plan-{digest(to_plain(resolved))}"
        print(
            on_screen(f"to register this plan before its first trial: git tag {tag}, pushed; or --register", sys.stdout)
        )
    if study.unchecked:
        print(on_screen(f"{NOT_CHECKED}{', '.join(study.unchecked)}", sys.stdout))
    print(on_screen("nothing was run; this plan as a file for --plan: --dry-run --toml", sys.stdout))
    return 0


def _first_line(study: Study) -> str:
    return f"study {study.folder} ({study.resolved.protocol_hash}), {study.why}"


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        print(on_screen(line, sys.stderr), file=sys.stderr)


def run_study(study: Study, options: LaunchOptions) -> int:
    """The launch's exit status.

    Raises:
        ValueError: the study cannot be opened, or no trial fits on a node; nothing was run.
    """
    if options.tracking_uri is None and not is_installed("mlflow"):
        _warn(["MLflow is not installed here: the launch goes on with --tracking-uri none"])
        options = replace(options, tracking_uri="none")
    until = math.inf if options.max_minutes is None else time.monotonic() + 60 * options.max_minutes
    folder = study.folder
    with ExitStack() as stack:
        if options.address:
            with waiting_for(f"the Ray cluster at {options.address}", output=sys.stderr):
                from study.cluster.ray_cluster import ray_cluster

                stack.enter_context(ray_cluster(options.address))  # before anything is created
                _resources(options)
        if options.storage and study.earlier is None:
            make_writable(join(storage_address(options.storage), "trials"))
        make_writable(str(folder / "predictions"))
        journal = stack.enter_context(closing(Journal(folder)))
        study = _as_locked(study, is_continued=options.continue_study is not None)
        code, faults = provenance(), Faults(max_failures=options.max_failures)
        limit, arms = options.max_gpu_hours, launched_arms(study, options)
        scheduler = Scheduler(study.resolved, journal, code, max_gpu_hours=limit, faults=faults, launched=arms)
        if options.register and journal.facts.trials:
            raise ValueError(f"--register: {folder} has trials already; allowed: before the first trial of a study")
        last = journal.facts.last_launch
        is_reported = last is not None and last.ended is not None and last.ended.status == "complete"  # else killed
        reopened = to_reopen(scheduler.progress, code, asked=options.retry_failed)
        is_over = scheduler.progress.is_finished and is_reported and not reopened
        if reopened or not scheduler.progress.is_finished:
            journal.facts.check_unscored()
        storage = storage_for(None if is_over else options.storage, folder, journal.facts)
        if not is_over:
            make_writable(join(storage, "trials"))
        notes = plan_notes(study, options, journal.facts, launched=arms)
        _keep_plan(study, code, is_over=is_over)
        _warn(notes)
        end_unsettled(scheduler, storage=storage, folder=folder)
        if is_over:
            _warn(_describe_finished(scheduler, folder, asked=options.storage, storage=storage))
            is_exported = all((folder / name).exists() for name in EXPORTS)
            said = answer(folder) if is_exported else write_files(folder, scheduler.progress)
        else:
            prints = f"what methods print: {folder / WORKERS_LOG}"
            _warn([_first_line(study), *unknown_in_words(study.resolved), prints])
            if options.address is None:
                cache_folder()  # prints where tokenised data are, if that is no usual place; trials print to their log
            if options.max_minutes is not None:
                _warn([describe_time_limit(options.max_minutes, measured_in(journal.facts.records))])
            said = _launch(scheduler, journal, folder, storage, options, until=until)
    return _conclude(scheduler, folder, said, options)


def _as_locked(study: Study, *, is_continued: bool) -> Study:
    """The study now that nobody else can write to its folder; resolved anew if another launch has done so meanwhile."""
    now = plan_on_disk(study.folder)
    if now == study.earlier:
        return study
    resolved = resolve_in(study.folder, study.asked, now, is_continued=is_continued)
    return study._replace(resolved=resolved, earlier=now)


def _describe_finished(scheduler: Scheduler, folder: Path, *, asked: str | None, storage: str) -> list[str]:
    """Reports that no trial is left to run, which have failed, and the arms that other code has trained.

    `asked` is the storage that was named, and `storage` the one that the study has.
    """
    failed = scheduler.progress.failures
    line = f"study {folder}: nothing is left to do"
    if failed:
        arms = ", ".join(dict.fromkeys(record.arm for record in failed))
        line = (
            f"study {folder}: no trial is left to run, but {counted(len(failed), 'trial')} of {arms} failed; with "
            "mended code, or --retry-failed, they run again"
        )
    if asked is not None and storage_address(asked) != storage:
        line += f", and nothing is stored in {asked}: what there is stays in {storage}"
    others = arms_of_other_code(scheduler.progress, scheduler.provenance)
    if not others:
        return [line]
    anew = f"{python()} -m study.launch --continue {shlex.quote(str(folder))} --dry-run --toml > plan.toml"
    trained = f"{first_of(others, MOST_ARMS)} {'were' if len(others) > 1 else 'was'} trained with"
    return [
        line,
        f"the code is another than that which {trained}; the numbers are kept; to train anew, as another study: "
        f"{anew}, then --plan plan.toml --name NEW",
    ]


def _keep_plan(study: Study, code: Provenance, *, is_over: bool) -> None:
    """Writes `plan.json`. If nothing is left to do and nothing else is planned, it stays, and its tables too."""
    is_there = (study.folder / PLAN).exists()
    if is_over and is_there and study.earlier is not None and study.earlier.plan == study.resolved:
        return
    if is_over:
        for name in (DEV_TABLE, ANSWER):
            (study.folder / name).unlink(missing_ok=True)  # of the plan before
    write_plan(study.folder, plan_file(study.folder, study.resolved, code, study.earlier))


def plan_file(folder: Path, plan: ResolvedPlan, code: Provenance, earlier: PlanFile | None = None) -> PlanFile:
    """The content of `plan.json`; `created` stays that of the first launch."""
    created = earlier.created if earlier else utc_now()
    return PlanFile.of(folder, plan, code, created=created, command=command_line())


def command_line() -> str:
    """The command as typed, for plan, journal and report; passwords are hidden."""
    return masked(shlex.join(["python", "-m", "study.launch", *sys.argv[1:]]))


def _launch(
    scheduler: Scheduler, journal: Journal, folder: Path, storage: str, options: LaunchOptions, *, until: float
) -> str:
    """Runs until all is done, Ctrl-C comes, or the monotonic clock reads `until`; returns the answer.

    The journal has the launch's end whatever ends it, but for a kill or a journal that takes no more.
    """
    elsewhere = None if storage == str(folder.resolve()) else storage
    scheduler.begin_launch(command=command_line(), host=socket.gethostname(), pid=os.getpid(), storage=elsewhere)
    uri = options.tracking_uri or ""  # the study's own store
    try:
        reopen_failed(journal, scheduler.progress, scheduler.provenance, asked=options.retry_failed)
        if not scheduler.facts.trials:
            _register(journal, folder, options)
        if silence := silence_of(uri):
            _warn([f"{_unanswered(uri, silence)}; the study goes on, and its runs come there once it does"])
        mirror = start_mirror(folder, options.tracking_uri)
        status, note = _run_trials(scheduler, journal, folder, storage, options, until=until)
        said = write_files(folder, scheduler.progress)
    except BaseException as error:
        note = None if isinstance(error, KeyboardInterrupt) else (str(error) or type(error).__name__).splitlines()[0]
        with suppress(OSError, ValueError):  # of the journal
            scheduler.end_launch("interrupted", note)
        raise
    scheduler.end_launch(status, note or lost_outputs())
    if mirror and not silence_of(uri):
        wait_for_mirror(mirror)
    return said


def _register(journal: Journal, folder: Path, options: LaunchOptions) -> None:
    """Notes in the journal who has the digest of the first launch's plan before any trial.

    Raises:
        ValueError: --register, and the plan could not be written to MLflow.
    """
    digest_of_plan = first_plan_digest(folder)
    places = [f"git tag {tag}" for tag in (plan_tag(digest_of_plan),) if tag]
    if options.register and options.tracking_uri:
        where = [str(folder), "--tracking-uri", options.tracking_uri, "--patience", "10"]
        done = subprocess.run(
            [sys.executable, "-m", "study.mirror", *where], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(f"--register: {done.stderr.strip()}; no trial was started")
        places.append(f"MLflow {masked(options.tracking_uri)}")
    journal.append(*(PlanRegistered(time=journal.now(), digest=digest_of_plan, place=place) for place in places))


def _run_trials(
    scheduler: Scheduler, journal: Journal, folder: Path, storage: str, options: LaunchOptions, *, until: float
) -> tuple[LaunchStatus, str | None]:
    """Runs the trials; returns how the launch ended, and why if it stalled.

    The next one resumes open trials from their last saved epoch.
    """
    try:
        if not scheduler.progress.is_done:  # else a launch before was killed before its tables and its report
            _drive(scheduler, folder, storage, options, until=until)
    except KeyboardInterrupt:
        return "interrupted", None
    except Stalled as stalled:
        print(f"study.launch: {stalled}; the launch ends, the same command continues", file=sys.stderr)
        return "interrupted", str(stalled)
    except SmokeStepsFailed as failed:
        for arm, failure in failed.failures.items():
            config = failed.specs[arm].config
            journal.append(SmokeStepFailed(time=journal.now(), arm=arm, config=config, failure=failure))
        raise ValueError(f"{failed}; the traceback: {failures_command(folder)}") from None
    if scheduler.progress.is_done:
        return "complete" if scheduler.progress.is_finished else "partial", None
    return "paused" if scheduler.has_given_up else "drained", None


def _drive(scheduler: Scheduler, folder: Path, storage: str, options: LaunchOptions, *, until: float) -> None:
    """Runs trials until there is nothing left to do, on the cluster that is connected, else on this machine.

    `until` is as in `Driver`.

    Raises:
        SmokeStepsFailed: a method cannot take a step; no trial was started.
        Stalled: nothing moves any more.
    """
    starts_ray = options.driver == "ray" and options.address is None
    awaited = "Ray to start" if starts_ray else "the trials to start"
    if not can_redraw(console_on(sys.stderr)):  # elsewhere it is shown how long it takes
        print(f"waiting for {awaited}", file=sys.stderr, flush=True)
    with waiting_for(awaited, output=sys.stderr) as on_start, ExitStack() as stack:
        if starts_ray:
            from study.cluster.ray_cluster import ray_cluster

            stack.enter_context(ray_cluster(None))
        resources = _resources(options)
        driver = _driver(options)  # takes seconds to import
        on_start()
        view = stack.enter_context(LiveView(scheduler, slots=resources.slots, output=sys.stderr))
        if waiting := check_room(resources, address=options.address):
            view.say(waiting)
        driver(
            scheduler,
            folder=folder.resolve(),
            storage=storage,
            resources=resources,
            on_progress=view.update,
            watchdog=Watchdog(max_idle_hours=options.max_idle_hours, say=view.say),
            smoke=SmokeSteps(scheduler, resources),
            until=until,
        ).run()


def _driver(options: LaunchOptions) -> type[Driver]:
    if options.driver == "local":
        from study.drivers.local_driver import LocalDriver

        return LocalDriver
    from study.drivers.tune_driver import TuneDriver

    return TuneDriver


def _resources(options: LaunchOptions) -> Resources:
    """The resources of a trial on the connected cluster, or on this machine.

    Raises:
        ValueError: no trial fits on a node, and none can come.
    """
    nodes: Nodes = ThisMachine()
    if options.driver == "ray":
        from study.cluster.ray_cluster import RayNodes

        nodes = RayNodes()
    cpus, gpus = options.cpus_per_trial, options.gpus_per_trial
    resources = Resources.of(nodes, cpus=cpus, gpus=gpus, address=options.address)
    check_room(resources, address=options.address)
    return resources


def start_mirror(folder: Path, uri: str | None) -> subprocess.Popen[bytes] | None:
    """The process that follows the journal into MLflow; None with `--tracking-uri none`."""
    if uri == "none":
        return None
    (folder / BROWSE).unlink(missing_ok=True)  # of the launch before
    command = [sys.executable, "-m", "study.mirror", str(folder), "--follow"]
    with (folder / "mirror.log").open("a") as log:
        mirror = subprocess.Popen(
            command + (["--tracking-uri", uri] if uri else []),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is the launcher's: the mirror ends when it has seen the launch end
        )
    os.setpriority(os.PRIO_PROCESS, mirror.pid, os.getpriority(os.PRIO_PROCESS, 0) + MIRROR_NICENESS)
    return mirror


def wait_for_mirror(mirror: subprocess.Popen[bytes]) -> None:
    _warn(["writing the last runs to MLflow; Ctrl-C leaves that to go on by itself ..."])
    try:
        with waiting_for("MLflow", output=sys.stderr):
            status = mirror.wait()
        if status != 0:
            print("not all of it is in MLflow; mirror.log in the study's folder says why", file=sys.stderr)
    except KeyboardInterrupt:
        print("MLflow is still being written; see mirror.log in the study's folder", file=sys.stderr)


def browse(folder: Path, tracking_uri: str | None) -> list[str]:
    """Commands to look at the runs, as `study.mirror` wrote them, or to mirror later if the server is away."""
    uri = tracking_uri or ""
    if silence := silence_of(uri):
        later = f"{python()} -m study.mirror {shlex.quote(str(folder))} --tracking-uri {shlex.quote(masked(uri))}"
        return [f"not all of it is in MLflow: {_unanswered(uri, silence)}", f"mirror it:   {later}"]
    path = folder / BROWSE
    return path.read_text().splitlines() if uri != "none" and path.exists() else []


def _unanswered(uri: str, silence: str) -> str:
    return f"{masked(uri)} does not answer ({silence})"


def _broken_off(scheduler: Scheduler) -> list[str]:
    """Lines about the trials that faults of the machine have left undone."""
    if not scheduler.has_given_up:
        return []
    trials = scheduler.facts.under_way.values()
    lines = [f"set aside: {describe_retries(t)}" for t in trials if scheduler.faults.is_set_aside(t.key)]
    return [*lines, *filter(None, [scheduler.faults.surrender])]


def _conclude(scheduler: Scheduler, folder: Path, said: str, options: LaunchOptions) -> int:
    """Prints what the study says and the ways on; the launch's exit status."""
    progress = scheduler.progress
    failed, missing = [describe_failure(record) for record in progress.failures], missing_cells(progress)
    status = 1 if failed or missing else 0
    if options.json:
        facts = {"study": folder.name, "folder": str(folder), "complete": not status}
        trials = {"trials": progress.ended_trials, "failed": failed, "missing": missing}
        print(json.dumps({**facts, **trials}, indent=1))
        return status
    if progress.facts.records:
        print(f"\n{for_screen(said, sys.stdout)}")
    for line in failed:
        print(on_screen(f"failed: {line}", sys.stdout))
    if failed:
        print(f"tracebacks:  {failures_command(folder)}")
        print(f"prints:      {folder / WORKERS_LOG}")
        print(f"mend it, then:  {_continued(folder, options, '--retry-failed')}")
    if not progress.is_done:
        for line in _broken_off(scheduler):
            print(on_screen(line, sys.stdout))
        word = "paused" if scheduler.has_given_up else "interrupted"
        print(f"{word}; continue:  {python()} {command_line().removeprefix('python ')}")
    if (folder / "report.html").exists():
        print(f"report:      {folder / 'report.html'}")
    if in_lines(progress):
        print(f"winners:     {python()} -m study.winners {shlex.quote(str(folder))}")
    for line in browse(folder, options.tracking_uri)[:1]:  # its links are in browse.txt
        print(line)
    if not status and (more := extension(progress.plan)):
        print(f"more:        {_continued(folder, options, more)}")
    return status


def extension(plan: ResolvedPlan) -> str | None:
    """The option that extends a study; None if none would add a trial.

    More searches if they were repeated, else as many samples again, else five seeds.
    """
    asked = plan.asked
    if asked.search_repeats < MOST_REPEATS and any(arm.repeat for arm in plan.arms):
        return f"--search-repeats {min(MOST_REPEATS, 2 * asked.search_repeats)}"
    if asked.samples is not None and any(arm.can_search_more for arm in plan.arms):
        return f"--samples {2 * asked.samples}"
    has_plans_seeds = any(len(arm.seeds) == asked.seeds for arm in plan.arms)
    return f"--seeds {asked.seeds + 5}" if has_plans_seeds else None


def _continued(folder: Path, options: LaunchOptions, more: str) -> str:
    """A command that goes on with the study, on the same cluster and with the same MLflow."""
    where = {
        "driver": options.driver if options.driver != default_driver() else None,
        "address": options.address,
        "tracking-uri": options.tracking_uri,
        "gpus-per-trial": options.gpus_per_trial,
    }
    given = [f"--{name} {shlex.quote(masked(str(value)))}" for name, value in where.items() if value is not None]
    return " ".join([python(), "-m study.launch --continue", shlex.quote(str(folder)), more, *given])


main = Command(
    "study.launch",
    LaunchOptions,
    DESCRIPTION,
    run,
    epilog=EPILOG,
    after_interrupt="; what is on disk is whole, the same command continues",
)

if __name__ == "__main__":
    sys.exit(main())
