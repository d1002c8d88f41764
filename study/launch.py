"""Start, continue or extend a study: `python -m study.launch --method palbert`.

Ray, torch and the drivers take seconds to import, so they are imported only if there are trials to run.
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
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace
from rich.filesize import decimal

from study.cluster.resources import Nodes, Resources, ThisMachine, check_room
from study.decisions.machine_faults import Faults
from study.decisions.progress import StudyProgress, compute_progress
from study.decisions.scheduler import Scheduler
from study.decisions.winners import list_arms_with_winner
from study.drivers.driver import Stalled, Watchdog, end_unsettled
from study.drivers.smoke_steps import SmokeStepsFailed
from study.facts.events import Execution, LaunchStatus, PlanRegistered, SmokeStepFailed, utc_now
from study.facts.journal import Journal
from study.facts.plan_file import FILE as PLAN
from study.facts.plan_file import PlanFile, find_plan, format_plan, write_plan
from study.facts.provenance import Provenance, read_provenance
from study.facts.registration import find_plan_tag
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import (
    ANSWER,
    BROWSE,
    DEV_TABLE,
    MIRROR_LOG,
    WORKERS_LOG,
    compute_plan_digest,
    read_export,
)
from study.launching.forecast import describe_time_limit, estimate_space, forecast_plan, measure_costs
from study.launching.live_view import LiveView
from study.launching.options import (
    DESCRIPTION,
    EPILOG,
    THIS_MACHINE,
    LaunchOptions,
    check_options,
    default_driver,
    keep_execution,
    list_execution_options,
    split_command,
    suggest_launch_option,
)
from study.launching.planned_study import (
    MOST_ARMS,
    PlannedStudy,
    find_launched_arms,
    list_plan_notes,
    resolve_in,
    resolve_study,
)
from study.launching.power import predict_power
from study.launching.reading import trace_settings
from study.launching.screen import describe_retries, failures_command, name_trial
from study.mlflow_mirror.tracking import unreachable_reason
from study.plans.departures import describe_departures
from study.plans.plan import MOST_REPEATS
from study.plans.resolution import explain
from study.plans.resolved_plan import ResolvedPlan, digest
from study.rebuild import EXPORTS, check_places, repair_predictions, write_files
from study.storage.addresses import is_same_disk, join, local_path, make_writable, resolve_storage_address
from study.storage.trial_places import StudyStorage, choose_storage, delete_marks
from study.stored_models.choice import with_current_model_address
from study.terminal.command_line import Command
from study.terminal.output import can_redraw, console_on, lasting_outputs, lost_outputs, show_waiting
from study.terminal.processes import is_installed, require_package
from study.terminal.text import counted, format_markdown, list_first, masked, print_lines, python
from study.time import DEFAULT_MINUTES, measure_times
from study.time import Options as TimingOptions
from trainables.configuration.schema import to_plain
from trainables.configuration.spelling import resolve_name
from trainables.data.tasks import trainable_tasks
from trainables.encoders.backbones import describe_unchecked
from trainables.files import method_files
from trainables.files.atomic_files import DiskFull
from trainables.files.sources import cache_folder

if TYPE_CHECKING:
    from study.drivers.driver import Driver

TIMING_SHARE = 0.1  # of the study's time, for the measurement of inference times at its end
TIMING_SECONDS = 60.0  # for this measurement after a short study
SHORTEST_TIMING = 5.0  # seconds; loading PyTorch and the models takes most of them
MIRROR_NICENESS = 10  # added to the launch's niceness, so that driver and trials get processors first


def run(options: LaunchOptions) -> int:
    """Run the command; return 0 if the study is complete, 1 if trials are missing or failed.

    Raises:
        ValueError: if the study cannot run with these options; the command then exits with status 2.
    """
    options = _complete_execution(options)
    check_options(options)
    study = resolve_study(options)
    if options.dry_run:
        return dry_run(study, options)
    if options.address is None:
        require_package("torch")
    with lasting_outputs(), _running_then(study.folder, options):
        try:
            return run_study(study, options)
        except DiskFull as full:
            raise DiskFull(full.place, f"; {_describe_need(full, study, options)}free some space first") from None


@contextmanager
def _running_then(folder: Path, options: LaunchOptions) -> Iterator[None]:
    """Run the command of --then once after the launch, however it ends, unless it was refused.

    The command finds the study's folder and the launch's status in its environment.
    """
    if options.then is None:
        yield
        return
    number = read_facts(folder).launch_number
    is_ended = False
    try:
        yield
        is_ended = True
    finally:
        facts = read_facts(folder)
        last = facts.last_launch
        if last is not None and (is_ended or facts.launch_number > number):
            status = last.ended.status if last.ended else "interrupted"
            places = {"STUDY_FOLDER": str(folder.resolve()), "STUDY_STATUS": status}
            failed = len(compute_progress(last.began.plan, facts).failures)
            environment = {**os.environ, **places, "STUDY_FAILED_TRIALS": str(failed)}
            code = subprocess.run(split_command(options.then), env=environment, check=False).returncode
            if code:
                print_lines([f"--then {options.then} ended with status {code}"], sys.stderr)


def _describe_need(full: DiskFull, study: PlannedStudy, options: LaunchOptions) -> str:
    """Describe what a study still needs on the full disk; empty if this is unknown, or its files are elsewhere."""
    facts = read_facts(study.folder)
    storage, _ = choose_storage(options.storage, study.folder, facts)
    slots = max(1, len(facts.under_way))
    space = estimate_space(compute_progress(study.resolved, facts), storage, slots=slots)
    folder = local_path(storage.address)
    if space is None or folder is None or not is_same_disk(folder, Path(full.place)):
        return ""
    need = f"the study still needs about {decimal(space.needed)} for {space.purpose}"
    return f"{need}, and {decimal(space.free)} are free without the files that did not fit; "


def _complete_execution(options: LaunchOptions) -> LaunchOptions:
    """Let --continue run the trials as the study's last launch did, apart from the options that are given.

    Print the options that are kept.
    """
    last = read_facts(Path(options.continue_study)).last_launch if options.continue_study else None
    if last is not None and last.began.execution is not None:
        given, options = options.execution, keep_execution(options, last.began.execution)
        if kept := list_execution_options(options.execution, beside=given):
            print_lines([f"as in the last launch: {', '.join(kept)}"], sys.stderr)
    return replace(options, address=None) if options.address == THIS_MACHINE else options


def dry_run(study: PlannedStudy, options: LaunchOptions) -> int:
    """Print the plan, its expected cost and its differences from the papers. Create no file, and return 0."""
    resolved = study.resolved
    if options.explain is not None:
        names = [arm.name for arm in resolved.arms if not arm.repeat]
        known = [f"{method}/{task}" for method in method_files.names() for task in trainable_tasks()]
        name = resolve_name(options.explain, names, what="arm of this study", known=known)
        print(explain(resolved, name, origins=trace_settings(options, resolved.request)))
        return 0
    if options.toml:
        print(format_plan(resolved.request), end="")
        return 0
    execution = options.execution
    machine = Resources.measure(ThisMachine(), cpus=execution.cpus_per_trial, gpus=execution.gpus_per_trial)
    slots = 1 if options.address else machine.slots()
    forecast = forecast_plan(resolved, study.folder, with_probe=options.probe, slots=slots, storage=options.storage)
    if options.json:
        facts = {"folder": str(study.folder), "plan": resolved, "estimates": forecast.estimates, "done": forecast.done}
        print(json.dumps(to_plain(facts), indent=1))
        return 0
    history = read_facts(study.folder)
    notes = list_plan_notes(study, options, history, launched=find_launched_arms(study, options))
    if options.max_minutes is not None:
        notes.append(describe_time_limit(options.max_minutes, forecast.measured))
    if options.then is not None:
        notes.append(f"when the launch has ended, it runs {options.then}")
    if len(resolved.request.methods) > 1 and resolved.request.baseline:
        notes.append(f"the other methods are tested against the baseline {resolved.request.baseline}")
    caveat = ["the tasks are generated (mini-GLUE), so the scores are not comparable with GLUE scores"]
    lines = [*caveat * resolved.request.is_generated, study.describe(), *notes, *forecast.lines]
    lines += predict_power(resolved, study.folder, history, assumed=options.assume_spread)
    number = len({line for lines in resolved.departures.values() for line in lines})
    if options.departures:
        lines += describe_departures(resolved)
    elif number:
        lines.append(f"the plan differs from the papers and their code in {number} ways; --departures lists them")
    if study.unchecked:
        lines.append(describe_unchecked(study.unchecked))
    elif study.earlier is None:
        tag = f"plan-{digest(to_plain(resolved))}"
        lines.append("to register this plan before its first trial, add --register --tracking-uri URI, or run:")
        lines.append(f"  git tag {tag} && git push origin {tag}")
    lines.append("to save this plan as a file for --plan, add --toml > plan.toml")
    print_lines([*lines, "nothing was run; to run the study, leave out --dry-run"], sys.stdout)
    return 0


def run_study(study: PlannedStudy, options: LaunchOptions) -> int:
    """Repair predictions, run the study's missing trials, write its exports, and return the exit status.

    Raises:
        ValueError: if the study cannot start, for example because no node has room for a trial.
    """
    if options.tracking_uri is None and not is_installed("mlflow"):
        print_lines(["MLflow is not installed, so the launch continues as with --tracking-uri none"], sys.stderr)
        options = replace(options, tracking_uri="none")
    until = math.inf if options.max_minutes is None else time.monotonic() + 60 * options.max_minutes
    folder = study.folder
    check_places(folder, mlflow=options.tracking_uri is None)
    is_exported = is_repaired = True
    with ExitStack() as stack:
        if options.address:
            with show_waiting(f"the Ray cluster at {options.address}", output=sys.stderr):
                from study.cluster.ray_cluster import describe_readable_token, ray_cluster

                stack.enter_context(ray_cluster(options.address))  # if this fails, no file has been created
            print_lines(filter(None, [describe_readable_token()]), sys.stderr)
            _measure_resources(options)
        if options.storage and study.earlier is None:
            make_writable(resolve_storage_address(options.storage))
        make_writable(str(folder / "predictions"))
        journal = stack.enter_context(closing(Journal(folder)))
        study = _as_locked(study, is_continued=options.continue_study is not None)
        code, faults = read_provenance(), Faults(max_failures=options.max_failures)
        limit, arms = options.max_gpu_hours, find_launched_arms(study, options)
        scheduler = Scheduler(study.resolved, journal, code, max_gpu_hours=limit, faults=faults, launched=arms)
        if options.register and journal.facts.trials:
            raise ValueError(f"--register: the study {folder} already has trials; allowed: a study without trials")
        last = journal.facts.last_launch
        is_reported = last is not None and last.ended is not None and last.ended.status == "complete"
        reopened = scheduler.find_reopenable(retry_failed=options.retry_failed)
        is_over = scheduler.progress.is_finished and is_reported and not reopened
        if reopened or not scheduler.progress.is_finished:
            journal.facts.check_unscored()
        storage = None if is_over else _find_storage(options, folder, journal.facts)
        _check_starts(scheduler.progress, folder)
        notes = list_plan_notes(study, options, journal.facts, launched=arms)
        _keep_plan(study, code, is_over=is_over)
        print_lines(notes, sys.stderr)
        is_repaired = repair_predictions(folder, journal.facts.records)
        if storage is None:
            print_lines(_describe_finished(scheduler, folder), sys.stderr)
            if not all((folder / name).is_file() for name in EXPORTS):
                is_exported = write_files(folder, scheduler.progress)
        else:
            end_unsettled(scheduler, storage=storage.address, folder=folder)
            lines = [study.describe(), f"the trials write their output to {folder / WORKERS_LOG}"]
            if options.max_minutes is not None:
                lines.append(describe_time_limit(options.max_minutes, measure_costs(journal.facts)))
            print_lines(lines, sys.stderr)
            if options.address is None:
                cache_folder()  # prints an unusual cache folder here, because trials print only to their log
            launch = Launch(
                options=options, folder=folder, scheduler=scheduler, journal=journal, storage=storage, until=until
            )
            is_exported = launch.run()
    return max(_conclude(scheduler, folder, options), 0 if is_exported and is_repaired else 1)


def _find_storage(options: LaunchOptions, folder: Path, facts: StudyFacts) -> StudyStorage:
    """Choose the storage of the launch, and check that it is writable. Raise ValueError if it is not."""
    storage, lines = choose_storage(options.storage, folder, facts)
    print_lines(lines, sys.stderr)
    make_writable(join(storage.address, "trials"))
    return storage


def _check_starts(progress: StudyProgress, folder: Path) -> None:
    """Check that the models from which trials of this launch start are stored; raise ValueError if one is missing."""
    for arm in progress.launched:
        if arm.planned.start_from is None or not (arm.facts.under_way or progress.has_work(arm)):
            continue
        chosen = progress.facts.trials.get(arm.facts.start_key or "")
        record = chosen.record if chosen else progress.find_start(arm)
        if record and record.model:
            try:
                with_current_model_address(record, folder)
            except ValueError as error:
                raise ValueError(f"{arm.name} starts from a trained model, but {error}") from None


def _as_locked(study: PlannedStudy, *, is_continued: bool) -> PlannedStudy:
    """Resolve the study again if another launch changed the plan before this launch locked the folder."""
    now = find_plan(study.folder)
    if now == study.earlier:
        return study
    resolved = resolve_in(study.folder, study.from_options, now, is_continued=is_continued)
    return study._replace(resolved=resolved, earlier=now)


def _describe_finished(scheduler: Scheduler, folder: Path) -> list[str]:
    """Describe a study without trials to run: its failed trials, and its arms trained before the code changed."""
    line = f"study {folder}: nothing is left to do"
    if failed := scheduler.progress.failures:
        arms = ", ".join(dict.fromkeys(record.arm for record in failed))
        line = (
            f"study {folder}: no trial is left to run, but {counted(len(failed), 'trial')} of {arms} failed; to run "
            "failed trials again, fix the code or add --retry-failed"
        )
    others = scheduler.find_arms_of_other_code()
    if not others:
        return [line]
    command = f"{python()} -m study.launch --continue {shlex.quote(str(folder))} --dry-run --toml > plan.toml"
    return [
        line,
        f"the code has changed since the training of {list_first(others, MOST_ARMS)}; the study keeps its numbers; to "
        f"train again in a new study: {command}, then study.launch --plan plan.toml --name NEW",
    ]


def _keep_plan(study: PlannedStudy, code: Provenance, *, is_over: bool) -> None:
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
    """Leave out the plan's numbers of repeated texts if the file was written before these were counted."""
    return replace(plan, repeated_texts=UNSET) if earlier.plan.repeated_texts is UNSET else plan


