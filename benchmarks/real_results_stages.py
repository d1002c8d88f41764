"""What `benchmarks.real_results` runs at each scale, in which order: launches of studies, then measurements of rates.

Nothing here runs anything, and nothing imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from study.cluster.resources import count_local_gpus
from study.facts.plan_file import read_toml
from study.plans.plan import Plan
from trainables.data.tasks import TASKS

Scale = Literal["cpu", "gpu"]
SCALES: tuple[Scale, ...] = get_args(Scale)

PLANS = Path(__file__).parent / "plans"
GPU_SHARE = 0.1  # of a trial: a small model does not fill a large GPU
# Examples that a trial trains on in a second, others beside it, on a CPU core or a share of a GPU: what a dry run says
# of a study without records. 100 is what MiniLM made on CoLA's short texts with an idle core, 500 is a guess.
STATED_RATE: dict[Scale, int] = {"cpu": 100, "gpu": 500}
BATCHES = (1, 8, 32)  # of early exit


@dataclass(frozen=True)
class Launch:
    """A stage that is a study: its plan is the file plans/NAME.toml, which stood there before its first trial."""

    name: str  # of the stage, of its plan and of the study's folder
    rows: int | None = None  # of train, spread over it; None: all
    gpu_share: float = 0

    @property
    def plan_file(self) -> Path:
        return PLANS / f"{self.name}.toml"

    @property
    def plan(self) -> Plan:
        return read_toml(self.plan_file)

    def options(self) -> list[str]:
        """Those that say what is studied, and on what."""
        share = self.gpu_share if count_local_gpus() else 0
        return ["--plan", str(self.plan_file), "--cpus-per-trial", "1", "--gpus-per-trial", f"{share:g}"]

    @property
    def trials(self) -> int:
        plan = self.plan
        assert plan.samples is not None
        return len(plan.methods) * len(plan.tasks) * (plan.samples + plan.seeds)

    @property
    def examples(self) -> int:
        """That all trials train on at most."""
        plan = self.plan
        rows = sum(self.rows or TASKS[task].sizes["train"] for task in plan.tasks)
        return rows * int(str(plan.settings["epochs"])) * self.trials // len(plan.tasks)


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
    if scale == "cpu":
        pooled = [Launch("cpu-cola"), Launch("cpu-cola-exits"), Launch("cpu-sst2", rows=16_000)]
        of_sst2 = [Launch("cpu-mean-sst2", rows=3_000), Launch("cpu-mean-sst2-7000", rows=7_000)]
        one_dropout = [Launch("cpu-mean-cola"), Launch("cpu-mean-sst2-dropout", rows=7_000)]
        longest = Launch("cpu-mean-sst2-16000", rows=16_000)
        return [*pooled, *of_sst2, Launch("cpu-mean-mrpc"), *one_dropout, longest]
    return [Launch("gpu", gpu_share=GPU_SHARE), *_rates()]


def launches_of(scale: Scale) -> list[Launch]:
    return [stage for stage in stages_of(scale) if isinstance(stage, Launch)]


def measurements_of(scale: Scale) -> list[Measurement]:
    return [stage for stage in stages_of(scale) if isinstance(stage, Measurement)]


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
