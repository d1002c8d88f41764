"""What `benchmarks.real_results` runs at each scale, in which order: launches of studies, then measurements of rates.

Nothing here runs anything, and nothing imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, get_args

from study.cluster.resources import local_gpus
from trainables.data.tasks import TASKS

Scale = Literal["cpu", "gpu"]
SCALES: tuple[Scale, ...] = get_args(Scale)

METHODS = ("albert", "pabee", "pondernet", "palbert")
METHODS_ON_GPUS = ("albert", "albert:3-layers", "pabee", "pondernet", "palbert")  # MiniLM has six layers
GPU_SHARE = 0.1  # of a trial: a small model does not fill a large GPU
# Examples that a trial trains on in a second, others beside it, on a CPU core or a share of a GPU: what a dry run says
# of a study without records. 30 is what MiniLM made on slow cores, 500 is a guess.
STATED_RATE: dict[Scale, int] = {"cpu": 30, "gpu": 500}
BATCHES = (1, 8, 32)  # of early exit


@dataclass(frozen=True)
class Launch:
    """A stage that is a study: `study.launch` with these options, beside those that say where and with what."""

    name: str  # of the stage, and of the study's folder
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    samples: int
    seeds: int
    epochs: int
    selection: Literal["dev", "holdout"]
    batch_size: int
    gpu_share: float

    def options(self) -> list[str]:
        """Those that make the study what it is."""
        return [
            *("--method", ",".join(self.methods)),
            *("--task", ",".join(self.tasks)),
            *("--samples", str(self.samples)),
            *("--seeds", str(self.seeds)),
            *("--epochs", str(self.epochs)),
            *("--sampler", "tpe"),
            *(("--selection", self.selection) if self.selection != "dev" else ()),
            *("--set", f"batch_size={self.batch_size}"),
            *("--cpus-per-trial", "1"),
            *("--gpus-per-trial", f"{self.gpu_share if local_gpus() else 0:g}"),
        ]

    @property
    def trials(self) -> int:
        return len(self.methods) * len(self.tasks) * (self.samples + self.seeds)

    @property
    def examples(self) -> int:
        """That all trials train on at most."""
        rows = sum(TASKS[task].sizes["train"] for task in self.tasks)
        return rows * self.epochs * self.trials // len(self.tasks)


@dataclass(frozen=True)
class Measurement:
    """A stage that is another benchmark, for so many minutes at most."""

    name: str
    module: str  # benchmarks.MODULE, which keeps its figures in results/MODULE.json
    options: tuple[str, ...]
    minutes: float
    reads_glue: bool = False


Stage = Launch | Measurement


def stages_of(scale: Scale) -> list[Stage]:
    """All of a scale, in their order."""
    return [_on_cpus()] if scale == "cpu" else [*_on_gpus(), *_rates()]


def launches_of(scale: Scale) -> list[Launch]:
    return [stage for stage in stages_of(scale) if isinstance(stage, Launch)]


def measurements_of(scale: Scale) -> list[Measurement]:
    return [stage for stage in stages_of(scale) if isinstance(stage, Measurement)]


def _on_cpus() -> Launch:
    """Two to three hours of two slow cores."""
    return Launch("cpu", METHODS, ("rte", "mrpc"), 2, 3, 2, "dev", 16, gpu_share=0)


def _on_gpus() -> Iterator[Launch]:
    """Small tasks first; the same under both ways of selection, side by side. No two studies share a task.

    SST-2 has eight times the rows of CoLA: the whole of it, and one epoch.
    """
    for tasks, epochs in ((("rte", "mrpc"), 5), (("cola",), 5), (("sst2",), 1)):
        for selection in ("dev", "holdout"):
            name = f"gpu-{selection}-{'-'.join(tasks)}"
            yield Launch(name, METHODS_ON_GPUS, tasks, 4, 5, epochs, selection, 16, GPU_SHARE)


def _rates() -> Iterator[Measurement]:
    """Examples per second, and what changes them."""
    sides = ("ours", *(("Trainer",) if find_spec("accelerate") else ()), "original", "products")
    for precision in ("float32", "tensorfloat32", "bfloat16"):
        options = ("--tasks", "rte", "sst2", "--contenders", *sides, "--precision", precision)
        yield Measurement(f"training_speed-{precision}", "training_speed", options, 3, reads_glue=True)
    for batch in BATCHES:
        options = ("--layers", "6", "--hidden-size", "384", "--batch-size", str(batch))
        yield Measurement(f"early_exit_speed-{batch}", "early_exit_speed", options, 3)
    options = ("--methods", "albert", "palbert", "--seeds", "3", "--epochs", "3")
    yield Measurement("precision", "precision", options, 5, reads_glue=True)
    yield Measurement("table2", "table2", (), 4, reads_glue=True)
