"""One launch, stage by stage: cluster, journal, mirror, driver, tables. What `study.launch` does once it has a plan.

Drivers are imported where trials are to be run: a study that is finished has no need of Ray.
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
from contextlib import ExitStack, closing
from pathlib import Path

from msgspec.structs import replace

from study.decisions.machine_faults import PATIENCE_SECONDS, Faults
from study.decisions.progress import StudyProgress
from study.decisions.reopening import arms_of_other_code, reopen_failed, to_reopen
from study.decisions.scheduler import Scheduler
from study.decisions.specs import Provenance
from study.drivers.provenance import provenance
from study.drivers.trial_end import end_unsettled
from study.drivers.watchdog import Stalled
from study.facts.events import LaunchStatus, SmokeStepFailed, utc_now
from study.facts.journal import Journal
from study.facts.plain_words import counted, for_screen, on_screen
from study.facts.study_folder import BROWSE, DEV_TABLE, dev_table
from study.launch_options import LaunchOptions, default_driver, is_installed
from study.launch_plan import first_line, launched_arms, plan_notes, resolve_in
from study.mlflow_mirror.tracking import silence_of
from study.plans.plan import Plan
from study.plans.plan_file import PlanFile, plan_on_disk, read_plan, write_plan
from study.plans.resolved_plan import ResolvedPlan
from study.plans.unknown_words import unknown_in_words
from study.rebuild import write_files
from study.screen.terminal import can_redraw, console_on, waiting_for
from study.screen.words import describe_failure, describe_retries, failures_command, missing_cells, python
from study.storage.addresses import join, make_writable, masked, storage_address
from study.storage.study_storage import storage_for

MOST_ARMS = 5  # that are named in a line
MIRROR_NICENESS = 10  # over the launch's own: where processors are short, driver and trials go first


def run_study(plan: Plan, folder: Path, options: LaunchOptions, *, why: str) -> int:
    """The launch's exit status.

    Raises:
        ValueError: the study cannot be opened, or no trial fits on a node; nothing was run.
    """
    if options.tracking_uri is None and not is_installed("mlflow"):
        print("MLflow is not installed here: the launch goes on with --tracking-uri none", file=sys.stderr)
        options = replace(options, tracking_uri="none")
    until = math.inf if options.max_minutes is None else time.monotonic() + 60 * options.max_minutes
    with ExitStack() as stack:
        if options.address:
            with waiting_for(f"the Ray cluster at {options.address}", output=sys.stderr):
                from study.launch_trials import connected

                stack.enter_context(connected(options))  # before anything is created
        if options.storage and plan_on_disk(folder) is None:
            make_writable(join(storage_address(options.storage), "trials"))
        make_writable(str(folder / "predictions"))
        journal = stack.enter_context(closing(Journal(folder)))
        is_continued = options.continue_study is not None
        resolved = resolve_in(folder, plan, is_continued=is_continued)  # once more: another launch may have written
        code = provenance()
        faults = Faults(max_failures=options.max_failures)
        limit = options.max_gpu_hours
        arms = launched_arms(plan, options, resolved)
        scheduler = Scheduler(folder.name, resolved, journal, code, max_gpu_hours=limit, faults=faults, launched=arms)
        is_over = is_complete(scheduler) and not to_reopen(scheduler.progress, code, asked=options.retry_failed)
        storage = storage_for(None if is_over else options.storage, folder, journal.facts)
        if not is_over:
            make_writable(join(storage, "trials"))
        notes = plan_notes(options, resolved, folder, launched=arms)
        keep_plan(folder, resolved, code, is_over=is_over)
        for line in notes:
            print(on_screen(line, sys.stderr), file=sys.stderr)
        end_unsettled(scheduler, storage=storage, folder=folder)
        if is_over:
            said = nothing_left(scheduler.progress, folder)
            said = f"{said}{_not_stored(options.storage, storage)}"
            for line in [said, *trained_otherwise(scheduler.progress, folder, code)]:
                print(on_screen(line, sys.stderr), file=sys.stderr)
            table = dev_table(folder) or write_files(folder, scheduler.progress)
        else:
            for line in [first_line(folder, resolved, why), *unknown_in_words(resolved)]:
                print(on_screen(line, sys.stderr), file=sys.stderr)
            table = _launch(scheduler, journal, folder, storage, options, until=until)
    return conclude(scheduler, folder, table, options)


def nothing_left(progress: StudyProgress, folder: Path) -> str:
    """What a launch says that has no trial to run."""
    failed = progress.failures
    if not failed:
        return f"study {folder}: nothing is left to do"
    arms = ", ".join(dict.fromkeys(record.arm for record in failed))
    trials = f"{counted(len(failed), 'trial')} of {arms} failed"
    return f"study {folder}: no trial is left to run, but {trials}; with mended code, or --retry-failed, they run again"


def trained_otherwise(progress: StudyProgress, folder: Path, code: Provenance) -> list[str]:
    """A line where a study that is over has arms of other code than this: what stands, and what trains anew."""
    if not (arms := arms_of_other_code(progress, code)):
        return []
    named = ", ".join(arms[:MOST_ARMS]) + f" and {len(arms) - MOST_ARMS} more" * (len(arms) > MOST_ARMS)
    anew = f"{python()} -m study.launch --continue {shlex.quote(str(folder))} --dry-run --toml > plan.toml"
    return [
        f"the code is another than that which {named} {'were' if len(arms) > 1 else 'was'} trained with; the numbers "
        f"are kept; to train anew, as another study: {anew}, then --plan plan.toml --name NEW"
    ]


def _not_stored(asked: str | None, storage: str) -> str:
    """What is said of a storage that a finished study is given."""
    if asked is None or storage_address(asked) == storage:
        return ""
    return f", and nothing is stored in {asked}: what there is stays in {storage}"


def is_complete(scheduler: Scheduler) -> bool:
    """Whether every trial has ended, and a launch has seen that: one that was killed left report and mirror behind."""
    last = scheduler.facts.last_launch
    seen = last is not None and last.ended is not None and last.ended.status == "complete"
    return scheduler.progress.is_finished and seen


def keep_plan(folder: Path, plan: ResolvedPlan, code: Provenance, *, is_over: bool) -> None:
    """Writes `plan.json`. Where nothing is left to do and nothing else is planned, it stays, and its tables too."""
    earlier = read_plan(folder)
    if is_over and earlier is not None and earlier.plan == plan:
        return
    if is_over:
        (folder / DEV_TABLE).unlink(missing_ok=True)  # of the plan before
    write_plan(folder, plan_file(folder, plan, code))


def plan_file(folder: Path, plan: ResolvedPlan, code: Provenance) -> PlanFile:
    """What `plan.json` says; `created` stays that of the first launch."""
    earlier = plan_on_disk(folder)
    return PlanFile(
        name=folder.name,
        created=earlier.created if earlier else utc_now(),
        command=command_line(),
        versions=code.versions,
        git_commit=code.git_commit,
        code_digest=code.code_digest,
        protocol_hash=plan.protocol_hash,
        plan=plan,
    )


def command_line() -> str:
    """What was typed, for plan, journal and report: passwords are hidden."""
    return masked(shlex.join(["python", "-m", "study.launch", *sys.argv[1:]]))


def _launch(
    scheduler: Scheduler, journal: Journal, folder: Path, storage: str, options: LaunchOptions, *, until: float
) -> str:
    """The dev table, after all that there was to do or until Ctrl-C, or until the monotonic clock reads `until`."""
    elsewhere = None if storage == str(folder.resolve()) else storage
    scheduler.begin_launch(command=command_line(), host=socket.gethostname(), pid=os.getpid(), storage=elsewhere)
    reopen_failed(journal, scheduler.progress, scheduler.provenance, asked=options.retry_failed)
    uri = options.tracking_uri or ""  # the study's own store
    if silence := silence_of(uri):
        words = f"{_unanswered(uri, silence)}; the study goes on, and its runs come there once it does"
        print(on_screen(words, sys.stderr), file=sys.stderr)
    mirror = start_mirror(folder, options.tracking_uri)
    status = _run_trials(scheduler, journal, folder, storage, options, until=until)
    table = write_files(folder, scheduler.progress)
    scheduler.end_launch(status)
    if mirror and not silence_of(uri):
        wait_for_mirror(mirror)
    return table


def _run_trials(
    scheduler: Scheduler, journal: Journal, folder: Path, storage: str, options: LaunchOptions, *, until: float
) -> LaunchStatus:
    """How the launch ended: trials that are not over go on from their last saved epoch with the next one."""
    if scheduler.progress.is_done:  # and a launch before was killed before its tables and its report
        return _ended(scheduler)
    from study.drivers.smoke_steps import SmokeStepsFailed

    try:
        starts_ray = options.driver == "ray" and options.address is None
        awaited = "Ray to start" if starts_ray else "the trials to start"
        if not can_redraw(console_on(sys.stderr)):  # elsewhere it is shown how long it takes
            print(f"waiting for {awaited}", file=sys.stderr, flush=True)
        with waiting_for(awaited, output=sys.stderr) as no_more:
            from study.launch_trials import run_trials

            run_trials(scheduler, folder, storage, options, until=until, on_start=no_more)
    except KeyboardInterrupt:
        return "interrupted"
    except Stalled as stalled:
        print(f"study.launch: {stalled}; the launch ends, the same command continues", file=sys.stderr)
        return "interrupted"
    except SmokeStepsFailed as failed:
        for arm, failure in failed.failures.items():
            config = failed.specs[arm].config
            journal.append(SmokeStepFailed(time=journal.now(), arm=arm, config=config, failure=failure))
        scheduler.end_launch("interrupted")
        raise ValueError(f"{failed}; the traceback: {failures_command(folder)}") from None
    except ValueError:  # a worker does not find what the plan says, or no trial fits on this machine
        scheduler.end_launch("interrupted")
        raise
    if scheduler.progress.is_done:
        return _ended(scheduler)
    return "paused" if scheduler.has_given_up else "drained"


def _ended(scheduler: Scheduler) -> LaunchStatus:
    """How a launch has ended that has done all that it was asked for."""
    return "complete" if scheduler.progress.is_finished else "partial"


def start_mirror(folder: Path, uri: str | None) -> subprocess.Popen | None:
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


def wait_for_mirror(mirror: subprocess.Popen) -> None:
    words = "writing the last runs to MLflow; Ctrl-C leaves that to go on by itself ..."
    print(on_screen(words, sys.stderr), file=sys.stderr)
    try:
        with waiting_for("MLflow", output=sys.stderr):
            status = mirror.wait()
        if status != 0:
            print("not all of it is in MLflow; mirror.log in the study's folder says why", file=sys.stderr)
    except KeyboardInterrupt:
        print("MLflow is still being written; see mirror.log in the study's folder", file=sys.stderr)


def browse(folder: Path, tracking_uri: str | None) -> list[str]:
    """How to look at the runs, as `study.mirror` has written it; if the server is away, how they come there later."""
    uri = tracking_uri or ""
    if silence := silence_of(uri):
        later = f"{python()} -m study.mirror {shlex.quote(str(folder))} --tracking-uri {shlex.quote(masked(uri))}"
        return [f"not all of it is in MLflow: {_unanswered(uri, silence)}", f"mirror it:   {later}"]
    path = folder / BROWSE
    return path.read_text().splitlines() if uri != "none" and path.exists() else []


def _unanswered(uri: str, silence: str) -> str:
    return f"{masked(uri)} does not answer ({silence})"


def broken_off(scheduler: Scheduler) -> list[str]:
    """What faults of the machine have left undone, a line each."""
    if not scheduler.has_given_up:
        return []
    trials = scheduler.facts.under_way.values()
    lines = [f"set aside: {describe_retries(t)}" for t in trials if scheduler.faults.is_set_aside(t.key)]
    if scheduler.faults.patience_is_over:
        minutes = f"{PATIENCE_SECONDS / 60:g}"
        lines.append(f"no trial got on for {minutes} minutes, none has failed by that: {scheduler.faults.last_error}")
    return lines


def conclude(scheduler: Scheduler, folder: Path, table: str, options: LaunchOptions) -> int:
    """Prints the table and the ways on; the launch's exit status."""
    progress = scheduler.progress
    failed, missing = [describe_failure(record) for record in progress.failures], missing_cells(progress)
    status = 1 if failed or missing else 0
    if options.json:
        facts = {"study": folder.name, "folder": str(folder), "complete": not status}
        trials = {"trials": progress.ended_trials, "failed": failed, "missing": missing}
        print(json.dumps({**facts, **trials}, indent=1))
        return status
    if progress.facts.records:  # else the table has published numbers alone
        print(f"\n{for_screen(table, sys.stdout)}")
    for line in failed:
        print(on_screen(f"failed: {line}", sys.stdout))
    if failed:
        print(f"tracebacks:  {failures_command(folder)}")
        print(f"mend it, then:  {_continued(folder, options, '--retry-failed')}")
    if not progress.is_done:
        for line in broken_off(scheduler):
            print(on_screen(line, sys.stdout))
        word = "paused" if scheduler.has_given_up else "interrupted"
        print(f"{word}; continue:  {python()} {command_line().removeprefix('python ')}")
    if (folder / "report.html").exists():
        print(f"report:      {folder / 'report.html'}")
    for line in browse(folder, options.tracking_uri):
        print(line)
    print(f"regenerate:  {python()} -m analysis.tables {shlex.quote(str(folder))}")
    if not status:
        print(f"extend:      {extension(progress.plan.asked, folder, options)}")
    return status


def extension(asked: Plan, folder: Path, options: LaunchOptions) -> str:
    """A command that extends the study, on the same cluster and with the same MLflow: by as much again of its searches,
    or of its seeds, where the searches have their whole grid."""
    more = f"--seeds {asked.seeds + 5}" if asked.samples is None else f"--samples {2 * asked.samples}"
    return _continued(folder, options, more)


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
