"""Study folders written by hand from the contract, for the tests of analysis."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from trainables.data.tasks import TASKS, compute_metrics, predictions_from_logits, score

SEEDS = [42, 43, 44, 45, 46]
PROTOCOL = {
    "data": "hub",
    "selection": "dev",
    "aggregate": "median over seeds from 42",
    "sampler": "tpe",
    "epochs": None,
}
COMPONENTS = {
    "sst2": ["accuracy"],
    "rte": ["accuracy"],
    "qnli": ["accuracy"],
    "cola": ["matthews"],
    "mrpc": ["accuracy", "f1"],
    "mnli": ["accuracy_matched", "accuracy_mismatched"],
    "qqp": ["accuracy", "f1"],
    "stsb": ["pearson", "spearman"],
    "wnli": ["accuracy"],
}
CONFIG = {"learning_rate": 1e-5, "batch_size": 32, "epochs": 25}


def record(
    method: str, task: str, score: float | None, *, seed: int = 42, phase: str = "confirm", **fields: Any
) -> dict:
    """A record with every field of the contract; `fields` replaces any of them."""
    config = fields.pop("config", CONFIG)
    protocol_hash = fields.pop("protocol_hash", "aaaa000011112222")
    identity = json.dumps([protocol_hash, method, task, phase, config, seed], sort_keys=True)
    row = {
        "key": hashlib.sha256(identity.encode()).hexdigest()[:16],
        "study": "hand-made",
        "protocol_hash": protocol_hash,
        "method": method,
        "task": task,
        "phase": phase,
        "trial": 0,
        "seed": seed,
        "config": config,
        "status": "completed" if score is not None else "failed",
        "error": None if score is not None else "loss is nan at step 3",
        "score": score,
        "selection_score": score,
        "metrics": dict.fromkeys(COMPONENTS[task], score) if score is not None else {},
        "epoch": 3 if score is not None else None,
        "epochs": 8,
        "num_layers": 12,
        "mean_layers": 12.0 if method == "albert" else 8.0,
        "train_examples": 20_000,
        "train_seconds": 100.0,
        "eval_seconds": 16.0,
        "gpu_seconds": 120.0,
        "wall_seconds": 120.0,
        "model": None,
        "data_fingerprint": "f00d",
        "versions": {"torch": "2.13.0"},
        "git_commit": "0123abc",
        "host": "node-1",
        "device": "cuda:0",
        "started": "2026-01-01T00:00:00.000000+00:00",
        "ended": "2026-01-01T00:02:00.000000+00:00",
    }
    return row | fields


def write_study(
    folder: Path,
    records: list[dict],
    *,
    protocol: dict | None = None,
    protocol_hash: str = "aaaa000011112222",
    **plan: Any,
) -> Path:
    """A study folder with these records; methods, tasks and seeds of the plan are those of the records unless given."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "name": folder.name,
        "methods": list(dict.fromkeys(row["method"] for row in records)),
        "tasks": list(dict.fromkeys(row["task"] for row in records)),
        "samples": 1,
        "seeds": SEEDS,
        "backbone": "albert/albert-base-v2",
        "protocol": PROTOCOL | (protocol or {}),
        "protocol_hash": protocol_hash,
    }
    (folder / "plan.json").write_text(json.dumps(content | plan))
    (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    return folder


def arm(method: str, task: str, scores: list[float | None], **fields: Any) -> list[dict]:
    """An arm's records: one search trial at the best score, then confirm trials on seeds from 42."""
    best = max(score for score in scores if score is not None)
    search = record(method, task, best, seed=1, phase="search", **fields)
    confirm = [record(method, task, score, seed=42 + i, trial=i, **fields) for i, score in enumerate(scores)]
    return [search, *confirm]


def predicted_study(
    folder: Path, methods: dict[str, float], tasks: list[str], *, num_examples: int = 400, **plan: Any
) -> Path:
    """A whole study folder as the engine leaves it: records, predictions and journal that agree with each other.

    `methods` gives each method's chance of a right answer. The exit of `pondernet` is sampled.
    """
    records = []
    for number, (method, chance) in enumerate(methods.items()):
        for task in tasks:
            for seed in SEEDS:
                arrays = predictions(method, task, chance, seed=seed, num_examples=num_examples, salt=number)
                row = record(method, task, 0.0, seed=seed, trial=seed - 42) | scores_of(task, arrays)
                records.append(row)
                store_predictions(folder, row, arrays)
            config = row["config"]
            best = max(kept["score"] for kept in records if (kept["method"], kept["task"]) == (method, task))
            for trial in range(4):
                searched = {"seed": trial, "trial": trial, "phase": "search"}
                learning_rate = config if trial == 0 else config | {"learning_rate": 1e-5 * (trial + 1)}
                found = record(method, task, best - 0.01 * trial, config=learning_rate, **searched)
                records.append(found if trial < 3 else found | {"status": "stopped", "epochs": 2, "epoch": 2})
    write_study(folder, records, **plan)
    write_journal(folder, records)
    return folder


def predictions(
    method: str, task: str, chance: float, *, seed: int, num_examples: int, salt: int
) -> dict[str, np.ndarray]:
    """The arrays of a predictions file. Examples differ in ease, in the same way for every method and seed."""
    shared, rng = np.random.default_rng(len(task)), np.random.default_rng([seed, salt, len(task)])
    ease = shared.uniform(-0.2, 0.2, num_examples)
    right = rng.random(num_examples) < np.clip(chance + ease, 0, 1)
    if TASKS[task].is_regression:
        labels = shared.uniform(0, 5, num_examples)
        logits = (labels + np.where(right, 0.1, 2.0) * rng.normal(size=num_examples))[:, None]
    else:
        labels = shared.integers(TASKS[task].num_labels, size=num_examples)
        logits = np.eye(TASKS[task].num_labels)[np.where(right, labels, (labels + 1) % TASKS[task].num_labels)]
    splits = TASKS[task].dev_splits
    layers = np.full(num_examples, 12) if method == "albert" else 12 - rng.integers(8, size=num_examples)
    settings = np.linspace(0.1, 1.0, 10)
    arrays = {
        "ids": np.arange(num_examples),
        "split": np.array([splits[i % len(splits)] for i in range(num_examples)]),
        "labels": labels,
        "logits": logits,
        "exit_layers": layers,
        "sweep_rule": np.array(["threshold"] * 10),
        "sweep_setting": settings,
        "sweep_score": chance - 0.1 * (1 - settings) ** 2,
        "sweep_mean_layers": 1 + 11 * settings,
    }
    if method == "pondernet":
        first = scores_of(task, arrays)["score"]
        draws = np.array([0.0, 0.02, -0.02, 0.01])
        arrays |= {"draw_scores": first + draws, "draw_mean_layers": layers.mean() + draws}
    return arrays


def scores_of(task: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The record's numbers that these predictions give."""
    answers = predictions_from_logits(TASKS[task], arrays["logits"])
    metrics = compute_metrics(TASKS[task], answers, arrays["labels"], arrays["split"])
    found, layers = score(TASKS[task], metrics), float(arrays["exit_layers"].mean())
    if "draw_scores" in arrays:
        metrics["sample_std"] = float(np.std(arrays["draw_scores"], ddof=1))
        found, layers = float(arrays["draw_scores"].mean()), float(arrays["draw_mean_layers"].mean())
    return {"score": found, "selection_score": found, "metrics": metrics, "mean_layers": layers}


def store_predictions(folder: Path, row: dict, arrays: dict[str, np.ndarray]) -> None:
    (folder / "predictions").mkdir(parents=True, exist_ok=True)
    np.savez(folder / "predictions" / f"{row['key']}.npz", **arrays)


def write_journal(folder: Path, records: list[dict]) -> None:
    """The events of a study in which the trials ran one after another."""
    events = [{"event": "launch_began", "launch": 1, "command": "python -m study.launch", "versions": {}}]
    for row in records:
        names = ("key", "method", "task", "phase", "trial", "seed", "config")
        events.append({"event": "trial_started", **{name: row[name] for name in names}, "launch": 1})
        for epoch in range(1, row["epochs"] + 1):
            selection_score = (row["score"] or 0.0) - 0.02 * abs(epoch - (row["epoch"] or 1))
            reported = {"epoch": epoch, "selection_score": selection_score, "mean_layers": row["mean_layers"]}
            histogram = [0] * 6 + [50, 50, 100, 100, 50, 50]
            events.append({"event": "epoch_reported", "key": row["key"], **reported, "exit_histogram": histogram})
        if row["status"] == "stopped":
            decision = {"rung": row["epochs"], "score": row["score"], "cutoff": row["score"] + 0.01, "decision": "stop"}
            events.append(
                {"event": "asha_decided", **{name: row[name] for name in names[:3]}, **decision, "recorded": 3}
            )
        ended = {"key": row["key"], "status": row["status"], "error": row["error"], "record": row}
        events.append({"event": "trial_ended", **ended})
    events.append({"event": "launch_ended", "launch": 1, "status": "complete"})
    stamped = [
        {"time": f"2026-01-01T00:{i // 60 % 60:02}:{i % 60:02}.000000+00:00", **event} for i, event in enumerate(events)
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in stamped))
