"""The spread of scores over seeds and dev examples in the kept real studies, for the power that `--dry-run` predicts.

python -m benchmarks.seed_spreads            # prints the table
python -m benchmarks.seed_spreads --write    # also writes analysis/statistics/seed_spreads.csv
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from analysis.statistics.power import SPREADS, measure_own
from analysis.studies.load import load_study
from benchmarks.real_results import KEPT

STUDIES = {"cola": "cpu-cola", "sst2": "cpu-sst2"}  # task -> study with the most rows of train
HEADER = "task,rows,over_seeds,interaction,over_examples,study"  # standard deviations in points


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seed_spreads")
    parser.add_argument("--write", action="store_true", help="write the table into the package")
    table = "".join(f"{line}\n" for line in [HEADER, *list_rows()])
    if parser.parse_args().write:
        SPREADS.write_text(table, encoding="utf-8")
    print(table, end="")
    return 0


def list_rows() -> Iterator[str]:
    """List the lines of the table, one for each task."""
    for task, name in STUDIES.items():
        folder = KEPT / "cpu" / name
        spread = measure_own(load_study(folder), [task])[task]
        deviations = (spread.over_seeds, spread.interaction, spread.over_examples)
        values = [f"{100 * variance**0.5:.3f}" for variance in deviations]
        yield ",".join([task, str(spread.rows), *values, f"benchmarks/results/real/cpu/{name}"])


if __name__ == "__main__":
    sys.exit(main())
