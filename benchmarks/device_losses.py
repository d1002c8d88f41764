"""Whether every method trains on a GPU as on the CPU: the losses of some steps, in each precision.

    python -m benchmarks.device_losses
    python -m benchmarks.device_losses --device cpu --steps 2      # against itself, to try the benchmark

Each method trains a tiny backbone on the same batches of mini-GLUE from the same weights, without dropout: first on the
CPU in float32, then on the device in each precision that it has. Said of each is the largest relative difference of a
step's loss, which must not exceed the tolerance of the precision, and the most memory that PyTorch took of the device.
Results go to benchmarks/results/device_losses.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import search_spaces
import trainables
from benchmarks.counts import count
from benchmarks.results_file import write_results
from trainables.configuration import Precision
from trainables.models.devices import device_name, list_precisions
from trainables.runs.evaluation import run_to_end
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec

# Of a step's loss, relative. Differences of rounding grow with each step.
TOLERANCES: dict[Precision, float] = {"float32": 1e-3, "tensorfloat32": 1e-2, "bfloat16": 2e-2, "float16": 1e-2}
BATCH_SIZE = 16


def main() -> int:
    arguments = build_parser().parse_args()
    device = torch.device(arguments.device)
    facts = {"device": device_name(device), "steps": arguments.steps}
    rows: list[dict[str, Any]] = []
    for row in compare_all(device, arguments.steps):
        rows.append(row)
        write_results("device_losses", {**facts, "rows": rows})
    print(f"losses of {arguments.steps} steps on {facts['device']} against the CPU's in float32")
    for row in rows:
        verdict = "held  " if row["difference"] <= row["tolerance"] else "MISSED"
        print(f"{verdict}  {row['method']:14} {row['precision']:13}  {row['difference']:.1e}", end="")
        print(f"  (at most {row['tolerance']:g})", end="")
        print("" if row["megabytes"] is None else f"  {row['megabytes']:.0f} MB")
    return 0 if all(row["difference"] <= row["tolerance"] for row in rows) else 1


def build_parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device_losses", description=description)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=count, default=10, help="of each method (%(default)s)")
    return parser


def compare_all(device: torch.device, steps: int) -> Iterator[dict[str, Any]]:
    """Compare every method in every precision that the device has."""
    with tempfile.TemporaryDirectory(prefix="losses-") as cache:
        for method in trainables.list_methods():
            expected = losses(method, "float32", torch.device("cpu"), steps, Path(cache))
            for precision in list_precisions(device):
                if device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats(device)
                found = losses(method, precision, device, steps, Path(cache))
                yield {
                    "method": method,
                    "precision": precision,
                    "difference": float(np.max(np.abs(found / expected - 1))),
                    "tolerance": TOLERANCES[precision],
                    "megabytes": torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else None,
                    "losses": found.tolist(),
                }


def losses(method: str, precision: Precision, device: torch.device, steps: int, cache: Path) -> np.ndarray:
    """Train a method for some steps and return the loss of each."""
    space = search_spaces.load_space(method)
    first = {field: menu[0] for field, menu in {**space.paper_grid, **space.mini_grid}.items()}
    plain = {"classifier_dropout": 0.0, "hidden_dropout": 0.0, "batch_size": BATCH_SIZE, "precision": precision}
    spec = TrialSpec(
        method=method,
        task="rte",
        config={**space.fixed, **space.mini_fixed, **first, **plain},
        seed=1,
        data="mini",
        backbone=space.backbone["mini"],
    )
    run = TrainingRun(spec, device=str(device), cache=cache)
    batches = np.random.default_rng(0).integers(0, run.rows[0], (steps, BATCH_SIZE))
    return np.array([run_to_end(run.train_on([rows], 1)) for rows in batches])


if __name__ == "__main__":
    sys.exit(main())
