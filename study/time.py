"""Measure how long the study's models take for a text: `python -m study.time runs/NAME`.

The models of all final runs (confirm trials) answer the same dev texts, alone and in batches. In every round they take
turns in a new order, so that a change of the machine's speed affects all alike. The measurement ends when the ratios of
the methods are known to half a per cent, or after ten minutes (--minutes). Use an otherwise idle machine: on a busy
one, the table says so, and no sentence or picture uses the times.

The times are written to the journal, and the table `times` and the report show them. On another machine, run the
command again with a copy of the study: each machine gets its own part of the table.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from study.facts.events import TimesMeasured
from study.facts.journal import Journal
from study.facts.plan_file import require_plan
from study.rebuild import analyse
from study.terminal.command_line import Command, argument, option
from study.terminal.processes import require_package
from study.terminal.text import format_markdown
from trainables.configuration import AtLeastOne, Positive
from trainables.configuration.schema import Typed

DEFAULT_MINUTES = 10.0
TABLE = Path("tables") / "times.md"


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.time`."""

    study: Annotated[str, argument("runs/NAME", "the study's folder")]
    batch_sizes: Annotated[str, option("numbers of texts that are answered together", "1,32")] = "1,32"
    device: Annotated[str | None, option("default: a GPU if there is one", "cpu|cuda|cuda:N")] = None
    threads: Annotated[AtLeastOne, option("threads of PyTorch on the CPU; default: 1", "N")] = 1
    minutes: Annotated[
        Positive | None, option(f"longest time; default: what the precision needs, at most {DEFAULT_MINUTES:g}", "M")
    ] = None


def run(options: Options) -> int:
    """Measure the times, write them to the journal, rewrite tables and report, and print the table `times`.

    Return 1 if the tables cannot be written. If an error is raised, nothing is written.
    """
    folder = Path(options.study)
    require_plan(folder)
    read_batch_sizes(options.batch_sizes)
    require_package("torch")
    with closing(Journal(folder)) as journal:
        try:
            event = measure_times(options)
        except subprocess.CalledProcessError as failed:
            return _explain_failure(failed.returncode)
        journal.append(replace(event, time=journal.now()))
    if not analyse(folder):
        return 1
    print(format_markdown((folder / TABLE).read_text(), sys.stdout), end="")
    return 0


def read_batch_sizes(text: str) -> list[int]:
    """Read the value of --batch-sizes: different whole numbers, separated by commas.

    Raises:
        ValueError: if the value is anything else.
    """
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(sizes) < 1 or len({*sizes}) < len(sizes):
        raise ValueError(f"--batch-sizes {text}; allowed: different numbers from 1 on, separated by commas, as in 1,32")
    return sizes


def measure_times(options: Options) -> TimesMeasured:
    """Measure the times in another process, and return the event without its time.

    Raises:
        subprocess.CalledProcessError: if the process failed.
    """
    values = {
        "--batch-sizes": options.batch_sizes,
        "--device": options.device,
        "--threads": options.threads,
        "--minutes": options.minutes,
    }
    flags = [text for flag, value in values.items() if value is not None for text in (flag, str(value))]
    command = [sys.executable, "-m", "study.stored_models.time_models", options.study, *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=TimesMeasured)


def _explain_failure(status: int) -> int:
    """Return this command's exit status for that of the measurement, which has printed why unless it was killed."""
    if status < 0:
        name = signal.Signals(-status).name
        print(f"study.time: the measurement was killed by {name}; nothing was written", file=sys.stderr)
        return 1
    return status


main = Command("study.time", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
