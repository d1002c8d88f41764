"""A study without Ray: the decision logic of `study.state` on a virtual clock, with trials that follow curves.

Trials have deterministic scores and durations, keep their progress as a saved state would, and can be cut off with
the whole study at any event.
"""

from __future__ import annotations

import hashlib
import heapq
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from study.plan import ResolvedPlan
from study.state import StudyState, Trial


class Killed(Exception):
    """The process of the study is gone."""


@dataclass
class Journal:
    """The facts so far; `kill_at` is the event whose writing the process does not survive."""

    events: list[dict[str, Any]] = field(default_factory=list)
    kill_at: int | None = None
    clock: float = 0.0

    def append(self, event: str, **values: Any) -> dict[str, Any]:
        time = datetime.fromtimestamp(self.clock, UTC).isoformat(timespec="microseconds")
        row = {"event": event, "time": time, **values}
        self.events.append(row)
        if self.kill_at is not None and len(self.events) >= self.kill_at:
            raise Killed
        return row

    def of(self, event: str) -> list[dict[str, Any]]:
        return [row for row in self.events if row["event"] == event]


def unit(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:8], 16) / 2**32


def curve(trial: Trial, epoch: int) -> float:
    """The selection score of the trial at an epoch: rises to a plateau that its configuration and seed decide."""
    start = trial.start
    plateau = unit(start["task"], sorted(start["config"].items()), start["seed"])
    return round(plateau * (1 - 0.5**epoch), 6)


def row(trial: Trial, epoch: int) -> dict[str, Any]:
    epochs, score = trial.start["config"]["epochs"], curve(trial, epoch)
    numbers = {"score": score, "selection_score": score, "metrics": {"accuracy": score}, "mean_layers": 6.0}
    costs = dict.fromkeys(("train_examples", "train_seconds", "eval_seconds", "gpu_seconds", "wall_seconds"), epoch)
    finished = {"outcome": {**numbers, "epoch": epoch, "model": None}} if epoch == epochs else {}
    return {
        **numbers,
        **costs,
        **finished,
        "epoch": epoch,
        "best_epoch": epoch,
        "num_layers": 12,
        "finished": epoch == epochs,
        "host": "simulated",
        "device": "cpu",
        "gpu_share": 0.1,
    }


def epoch_seconds(trial: Trial) -> float:
    return 1 + 4 * unit(trial.start["task"]) + unit(trial.start["key"])


@dataclass
class Simulation:
    """One study through as many launches as it takes. what trials `saved` outlives a launch, as on disk."""

    resolved: ResolvedPlan
    slots: int = 3
    journal: Journal = field(default_factory=Journal)
    saved: dict[str, int] = field(default_factory=dict)
    busy_seconds: float = 0.0
    max_gpu_hours: float | None = None

    def launch(self, *, kill_at: int | None = None) -> StudyState | None:
        """Runs until the study is finished, or until the journal's event number `kill_at`; then None."""
        self.journal.kill_at = kill_at
        try:
            return self._run()
        except Killed:
            return None

    def _run(self) -> StudyState:
        state = StudyState(
            "simulated",
            self.resolved,
            events=list(self.journal.events),
            append=self.journal.append,
            provenance={"versions": {}, "git_commit": None},
            max_gpu_hours=self.max_gpu_hours,
        )
        for trial in state.unsettled:
            state.end(trial.start["key"])
        state.begin_launch(command="", host="", pid=0)
        running: list[tuple[float, str, int, Trial]] = []  # when its next row comes, key, epoch, trial
        while not state.finished:
            while len(running) < self.slots and (trial := state.next_trial()) is not None:
                self._schedule(running, trial, epoch=1)
            if running:
                self._report(state, running)
        return state

    def _schedule(self, running: list, trial: Trial, *, epoch: int) -> None:
        key = trial.start["key"]
        known = epoch <= self.saved.get(key, 0)  # trained before: repeated at once
        seconds = 0.0 if known else epoch_seconds(trial)
        self.busy_seconds += seconds
        heapq.heappush(running, (self.journal.clock + seconds, key, epoch, trial))

    def _report(self, state: StudyState, running: list) -> None:
        self.journal.clock, key, epoch, trial = heapq.heappop(running)
        self.saved[key] = max(epoch, self.saved.get(key, 0))
        decision = state.report(key, row(trial, epoch))
        if decision == "stop" or row(trial, epoch)["finished"]:
            state.end(key)
        else:
            self._schedule(running, trial, epoch=epoch + 1)
