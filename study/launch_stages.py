"""One launch, stage by stage: cluster, journal, mirror, driver, tables. What `study.launch` does once it has a plan.

Ray is imported where trials are to be run: a study that is finished has no need of it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path

from study.decisions.scheduler import Scheduler
from study.decisions.specs import Provenance
from study.drivers.trial_end import end_trial
from study.facts.events import LaunchStatus, utc_now
from study.facts.journal import Journal
from study.launch_options import LaunchOptions
from study.plans.plan_file import PlanFile, read_plan, write_plan
from study.plans.resolved_plan import ResolvedPlan
from study.screen.live_view import LiveView
from study.screen.words import describe_failure
from study.storage.addresses import join, make_writable, storage_address

PACKAGES = ("ray", "torch", "transformers", "datasets", "optuna", "mlflow", "pandas", "numpy", "msgspec")


def run_study(plan: ResolvedPlan, folder: Path, options: LaunchOptions, *, why: str) -> int:
    """The launch's exit status.

    Raises:
        ValueError: the study cannot be opened; nothing was run.
    """
    storage = storage_address(options.storage or str(folder))
    with ExitStack() as stack:
        if options.address:
            from study.cluster.ray_connection import ray_cluster

            stack.enter_context(ray_cluster(options.address))  # before anything is created
        make_writable(join(storage, "trials"))
        make_writable(str(folder / "predictions"))
        journal = stack.enter_context(closing(Journal(folder)))
        code = provenance()
        write_plan(folder, plan_file(folder, plan, code))
        scheduler = Scheduler(folder.name, plan, journal, code, max_gpu_hours=options.max_gpu_hours)
        for trial in scheduler.progress.unsettled:
            end_trial(scheduler, trial, storage=storage, folder=folder)
        if scheduler.progress.is_finished:
            print(f"study {folder}: nothing is left to do", file=sys.stderr)
            table = write_tables(folder)
        else:
            print(f"study {folder} ({plan.protocol_hash}), {why}", file=sys.stderr)
            table = _launch(scheduler, folder, storage, options)
    return conclude(scheduler, folder, table, options)


def provenance() -> Provenance:
    """Versions of the packages that make numbers, and the commit of this code."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return Provenance(versions={"python": platform.python_version(), **versions}, git_commit=git_commit())


def git_commit() -> str | None:
    """The commit of the checkout that this code lies in; None where it is not a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def plan_file(folder: Path, plan: ResolvedPlan, code: Provenance) -> PlanFile:
    """What `plan.json` says; `created` stays that of the first launch."""
    earlier = read_plan(folder)
    return PlanFile(
        name=folder.name,
        created=earlier.created if earlier else utc_now(),
        command=command_line(),
        versions=code.versions,
        git_commit=code.git_commit,
        protocol_hash=plan.protocol_hash,
        plan=plan,
    )


def command_line() -> str:
    return shlex.join(["python", "-m", "study.launch", *sys.argv[1:]])


def python() -> str:
    """This interpreter as a person would type it here."""
    here = os.path.relpath(sys.executable)
    return sys.executable if here.startswith("..") else here


def _launch(scheduler: Scheduler, folder: Path, storage: str, options: LaunchOptions) -> str:
    """The dev table, after all that there was to do or until Ctrl-C."""
    import ray

    from study.cluster.ray_connection import ray_cluster
    from study.cluster.resources import Resources
    from study.drivers.tune_driver import TuneDriver

    scheduler.begin_launch(command=command_line(), host=socket.gethostname(), pid=os.getpid())
    mirror = start_mirror(folder, options.tracking_uri)
    status: LaunchStatus = "interrupted"
    try:
        with nullcontext() if ray.is_initialized() else ray_cluster(None):
            resources = Resources.of_cluster(
                cpus=options.cpus_per_trial, gpus=options.gpus_per_trial, address=options.address
            )
            with LiveView(scheduler, slots=resources.slots, output=sys.stderr) as view:
                TuneDriver(
                    scheduler,
                    folder=folder.resolve(),
                    storage=storage,
                    resources=resources,
                    max_failures=options.max_failures,
                    on_progress=view.update,
                ).run()
        status = "complete" if scheduler.progress.is_finished else "drained"
    except KeyboardInterrupt:
        pass  # the second Ctrl-C: trials go on from their last saved epoch
    table = write_tables(folder)
    analyse("report", folder)
    scheduler.end_launch(status)
    if mirror:
        wait_for_mirror(mirror)
    return table


def write_tables(folder: Path) -> str:
    """Writes the tables of the study, as `python -m analysis.tables` does; the dev table for a terminal."""
    return analyse("tables", folder)


def analyse(command: str, folder: Path) -> str:
    """What a command of `analysis` prints about the study; a fault of it ends no study, and is told."""
    run = [sys.executable, "-m", f"analysis.{command}", str(folder)]
    done = subprocess.run(run, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"the study is safe; again later: {python()} -m analysis.{command} {folder}", file=sys.stderr)
    return done.stdout


def start_mirror(folder: Path, uri: str | None) -> subprocess.Popen | None:
    """The process that follows the journal into MLflow; None with `--tracking-uri none`."""
    if uri == "none":
        return None
    command = [sys.executable, "-m", "study.mirror", str(folder), "--follow"]
    with (folder / "mirror.log").open("a") as log:
        return subprocess.Popen(
            command + (["--tracking-uri", uri] if uri else []),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is the launcher's: the mirror ends when it has seen the launch end
        )


def wait_for_mirror(mirror: subprocess.Popen) -> None:
    print("writing the last runs to MLflow; Ctrl-C leaves that to go on by itself ...", file=sys.stderr)
    try:
        if mirror.wait() != 0:
            print("not all of it is in MLflow; see mirror.log in the study's folder", file=sys.stderr)
    except KeyboardInterrupt:
        print("MLflow is still being written; see mirror.log in the study's folder", file=sys.stderr)


def conclude(scheduler: Scheduler, folder: Path, table: str, options: LaunchOptions) -> int:
    """Prints the table and the ways on; the launch's exit status."""
    progress = scheduler.progress
    failed, missing = [describe_failure(record) for record in progress.failures], progress.missing
    status = 1 if failed or missing else 0
    if options.json:
        facts = {"study": folder.name, "folder": str(folder), "complete": not status}
        trials = {"trials": len(progress.facts.records), "failed": failed, "missing": missing}
        print(json.dumps({**facts, **trials}, indent=1))
        return status
    print(f"\n{table}")
    for line in failed:
        print(f"failed: {line}")
    if not progress.is_finished:
        print(f"interrupted; continue:  {python()} {command_line().removeprefix('python ')}")
    print(f"report:      {folder / 'report.html'}")
    if options.tracking_uri is None:
        print(f"browse:      {python()} -m mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db")
    print(f"regenerate:  {python()} -m analysis.tables {folder}")
    print(f"extend:      the same command with more --samples or --seeds, or --name {folder.name} and others of --task")
    return status
