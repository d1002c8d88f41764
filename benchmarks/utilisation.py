"""How full the slots are: a study of eight unequal arms, against Ray Tune arm after arm.

    python -m benchmarks.utilisation

The arms are ALBERT's on the eight GLUE tasks. Trials sleep; an epoch of the longest arm takes eight times as long as
one of the shortest, and trials of an arm differ by 20 % to each side. The study runs them through the engine, four at a
time: search with TPE and ASHA, then confirm. Ray Tune does the same, reusing actors: for one arm after the other a
`Tuner` that searches and one that runs the best configuration on the seeds. Busy is the share of the time of all slots,
from the first start of a trial to the last end, in which a trial sleeps. Results go to
benchmarks/results/utilisation.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from ray import tune

from benchmarks import synthetic_trials as synthetic
from benchmarks.counts import count
from benchmarks.results_file import write_results
from study.plans.resolved_plan import Arm, ResolvedPlan

LIMIT_BUSY = 0.95
SCORE_SPREAD = 0.4  # of the best and worst trial, so that ASHA stops some
TASKS = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")  # the largest training set first
Span = tuple[float, float]  # when a trial began to sleep, and when it woke up


def main() -> int:
    options = build_parser().parse_args()
    resolved = unequal_arms(options)
    figures = {}
    for name, spans_of in (("study", spans_of_study), ("tune", spans_of_tune)):
        with tempfile.TemporaryDirectory(prefix="utilisation-") as folder:
            figures[name] = figures_of(spans_of(resolved, Path(folder)))
        print("{name:6}  {epochs} epochs in {seconds:.1f} s, slots busy {busy:.3f}".format(name=name, **figures[name]))
    held = figures["study"]["busy"] >= LIMIT_BUSY
    print(f"{'held  ' if held else 'MISSED'}  busy at least {LIMIT_BUSY}")
    write_results("utilisation", {**vars(options), **figures})
    return 0 if held else 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.utilisation", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--arms", type=count, default=8, help="(%(default)s)")
    parser.add_argument("--samples", type=count, default=8, help="search trials of an arm (%(default)s)")
    parser.add_argument("--seeds", type=count, default=5, help="confirm trials of an arm (%(default)s)")
    parser.add_argument("--epochs", type=count, default=9, help="of a full trial (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.6, help="an epoch of the longest arm (%(default)s)")
    return parser


def unequal_arms(options: argparse.Namespace) -> ResolvedPlan:
    """The study's arms, the longest first; from one to the next an epoch gets shorter by the same amount."""
    tasks = TASKS[-options.arms :]
    plan = synthetic.resolved_plan(tasks, samples=options.samples, seeds=options.seeds, epochs=options.epochs)
    arms = [
        synthetic.with_fixed(arm, epoch_seconds=options.seconds * (1 - number / len(tasks)), score_spread=SCORE_SPREAD)
        for number, arm in enumerate(plan.arms)
    ]
    request = replace(plan.request, data="hub")  # the real tasks' sizes
    return replace(plan, request=request, arms=tuple(arms))


def spans_of_study(resolved: ResolvedPlan, folder: Path) -> list[Span]:
    synthetic.run_study(resolved, folder, mirrored=False)
    lines = [line for path in (folder / "trials").glob("*.spans") for line in path.read_text().splitlines()]
    return [(began, until) for began, until in map(json.loads, lines)]


def spans_of_tune(resolved: ResolvedPlan, folder: Path) -> list[Span]:
    recorder = SpanCallback()
    with synthetic.cluster(synthetic.PLAIN_RAY):
        for arm in resolved.arms:
            search_and_confirm_with_tune(arm, folder, recorder)
    return recorder.spans


class SpanCallback(tune.Callback):
    """Collects when the trials of Ray Tune slept."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.spans.append((result["began"], result["until"]))


def search_and_confirm_with_tune(arm: Arm, folder: Path, recorder: SpanCallback) -> None:
    results = synthetic.search_with_tune(arm, arm.samples, folder, callbacks=[recorder])
    best = results.get_best_result("score", "max").config
    seeds = tune.grid_search(list(arm.seeds))
    how = tune.TuneConfig(metric="score", mode="max", reuse_actors=True)
    synthetic.fit_with_tune({**best, "seed": seeds}, how, folder, [recorder])


def figures_of(spans: list[Span]) -> dict[str, float]:
    seconds = max(until for _, until in spans) - min(began for began, _ in spans)
    asleep = sum(until - began for began, until in spans)
    return {"epochs": len(spans), "seconds": seconds, "busy": asleep / (synthetic.SLOTS * seconds)}


if __name__ == "__main__":
    sys.exit(main())
