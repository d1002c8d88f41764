"""Whether two measurements of times agree, and whether a model differs from its own copy.

    python -m benchmarks.repeated_times runs/NAME                  # ten measurements, and a hundred of two copies
    python -m benchmarks.repeated_times runs/NAME --copies 0       # the first part alone

First, the models of a study are measured several times, each time by a new process as in `study.time`, but the study is
not changed. For every pair of arms and batch size, the benchmark counts how often the ratio of one measurement lies in
the interval of another. Then a stored model and its copy are measured as if they were two arms; they may differ in at
most 5 % of the measurements. The output says how many measurements other work disturbed; on an idle machine, none is.
Results go to benchmarks/results/repeated_times.json.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.statistics.times import Measurement, Ratio, Times, compare_times
from analysis.studies.cells import read_cell
from analysis.studies.load import Study, load_study
from benchmarks.counts import count
from benchmarks.rates import Rate
from benchmarks.results_file import write_results
from study.storage.models import local_model, locate_model
from study.time import Options, measure_times
from trainables.data.examples import load_examples
from trainables.files.sources import cache_folder
from trainables.runs.timing import Contestant, measure
from trainables.runs.trained_model import load_trained

COVERED = 0.95
MOST_DIFFERENT = 0.05
COPY_SECONDS = 600.0  # at most, for a measurement of two copies
COPY_ROUNDS = 5


def main() -> int:
    arguments = build_parser().parse_args()
    study = load_study(arguments.study)
    rates: list[Rate] = []
    if arguments.runs > 1:
        measured = list(measure_again(study, arguments))
        rates += list(compare_runs(study, measured))
        disturbed = [made.disturbance for made in measured if made.disturbance]
        print(f"{len(disturbed)} of {len(measured)} measurements were disturbed: {', '.join(dict.fromkeys(disturbed))}")
    if arguments.copies:
        rates.append(compare_copies(study, arguments.copies))
    print(*(rate.describe() for rate in rates), sep="\n")
    facts = [vars(rate) for rate in rates]
    write_results("repeated_times", {"study": str(arguments.study), "runs": arguments.runs, "rates": facts})
    return 0 if all(rate.holds for rate in rates) else 1


def build_parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeated_times", description=description)
    parser.add_argument("study", type=Path, metavar="runs/NAME")
    parser.add_argument("--runs", type=count, default=10, help="measurements of the whole study")
    parser.add_argument("--minutes", type=float, default=1.0, help="longest time of each of them")
    parser.add_argument("--copies", type=int, default=100, help="measurements of two copies of one model")
    return parser


def measure_again(study: Study, arguments: argparse.Namespace) -> Iterator[Measurement]:
    """Measure the study several times, each time in a new process."""
    for _ in range(arguments.runs):
        event = measure_times(Options(study=str(arguments.study), minutes=arguments.minutes))
        if event is None:
            raise SystemExit(1)  # the process has printed why
        yield Measurement(event, study)


def compare_runs(study: Study, measured: list[Measurement]) -> Iterator[Rate]:
    """For each pair of arms, count how often the ratio of one measurement lies in the interval of another."""
    within: list[bool] = []
    for task in study.tasks:
        cells = {method: read_cell(study, method, task) for method in study.methods}
        for (name, own), (other_name, other) in itertools.combinations(cells.items(), 2):
            for size in measured[0].batch_sizes:
                ratios = [ratio for made in measured if (ratio := made.compare(own, other, size))]
                pairs = [inside(one, two) for one, two in itertools.permutations(ratios, 2)]
                within += pairs
                label = f"{name} against {other_name} on {task}, batches of {size}"
                values = [ratio.value for ratio in ratios]
                yield Rate(
                    f"{label}: {min(values):.3f} to {max(values):.3f}",
                    float(np.mean(pairs)),
                    len(ratios),
                    "for comparison",
                    None,
                )
    yield Rate(
        "ratios in the interval of another measurement", float(np.mean(within)), len(within), "at least", COVERED
    )


def inside(one: Ratio, other: Ratio) -> bool:
    return other.low <= one.value <= other.high


def compare_copies(study: Study, number: int) -> Rate:
    """Count how often a model and its copy differ, if they are measured as two arms."""
    torch.set_num_threads(1)
    record = next(record for record in study.records if record.phase == "confirm" and record.status == "completed")
    record = locate_model(record, study.folder)
    with local_model(record.model or "", record.model_digest) as folder:
        trained = load_trained(folder)
    task = trained.task
    examples = load_examples(
        task,
        task.dev_splits,
        trained.spec.data,
        trained.tokenizer,
        max_length=trained.config.max_length,
        cache=cache_folder(),
    )
    differ = 0
    for _ in range(number):
        copies = [Contestant(name, name, deepcopy(trained.model), examples) for name in ("one", "two")]
        timed, _parts = measure(copies, [1], seconds=COPY_SECONDS, reference="one", most_rounds=COPY_ROUNDS)
        found: dict[str, Any] = {model.key: model for model in timed if model.exit == "own"}
        times = [Times([0], np.array([found[key].texts]), np.array([found[key].rounds])) for key in ("one", "two")]
        differ += compare_times(*times).differs
    return Rate("a model differs from its copy", differ / number, number, "at most", MOST_DIFFERENT)


if __name__ == "__main__":
    sys.exit(main())
