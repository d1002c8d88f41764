"""What a trial costs beside its training: this engine, plain Ray Tune and Optuna alone, on empty trials.

    python -m benchmarks.overhead                          # seconds per trial
    python -m benchmarks.overhead --memory --trials 1500   # growth of the driver's memory

The contenders take turns, round after round, each in a process and with a Ray cluster of its own
(`benchmarks.contenders`); the figures are medians over the rounds. Results go to benchmarks/results/.

    study         this engine with journal, records, Optuna journal and live MLflow mirror (SQLite)
    tune          Ray Tune: OptunaSearch, AsyncHyperBandScheduler, MLflowLoggerCallback (SQLite)
    tune-reuse    the same with reuse_actors
    tune-bare     with reuse_actors, without MLflow
    optuna        Optuna's own worker processes on a JournalStorage, without MLflow
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.contenders import CONTENDERS
from benchmarks.counts import count
from benchmarks.results_file import write_results

LIMIT_RATIO = 15.0  # of the better Ray Tune with MLflow to the study
LIMIT_REPORT_MS = 5.0

Row = dict[str, Any]


def main() -> int:
    options = build_parser().parse_args()
    names = ("study", "tune-bare") if options.memory else ("study", "tune", "tune-reuse", "optuna")
    runs: dict[str, list[Row]] = {name: [] for name in options.contenders or names}
    for number in range(1, options.repeats + 1):
        for name in runs:
            trials = options.tune_trials if name.startswith("tune") and options.tune_trials else options.trials
            runs[name].append(run_alone(name, trials))
            print(f"round {number}: {in_words(name, runs[name][-1])}", flush=True)
    medians = {name: median_row(rows) for name, rows in runs.items()}
    print(f"medians of {options.repeats} round(s):", *(in_words(*item) for item in medians.items()), sep="\n  ")
    checks = dict(memory_checks(medians) if options.memory else time_checks(medians))
    for check, held in checks.items():
        print(f"{'held  ' if held else 'MISSED'}  {check}")
    name = "overhead-memory" if options.memory else "overhead"
    write_results(name, {"runs": runs, "medians": medians, "checks": checks})
    return 0 if all(checks.values()) else 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=count, default=200, help="trials of a run (%(default)s)")
    parser.add_argument("--tune-trials", type=count, metavar="N", help="trials of Ray Tune's runs, where fewer will do")
    parser.add_argument("--repeats", type=count, default=3, metavar="N", help="rounds (%(default)s)")
    parser.add_argument("--memory", action="store_true", help="compare the growth of the driver's memory")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, metavar="NAME", help=", ".join(CONTENDERS))
    return parser


def run_alone(name: str, trials: int) -> Row:
    """The figures of a run in a process of its own, which prints them as its last line."""
    command = [sys.executable, "-m", "benchmarks.contenders", name, "--trials", str(trials)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr[-2000:]}")
    row = json.loads(done.stdout.splitlines()[-1])
    return row | {"seconds_per_trial": row["seconds"] / row["trials"], "load": os.getloadavg()[0]}


def median_row(rows: list[Row]) -> Row:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def in_words(name: str, row: Row) -> str:
    parts = [f"{name:10}  {row['trials']:5.0f} trials  {row['seconds_per_trial']:7.4f} s per trial"]
    if "growth_mb" in row:
        parts.append(f"driver +{row['growth_mb']:.1f} MB")
    if "report_ms" in row:
        parts.append(f"one report {row['report_ms']:.2f} ms, {row['mean_report_ms']:.2f} ms with the ends of trials")
    return "  ".join([*parts, f"load {row['load']:.1f}"])


def time_checks(medians: dict[str, Row]) -> Iterator[tuple[str, bool]]:
    """What is wanted of the time per trial, and whether it is so."""
    ours = medians["study"]
    seconds, report = ours["seconds_per_trial"], ours["mean_report_ms"]
    yield f"one report on the driver {report:.2f} ms, at most {LIMIT_REPORT_MS}", report <= LIMIT_REPORT_MS
    tune = [medians[name]["seconds_per_trial"] for name in ("tune", "tune-reuse") if name in medians]
    if tune:
        ratio = min(tune) / seconds
        yield (
            f"the better Ray Tune with MLflow takes {ratio:.1f} x as long, at least {LIMIT_RATIO}",
            ratio >= LIMIT_RATIO,
        )


def memory_checks(medians: dict[str, Row]) -> Iterator[tuple[str, bool]]:
    """Whether the driver grows at most as much as each of the others'."""
    ours = medians["study"]["growth_mb"]
    for name, row in medians.items():
        if name != "study":
            theirs = row["growth_mb"]
            yield f"the driver grew by {ours:.1f} MB, that of {name} by {theirs:.1f} MB", ours <= theirs


if __name__ == "__main__":
    sys.exit(main())
