"""Does pretraining teach anything? `python -m benchmarks.pretraining`, eight minutes of one core.

A probe of encoders that stay as they are: a new pooler and head are trained on mini-GLUE, 6 epochs at 5e-3. Encoders
start at random, and are pretrained on the generated corpus with its words in random order (the control), by masked
language modelling and by replaced token detection. Fine-tuning alone would be a bad bar: it lifts what was pretrained
on shuffled words as much. Results go to benchmarks/results/pretraining.json; exit status 1 if pretraining taught
nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor, nn

import search_spaces
import trainables
from benchmarks.counts import count
from benchmarks.results_file import write_results
from search_spaces.objectives import load_recipe
from trainables.data.examples import Examples, load_examples, prepare_tokenizer
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.mini_glue import Draw
from trainables.data.tasks import TASKS, Task
from trainables.encoders.layerwise import LayerwiseEncoder
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.files.sources import cache_folder
from trainables.pretraining.configuration import PretrainingRow, PretrainingSpec
from trainables.pretraining.corpus import mini_documents, vocabulary_texts
from trainables.pretraining.run import PretrainingRun

BARS = {"rte": 0.65, "mrpc": 0.85}  # mean over seeds, of both ways of pretraining
TASK_NAMES = ("rte", "mrpc")
EPOCHS, LEARNING_RATE, BATCH_SIZE = 6, 5e-3, 32  # of the probe


@dataclass(frozen=True)
class Start:
    """Where an encoder comes from."""

    name: str
    objective: str | None  # None: random weights
    is_shuffled: bool = False


STARTS = (
    Start("random", None),
    Start("shuffled corpus", "mlm", is_shuffled=True),
    Start("MLM", "mlm"),
    Start("RTD", "electra-rtd"),
)


def main() -> None:
    options = build_parser().parse_args()
    jobs = [(start, seed, options.steps) for seed in range(1, options.seeds + 1) for start in STARTS]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(probed, *zip(*jobs, strict=True)))
    write_results("pretraining", {"steps": options.steps, "rows": rows})
    means = {start.name: mean_scores(rows, start.name) for start in STARTS}
    print_table(means, rows)
    missed = misses(means)
    print("\n".join(missed) or f"MLM and RTD reach {BARS}, and the shuffled corpus stays below both")
    raise SystemExit(bool(missed))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pretraining", description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=count, default=1_500, help="of pretraining")
    parser.add_argument("--seeds", type=count, default=2)
    parser.add_argument("--processes", type=count, default=2)
    return parser


def probed(start: Start, seed: int, steps: int) -> dict[str, Any]:
    """The scores of the probe on one start, with what its pretraining cost and reached."""
    torch.set_num_threads(1)
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="pretraining-") as folder:
        row = None if start.objective is None else pretrained(start, seed, steps, Path(folder))
        backbone = "mini-albert" if row is None else folder
        scores = {task: probe_score(backbone, TASKS[task], seed) for task in TASK_NAMES}
    facts = {} if row is None else {"seconds": row.train_seconds, **row.scores}
    return {"start": start.name, "seed": seed, **scores, **facts, "cpu_seconds": time.process_time() - began}


def pretrained(start: Start, seed: int, steps: int, folder: Path) -> PretrainingRow:
    """The last epoch of a pretraining on the corpus, its model in the folder."""
    assert start.objective is not None
    recipe = load_recipe(start.objective)
    config = {**recipe.fixed, **recipe.mini_fixed, "steps": steps, "steps_per_epoch": steps}
    backbone = recipe.backbone["mini"]
    spec = PretrainingSpec(objective=start.objective, corpus="mini", config=config, seed=seed, backbone=backbone)
    if start.is_shuffled:
        write_shuffled_corpus(folder / "shuffled")
        tokenizer = load_tokenizer(backbone, texts=lambda: vocabulary_texts("mini"))
        tokenizer.save_pretrained(folder / "words")
        spec = replace(spec, corpus=str(folder / "shuffled"), tokenizer=str(folder / "words"))
    run = PretrainingRun(spec, cache=cache_folder())
    row = run.run_epoch()
    run.save_model(folder)
    return row


def write_shuffled_corpus(folder: Path) -> None:
    """The corpus `mini` with all its words in random order; documents and their sentences keep their lengths."""
    draw, documents = Draw("0 shuffled"), mini_documents()
    words = [word for document in documents for text in document for word in text.split()]
    for last in range(len(words) - 1, 0, -1):  # the Fisher-Yates algorithm
        other = draw.one(range(last + 1))
        words[last], words[other] = words[other], words[last]
    rest = iter(words)
    texts = ["\n".join(" ".join(islice(rest, len(text.split()))) for text in document) for document in documents]
    folder.mkdir()
    (folder / "text.txt").write_text("\n\n".join(texts))


def probe_score(backbone: str, task: Task, seed: int) -> float:
    """GLUE's score of a new pooler and head on what the encoder, as it is, makes of the first token."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        (train, train_labels), (dev, dev_labels) = features(backbone, task)
        size = train.shape[1]
        head = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, task.num_labels))
        optimizer = torch.optim.Adam(head.parameters(), lr=LEARNING_RATE)
        for rows in batches_of_epochs(len(train)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(train[rows]), train_labels[rows]).backward()
            optimizer.step()
        answers = predictions_from_logits(task, head(dev).detach().numpy())
    return score(task, compute_metrics(task, answers, dev_labels.numpy()))


