"""A study's plan and journal written by hand from the contract, for the tests of the mirror."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

PROTOCOL_HASH = "aaaa000011112222"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class HandMadeJournal:
    """Appends events to `folder`, one second apart."""

    def __init__(self, folder: Path, *, arms: tuple[str, ...] = ("palbert/rte",), confirm: int = 2) -> None:
        self.folder = folder
        self.path = folder / "events.jsonl"
        self.seconds = 0
        folder.mkdir(parents=True)
        plan = {"protocol": {"data": "mini", "selection": "dev"}, "protocol_hash": PROTOCOL_HASH}
        phases = {"search": dict.fromkeys(arms, 3), "confirm": confirm}
        (folder / "plan.json").write_text(json.dumps({**plan, "phases": phases}))

    def append(self, event: str, **fields: Any) -> None:
        self.seconds += 1
        time = (BEGAN + timedelta(seconds=self.seconds)).isoformat(timespec="microseconds")
        with self.path.open("a") as file:
            file.write(json.dumps({"event": event, "time": time, **fields}) + "\n")

    def begin(self, launch: int = 1, *, pid: int | None = None) -> None:
        self.append(
            "launch_began",
            launch=launch,
            command="study.launch --method palbert",
            host=socket.gethostname(),
            pid=pid or os.getpid(),
            versions={},
            git_commit=None,
        )

    def end(self, launch: int = 1, status: str = "complete") -> None:
        self.append("launch_ended", launch=launch, status=status)

    def start(
        self, key: str, *, phase: str = "search", trial: int = 0, launch: int = 1, arm: str = "palbert/rte"
    ) -> None:
        method, task = arm.split("/")
        self.append(
            "trial_started",
            key=key,
            method=method,
            task=task,
            phase=phase,
            trial=trial,
            seed=42 + trial,
            config={"learning_rate": 2e-05, "batch_size": 32, "exit": "q", "epochs": 3},
            launch=launch,
        )

    def epoch(self, key: str, epoch: int, score: float) -> None:
        self.append(
            "epoch_reported",
            key=key,
            epoch=epoch,
            score=score,
            selection_score=score,
            metrics={"accuracy": score},
            mean_layers=9.5,
            num_layers=12,
            train_loss=1.0 / epoch,
            train_examples=100 * epoch,
            train_seconds=10.0 * epoch,
            eval_seconds=1.0 * epoch,
        )

    def finish(
        self, key: str, *, score: float | None, epoch: int | None, status: str = "completed", **fields: Any
    ) -> None:
        record = {
            "key": key,
            "status": status,
            "error": fields.get("error"),
            "score": score,
            "selection_score": score,
            "metrics": {"accuracy": score} if score is not None else {},
            "epoch": epoch,
            "epochs": 3,
            "num_layers": 12,
            "mean_layers": 9.5 if score is not None else None,
            "gpu_seconds": 0.0,
            "wall_seconds": 40.0,
            "ended": (BEGAN + timedelta(seconds=self.seconds + 1)).isoformat(timespec="microseconds"),
            **fields,
        }
        self.append("trial_ended", key=key, status=status, error=record["error"], record=record)

    def whole_trial(self, key: str, scores: list[float], **started: Any) -> None:
        self.start(key, **started)
        for epoch, score in enumerate(scores, start=1):
            self.epoch(key, epoch, score)
        self.finish(key, score=max(scores), epoch=scores.index(max(scores)) + 1)
