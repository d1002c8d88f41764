"""Start, continue or extend a study: `python -m study.launch --method palbert`.

Ray, torch and the drivers take seconds to import, so they are imported only if there are trials to run.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

from msgspec.structs import replace
from rich.filesize import decimal

from study.decisions.machine_faults import Faults
from study.decisions.progress import StudyProgress, compute_progress
from study.decisions.scheduler import Scheduler
from study.drivers.driver import end_unsettled
from study.facts.journal import Journal
from study.facts.provenance import read_provenance
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import WORKERS_LOG
from study.launching.child_processes import running_then
from study.launching.dry_run import dry_run
from study.launching.forecast import describe_time_limit, estimate_space, measure_costs
from study.launching.last_screen import conclude, describe_finished
from study.launching.options import DESCRIPTION, EPILOG, LaunchOptions, check_options, suggest_launch_option
from study.launching.planned_study import (
    PlannedStudy,
    as_locked,
    find_launched_arms,
    find_reopened,
    keep_plan,
    list_plan_notes,
    resolve_study,
)
from study.launching.reading import complete_execution
from study.launching.running import Launch, measure_resources
from study.rebuild import EXPORTS, check_places, repair_predictions, write_files
from study.storage.addresses import is_same_disk, join, local_path, make_writable, resolve_storage_address
from study.storage.study_storage import StudyStorage, choose_storage, prune_ended
from study.stored_models.choice import with_current_model_address
from study.terminal.command_line import Command
from study.terminal.output import lasting_outputs, show_waiting
from study.terminal.processes import is_installed, require_package
from study.terminal.text import print_lines
from trainables.files.atomic_files import DiskFull
from trainables.files.sources import cache_folder


def run(options: LaunchOptions) -> int:
    """Run the command; return 0 if the study is complete, 1 if trials are missing or failed.

    Raises:
        ValueError: if the study cannot run with these options; the command then exits with status 2.
    """
    options = complete_execution(options)
    check_options(options)
    study = resolve_study(options)
    if options.dry_run:
        return dry_run(study, options)
    if options.address is None:
        require_package("torch")
    with lasting_outputs(), running_then(study.folder, options):
        try:
            return run_study(study, options)
        except DiskFull as full:
            raise DiskFull(full.place, f"; {_describe_need(full, study, options)}free some space first") from None


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
            measure_resources(options)
        if options.storage and study.earlier is None:
            make_writable(resolve_storage_address(options.storage))
        make_writable(str(folder / "predictions"))
        journal = stack.enter_context(closing(Journal(folder)))
        study = as_locked(study, is_continued=options.continue_study is not None)
        code, faults = read_provenance(), Faults(max_failures=options.max_failures)
        limit, arms = options.max_gpu_hours, find_launched_arms(study, options)
        scheduler = Scheduler(study.resolved, journal, code, max_gpu_hours=limit, faults=faults, launched=arms)
        reopened = find_reopened(scheduler.progress, code, folder, options)
        last = journal.facts.last_launch
        is_reported = last is not None and last.ended is not None and last.ended.status in ("complete", "partial")
        is_over = scheduler.progress.is_finished and is_reported and not reopened
        storage = None if is_over else _find_storage(options, folder, journal.facts)
        _check_starts(scheduler.progress, folder)
        notes = list_plan_notes(study, options, journal.facts, launched=arms)
        keep_plan(study, code, is_over=is_over)
        print_lines(notes, sys.stderr)
        is_repaired = repair_predictions(folder, journal.facts.records)
        if storage is None:
            print_lines(describe_finished(scheduler, folder), sys.stderr)
            is_outdated = last is not None and last.has_later_changes
            if is_outdated or not all((folder / name).is_file() for name in EXPORTS):
                is_exported = write_files(folder, scheduler.progress)
        else:
            end_unsettled(scheduler, storage=storage.address, folder=folder)
            prune_ended(storage, folder, journal.facts)
            lines = [study.describe(), f"the trials write their output to {folder / WORKERS_LOG}"]
            if options.max_minutes is not None:
                costs, left = measure_costs(journal.facts), scheduler.progress.list_arms_left(reopened)
                lines.append(describe_time_limit(options.max_minutes, costs, arms=left))
            print_lines(lines, sys.stderr)
            if options.address is None:
                cache_folder()  # prints an unusual cache folder here, because trials print only to their log
            launch = Launch(
                options=options, folder=folder, scheduler=scheduler, journal=journal, storage=storage, until=until
            )
            is_exported = launch.run()
    return max(conclude(scheduler, folder, options), 0 if is_exported and is_repaired else 1)


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