def batches_of_epochs(number: int) -> Iterator[Tensor]:
    """Rows of every step."""
    for _ in range(EPOCHS):
        yield from torch.randperm(number).split(BATCH_SIZE)


@torch.no_grad()
def features(backbone: str, task: Task) -> list[tuple[Tensor, Tensor]]:
    """The last layer's state at the first token (examples, hidden), and labels: of train, and of dev."""
    config = trainables.configure("albert", probe_values())
    tokenizer = prepare_tokenizer(backbone, task, "mini")
    encoder = load_encoder(backbone, config, vocab_size=len(tokenizer)).eval()
    parts = []
    for split in (task.train_split, *task.dev_splits):
        examples = load_examples(task, (split,), "mini", tokenizer, max_length=config.max_length, cache=cache_folder())
        parts.append((first_states(encoder, examples), torch.from_numpy(np.array(examples.labels))))
    return parts


def first_states(encoder: LayerwiseEncoder, examples: Examples) -> Tensor:
    firsts = []
    for rows in np.array_split(np.arange(len(examples)), len(examples) // 100):
        batch = examples.batch(rows, torch.device("cpu"))
        states = encoder.embed(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
        for index in range(encoder.num_layers):
            states = encoder.layer(index, states)
        firsts.append(states.first())
    return torch.cat(firsts)


def probe_values() -> dict[str, Any]:
    """A configuration of ALBERT's, for its dropout (none) and length."""
    space = search_spaces.load_space("albert")
    return {**space.fixed, **{name: menu[0] for name, menu in space.paper_grid.items()}}


def mean_scores(rows: list[dict[str, Any]], start: str) -> dict[str, float]:
    return {task: statistics.fmean(row[task] for row in rows if row["start"] == start) for task in TASK_NAMES}


def misses(means: dict[str, dict[str, float]]) -> list[str]:
    """What pretraining should have done and did not, a line each."""
    lines = []
    for start in ("MLM", "RTD"):
        for task, bar in BARS.items():
            reached, control = means[start][task], means["shuffled corpus"][task]
            if reached < bar or reached <= control:
                lines.append(f"{start} on {task}: {reached:.3f}; bar {bar}, shuffled corpus {control:.3f}")
    return lines


def print_table(means: dict[str, dict[str, float]], rows: list[dict[str, Any]]) -> None:
    seeds = len({row["seed"] for row in rows})
    print(f"frozen-encoder probe on mini-GLUE, mean of {seeds} seeds")
    print(f"{'start':16s} {'RTE':>6s} {'MRPC':>6s} {'CPU s':>8s}")
    for start, scores in means.items():
        seconds = statistics.fmean(row["cpu_seconds"] for row in rows if row["start"] == start)
        print(f"{start:16s} {scores['rte']:6.3f} {scores['mrpc']:6.3f} {seconds:8.0f}")
    print(f"{sum(row['cpu_seconds'] for row in rows):.0f} CPU seconds in all")


if __name__ == "__main__":
    main()