def plan_file(folder: Path, plan: ResolvedPlan, code: Provenance, earlier: PlanFile | None = None) -> PlanFile:
    """Build the content of `plan.json`. If there is an `earlier` file, keep its creation time."""
    created = earlier.created if earlier else utc_now()
    return PlanFile.build(folder, plan, code, created=created, command=command_line())


def command_line() -> str:
    """Return the command of this process as `python -m study.launch ...`, with passwords hidden."""
    return masked(shlex.join(["python", "-m", "study.launch", *sys.argv[1:]]))


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A launch that runs the missing trials of a study, and what all its steps need."""

    options: LaunchOptions
    folder: Path
    scheduler: Scheduler
    journal: Journal
    storage: StudyStorage
    until: float  # time of the monotonic clock at which the launch stops

    def run(self) -> bool:
        """Run trials until all have ended, until Ctrl-C, or until the monotonic clock reaches `until`.

        Record the end of the launch in the journal, and write the exports. Return False if one cannot be written.
        """
        own = str(self.folder.resolve())
        self.scheduler.begin_launch(
            command=command_line(),
            host=socket.gethostname(),
            pid=os.getpid(),
            storage=None if self.storage.place == own else self.storage.place,
            area=self.storage.area,
            folder=own if self.storage.area else None,
            execution=self.options.execution,
        )
        uri = self.options.tracking_uri or ""  # "": the study's default store
        try:
            delete_marks(self.storage, self.folder)
            self.scheduler.reopen_failed(retry_failed=self.options.retry_failed)
            if not self.scheduler.facts.trials:
                self._register()
            if reason := unreachable_reason(uri):
                line = f"{masked(uri)} does not answer ({reason}); the study runs, and MLflow receives its runs later"
                print_lines([line], sys.stderr)
            mirror = start_mirror(self.folder, self.options.tracking_uri)
            status, note = self._run_trials()
            if status == "complete":
                _measure_times(self.journal, self.folder, self.options, until=self.until)
            self.journal.check_untouched()  # if another launch runs the study now, the exports are its own
            is_exported = write_files(self.folder, self.scheduler.progress)
        except BaseException as error:
            is_stopped, fault = isinstance(error, KeyboardInterrupt), str(error) or type(error).__name__
            with suppress(OSError, ValueError):  # if the journal cannot be written, raise the first error all the same
                self.scheduler.end_launch("interrupted", None if is_stopped else fault.splitlines()[0])
            raise
        self.scheduler.end_launch(status, note or lost_outputs())
        if mirror and not unreachable_reason(uri):
            wait_for_mirror(mirror, self.folder)
        return is_exported

    def _register(self) -> None:
        """Register the plan before the first trial.

        With --register, write the plan's digest to MLflow. Record this, and the git tag of the plan if there is one, in
        the journal.

        Raises:
            ValueError: if --register is given and the plan cannot be written to MLflow.
        """
        digest_of_plan = compute_plan_digest(self.folder)
        places = [f"git tag {tag}" for tag in (find_plan_tag(digest_of_plan),) if tag]
        uri = self.options.tracking_uri
        if self.options.register and uri:
            command = [sys.executable, "-m", "study.mirror", str(self.folder), "--tracking-uri", uri]
            done = subprocess.run([*command, "--patience", "10"], capture_output=True, text=True, check=False)
            if done.returncode:
                raise ValueError(f"--register: {done.stderr.strip()}; no trial was started")
            places.append(f"MLflow {masked(uri)}")
        now = self.journal.now()
        self.journal.append(*(PlanRegistered(time=now, digest=digest_of_plan, place=place) for place in places))

    def _run_trials(self) -> tuple[LaunchStatus, str | None]:
        """Run the trials. Return the status of the launch and, if the launch stalled, the reason.

        The next launch resumes unfinished trials from their last saved epoch.
        """
        try:
            if not self.scheduler.progress.is_done:
                self.drive()
        except KeyboardInterrupt:
            return "interrupted", None
        except Stalled as stalled:
            print(f"study.launch: {stalled}; the launch ends; to continue, run the same command", file=sys.stderr)
            return "interrupted", str(stalled)
        except SmokeStepsFailed as failed:
            for arm, failure in failed.failures.items():
                config = failed.specs[arm].config
                self.journal.append(SmokeStepFailed(time=self.journal.now(), arm=arm, config=config, failure=failure))
            raise ValueError(f"{failed}; to print the traceback: {failures_command(self.folder)}") from None
        if self.scheduler.progress.is_done:
            return "complete" if self.scheduler.progress.is_finished else "partial", None
        return "paused" if self.scheduler.has_given_up else "drained", None

    def drive(self) -> None:
        """Run trials on the connected cluster or on this machine, until all have ended.

        Raises:
            SmokeStepsFailed: if a method fails in its first training step, before any trial starts.
            Stalled: if no trial has made progress for too long.
        """
        starts_ray = self.options.execution.driver == "ray" and self.options.address is None
        awaited = "Ray to start" if starts_ray else "the trials to start"
        if not can_redraw(console_on(sys.stderr)):  # a terminal shows an animated line instead
            print(f"waiting for {awaited}", file=sys.stderr, flush=True)
        with show_waiting(awaited, output=sys.stderr) as on_start, ExitStack() as stack:
            if starts_ray:
                from study.cluster.ray_cluster import ray_cluster

                stack.enter_context(ray_cluster(None))
            resources = _measure_resources(self.options)
            driver = _import_driver(self.options)  # takes seconds to import
            on_start()
            view = stack.enter_context(LiveView(self.scheduler, slots=resources.slots, output=sys.stderr))
            if waiting := check_room(resources, address=self.options.address):
                view.say(waiting)
            if space := estimate_space(self.scheduler.progress, self.storage, slots=resources.slots()):
                view.say(space.describe())
            driver(
                self.scheduler,
                folder=self.folder.resolve(),
                storage=self.storage.address,
                resources=resources,
                on_progress=view.update,
                watchdog=Watchdog(max_idle_hours=self.options.max_idle_hours, say=view.say),
                until=self.until,
            ).run()


def _import_driver(options: LaunchOptions) -> type[Driver]:
    if options.execution.driver == "local":
        from study.drivers.local_driver import LocalDriver

        return LocalDriver
    from study.drivers.tune_driver import TuneDriver

    return TuneDriver


def _measure_resources(options: LaunchOptions) -> Resources:
    """Measure the resources for trials on the connected cluster or on this machine.

    Raises:
        ValueError: if no node has room for a trial, and the cluster cannot add a node.
    """
    nodes: Nodes = ThisMachine()
    execution = options.execution
    if execution.driver == "ray":
        from study.cluster.ray_cluster import RayNodes

        nodes = RayNodes()
    cpus, gpus = execution.cpus_per_trial, execution.gpus_per_trial
    resources = Resources.measure(nodes, cpus=cpus, gpus=gpus, address=options.address)
    check_room(resources, address=options.address)
    return resources


def _measure_times(journal: Journal, folder: Path, options: LaunchOptions, *, until: float) -> None:
    """Measure the models' times if this takes at most a tenth of the study's time; otherwise, print the command.

    A study of more than a minute may be measured for a minute. Ctrl-C ends only the measurement.
    """
    command = f"{python()} -m study.time {shlex.quote(str(folder))}"
    spent = sum(launch.measure_seconds(journal.now()) for launch in journal.facts.launches.values())
    seconds = max(spent * TIMING_SHARE, TIMING_SECONDS if spent >= TIMING_SECONDS else 0.0)
    seconds = min(seconds, 60 * DEFAULT_MINUTES, until - time.monotonic())
    if options.address or seconds < SHORTEST_TIMING:
        print_lines([f"to measure how long the models take for a text: {command}"], sys.stderr)
        return
    try:
        event = measure_times(TimingOptions(study=str(folder), minutes=seconds / 60))
    except KeyboardInterrupt:
        event = None
    if event is None:
        print_lines([f"no times were measured; to measure them: {command}"], sys.stderr)
    else:
        journal.append(replace(event, time=journal.now()))


def start_mirror(folder: Path, uri: str | None) -> subprocess.Popen[bytes] | None:
    """Start a process that copies the study into MLflow during the launch. If `uri` is "none", return None."""
    if uri == "none":
        return None
    (folder / BROWSE).unlink(missing_ok=True)
    command = [sys.executable, "-m", "study.mirror", str(folder), "--follow"]
    with (folder / MIRROR_LOG).open("a") as log:
        mirror = subprocess.Popen(
            command + (["--tracking-uri", uri] if uri else []),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that Ctrl-C does not reach the mirror, which ends after the launch
        )
    os.setpriority(os.PRIO_PROCESS, mirror.pid, os.getpriority(os.PRIO_PROCESS, 0) + MIRROR_NICENESS)
    return mirror


def wait_for_mirror(mirror: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until the mirror process has written the last runs to MLflow. Ctrl-C ends the wait, not the process."""
    print_lines(["writing the last runs to MLflow; Ctrl-C moves this to the background ..."], sys.stderr)
    try:
        with show_waiting("MLflow", output=sys.stderr):
            status = mirror.wait()
        if status != 0:
            print("MLflow lacks some runs; mirror.log in the study's folder contains the error", file=sys.stderr)
            print_lines(read_export(folder, MIRROR_LOG).splitlines()[-1:], sys.stderr)
    except KeyboardInterrupt:
        print("the last runs are still being written to MLflow; see mirror.log in the study's folder", file=sys.stderr)


