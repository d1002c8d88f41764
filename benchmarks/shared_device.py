"""How many trials a GPU should train at once: examples per second of one, two and four trials side by side.

    python -m benchmarks.shared_device --glue FOLDER
    python -m benchmarks.shared_device --glue mini --device cpu --layers 1 --width 64 --seconds 2      # to try it

Each trial is a process, as a study's worker is, that trains the shape of ALBERT-base with random weights on RTE or
another task. All start together, and the examples of the same seconds count. Two trials pay if together they train more
examples than one. Results go to benchmarks/results/shared_device.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.connection import wait
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.counts import count
from benchmarks.random_backbones import write_albert_base
from benchmarks.results_file import write_results
from benchmarks.training_speed import setting_of
from trainables.data.glue import vocabulary_texts
from trainables.data.tasks import TASKS
from trainables.models.devices import device_name
from trainables.runs.evaluation import run_to_end
from trainables.runs.training import TrainingRun

WARM_STEPS = 3


def main() -> int:
    arguments = build_parser().parse_args()
    facts = {"device": device_name(arguments.device)}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="shared-") as folder:
        texts = vocabulary_texts(TASKS[arguments.task], arguments.glue)
        write_albert_base(Path(folder), texts, num_layers=arguments.layers, hidden_size=arguments.width)
        for number in arguments.trials:
            rows.append(side_by_side(number, folder, arguments))
            write_results("shared_device", {**vars(arguments), **facts, "rows": rows})
    print(f"{facts['device']}, batches of {arguments.batch_size}, {arguments.precision}")
    for row in rows:
        print(f"{row['trials']} at once: {row['examples_per_second']:.1f} examples per second together", end="")
        print("" if row["megabytes"] is None else f", {row['megabytes']:.0f} MB each")
    return 0


def build_parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_device", description=description)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--glue", required=True, help="folder with GLUE's TSV files, or mini")
    parser.add_argument("--task", choices=TASKS, default="rte")
    parser.add_argument("--trials", type=count, nargs="+", default=[1, 2, 4], help="numbers of trials at once")
    parser.add_argument("--seconds", type=float, default=15, help="measured for each number (%(default)s)")
    parser.add_argument("--batch-size", type=count, default=32)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--layers", type=count, default=12)
    parser.add_argument("--width", type=count, default=768)
    return parser


def side_by_side(number: int, backbone: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train so many trials at once. If one fails, end the others, which may wait for it."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(number), context.SimpleQueue()
    processes = [
        context.Process(target=train, args=(seed, backbone, arguments, barrier, results), daemon=True)
        for seed in range(number)
    ]
    for process in processes:
        process.start()
    while None in (codes := [process.exitcode for process in processes]) and not any(codes):
        wait([process.sentinel for process in processes if process.exitcode is None])
    if any(codes):
        for process in processes:
            process.kill()
            process.join()
        raise SystemExit(f"{number} trials at once: one of them failed")
    rates, megabytes = zip(*(results.get() for _ in processes), strict=True)
    return {"trials": number, "examples_per_second": sum(rates), "megabytes": megabytes[0]}


def train(seed: int, backbone: str, arguments: argparse.Namespace, barrier: Barrier, results: Any) -> None:
    """Train one trial in its own process; put examples per second and its largest memory into the queue."""
    torch.set_num_threads(1)
    sizes = {"batch_size": arguments.batch_size, "precision": arguments.precision}
    setting = setting_of(arguments.task, backbone, Path(arguments.glue), **sizes)
    with tempfile.TemporaryDirectory(prefix="shared-") as cache:
        run = TrainingRun(setting.spec, device=arguments.device, cache=Path(cache))
    generator = np.random.default_rng(seed)

    def steps(number: int) -> None:
        run_to_end(run.train_on(list(generator.integers(0, run.rows[0], (number, arguments.batch_size))), 1))

    steps(WARM_STEPS)
    barrier.wait()
    began, trained = time.perf_counter(), 0
    while (seconds := time.perf_counter() - began) < arguments.seconds:
        steps(1)  # which waits for the device, as it returns the loss
        trained += arguments.batch_size
    is_gpu = arguments.device == "cuda"
    results.put((trained / seconds, torch.cuda.max_memory_allocated() / 1e6 if is_gpu else None))


if __name__ == "__main__":
    sys.exit(main())
