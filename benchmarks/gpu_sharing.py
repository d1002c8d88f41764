"""What trials bring that share one device: one, two, four and eight at once, on a GPU with NVIDIA's MPS and without.

    python -m benchmarks.gpu_sharing
    python -m benchmarks.gpu_sharing --device cpu --backbone mini-albert --batch-size 8 --steps 20

A trial is a process that trains a model with random weights on random texts of realistic length, as a trial of a study
does. All start a number of steps together once each has done some that are not counted. Trials per hour are those in
which so many steps are done on the whole device; ratios are to one trial at a time without MPS, medians over rounds,
in each of which every number of trials has its turn. On a CPU the processes share its cores, each has one thread, and
there is no MPS. CPU seconds of a trial stand beside, for a busy machine. Results: benchmarks/results/gpu_sharing.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from shutil import which
from statistics import median
from typing import Any, get_args

import torch

from benchmarks.counts import count
from benchmarks.random_texts import random_examples
from benchmarks.results_file import write_results
from benchmarks.table2 import METHODS, config_of, new_model, training_step, typical_lengths
from benchmarks.training_contenders import device
from study.cluster import mps
from trainables.configuration import Precision
from trainables.data.tasks import TASKS
from trainables.matrix_products import check_precision
from trainables.runs.devices import device_name

UNCOUNTED = 3  # steps of a trial before all begin
PATIENCE_SECONDS = 300.0  # until all have

_all_are_ready: Barrier  # of a process that trains


@dataclass(frozen=True)
class Way:
    """How trials share the device."""

    at_once: int
    with_mps: bool

    def in_words(self) -> str:
        return f"{self.at_once} at once{', MPS' if self.with_mps else ''}"


ALONE = Way(1, with_mps=False)


@dataclass(frozen=True)
class Timed:
    """The counted steps of one trial."""

    ready: float  # of the machine's clock, as all processes read it: from here on it waited for the others
    began: float
    ended: float
    cpu_seconds: float


Rounds = dict[Way, list[list[Timed]]]  # trials of each round


def main() -> None:
    arguments = build_parser().parse_args()
    try:
        rounds = measure(arguments)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    rows = [row_of(way, rounds) for way in rounds]
    facts = {"device": device_name(device()), "backbone": arguments.backbone, "method": arguments.method}
    write_results("gpu_sharing", {**vars(arguments), **facts, "rows": rows})
    for row in rows:
        hourly, cpu = f"{row['trials_per_hour']:,.0f} trials of {arguments.steps} steps per hour", row["cpu_seconds"]
        print(f"{row['way']:18} {hourly}, {row['ratio']:.2f}x of one at a time, {cpu:.2f} CPU seconds each")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_sharing", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default=device(), help="(%(default)s)")
    parser.add_argument(
        "--at-once", type=count, nargs="+", default=[1, 2, 4, 8], metavar="N", help="with 1 (%(default)s)"
    )
    parser.add_argument("--method", choices=METHODS, default="palbert", help="(%(default)s)")
    parser.add_argument("--backbone", default="albert-base", help="with random weights (%(default)s)")
    parser.add_argument("--precision", choices=get_args(Precision), default="float32", help="(%(default)s)")
    parser.add_argument("--batch-size", type=count, default=32, help="(%(default)s)")
    parser.add_argument("--steps", type=count, default=100, help="counted, of a trial (%(default)s)")
    parser.add_argument("--rounds", type=count, default=5, help="(%(default)s)")
    return parser


def measure(arguments: argparse.Namespace) -> Rounds:
    """All ways in turn, round after round.

    Raises:
        ValueError: there is no such device, or nothing to compare with.
    """
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device is cuda, but this machine has no GPU; allowed: cpu")
    check_precision(arguments.precision, torch.device(arguments.device))
    if 1 not in arguments.at_once:
        raise ValueError(f"--at-once is {arguments.at_once}; allowed: 1, which others are compared with, and more")
    with_and_without = (False, True) if arguments.device == "cuda" and has_mps() else (False,)
    ways = [Way(number, with_mps) for with_mps in with_and_without for number in arguments.at_once]
    rounds: Rounds = {way: [] for way in ways}
    for _ in range(arguments.rounds):
        for way in ways:
            rounds[way].append(trained(way, arguments))
    return rounds


def has_mps() -> bool:
    """Whether NVIDIA's program is here and works; a line says why not."""
    if which(mps.PROGRAM) is None:
        print(f"measured without MPS alone: there is no {mps.PROGRAM}", file=sys.stderr)
        return False
    with own_service(say=partial(print, file=sys.stderr)) as is_there:
        return is_there


