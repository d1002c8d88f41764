"""One launch, from the plan on disk to the table: what `study.launch` does once it knows what is asked for."""

from __future__ import annotations

import argparse
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
from typing import Any

import ray

from analysis.report import write_report
from analysis.tables import WrittenTables, write_tables
from study.engine import Engine, Resources, end_trial, ray_cluster
from study.journal import Journal, utc_now, write_json
from study.plan import ResolvedPlan, digest, load_plan_json
from study.state import LaunchStatus, StudyState
from study.storage import join, make_writable, storage_address
from study.view import View

AUTOSCALER_CONFIG = Path("~/ray_bootstrap_config.yaml").expanduser()  # where `ray up` puts it on the head
PACKAGES = ("ray", "torch", "transformers", "datasets", "optuna", "mlflow", "pandas", "numpy")


def run_study(resolved: ResolvedPlan, folder: Path, arguments: argparse.Namespace, *, why: str) -> int:
    """The launch's exit status. ValueError, with nothing run, if the study cannot be opened."""
    storage = storage_address(arguments.storage or str(folder))
    with ExitStack() as stack:
        if arguments.address:
            stack.enter_context(ray_cluster(arguments.address))  # before anything is created
        make_writable(join(storage, "trials"))
        make_writable(str(folder / "predictions"))
        journal = stack.enter_context(closing(Journal(folder)))
        append, events = journal.append, journal.events
        state = StudyState(
            folder.name,
            resolved,
            events=events,
            append=append,
            provenance=provenance(),
            max_gpu_hours=arguments.max_gpu_hours,
        )
        write_json(folder / "plan.json", plan_json(folder, resolved))
        for trial in state.unsettled:
            end_trial(state, trial, storage, folder)
        if state.finished:
            print(f"study {folder}: nothing is left to do", file=sys.stderr)
            tables = write_tables([folder], folder / "tables")
        else:
            print(f"study {folder} ({resolved.protocol_hash}), {why}", file=sys.stderr)
            tables = _launch(state, folder, storage, arguments)
    return conclude(state, folder, tables, tracking_uri=arguments.tracking_uri, as_json=arguments.json)


def cluster_gpus(address: str) -> int:
    """GPUs of the Ray cluster at `address`."""
    with ray_cluster(address):
        return int(ray.cluster_resources().get("GPU", 0))


def provenance() -> dict[str, Any]:
    """Versions of the packages that make numbers, and the commit of this code."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"versions": {"python": platform.python_version(), **versions}, "git_commit": git_commit()}


def git_commit() -> str | None:
    """The commit of the checkout that this code lies in; null where it is not a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def plan_json(folder: Path, resolved: ResolvedPlan) -> dict[str, Any]:
    """What `plan.json` says; `created` stays that of the first launch."""
    earlier = load_plan_json(folder)
    created = earlier["created"] if earlier else utc_now()
    facts = {"name": folder.name, "created": created}
    content = {**facts, **resolved.to_json(), **provenance(), "command": command_line()}
    return {**content, "digest": digest(content)}


def command_line() -> str:
    return shlex.join(["python", "-m", "study.launch", *sys.argv[1:]])


def python() -> str:
    """This interpreter as a person would type it here."""
    here = os.path.relpath(sys.executable)
    return sys.executable if here.startswith("..") else here


def _launch(state: StudyState, folder: Path, storage: str, arguments: argparse.Namespace) -> WrittenTables:
    state.begin_launch(command=command_line(), host=socket.gethostname(), pid=os.getpid())
    mirror = start_mirror(folder, arguments.tracking_uri)
    status: LaunchStatus = "interrupted"
    try:
        with nullcontext() if ray.is_initialized() else ray_cluster(None):
            resources = resources_of(arguments)
            with View(state, slots=resources.slots, output=sys.stderr) as view:
                Engine(
                    state,
                    folder=folder.resolve(),
                    storage=storage,
                    resources=resources,
                    max_failures=arguments.max_failures,
                    on_progress=view.update,
                ).run()
        status = "complete" if state.finished else "drained"
    except KeyboardInterrupt:
        pass  # the second Ctrl-C: trials go on from their last saved epoch
    tables = write_tables([folder], folder / "tables")
    write_report(folder)
    state.end_launch(status)
    if mirror:
        wait_for_mirror(mirror)
    return tables


def resources_of(arguments: argparse.Namespace) -> Resources:
    """What a trial holds: a whole GPU where the cluster has any, unless the command line says otherwise."""
    asked, there_are_gpus = arguments.gpus_per_trial, bool(ray.cluster_resources().get("GPU"))
    gpus = float(there_are_gpus) if asked is None or (asked == "auto" and not there_are_gpus) else asked
    return Resources(
        cpus=arguments.cpus_per_trial,
        gpus=None if gpus == "auto" else gpus,
        autoscaler=AUTOSCALER_CONFIG if arguments.address and AUTOSCALER_CONFIG.exists() else None,
    )


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


def conclude(state: StudyState, folder: Path, tables: WrittenTables, *, tracking_uri: str | None, as_json: bool) -> int:
    """Prints the table and the ways on; the launch's exit status."""
    failed = [f"{r.method}/{r.task} {r.phase} {r.trial}: {r.error}" for r in state.ended if r.status == "failed"]
    complete = not (tables.incomplete or failed)
    if as_json:
        facts = {"study": folder.name, "folder": str(folder), "complete": complete, "trials": len(state.ended)}
        print(json.dumps({**facts, "failed": failed, "incomplete": tables.incomplete}, indent=1))
        return 0 if complete else 1
    print(f"\n{tables.text()}")
    for line in failed:
        print(f"failed: {line}")
    again = command_line().removeprefix("python ")
    if not state.finished:
        print(f"interrupted; continue:  {python()} {again}")
    print(f"report:      {folder / 'report.html'}")
    if tracking_uri is None:
        print(f"browse:      {python()} -m mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db")
    print(f"regenerate:  {python()} -m analysis.tables {folder}")
    print(f"extend:      the same command with more --samples or --seeds, or --name {folder.name} and others of --task")
    return 0 if complete else 1
