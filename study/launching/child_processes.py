"""The programs that a launch starts: the copy into MLflow, the measurement of times, and the command of --then."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from study.decisions.progress import compute_progress
from study.facts.journal import Journal
from study.facts.study_facts import read_facts
from study.facts.study_folder import BROWSE, MIRROR_LOG, read_export
from study.launching.options import LaunchOptions, split_command
from study.terminal.output import show_waiting
from study.terminal.text import print_lines, python
from study.time import DEFAULT_MINUTES, measure_times
from study.time import Options as TimingOptions

TIMING_SHARE = 0.1  # of the study's time, for the measurement of inference times at its end
TIMING_SECONDS = 60.0  # for this measurement after a short study
SHORTEST_TIMING = 5.0  # seconds; loading PyTorch and the models takes most of them
MIRROR_NICENESS = 10  # added to the launch's niceness, so that driver and trials get processors first


@contextmanager
def running_then(folder: Path, options: LaunchOptions) -> Iterator[None]:
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
            command = split_command(options.then)
            code = subprocess.run(command, env=environment, check=False).returncode
            if code:  # the arguments may be secret
                print_lines([f"--then {command[0]} ended with status {code}"], sys.stderr)


def measure_models(journal: Journal, folder: Path, options: LaunchOptions, *, until: float) -> None:
    """Measure the models' times if this takes at most a tenth of the study's time; otherwise, print the command.

    A study of more than a minute may be measured for a minute. Ctrl-C ends only the measurement.
    """
    command = f"{python()} -m study.time {shlex.quote(str(folder))}"
    spent = sum(launch.measure_seconds() for launch in journal.facts.launches.values())
    seconds = max(spent * TIMING_SHARE, TIMING_SECONDS if spent >= TIMING_SECONDS else 0.0)
    seconds = min(seconds, 60 * DEFAULT_MINUTES, until - time.monotonic())
    if options.address or seconds < SHORTEST_TIMING:
        print_lines([f"to measure how long the models take for a text: {command}"], sys.stderr)
        return
    try:
        event = measure_times(TimingOptions(study=str(folder), minutes=seconds / 60))
    except (KeyboardInterrupt, subprocess.CalledProcessError):
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