def browse(folder: Path, tracking_uri: str | None) -> list[str]:
    """Return the lines of `browse.txt`, which explain how to see the runs in MLflow.

    If the tracking server does not answer, return the command to copy the runs later.
    """
    uri = tracking_uri or ""
    if reason := unreachable_reason(uri):
        later = f"{python()} -m study.mirror {shlex.quote(str(folder))} --tracking-uri {shlex.quote(masked(uri))}"
        return [f"MLflow lacks some runs, because {masked(uri)} does not answer ({reason})", f"copy them:   {later}"]
    path = folder / BROWSE
    return path.read_text().splitlines() if uri != "none" and path.exists() else []


def _conclude(scheduler: Scheduler, folder: Path, options: LaunchOptions) -> int:
    """Print the study's result, its failures and the commands to run next; return the exit status."""
    progress = scheduler.progress
    failed = [f"{name_trial(record)}: {record.error}" for record in progress.failures]
    missing = [f"{name}: {reason}" for name, reason in progress.missing.items()]
    status = 1 if failed or missing else 0
    if options.json:
        facts = {"study": folder.name, "folder": str(folder), "complete": not status}
        trials = {"trials": progress.ended_trials, "failed": failed, "missing": missing}
        print(json.dumps({**facts, **trials}, indent=1))
        return status
    if progress.facts.records:
        print(f"\n{format_markdown(read_export(folder, ANSWER), sys.stdout)}")
    print_lines([f"failed: {line}" for line in failed], sys.stdout)
    if failed:
        print(f"tracebacks:  {failures_command(folder)}")
        print(f"output:      {folder / WORKERS_LOG}")
        print(f"fix the cause, then:  {_format_continuation(scheduler, folder, options, '--retry-failed')}")
    if not progress.is_done:
        if scheduler.has_given_up:
            under_way, faults = scheduler.facts.under_way.values(), scheduler.faults
            set_aside = [describe_retries(trial) for trial in under_way if faults.is_set_aside(trial.key)]
            print_lines([f"set aside: {line}" for line in set_aside], sys.stdout)
            print_lines(filter(None, [scheduler.faults.give_up_reason]), sys.stdout)
        word = "paused" if scheduler.has_given_up else "interrupted"
        print(f"the launch was {word}; to continue:  {python()} {command_line().removeprefix('python ')}")
    if (folder / DEV_TABLE).exists():
        print(f"table:       {folder / DEV_TABLE}")
    if (folder / "report.html").exists():
        print(f"report:      {folder / 'report.html'}")
    if list_arms_with_winner(progress):
        print(f"winners:     {python()} -m study.winners {shlex.quote(str(folder))}")
    print_lines(browse(folder, options.tracking_uri)[:1], sys.stdout)  # the address only; browse.txt has the links
    for label, change in {} if status else extensions(progress.plan).items():
        print(f"{label + ':':12} {_format_continuation(scheduler, folder, options, change)}")
    return status


