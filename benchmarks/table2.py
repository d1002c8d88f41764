"""What PALBERT's Table 2 costs on the device that is here: five methods on eight tasks, a search and five seeds each.

    python -m benchmarks.table2 --glue FOLDER --study STUDY

Measured, with random weights and random texts of realistic length: tokens per second of every method's step and of its
full-depth evaluation, every word trained; and examples per second of the naive way, one model for all methods, eager
attention, float32, every text padded to 128 tokens, evaluation at batch size 1. All else is arithmetic, and printed:

    device seconds of a phase = trials x epochs x (train rows x tokens / training rate + dev rows x tokens / its rate)

Epochs and trials are those that a study has run (`--study`, means of all its arms), or, without one, all assumed. The
naive way runs the paper's grid, one trial per device. Tokens per example are counted in GLUE's files; where a file is
missing they are assumed, and the line says so. Hours are hours of this device, for none other. Results go to
benchmarks/results/table2.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

import search_spaces
import trainables
from benchmarks.counts import count
from benchmarks.random_texts import VOCABULARY, random_examples
from benchmarks.results_file import write_results
from benchmarks.training_contenders import PADDED, device, minilm_folder
from study.facts.study_facts import read_facts
from study.terminal.text import counted
from trainables.configuration import Precision, TrainingConfig
from trainables.data.examples import Examples, encode
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS, Task
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.models.devices import backward_precision, check_precision, device_name
from trainables.models.early_exit import EarlyExitModel
from trainables.runs.evaluation import full_depth_outputs
from trainables.runs.optimiser import Optimiser

METHODS = ("albert", "albert:9-layers", "pabee", "pondernet", "palbert")
PAPER_TASKS = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")
SEEDS = 5
COUNTED = 1_000  # examples of a file, for the mean of its tokens


@dataclass(frozen=True)
class Work:
    """What one arm runs: means over the arms."""

    search_trials: float
    search_epochs: float  # of a trial, stopped ones too
    confirm_epochs: float


@dataclass(frozen=True)
class Rates:
    """Per second."""

    training: float
    evaluation: float

    def of_length(self, tokens: float) -> Rates:
        """Examples of so many tokens, from tokens."""
        return Rates(self.training / tokens, self.evaluation / tokens)


def main() -> None:
    arguments = build_parser().parse_args()
    torch.set_num_threads(arguments.threads)
    try:
        ours = work_of(arguments.study) if arguments.study else stated(arguments)
        tokens = {task: tokens_of(task, arguments) for task in PAPER_TASKS}
        check_depth(arguments.backbone)
        confirm, search = (
            {method: rates_of(method, arguments, precision) for method in METHODS}
            for precision in (arguments.precision, arguments.search_precision or arguments.precision)
        )
        naive_rates = naive_rates_of(arguments)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    lines = list(our_lines(ours, tokens, confirm, search, arguments.gain))
    naive = list(naive_lines(Work(0, arguments.naive_epochs, arguments.naive_epochs), naive_rates))
    hours = {"ours": sum(line["hours"] for line in lines), "naive": sum(line["hours"] for line in naive)}
    facts = {"device": device_name(device()), "threads": arguments.threads, "backbone": arguments.backbone}
    write_results("table2", {**facts, "hours": hours, "lines": {"ours": lines, "naive": naive}})
    print_lines(facts, tokens, {"ours": lines, "naive": naive}, hours)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table2", description=__doc__.split("\n\n")[0])
    parser.add_argument("--glue", type=Path, required=True, help="folder with GLUE's TSV files")
    parser.add_argument("--study", type=Path, help="folder of a study that says epochs and trials")
    parser.add_argument("--samples", type=count, default=12, help="search trials of an arm, without --study")
    parser.add_argument("--search-epochs", type=float, default=4.0, help="mean of them, without --study")
    parser.add_argument("--confirm-epochs", type=float, default=10.0, help="of a seed, without --study")
    parser.add_argument("--naive-epochs", type=float, default=10.0, help="of every trial of the naive way")
    parser.add_argument(
        "--gain", type=float, default=1.0, help="trials per hour of a GPU that trials share, against one trial on it"
    )
    parser.add_argument("--assumed-tokens", type=float, default=40.0, help="per example where a file is missing")
    parser.add_argument("--backbone", default="albert-base", help="with random weights")
    parser.add_argument("--precision", choices=get_args(Precision), default="float32", help="of ours")
    parser.add_argument("--search-precision", choices=get_args(Precision), help="of our searches; default: the same")
    parser.add_argument("--batch-size", type=count, default=32)
    parser.add_argument("--steps", type=count, default=3, help="measured, after one that is not")
    parser.add_argument("--threads", type=count, default=1)
    return parser


def stated(arguments: argparse.Namespace) -> Work:
    """What the options say."""
    return Work(arguments.samples, arguments.search_epochs, arguments.confirm_epochs)


def check_depth(backbone: str) -> None:
    """Passes if the backbone has the layers of every method.

    Raises:
        ValueError: it has too few.
    """
    for method in METHODS:
        try:
            load_encoder(backbone, config_of(method, 1, "float32"), vocab_size=VOCABULARY)
        except ValueError as error:
            raise ValueError(f"--backbone is {backbone}: {method}: {error}") from None


def work_of(folder: Path) -> Work:
    """What a study has run.

    Raises:
        ValueError: it has no records of both phases.
    """
    records = read_facts(folder).records
    epochs = {phase: [r.epochs for r in records if r.phase == phase] for phase in ("search", "confirm")}
    if not all(epochs.values()):
        raise ValueError(f"{folder}: a study with search and confirm trials is wanted, here are {len(records)} records")
    arms = len({(r.method, r.task) for r in records if r.phase == "search"})
    return Work(len(epochs["search"]) / arms, statistics.fmean(epochs["search"]), statistics.fmean(epochs["confirm"]))


def tokens_of(name: str, arguments: argparse.Namespace) -> tuple[float, str]:
    """Mean tokens of an example, and whether they were counted or assumed."""
    task = TASKS[name]
    if not (arguments.glue / task.folder / f"{task.dev_splits[0]}.tsv").exists():
        return arguments.assumed_tokens, "assumed"
    split = load_split(task, task.dev_splits[0], str(arguments.glue))
    tokenizer: PreTrainedTokenizerBase = load_tokenizer(minilm_folder(), texts=list)
    lengths = encode(split, tokenizer, max_length=PADDED).lengths[:COUNTED]
    return float(lengths.mean()), "counted"


def config_of(method: str, batch_size: int, precision: Precision) -> TrainingConfig:
    """The first point of the paper's grid."""
    space = search_spaces.load_space(method)
    first = {field: menu[0] for field, menu in space.paper_grid.items()}
    changes = {"batch_size": batch_size, "precision": precision}
    return trainables.configure(method, {**space.fixed, **first, **changes, **space.variant})


