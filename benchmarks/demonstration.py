"""Whether DeeBERT's exits in `make study` have a gain on other generated data too, or only by luck of the demo's data.

    OMP_NUM_THREADS=1 python -m benchmarks.demonstration --out FOLDER            # ten studies of a few minutes each
    OMP_NUM_THREADS=1 python -m benchmarks.demonstration --out FOLDER 0 1 2      # these seeds of the generator alone

Each study has the options of the Makefile, and data of another seed of mini-GLUE's generator; the demo's own seed is 0.
PALBERT is left out, because no other method depends on it. For each task, the benchmark prints DeeBERT's mean layers,
and the gain of its exits with the 95 % interval. The same command resumes. Results go to
benchmarks/results/demonstration.json.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from analysis.layouts.evidence import gather
from analysis.layouts.exit_tables import format_gain
from analysis.studies.load import load_study
from benchmarks.results_file import write_results
from trainables.data import mini_glue
from trainables.data.tasks import TASKS

ROOT = Path(__file__).parents[1]
METHOD, DEMO_TASKS = "deebert", ("sst2", "cola")
FILES = {"train": "train.csv", "dev": "validation.csv"}


def main() -> int:
    arguments = build_parser().parse_args()
    rows = []
    for seed in arguments.seeds:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # the generator caches its rows
            data = pool.submit(write_data, arguments.out / f"data-{seed}", seed).result()
        subprocess.run(launch_command(data, arguments.out, f"study-{seed}"), check=True, stdout=subprocess.DEVNULL)
        rows += [{"seed": seed, **row} for row in read_gains(arguments.out / f"study-{seed}")]
        print(*(f"data {seed}, {row['text']}" for row in rows[-len(DEMO_TASKS) :]), sep="\n", flush=True)
    for task in DEMO_TASKS:
        above = [row["low"] > 0 for row in rows if row["task"] == task]
        print(f"{TASKS[task].title}: the interval lies above 0 in {sum(above)} of {len(above)}")
    write_results("demonstration", {"options": demo_options(), "rows": rows})
    return 0


def build_parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demonstration", description=description)
    parser.add_argument("seeds", nargs="*", type=int, default=range(10), metavar="SEED", help="of the generator")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder of the data and the studies")
    return parser


def write_data(folder: Path, seed: int) -> Path:
    """Write the demo's tasks as the generator makes them with this seed, in the layout of exports of `datasets`.

    Call it once per process.
    """
    mini_glue.SEED = seed
    for task in (TASKS[name] for name in DEMO_TASKS):
        (folder / task.name).mkdir(parents=True, exist_ok=True)
        for split, name in FILES.items():
            with (folder / task.name / name).open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow((*task.text_columns, "label"))
                writer.writerows((*texts, label) for _, texts, label in mini_glue.generate(task, split))
    return folder


def demo_options() -> list[str]:
    """The options of `make study`."""
    found = re.search(r"^DEMO \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, "the Makefile has no DEMO"
    return found[1].split()


def launch_command(data: Path, out: Path, name: str) -> list[str]:
    where = ["--data", str(data), "--backbone", "mini-albert", "--profile", "mini", "--out", str(out), "--name", name]
    how = ["--driver", "local", "--tracking-uri", "none"]
    what = ["--method", f"albert,{METHOD}", "--task", ",".join(DEMO_TASKS)]
    return [sys.executable, "-m", "study.launch", *what, *demo_options(), *where, *how]


def read_gains(study: Path) -> list[dict[str, Any]]:
    """The gain of DeeBERT's exits on each task."""
    evidence = gather([load_study(study)])
    rows = []
    for task in DEMO_TASKS:
        gain, exits = evidence.gains[METHOD, task], evidence.exits[METHOD, task]
        interval, layers = gain.interval, float(exits.mean_layers.mean())
        text = f"{TASKS[task].title}: {layers:.1f} layers, gain {format_gain(gain).text}"
        numbers = {"layers": layers, "gain": gain.mean, "low": interval.low, "high": interval.high}
        rows.append({"task": task, "text": text, **numbers})
    return rows


if __name__ == "__main__":
    sys.exit(main())
