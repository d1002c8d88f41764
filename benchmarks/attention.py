"""From which length on Nystrom attention is cheaper than softmax attention: time and FLOPs, forward and backward.

    python -m benchmarks.attention

Softmax attention is what models here otherwise use, PyTorch's scaled_dot_product_attention. Both get the same random
queries, keys, values and padding mask, 4 heads of 64 as ELECTRA-small has them, and run interleaved, round after round;
times are medians over the rounds. FLOPs are counted by PyTorch's FlopCounterMode, of softmax attention on its plain
implementation, for the fused ones are not counted everywhere. The crossing point is the first length from which on
Nystrom attention takes less time at every length measured; below it nothing is claimed. Results go to
benchmarks/results/attention.json.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.counts import count
from benchmarks.results_file import write_results
from study.terminal.text import counted
from trainables.encoders.nystrom import nystrom_attention
from trainables.models.devices import device_name
from trainables.runs.flops import count_flops

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
PADDED = 8  # of this many tokens one is a pad


def main() -> None:
    arguments = build_parser().parse_args()
    torch.set_num_threads(arguments.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = [measure(length, arguments, device) for length in arguments.lengths]
    crossing = crossing_point(rows)
    facts = {"device": device_name(device), **vars(arguments), "crossing": crossing, "rows": rows}
    write_results("attention", facts)
    print_table(rows, crossing, facts)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__.split("\n\n")[0])
    parser.add_argument("--lengths", type=count, nargs="+", default=list(LENGTHS), metavar="N", help="tokens, rising")
    parser.add_argument("--batch-size", type=count, default=1)
    parser.add_argument("--heads", type=count, default=4)
    parser.add_argument("--head-size", type=count, default=64)
    parser.add_argument("--landmarks", type=count, default=32)
    parser.add_argument("--kernel-size", type=count, default=33, help="of the convolution")
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--threads", type=count, default=1)
    return parser


def measure(length: int, arguments: argparse.Namespace, device: str) -> dict[str, Any]:
    """FLOPs and median seconds of both at one length."""
    ways = both_ways(length, arguments, device)
    flops = {name: count_flops(way) for name, way in ways.items()}  # also warms up
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            seconds[name].append(timed(way, device))
    return {"tokens": length, "flops": flops, "seconds": {name: statistics.median(s) for name, s in seconds.items()}}


def both_ways(length: int, arguments: argparse.Namespace, device: str) -> dict[str, Callable[[], None]]:
    """Forward and backward of softmax and of Nystrom attention on the same states."""
    torch.manual_seed(0)
    shape = (arguments.batch_size, arguments.heads, length, arguments.head_size)
    states = [torch.randn(shape, device=device, requires_grad=True) for _ in range(3)]
    real = (torch.arange(length, device=device) < length - length // PADDED).expand(arguments.batch_size, 1, length)
    kernel = torch.randn(arguments.heads, 1, arguments.kernel_size, 1, device=device, requires_grad=True)
    segment_length = math.ceil(length / arguments.landmarks)

    def softmax() -> Tensor:
        return scaled_dot_product_attention(*states, attn_mask=real[:, :, None, :])

    def nystrom() -> Tensor:
        query, key, value = states
        scaled = query * arguments.head_size**-0.5
        return nystrom_attention(scaled, key, value, real, segment_length=segment_length, convolution=kernel)

    def there_and_back(attention: Callable[[], Tensor]) -> Callable[[], None]:
        return lambda: attention().square().mean().backward()

    return {"softmax": there_and_back(softmax), "nystrom": there_and_back(nystrom)}


def timed(run: Callable[[], None], device: str) -> float:
    """Seconds until the device is done."""
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    finish()
    began = time.perf_counter()
    run()
    finish()
    return time.perf_counter() - began


def crossing_point(rows: list[dict[str, Any]]) -> int | None:
    """The shortest length from which on Nystrom attention is faster at every length; None: at none."""
    crossing = None
    for row in reversed(rows):
        if row["seconds"]["nystrom"] >= row["seconds"]["softmax"]:
            break
        crossing = row["tokens"]
    return crossing


def print_table(rows: list[dict[str, Any]], crossing: int | None, facts: dict[str, Any]) -> None:
    shape = f"batch {facts['batch_size']}, {facts['heads']} heads of {facts['head_size']}"
    nystrom = f"{facts['landmarks']} landmarks, convolution over {facts['kernel_size']} tokens"
    print(f"forward and backward, {shape}; {nystrom}")
    print(f"{facts['device']}, {counted(facts['threads'], 'thread')}, median of {facts['rounds']} rounds")
    print("            milliseconds                   GFLOPs")
    print("tokens   softmax   nystrom   ratio   softmax  nystrom  ratio")
    for row in rows:
        softmax, nystrom = (1e3 * seconds for seconds in row["seconds"].values())
        print(f"{row['tokens']:6}  {softmax:8.1f}  {nystrom:8.1f}  {softmax / nystrom:6.2f}", end="  ")
        softmax, nystrom = (flops / 1e9 for flops in row["flops"].values())
        print(f"{softmax:8.3f} {nystrom:8.3f} {softmax / nystrom:6.2f}")
    print("faster from", f"{crossing} tokens on" if crossing else "no length measured", "(no claim below)")


if __name__ == "__main__":
    main()
