"""A group of processes on this machine that talk by gloo, for tests of what they compute together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed, multiprocessing

# A process that takes no step itself imports this once, and is forked for each of a group.
IMPORTED_ONCE = ["torch", "transformers.modeling_utils", "trainables.pretraining.run"]


def in_processes(number: int, work: Callable[[int], None], folder: Path) -> None:
    """Calls `work` with the rank in so many processes of a group, and waits for them; what one raises is raised.

    `work` can be pickled, `folder` is empty.
    """
    arguments = (number, work, str(folder / "rendezvous"))
    multiprocessing.set_forkserver_preload(IMPORTED_ONCE)
    multiprocessing.start_processes(_run, arguments, nprocs=number, start_method="forkserver")


def _run(rank: int, number: int, work: Callable[[int], None], rendezvous: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=number)
    try:
        work(rank)
    finally:
        distributed.destroy_process_group()
