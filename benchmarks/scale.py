"""What large studies take: a dry run, the status, a launch with nothing left to do, the mirror; seconds and memory.

    python -m benchmarks.scale

Each is a process of its own, its imports included; the figures are medians, to be taken on an idle machine. The studies
are those of the real scheduler, without Ray. Exit status 1 where a limit is not held. How much of the mirror is
MLflow itself, its client says, which sends the same runs alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median

import msgspec
from msgspec.structs import replace

from analysis.tables import write_tables
from benchmarks.counts import count
from benchmarks.results_file import write_results
from benchmarks.synthetic_trials import report, unit
from study.decisions.scheduler import Scheduler
from study.facts.events import FILE, Event, Report
from study.facts.journal import Journal
from study.facts.plan_file import write_plan
from study.facts.provenance import read_provenance
from study.facts.study_facts import StudyFacts, TrialFacts
from study.launch import main as study_launch
from study.launching.planned_study import plan_file, resolve_in
from study.launching.reading import plan_from
from trainables.data.tasks import find_task

# 40 arms, for the journal of many trials; each of these methods has more points than a search of it takes.
MANY_METHODS = "albert,palbert,pabee,pondernet,electra-small"
MANY = ("--profile", "mini", "--method", MANY_METHODS, "--task", "sst2,rte,qnli,cola,mrpc,mnli,qqp,stsb")
ARMS = ("--profile", "mini", "--method", "albert,palbert", "--task", "rte,cola,mrpc,stsb", "--sampler", "random")
SLOTS = 8
SEEDS = 5  # confirm trials of each of the eight arms

# Runs the module named first, and says at its end what memory it held: not that of the process that it was forked from.
RUN = """
import atexit, runpy, sys
atexit.register(lambda: print("", *[line for line in open("/proc/self/status") if "VmHWM" in line], file=sys.stderr))
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Figure:
    """What a command took."""

    seconds: float
    cpu_seconds: float  # of the command and of what it has started
    megabytes: float  # resident at most


@dataclass(frozen=True)
class TimedCommand:
    """A command, and what it may take."""

    name: str
    command: tuple[str, ...]
    limit_seconds: float = float("inf")
    limit_megabytes: float | None = None


def main(argv: list[str] | None = None) -> int:
    """1 where a limit was not held."""
    options = build_benchmark_parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        figures = {one.name: (one, measure(one, options.repeats)) for one in measured(Path(folder), options)}
    for one, figure in figures.values():
        print(f"{'held  ' if is_held(one, figure) else 'MISSED'}  {describe(one, figure)}")
    *_, (_, mirror), (_, client) = figures.values()
    print(f"        {against_peer(mirror, client)}")
    write_results("scale", {**vars(options), **{name: vars(figure) for name, (_, figure) in figures.items()}})
    return 0 if all(is_held(one, figure) for one, figure in figures.values()) else 1


def build_benchmark_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=count, default=10_000, help="of each arm of the dry run (%(default)s)")
    parser.add_argument("--events", type=count, default=100_000, help="of the status (%(default)s)")
    parser.add_argument("--trials", type=count, default=1000, help="of the launch and the mirror (%(default)s)")
    parser.add_argument("--many", type=count, default=10_000, help="of the status of forty arms (%(default)s)")
    parser.add_argument("--repeats", type=count, default=3, help="of each command (%(default)s)")
    return parser


