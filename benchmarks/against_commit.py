"""How much faster a trial on mini-GLUE is than at an earlier commit of this repository.

    python -m benchmarks.against_commit 2c2221b

Both trees run the same trials in processes of their own (`benchmarks/timed_trial.py`), interleaved, on one thread.
Before several rounds comes one that is not counted. Ratios are those of CPU time within a round, medians over the
rounds. Scores and losses stand beside them: they differ where an order of random numbers has changed. Results go to
benchmarks/results/against_commit.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import search_spaces
from benchmarks.counts import count
from benchmarks.results_file import write_results
from trainables.data.tasks import GLUE_TASKS

ROOT = Path(__file__).parents[1]
PACKAGES = ("trainables", "search_spaces")
TIMED = ("step_milliseconds", "trial_seconds")


def main() -> None:
    arguments = build_parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="commit-") as folder:
        before = Path(folder) / "before"
        try:
            extract(arguments.commit, before)
        except ValueError as error:
            raise SystemExit(str(error)) from None
        trees = {"before": before, "now": ROOT}
        rows = [compared(method, trees, Path(folder), arguments) for method in arguments.methods]
    write_results("against_commit", {"commit": arguments.commit, "rows": rows})
    print_rows(rows, arguments)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against_commit", description=__doc__.split("\n\n")[0])
    parser.add_argument("commit", help="any name that git knows")
    parser.add_argument("--methods", nargs="+", choices=search_spaces.list_methods(), default=["palbert"])
    parser.add_argument("--task", choices=GLUE_TASKS, default="rte")
    parser.add_argument("--epochs", type=count, default=4)
    parser.add_argument("--rounds", type=count, default=5)
    return parser


def extract(commit: str, folder: Path) -> None:
    """The packages that train, as they were.

    Raises:
        ValueError: there is no such commit.
    """
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit, *PACKAGES], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        reason = packed.stderr.decode().strip().splitlines()[-1]
        raise ValueError(f"commit {commit!r}: {reason}; allowed: a commit of the repository in {ROOT}")
    subprocess.run(["tar", "x"], cwd=folder, input=packed.stdout, check=True)


def compared(method: str, trees: dict[str, Path], scratch: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Medians of both trees over the rounds, and how many times as long the trial took before."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    uncounted = int(arguments.rounds > 1)
    for _ in range(uncounted + arguments.rounds):
        for name, tree in trees.items():
            work = [method, arguments.task, str(arguments.epochs), str(scratch / f"{method}-{name}")]
            found[name].append(timed_trial(tree, work))
    rounds = {name: results[uncounted:] for name, results in found.items()}
    pairs = list(zip(rounds["before"], rounds["now"], strict=True))
    return {
        "method": method,
        **{
            name: {what: statistics.median(of[what] for of in results) for what in results[0]}
            for name, results in rounds.items()
        },
        "ratios": {what: statistics.median(before[what] / now[what] for before, now in pairs) for what in TIMED},
    }


def timed_trial(tree: Path, work: list[str]) -> dict[str, float]:
    """What a trial in a process of its own took, with the packages of a tree."""
    command = [sys.executable, "-P", str(ROOT / "benchmarks" / "timed_trial.py"), *work]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"a trial of {work[0]} with the packages of {tree} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def print_rows(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    print(f"{arguments.epochs} epochs on mini {arguments.task}, against {arguments.commit}; medians of ", end="")
    print(f"{arguments.rounds} rounds, CPU time, one thread")
    print("method       tree      ms per step  s per trial   score    loss")
    for row in rows:
        for name in ("before", "now"):
            of = row[name]
            print(f"{row['method']:11}  {name:6}  {of['step_milliseconds']:13.2f}  {of['trial_seconds']:11.2f}", end="")
            print(f"  {of['score']:.4f}  {of['train_loss']:.4f}")
        step, trial = (row["ratios"][what] for what in TIMED)
        print(f"{row['method']:11}  ratio   {step:12.2f}x  {trial:10.2f}x")


if __name__ == "__main__":
    main()
