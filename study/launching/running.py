"""Run a study's missing trials, from the launch's beginning to its end in the journal."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from study.cluster.resources import Nodes, Resources, ThisMachine, check_room
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Stalled, Watchdog
from study.drivers.smoke_steps import SmokeStepsFailed
from study.facts.events import LaunchStatus, PlanRegistered, SmokeStepFailed
from study.facts.journal import Journal
from study.facts.registration import find_plan_tag
from study.facts.study_folder import compute_plan_digest
from study.launching.child_processes import measure_models, start_mirror, wait_for_mirror
from study.launching.forecast import estimate_space
from study.launching.live_view import LiveView
from study.launching.options import LaunchOptions, check_gpu_limit
from study.launching.planned_study import command_line, name_registry
from study.launching.screen import failures_command
from study.mlflow_mirror.tracking import unreachable_reason
from study.rebuild import write_files
from study.storage.launch_marks import delete_marks
from study.storage.study_storage import StudyStorage
from study.terminal.output import can_redraw, console_on, lost_outputs, show_waiting
from study.terminal.text import masked, print_lines

if TYPE_CHECKING:
    from study.drivers.driver import Driver


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
            if status != "interrupted" and self.scheduler.progress.is_finished:
                measure_models(self.journal, self.folder, self.options, until=self.until)
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
            places.append(name_registry(uri))
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
            progress = self.scheduler.progress
            return "complete" if progress.is_finished and not progress.closed else "partial", None
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
            resources = measure_resources(self.options)
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


def measure_resources(options: LaunchOptions) -> Resources:
    """Measure the resources for trials on the connected cluster or on this machine.

    Raises:
        ValueError: if no node has room for a trial, and the cluster cannot add a node, or if GPU time has a limit, but
            the trials get no GPU.
    """
    nodes: Nodes = ThisMachine()
    execution = options.execution
    if execution.driver == "ray":
        from study.cluster.ray_cluster import RayNodes

        nodes = RayNodes()
    cpus, gpus = execution.cpus_per_trial, execution.gpus_per_trial
    resources = Resources.measure(nodes, cpus=cpus, gpus=gpus, address=options.address)
    check_gpu_limit(options.max_gpu_hours, gpus=resources.gpus)
    check_room(resources, address=options.address)
    return resources