def extensions(plan: ResolvedPlan) -> dict[str, str]:
    """Return the options that extend a study. The keys of the result are labels for display.

    "more search" doubles the number of search trials, or the number of searches if the study repeats searches. "more
    seeds" adds five seeds.
    """
    request, options = plan.request, dict[str, str]()
    if 1 < request.search_repeats < MOST_REPEATS and len(request.methods) > 1 and any(arm.repeat for arm in plan.arms):
        options["more search"] = f"--compare methods:{min(MOST_REPEATS, 2 * request.search_repeats)}"
    elif request.samples is not None and any(arm.can_search_more for arm in plan.arms):
        options["more search"] = f"--samples {2 * request.samples}"
    if any(len(arm.seeds) == request.seeds for arm in plan.arms):
        options["more seeds"] = f"--seeds {request.seeds + 5}"
    return options


def _format_continuation(scheduler: Scheduler, folder: Path, options: LaunchOptions, change: str) -> str:
    """Format the command that continues the study with the option `change`, on the same cluster and MLflow store."""
    last = scheduler.facts.last_launch
    kept = (last and last.began.execution) or Execution(driver=default_driver())
    flags = list_execution_options(options.execution, beside=kept)
    return " ".join([python(), "-m study.launch --continue", shlex.quote(str(folder)), change, *flags])


main = Command(
    "study.launch",
    LaunchOptions,
    DESCRIPTION,
    run,
    epilog=EPILOG,
    after_interrupt="; all files are complete; to continue, run the same command",
    suggest=suggest_launch_option,
)

if __name__ == "__main__":
    sys.exit(main())