def rates_of(method: str, arguments: argparse.Namespace, precision: Precision) -> Rates:
    """Tokens per second of a method: of its step, all word embeddings trained, and of its evaluation to full depth."""
    config, task = config_of(method, arguments.batch_size, precision), TASKS["rte"]
    check_precision(config.precision, torch.device(device()))
    model = new_model(method, config, task, arguments.backbone)
    examples = random_examples(typical_lengths(arguments.batch_size))
    step = training_step(model, config, examples, num_steps=arguments.steps + 1)
    tokens = float(examples.lengths.sum())
    training = seconds_of(step, arguments.steps)
    evaluation = seconds_of(lambda: full_depth_outputs(model, examples, len(examples)), arguments.steps)
    return Rates(tokens / training, tokens / evaluation)


def training_step(
    model: EarlyExitModel, config: TrainingConfig, examples: Examples, *, num_steps: int
) -> Callable[[], None]:
    """A trial's step on the examples, over and over; it returns when the device has done it."""
    warmup_steps = config.warmup_steps or round(config.warmup_ratio * num_steps)
    groups = model.parameter_groups(config)
    optimiser = Optimiser(model, groups, config, num_steps=num_steps, warmup_steps=warmup_steps)
    batch = examples.batch(np.arange(len(examples)), torch.device(device()))

    def step() -> None:
        with model.computing(batch):
            loss = model.loss(batch)["loss"]
        with backward_precision(config.precision):
            optimiser.step([loss]).item()

    return step


def new_model(method: str, config: TrainingConfig, task: Task, backbone: str) -> EarlyExitModel:
    """With random weights, on the device."""
    torch.manual_seed(0)
    encoder = load_encoder(backbone, config, vocab_size=VOCABULARY)
    return trainables.load_method(method).build(config, encoder, task).to(device()).train()


