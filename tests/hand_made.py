"""Study folders written by hand from the contract, for the tests of analysis."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

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
        "checkpoint": None,
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
        "checkpoint": "albert/albert-base-v2",
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
