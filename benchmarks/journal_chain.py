"""What the hash chain of a journal costs, at 100,000 events: to check, beside reading them, and to write.

    python -m benchmarks.journal_chain [--events 100000]

Seconds are of one processor. Writes `benchmarks/results/journal_chain.json`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.counts import count
from benchmarks.results_file import write_results
from study.facts.chain import chained, checked_head
from study.facts.events import FILE, EpochReported, Report, read_events, utc_now
from trainables.runs.trial import EpochRow

LAYERS = 12


def event(number: int) -> EpochReported:
    """The commonest kind: an epoch of one of many trials."""
    row = EpochRow(
        epoch=1,
        selection_score=0.5,
        score=0.5,
        metrics={"accuracy": 0.5},
        mean_layers=6.5,
        num_layers=LAYERS,
        exit_histogram=[100.0] * LAYERS,
        train_loss=0.7,
        train_examples=2490,
        train_seconds=31.25,
        eval_seconds=2.5,
        best_epoch=1,
        improved=True,
        finished=False,
    )
    costs = {"wall_seconds": 35.5, "gpu_seconds": 35.5, "gpu_share": 0.25, "gpu": "0"}
    report = Report(row=row, outcome=None, host="node-1", device="cuda", **costs)
    return EpochReported(time=utc_now(), key=f"{number:016x}", report=report)


def seconds_of(work: Callable[[], object]) -> float:
    """Of the processor, which other processes do not lengthen; the least of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=count, default=100_000)
    number = parser.parse_args().events
    bodies = [msgspec.json.encode(event(i)) for i in range(number)]
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / FILE
        path.write_bytes(b"".join(chained(bodies)))
        figures = {
            "events": number,
            "megabytes": round(path.stat().st_size / 1e6, 1),
            "check_seconds": round(seconds_of(lambda: checked_head(path, path.open("rb"))), 3),
            "read_seconds": round(seconds_of(lambda: read_events(path.parent)), 3),
            "microseconds_per_line_written": round(1e6 * seconds_of(lambda: list(chained(bodies))) / number, 2),
        }
    for name, figure in figures.items():
        print(f"{name.replace('_', ' ')}: {figure}")
    write_results("journal_chain", figures)


if __name__ == "__main__":
    main()