def naive_rates_of(arguments: argparse.Namespace) -> Rates:
    """Examples per second of the naive way."""
    config = config_of("albert", arguments.batch_size, "float32")
    shape = load_encoder(arguments.backbone, config, vocab_size=VOCABULARY).configuration
    model = AutoModelForSequenceClassification.from_config(shape, attn_implementation="eager").to(device())
    optimizer = torch.optim.AdamW(model.parameters(), config.learning_rate)
    ids = torch.randint(1, VOCABULARY, (arguments.batch_size, PADDED), device=device())
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0] % 2}

    def step() -> None:
        optimizer.zero_grad()
        loss = model.train()(**batch).loss
        loss.backward()
        optimizer.step()
        loss.item()

    @torch.no_grad()
    def answer() -> None:
        model.eval()(**{name: values[:1] for name, values in batch.items()}).loss.item()

    training, evaluation = seconds_of(step, arguments.steps), seconds_of(answer, arguments.steps)
    return Rates(len(ids) / training, 1 / evaluation)


def typical_lengths(number: int) -> np.ndarray:
    """Of an exponential distribution around 40 tokens, as those of pairs of sentences are."""
    return np.clip(np.random.default_rng(0).exponential(30, number) + 10, 5, PADDED).astype(int)


def seconds_of(work: Callable[[], object], times: int) -> float:
    """Median of so many times, after one that is not counted."""
    seconds = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def our_lines(
    work: Work,
    tokens: dict[str, tuple[float, str]],
    confirm: dict[str, Rates],
    search: dict[str, Rates],
    gain: float,
) -> Iterator[dict[str, Any]]:
    """A line of the arithmetic for every method and task."""
    for method in METHODS:
        for task in PAPER_TASKS:
            mean, _ = tokens[task]
            yield line_of(method, task, work, confirm[method].of_length(mean), search[method].of_length(mean), gain)


def naive_lines(work: Work, rates: Rates) -> Iterator[dict[str, Any]]:
    """The same of the naive way, whose trials are the points of the paper's grid."""
    for method in METHODS:
        points = prod(map(len, search_spaces.load_space(method).paper_grid.values()))
        for task in PAPER_TASKS:
            whole_grid = Work(points, work.search_epochs, work.confirm_epochs)
            yield line_of(method, task, whole_grid, confirm=rates, search=rates, gain=1.0)


def line_of(method: str, task: str, work: Work, confirm: Rates, search: Rates, gain: float) -> dict[str, Any]:
    """Device hours of an arm, from examples per second, with all that they are made of."""
    sizes = TASKS[task].sizes
    rows = sizes["train"], sum(sizes[split] for split in TASKS[task].dev_splits)
    phases = {
        "search": (work.search_trials * work.search_epochs, search),
        "confirm": (SEEDS * work.confirm_epochs, confirm),
    }
    found = {name: phase_of(epochs, rates, rows) for name, (epochs, rates) in phases.items()}
    hours = sum(phase["hours"] for phase in found.values()) / gain
    return {"method": method, "task": task, "gain": gain, "hours": hours, "phases": found}


def phase_of(epochs: float, rates: Rates, rows: tuple[int, int]) -> dict[str, float]:
    """So many epochs over so many rows to train and to evaluate on; hours of one trial after another."""
    train, dev = rows
    seconds = epochs * (train / rates.training + dev / rates.evaluation)
    counts = {"epochs": epochs, "train": train, "dev": dev}
    return {**counts, "training_rate": rates.training, "evaluation_rate": rates.evaluation, "hours": seconds / 3600}


def print_lines(
    facts: dict[str, Any],
    tokens: dict[str, tuple[float, str]],
    lines: dict[str, list[dict[str, Any]]],
    hours: dict[str, float],
) -> None:
    print(f"hours of this device: {facts['device']}, {counted(facts['threads'], 'thread')}, {facts['backbone']}")
    print("tokens per example:", ", ".join(f"{task} {mean:.1f} ({how})" for task, (mean, how) in tokens.items()))
    for way, of_way in lines.items():
        print(f"\n{way}: epochs x (train / rate + dev / rate) of both phases / gain = hours")
        for line in of_way:
            print(f"  {line['method']:15} {line['task']:5}", end="")
            for name, phase in line["phases"].items():
                print(f"  {name} {phase['epochs']:7.1f} x ({phase['train']:>7,} / {phase['training_rate']:.1f}", end="")
                print(f" + {phase['dev']:>6,} / {phase['evaluation_rate']:.1f})", end="")
            print(f" / {line['gain']:.2f} = {line['hours']:,.2f} h")
        print(f"  {way} together: {hours[way]:,.1f} h")
    print(f"\nnaive / ours: {hours['naive'] / hours['ours']:.1f}")


if __name__ == "__main__":
    main()