def row_of(way: Way, rounds: Rounds) -> dict[str, Any]:
    """Medians over the rounds; the ratio is taken within each."""
    hourly, alone = [[trials_per_hour(trials) for trials in rounds[own]] for own in (way, ALONE)]
    return {
        "way": way.in_words(),
        "at_once": way.at_once,
        "mps": way.with_mps,
        "trials_per_hour": median(hourly),
        "ratio": median(own / one for own, one in zip(hourly, alone, strict=True)),
        "cpu_seconds": median(trial.cpu_seconds for trials in rounds[way] for trial in trials),
        "seconds": [[trial.ended - trial.began for trial in trials] for trials in rounds[way]],
    }


def trials_per_hour(trials: list[Timed]) -> float:
    """From the first that began to the last that ended."""
    return 3600 * len(trials) / (max(trial.ended for trial in trials) - min(trial.began for trial in trials))


def trained(way: Way, arguments: argparse.Namespace) -> list[Timed]:
    """So many trials at once, each a new process."""
    context = multiprocessing.get_context("spawn")  # a CUDA that was forked does not work
    with (
        seen_by_torch(arguments.device),
        own_service(say=lambda line: None) if way.with_mps else no_service() as is_there,
        ProcessPoolExecutor(way.at_once, context, initializer=meet, initargs=(context.Barrier(way.at_once),)) as pool,
    ):
        if is_there != way.with_mps:
            raise ValueError("MPS has started before and does not now; allowed: a machine where it does, or without it")
        return list(pool.map(train, [arguments] * way.at_once))


@contextmanager
def own_service(*, say: Callable[[str], None]) -> Iterator[bool]:
    """A daemon of this process, whichever is given; whether it runs."""
    with environment(mps.SOCKETS, None), mps.multi_process_service(say=say) as is_there:
        yield is_there


@contextmanager
def no_service() -> Iterator[bool]:
    """No daemon is found, though one may run where CUDA looks by itself."""
    with tempfile.TemporaryDirectory(prefix="no-mps-") as nothing, environment(mps.SOCKETS, nothing):
        yield False


@contextmanager
def seen_by_torch(name: str) -> Iterator[None]:
    """Processes that start within see GPUs only where these are asked for."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if name == "cuda" else ""
    with environment("CUDA_VISIBLE_DEVICES", visible):
        yield


@contextmanager
def environment(name: str, value: str | None) -> Iterator[None]:
    """With a variable of the environment set, or taken out."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def meet(barrier: Barrier) -> None:
    """In each process: where it waits for the others."""
    global _all_are_ready
    _all_are_ready = barrier


def train(arguments: argparse.Namespace) -> Timed:
    """One trial, in a process of its own."""
    torch.set_num_threads(1)
    try:
        config = config_of(arguments.method, arguments.batch_size, arguments.precision)
        model = new_model(arguments.method, config, TASKS["rte"], arguments.backbone)
        examples = random_examples(typical_lengths(arguments.batch_size))
        step = training_step(model, config, examples, num_steps=UNCOUNTED + arguments.steps)
        for _ in range(UNCOUNTED):
            step()
    except BaseException:
        _all_are_ready.abort()  # the others wait for nobody
        raise
    ready = time.monotonic()
    _all_are_ready.wait(PATIENCE_SECONDS)
    began, cpu_began = time.monotonic(), time.process_time()
    for _ in range(arguments.steps):
        step()
    return Timed(ready, began, time.monotonic(), time.process_time() - cpu_began)


if __name__ == "__main__":
    main()