def measured(folder: Path, options: argparse.Namespace) -> list[TimedCommand]:
    """The commands, the studies that they read made in `folder`."""
    epochs = 96
    long = made_study(folder / "long", trials=options.events // (epochs + 2), epochs=epochs)
    wide = made_study(folder / "wide", trials=options.trials, epochs=5)
    many = made_study(folder / "many", trials=options.many, epochs=6, arms=MANY)
    megabytes = (many / FILE).stat().st_size / 1e6
    write_tables([wide], wide / "tables")  # what a launch with nothing to do shows
    store = ("--tracking-uri", f"sqlite:///{folder}/mlflow-$$.db")
    out = ("--out", str(folder), "--tracking-uri", "none")
    asked = (*asked_for(folder / "wide", trials=options.trials, epochs=5), *out)
    dry_run = ("study.launch", "--dry-run", *ARMS, "--samples", str(options.samples), "--early-stopping", "asha")
    return [
        TimedCommand(f"dry run of {options.samples} samples", dry_run, 3.0),
        TimedCommand(f"status of {options.events} events", ("study.status", str(long)), 2.0, 150.0),
        TimedCommand(
            f"status of {options.many} trials, a journal of {megabytes:.1f} MB", ("study.status", str(many)), 2.0
        ),
        TimedCommand(f"report of {options.many} trials", ("analysis.report", str(many)), 20.0, 500.0),
        TimedCommand(f"launch of a finished study of {options.trials} trials", ("study.launch", *asked), 2.0),
        TimedCommand(f"mirror of {options.trials} trials", ("study.mirror", str(wide), *store), 30.0),
        TimedCommand(
            "the same runs by MLflow's client alone",
            ("benchmarks.mlflow_loop", str(wide), f"sqlite:///{folder}/loop-$$.db"),
        ),
    ]


def measure(one: TimedCommand, repeats: int) -> Figure:
    """The medians of what the command took; each time it writes to a store of its own."""
    figures = [run_once(tuple(word.replace("$$", str(number)) for word in one.command)) for number in range(repeats)]
    return Figure(**{name: median(vars(own)[name] for own in figures) for name in vars(figures[0])})


def run_once(command: tuple[str, ...]) -> Figure:
    """A process of its own, to its end. Status may say that a study lacks something (1); nothing else fails."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", RUN, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 or (process.returncode == 1 and command[0] == "study.status"), said
    seconds, cpu_seconds = time.perf_counter() - began, usage.ru_utime + usage.ru_stime
    return Figure(seconds, cpu_seconds, int(re.findall(r"VmHWM:\s+(\d+) kB", said)[-1]) / 1024)


def is_held(one: TimedCommand, figure: Figure) -> bool:
    return figure.seconds <= one.limit_seconds and figure.megabytes <= (one.limit_megabytes or float("inf"))


def describe(one: TimedCommand, figure: Figure) -> str:
    limit = f"at most {one.limit_seconds:g} s" if isfinite(one.limit_seconds) else "the peer"
    memory = f" and {one.limit_megabytes:g} MB" if one.limit_megabytes else ""
    seconds = f"{figure.seconds:.2f} s, {figure.cpu_seconds:.2f} s of CPU"
    return f"{one.name}: {seconds}, {figure.megabytes:.0f} MB ({limit}{memory})"


def against_peer(mirror: Figure, client: Figure) -> str:
    """What the mirror takes for each second of MLflow's client."""
    seconds, cpu_seconds = mirror.seconds / client.seconds, mirror.cpu_seconds / client.cpu_seconds
    return f"mirror / MLflow's client alone: {seconds:.2f} in seconds, {cpu_seconds:.2f} in seconds of CPU"


def asked_for(folder: Path, *, trials: int, epochs: int, arms: tuple[str, ...] = ARMS) -> tuple[str, ...]:
    """The options of the study in `folder`, arms of so many trials together."""
    number = 40 if arms is MANY else 8
    numbers = {"--samples": max(trials // number - SEEDS, 1), "--seeds": SEEDS, "--epochs": epochs}
    flat = [word for name, number in numbers.items() for word in (name, str(number))]
    return (*arms, *flat, "--early-stopping", "none", "--name", folder.name)


class MemoryJournal(Journal):
    """A journal without a folder."""

    def __init__(self) -> None:
        self.facts = StudyFacts()
        self.events: list[Event] = []

    def append(self, *events: Event) -> None:
        for event in events:
            self.events.append(event)
            self.facts.apply(event)


def made_study(folder: Path, *, trials: int, epochs: int, arms: tuple[str, ...] = ARMS) -> Path:
    """The folder of a finished study, as one launch would have left it, models and tables left out.

    Trials of `MANY` end after three epochs at the earliest, as if nothing improved any more.
    """
    options = study_launch.parser().options(asked_for(folder, trials=trials, epochs=epochs, arms=arms))
    plan, _ = plan_from(options)
    resolved = resolve_in(folder, plan, None)
    journal, code = MemoryJournal(), read_provenance()
    run_scheduler(Scheduler(resolved, journal, code), stops=arms is MANY)
    folder.mkdir()
    write_plan(folder, plan_file(folder, resolved, code))
    (folder / FILE).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in journal.events))
    return folder


def run_scheduler(scheduler: Scheduler, *, stops: bool) -> None:
    """All trials, an epoch of each in turn."""
    scheduler.begin_launch(command="", host="", pid=0)
    running: deque[tuple[TrialFacts, int]] = deque()
    while not scheduler.progress.is_finished:
        while len(running) < SLOTS and (trial := scheduler.next_trial()) is not None:
            running.append((trial, 1))
        trial, epoch = running.popleft()
        last = (
            trial.config["epochs"] if not stops else 3 + int(unit(trial.key) * (int(str(trial.config["epochs"])) - 2))
        )
        expected = scheduler.make_expected_attestation(trial)
        attested = replace(expected, tokens_digest="0" * 16, backbone_digest="0" * 16) if epoch == 1 else None
        said = replace(report_of(trial, epoch, last=last), attested=attested)
        scheduler.report(trial.key, said)
        if said.row.finished:
            scheduler.end(trial.key)
        else:
            running.append((trial, epoch + 1))
    scheduler.end_launch("complete")


def report_of(trial: TrialFacts, epoch: int, *, last: int) -> Report:
    """As long as one of training: every number has all of its digits."""
    config = {**trial.config, "epochs": last, "score_spread": 0.4}
    said = report(config, epoch, seconds=epoch * (1 + unit(trial.key, epoch)))
    metrics = dict.fromkeys(find_task(trial.arm.task).metrics, said.row.selection_score)
    exits = {name: menu[0] for name, menu in trial.arm.exit_settings.items()}
    row = replace(said.row, metrics=metrics, exit_setting={} if trial.phase == "confirm" else exits)
    outcome = said.outcome and replace(said.outcome, model=f"/models/{trial.key}", reported=row.reported)
    return replace(said, row=row, outcome=outcome)


if __name__ == "__main__":
    sys.exit(main())
