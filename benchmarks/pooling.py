"""How well each layer answers, by how the heads read it: one training per method and pooling, on few rows.

    OMP_NUM_THREADS=1 python -m benchmarks.pooling --data GLUE_FOLDER

The backbone is MiniLM (`training_contenders.minilm_folder`), whose training did not use its pooler. Each training is
that of `study.try METHOD --task sst2 --set pooling=POOLING --limit 2000`, for one epoch with the learning rate and the
batch size below, but on all of these rows. The scores are accuracies of all
layers on dev. Results go to benchmarks/results/pooling.json.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import get_args

import numpy as np
from msgspec.structs import replace

from benchmarks.results_file import write_results
from benchmarks.training_contenders import minilm_folder
from trainables.configuration import Pooling
from trainables.files.sources import cache_folder
from trainables.models.exit_rules import stored_outputs
from trainables.runs.training import TrainingRun

trying = importlib.import_module("study.try")  # `try` is a keyword

METHODS = ("pabee", "palbert", "pondernet")
SETTINGS = ("epochs=1", "learning_rate=1e-4", "batch_size=32", "hidden_dropout=0")  # dropout as in decisions.md#pooling


def main() -> int:
    arguments = build_parser().parse_args()
    rows = [
        {"method": method, "pooling": pooling, "accuracy": measure(method, pooling, arguments)}
        for method in arguments.methods
        for pooling in arguments.poolings
    ]
    facts = {**vars(arguments), "backbone": str(minilm_folder()), "settings": SETTINGS}
    write_results("pooling", {**facts, "rows": rows})
    return 0


def measure(method: str, pooling: str, arguments: argparse.Namespace) -> list[float]:
    """Trains once, prints and returns the accuracy of each layer on dev."""
    options = trying.Options(
        method=method,
        task="sst2",
        data=arguments.data,
        backbone=str(minilm_folder()),
        settings=[*SETTINGS, f"pooling={pooling}"],
    )
    spec, *_ = trying.resolve_spec(options)
    # All rows are trained on, and all of dev is scored; `study.try` would split off a tenth of the rows for scores.
    run = TrainingRun(replace(spec, selection="dev"), cache=cache_folder(), limit=arguments.rows)
    while not run.finished:
        run.run_epoch()
    with tempfile.TemporaryDirectory() as folder:
        run.outcome(Path(folder) / "predictions.npz")
        with np.load(Path(folder) / "predictions.npz") as file:
            arrays = {name: file[name] for name in file.files}
    accuracy = [float(np.mean(layer.argmax(1) == arrays["labels"])) for layer in stored_outputs(arrays).logits]
    print(f"{method}, {pooling}: {' '.join(f'{100 * layer:.1f}' for layer in accuracy)}", flush=True)
    return accuracy


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.pooling", description=__doc__)
    parser.add_argument("--data", required=True, metavar="FOLDER", help="folder with SST-2")
    parser.add_argument("--rows", type=int, default=2000, metavar="N", help="rows of train; dev is whole")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--poolings", nargs="+", default=("pooler", "mean"), choices=get_args(Pooling))
    return parser


if __name__ == "__main__":
    sys.exit(main())
