"""Time and memory from 10,000 records to all tables, in a fresh process: imports, reading, statistics, writing.

    python -m benchmarks.analysis_speed

Limits: 3 s and 500 MB for the records. The second line adds stored predictions of all 200 confirm trials (1,000 dev
examples each), from which every pair of methods is compared. Exit status 1 if a limit is passed. Writes
`benchmarks/results/analysis_speed.json`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from benchmarks.results_file import write_results
from study import profiles
from study.facts.events import (
    FILE,
    FORMAT,
    EpochReported,
    LaunchBegan,
    Process,
    TrialEnded,
    TrialStarted,
)
from study.facts.record import Phase
from study.plans.plan_file import PlanFile, write_plan
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS
from trainables.runs.trial import EpochRow, Outcome

ROOT = Path(__file__).parents[1]
METHODS = ("albert", "electra-small", "pabee", "palbert", "pondernet")
EIGHT = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")
SEEDS = (42, 43, 44, 45, 46)
BEGAN = "2026-01-01T00:00:00.000000+00:00"
NUM_RECORDS = 10_000
NUM_EXAMPLES = 1_000
LIMIT_SECONDS, LIMIT_MEGABYTES = 3.0, 500.0


def write_study(folder: Path, *, with_predictions: bool) -> None:
    """A study of five methods on eight tasks with 10,000 records: five confirm trials per arm, the others search."""
    rng = np.random.default_rng(0)
    arms = [(method, task) for method in METHODS for task in EIGHT]
    per_arm = NUM_RECORDS // len(arms)
    events: list[Any] = [launch_of(per_arm - len(SEEDS))]
    (folder / "predictions").mkdir(parents=True)
    for method, task in arms:
        for trial, seed in enumerate(SEEDS):
            arrays = predictions(task, rng)
            answers = predictions_from_logits(TASKS[task], arrays["logits"][0])
            metrics = compute_metrics(TASKS[task], answers, arrays["labels"], arrays["split"])
            events += trial_of(method, task, "confirm", trial, seed, {"learning_rate": 1e-5}, metrics)
            if with_predictions:
                np.savez(folder / "predictions" / f"{events[-1].key}.npz", **arrays)
        for trial in range(per_arm - len(SEEDS)):
            metrics = dict.fromkeys(TASKS[task].metrics, 0.9 - 1e-5 * trial)
            events += trial_of(method, task, "search", trial, trial, {"learning_rate": 1e-5 + 1e-8 * trial}, metrics)
    write_plan(folder, plan_file_of(folder, per_arm - len(SEEDS)))
    (folder / FILE).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


@cache
def plan() -> ResolvedPlan:
    """The mini profile's arms, said to be of the real data."""
    mini = replace(profiles.load("mini"), methods=METHODS, tasks=EIGHT, seeds=len(SEEDS))
    resolved = resolve(mini)
    return replace(resolved, asked=replace(resolved.asked, data="hub"))


def plan_of(samples: int) -> ResolvedPlan:
    arms = tuple(replace(arm, samples=samples, backbone="albert/albert-base-v2") for arm in plan().arms)
    return replace(plan(), arms=arms)


def plan_file_of(folder: Path, samples: int) -> PlanFile:
    return PlanFile(
        name=folder.name,
        created=BEGAN,
        command="",
        versions={},
        git_commit=None,
        code_digest="",
        protocol_hash=plan().protocol_hash,
        plan=plan_of(samples),
    )


def launch_of(samples: int) -> LaunchBegan:
    return LaunchBegan(
        time=BEGAN,
        format=FORMAT,
        launch=1,
        command="",
        host="",
        pid=0,
        versions={"torch": "2.13.0"},
        git_commit=None,
        code_digest="",
        plan=plan_of(samples),
    )


def trial_of(
    method: str, task: str, phase: Phase, trial: int, seed: int, config: dict[str, Any], metrics: dict[str, float]
) -> list[Any]:
    """The events of a completed trial of one epoch."""
    key = f"{method}-{task}-{phase}-{trial}"
    row = EpochRow(
        epoch=1,
        selection_score=score(TASKS[task], metrics),
        metrics=metrics,
        mean_layers=8.0,
        num_layers=12,
        train_loss=0.5,
        train_examples=20_000,
        train_seconds=100.0,
        eval_seconds=100.0,
        best_epoch=1,
        finished=True,
    )
    return [
        TrialStarted(time=BEGAN, key=key, arm=f"{method}/{task}", phase=phase, trial=trial, seed=seed, config=config),
        EpochReported(
            time=BEGAN,
            key=key,
            row=row,
            outcome=Outcome(num_parameters=11_700_000),
            wall_seconds=100.0,
            gpu_seconds=100.0,
            process=Process(host="node", device="cuda:0"),
        ),
        TrialEnded(time="2026-01-01T00:02:00.000000+00:00", key=key, status="completed"),
    ]


def predictions(task: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The arrays of a predictions file; three answers in four are right."""
    splits, num_labels = TASKS[task].dev_splits, TASKS[task].num_labels
    labels = np.arange(NUM_EXAMPLES) % max(num_labels, 2)
    right = rng.random(NUM_EXAMPLES) < 0.75
    if TASKS[task].is_regression:
        logits = (labels + rng.normal(size=NUM_EXAMPLES))[:, None]
    else:
        logits = np.eye(num_labels)[np.where(right, labels, (labels + 1) % num_labels)]
    return {
        "ids": np.arange(NUM_EXAMPLES),
        "split": np.array([splits[i % len(splits)] for i in range(NUM_EXAMPLES)]),
        "labels": labels,
        "logits": logits[None],
        "exit_layers": rng.integers(1, 13, size=(1, NUM_EXAMPLES)),
        "layer_answers": np.repeat(predictions_from_logits(TASKS[task], logits)[None], 12, axis=0),
        "sweep_rule": np.array(["threshold"]),
        "sweep_setting": np.array([0.5]),
        "sweep_score": np.array([0.75]),
        "sweep_mean_layers": np.array([8.0]),
    }


def measure(study: Path) -> tuple[float, float]:
    """Seconds and peak megabytes of `python -m analysis.tables STUDY`."""
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "analysis.tables", str(study)], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"analysis.tables ended with status {process.returncode}")
    return seconds, usage.ru_maxrss / 1024


def main() -> int:
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, with_predictions in (("records", False), ("records and predictions", True)):
            study = Path(temporary) / name.replace(" ", "-")
            write_study(study, with_predictions=with_predictions)
            seconds, megabytes = min(measure(study) for _ in range(3))
            results.append({"input": name, "records": NUM_RECORDS, "seconds": seconds, "megabytes": megabytes})
            print(f"{NUM_RECORDS} records to all tables, {name}: {seconds:.2f} s, {megabytes:.0f} MB (best of 3)")
    held = results[0]["seconds"] <= LIMIT_SECONDS and results[0]["megabytes"] <= LIMIT_MEGABYTES
    print(f"limits {LIMIT_SECONDS:.0f} s and {LIMIT_MEGABYTES:.0f} MB: {'held' if held else 'passed'}")
    write_results("analysis_speed", {"results": results, "limits_held": held})
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
