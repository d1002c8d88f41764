"""Measure the inference times of a study's models, and print them as JSON; for `study.time`, which records them.

A separate process measures, because PyTorch reads its number of threads when it starts, and so that a crash leaves the
journal as it is.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from study.decisions.progress import compute_progress
from study.facts.events import TimesMeasured
from study.facts.plan_file import find_data, require_plan
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.plans.resolved_plan import format_arm_name
from study.storage.models import explain_missing_model, keeps_model, local_model, locate_model, model_exists
from study.stored_models.own_methods import include_methods
from study.terminal.command_line import Command
from study.terminal.output import can_redraw, console_on
from study.terminal.text import clock, counted, list_first
from study.time import DEFAULT_MINUTES, Options, read_batch_sizes
from trainables.data.tasks import TASKS
from trainables.files.sources import cache_folder

if TYPE_CHECKING:
    from trainables.runs.timing import Contestant, Progress

PLAIN_METHOD = "albert"  # has no early exits; the other methods' times are divided by its
SETTLE_SECONDS = 1.0  # in which only other programs work, before the measurement
MOST_NAMED = 5


def run(options: Options) -> int:
    """Measure the models of every task, print the event without its time, and return 0.

    Raises:
        ValueError: if no model exists, the device does not exist, or the time is too short.
    """
    sys.stdout.flush()
    event_output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a method prints must not stand within the event
    folder = Path(options.study)
    stored, missing = _find_models(folder)
    include_methods(folder, [record for records in stored.values() for record in records], None)
    event = _measure(stored, options)
    with event_output:
        event_output.write(msgspec.json.encode(msgspec.structs.replace(event, missing=missing)))
    return 0


def _find_models(folder: Path) -> tuple[dict[str, list[Record]], list[str]]:
    """Find the stored models of confirm trials, by task, and list the keys of those that no longer exist.

    Dropped trials are timed too, as means keep them. Repeated searches are left out.

    Raises:
        ValueError: if there are no models.
    """
    progress = compute_progress(require_plan(folder).plan, read_facts(folder))
    final = [trial.record for arm in progress.arms if not arm.planned.repeat for trial in arm.confirm_trials]
    records = [record for record in final if record and keeps_model(record)]
    if not records:
        raise ValueError(f"{folder} has no completed confirm trial yet, and only these keep their models")
    located = {record.key: locate_model(record, folder) for record in records}
    stored = [record for record in located.values() if model_exists(record.model)]
    stored_keys = {record.key for record in stored}
    missing = [record for record in records if record.key not in stored_keys]
    if missing:
        names = list_first([f"{record.key} ({record.arm}, seed {record.seed})" for record in missing], MOST_NAMED)
        line = f"the models of {len(missing)} of {counted(len(records), 'final run')} no longer exist: {names}"
        line = "; ".join(filter(None, [line, explain_missing_model(missing[0], folder)]))
        if not stored:
            raise ValueError(f"{folder}: {line}; only stored models can be timed")
        print(f"{line}; the others are timed", file=sys.stderr)
    by_task: dict[str, list[Record]] = {}
    for record in stored:
        by_task.setdefault(record.task, []).append(record)
    return by_task, [record.key for record in missing]


def _measure(stored: dict[str, list[Record]], options: Options) -> TimesMeasured:
    import torch

    from trainables.models.devices import device_name
    from trainables.runs.timing import ProcessorTimes, TooLittleTime, choose_clock, measure, measure_other_load

    device = _choose_device(options.device)
    torch.set_num_threads(options.threads)
    minutes = options.minutes or DEFAULT_MINUTES
    began, sizes = time.monotonic(), read_batch_sizes(options.batch_sizes)
    models, layers, before, since = [], [], None, None
    for number, (task, records) in enumerate(stored.items()):
        with ExitStack() as stack, _naming_memory_errors(task, len(records), device):
            contestants = _load(Path(options.study), records, device, stack)
            if number == 0:
                quiet = ProcessorTimes.read()
                time.sleep(SETTLE_SECONDS)
                before, since = measure_other_load(quiet), ProcessorTimes.read()
            left = 60 * minutes - (time.monotonic() - began)
            seconds = max(0.0, left) / (len(stored) - number)
            rows = len(contestants[0].examples)
            if max(sizes) > rows:
                print(f"{task} has {rows} dev texts, so its batches have at most {rows}", file=sys.stderr)
            reference = format_arm_name(PLAIN_METHOD, task, 0)
            arms = list(dict.fromkeys(contestant.arm for contestant in contestants))
            with _showing(task, len(contestants), seconds) as show:
                try:
                    timed, parts = measure(
                        contestants,
                        list(dict.fromkeys(min(size, rows) for size in sizes)),
                        seconds=seconds,
                        reference=reference if reference in arms else arms[0],
                        on_round=show,
                    )
                except TooLittleTime as error:
                    needed = (error.seconds * len(stored) + time.monotonic() - began) / 60 + 0.5
                    fault = f"{minutes:.2g} minutes are too few for {counted(len(contestants), 'model')} on {task}"
                    raise ValueError(f"{fault}; allowed: at least --minutes {needed:.0f}") from None
        models += timed
        layers += parts
    return TimesMeasured(
        time="",
        host=socket.gethostname(),
        device=device_name(device),
        threads=options.threads,
        torch=str(torch.__version__),
        clock="cpu" if choose_clock(torch.device(device)) is time.thread_time else "wall",
        processors=since.processors if since else 1,
        others_before=before,
        others_during=measure_other_load(since),
        seconds=round(time.monotonic() - began, 1),
        models=models,
        layers=layers,
    )


def _choose_device(name: str | None) -> str:
    """Return the device to measure on: by default a GPU if there is one.

    Raises:
        ValueError: if PyTorch does not find the device.
    """
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    known = ["cpu", *["cuda"] * torch.cuda.is_available()]
    known += [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if name not in known:
        raise ValueError(f"--device {name}: PyTorch does not find this device; allowed: {', '.join(known)}")
    return name


def _load(folder: Path, records: Sequence[Record], device: str, stack: ExitStack) -> list[Contestant]:
    """Load the models in random order, so that none is at an advantage by its place in memory."""
    from trainables.data.examples import Examples, load_examples
    from trainables.encoders.loading import fingerprint_tokenizer
    from trainables.runs.timing import Contestant
    from trainables.runs.trained_model import load_trained

    plan = require_plan(folder).plan
    shared: dict[tuple[str, int], Examples] = {}
    loaded = dict[str, Contestant]()
    for record in random.sample(records, len(records)):
        trained = load_trained(stack.enter_context(local_model(record.model or "", record.model_digest)), device)
        task, length = TASKS[record.task], trained.config.max_length
        tokens = (fingerprint_tokenizer(trained.tokenizer), length)
        if tokens not in shared:
            data = find_data(folder, plan, record.task, recorded=trained.spec.data)
            shared[tokens] = load_examples(
                task, task.dev_splits, data, trained.tokenizer, max_length=length, cache=cache_folder()
            )
        loaded[record.key] = Contestant(record.key, record.arm, trained.model, shared[tokens])
    return [loaded[record.key] for record in records]


@contextmanager
def _naming_memory_errors(task: str, models: int, device: str) -> Iterator[None]:
    """Turn an error for lack of memory into a `ValueError` that names the models, which take turns in memory."""
    from trainables.runs.training_errors import is_memory_error

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_memory_error(error):
            raise
        raise ValueError(
            f"the memory of {device} cannot hold {counted(models, 'model')} on {TASKS[task].title}, which take turns; "
            "allowed: a --device with more memory"
        ) from error


@contextmanager
def _showing(task: str, models: int, seconds: float) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of a measurement on standard error, as a changing line if it is a terminal."""
    console = console_on(sys.stderr)
    is_terminal = can_redraw(console)
    start = f"timing {counted(models, 'model')} on {TASKS[task].title}, at most {clock(seconds)}"

    def describe(progress: Progress) -> str:
        reached = "" if progress.precision is None else f", ratios ± {100 * progress.precision:.1f} %"
        return f"{start}: {counted(progress.rounds, 'round')}{reached}, at most {clock(progress.seconds_left)} left"

    if not is_terminal:
        print(start, file=sys.stderr, flush=True)
        last: list[str] = []
        yield lambda progress: last.append(describe(progress))
        print(*last[-1:], sep="\n", file=sys.stderr, flush=True)
        return
    with console.status(start) as status:
        yield lambda progress: status.update(describe(progress))


main = Command("study.time", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
