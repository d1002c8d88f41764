"""What a study looks like in MLflow: its journal's events as study > arm > trial runs. Pure data, without MLflow.

A run's status in MLflow says what became of the trial:

| trial | MLflow status | tag `status` |
|---|---|---|
| trained to its end | FINISHED | `completed` |
| stopped early by ASHA | KILLED | `stopped` |
| out of retries | FAILED | `failed` |
| cut off with its launch, goes on with the next | SCHEDULED | `interrupted` |
| under way | RUNNING | `running` |

A metric `epoch/NAME` is a curve; a plain `NAME` is the record's number, of the selected epoch, or an arm's median.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import socket
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

MLFLOW_STATUS = {
    "completed": "FINISHED",
    "stopped": "KILLED",
    "failed": "FAILED",
    "interrupted": "SCHEDULED",
    "waiting": "SCHEDULED",
    "running": "RUNNING",
}
CURVES = ("score", "selection_score", "train_loss", "mean_layers", "train_seconds", "eval_seconds")


@dataclass(frozen=True)
class Point:
    """One point of a curve."""

    name: str
    value: float
    time: int  # milliseconds since 1970
    step: int  # epoch, from 1


@dataclass(frozen=True)
class Run:
    """All that one MLflow run should hold."""

    key: str  # finds the run again, within its study
    name: str
    parent: str | None  # key of the run above
    status: str  # a key of MLFLOW_STATUS
    started: int | None  # milliseconds since 1970
    ended: int | None
    params: dict[str, str]  # never change
    tags: dict[str, str]  # may change
    points: tuple[Point, ...]
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)  # artifact folder -> paths

    def digest(self) -> str:
        """The same for the same content, files' bytes included."""
        files = {path: _file_digest(path) for paths in self.files.values() for path in paths}
        return hashlib.sha256(json.dumps([asdict(self), files]).encode()).hexdigest()[:16]


def _file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@dataclass
class Launch:
    """One `python -m study.launch` and what became of it."""

    number: int
    began: dict[str, Any]
    status: str | None = None  # of `launch_ended`; null while it runs, and for ever where it was killed
    ended: int | None = None

    def is_over(self) -> bool:
        """True once it ended, or when its process is gone from this machine."""
        return self.status is not None or self._was_killed()

    def _was_killed(self) -> bool:
        if self.began["host"] != socket.gethostname():
            return False
        try:
            os.kill(self.began["pid"], 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


@dataclass
class Trial:
    """What the journal says of one trial so far."""

    started: dict[str, Any]  # its first `trial_started`
    launch: int  # the last launch that ran it
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)  # by epoch; a repeated epoch counts once
    decision: dict[str, Any] | None = None  # ASHA's last
    retries: int = 0
    ended: dict[str, Any] | None = None

    @property
    def arm(self) -> tuple[str, str]:
        return self.started["method"], self.started["task"]

    @property
    def record(self) -> dict[str, Any]:
        """Empty until the trial ended."""
        return self.ended["record"] if self.ended else {}


class StudyFacts:
    """The state that a journal's events add up to."""

    def __init__(self) -> None:
        self.launches: dict[int, Launch] = {}
        self.trials: dict[str, Trial] = {}

    def apply(self, event: dict[str, Any]) -> str | None:
        """The key of the trial that `event` is about, or None. Events of an unknown kind are passed over."""
        match event["event"]:
            case "launch_began":
                self.launches[event["launch"]] = Launch(event["launch"], event)
            case "launch_ended":
                launch = self.launches[event["launch"]]
                launch.status, launch.ended = event["status"], milliseconds(event["time"])
            case "trial_started":
                trial = self.trials.setdefault(event["key"], Trial(event, event["launch"]))
                trial.launch, trial.ended = event["launch"], None
            case "epoch_reported":
                self.trials[event["key"]].rows.setdefault(event["epoch"], event)
            case "asha_decided":
                self.trials[event["key"]].decision = event
            case "trial_retried":
                self.trials[event["key"]].retries += 1
            case "trial_ended":
                self.trials[event["key"]].ended = event
        return event.get("key")

    @property
    def last_launch(self) -> Launch | None:
        return self.launches[max(self.launches)] if self.launches else None

    def status(self, trial: Trial) -> str:
        """A key of MLFLOW_STATUS."""
        if trial.ended:
            return trial.ended["status"]
        last = self.last_launch
        assert last is not None, "a trial started outside a launch"
        return "interrupted" if trial.launch < last.number or last.is_over() else "running"


class StudyRuns:
    """The MLflow runs of one study, made from its plan and its facts."""

    def __init__(self, name: str, plan: dict[str, Any], facts: StudyFacts) -> None:
        self.name, self.plan, self.facts = name, plan, facts

    def trial(self, key: str) -> Run:
        trial = self.facts.trials[key]
        started, status = trial.started, self.facts.status(trial)
        method, task = trial.arm
        return Run(
            key=key,
            name=f"{started['phase']} {started['trial']} · {method} / {task}",  # MLflow's list cuts the end off
            parent=f"{method}/{task}",
            status=status,
            started=milliseconds(started["time"]),
            ended=_last_end([trial]),
            params={name: str(value) for name, value in started["config"].items()} | {"seed": str(started["seed"])},
            tags=self._tags("trial", status, method=method, task=task, note=_trial_note(trial, status))
            | _texts({name: started[name] for name in ("phase", "trial")})
            | _texts({"retries": trial.retries or None}),
            points=tuple(_curve_points(trial)) + tuple(_selected_points(trial)),
        )

    def arm(self, method: str, task: str) -> Run:
        trials = [trial for trial in self.facts.trials.values() if trial.arm == (method, task)]
        statuses = Counter(self.facts.status(trial) for trial in trials)
        confirmed = [trial for trial in trials if trial.started["phase"] == "confirm" and _has_score(trial)]
        status = self._arm_status(trials, statuses, len(confirmed))
        return Run(
            key=f"{method}/{task}",
            name=f"{method} / {task}",
            parent="study",
            status=status,
            started=min((milliseconds(trial.started["time"]) for trial in trials), default=None),
            ended=_last_end(trials) if status in ("completed", "failed") else None,
            params={},
            tags=self._tags("arm", status, method=method, task=task) | {"trials": _counts(statuses)},
            points=_median_points(confirmed) if status == "completed" else (),
        )

    def _medians(self) -> list[Point]:
        """The median score of every complete arm, as a metric METHOD/TASK of the study."""
        arms = [self.arm(*arm) for arm in dict.fromkeys(trial.arm for trial in self.facts.trials.values())]
        scores = [(arm.key, point) for arm in arms for point in arm.points if point.name == "score"]
        return [replace(point, name=key) for key, point in scores]

    def study(self, *, files: dict[str, tuple[str, ...]], note: str) -> Run:
        """`files`: artifact folder -> paths; `note`: Markdown that MLflow shows as the run's description."""
        last = self.facts.last_launch
        assert last is not None, "a study without a launch"
        statuses = Counter(self.facts.status(trial) for trial in self.facts.trials.values())
        over = {"complete": "completed", "failed": "failed"}.get(last.status or "", "interrupted")
        status = over if last.is_over() else "running"
        return Run(
            key="study",
            name=self.name,
            parent=None,
            status=status,
            started=milliseconds(self.facts.launches[min(self.facts.launches)].began["time"]),
            ended=last.ended,
            params=_texts(self.plan["protocol"]),
            tags=self._tags("study", status, note=note)
            | {"trials": _counts(statuses), "command": _text(last.began["command"]), "launches": str(last.number)},
            points=tuple(self._medians()),
            files=files,
        )

    def _tags(self, level: str, status: str, *, note: str = "", **tags: str) -> dict[str, str]:
        common = {"level": level, "study": self.name, "protocol_hash": self.plan["protocol_hash"], "status": status}
        source = {"mlflow.source.name": "study.launch", "mlflow.source.type": "LOCAL", "mlflow.note.content": note}
        return common | tags | source

    def _arm_status(self, trials: list[Trial], statuses: Counter[str], num_confirmed: int) -> str:
        if statuses["running"]:
            return "running"
        if num_confirmed >= self.plan["phases"]["confirm"]:
            return "completed"
        if any(trial.started["phase"] == "confirm" and self.facts.status(trial) == "failed" for trial in trials):
            return "failed"
        return "interrupted" if statuses["interrupted"] else "waiting"


def milliseconds(time: str) -> int:
    """An event's time as milliseconds since 1970."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def _curve_points(trial: Trial) -> list[Point]:
    points = []
    for epoch, row in trial.rows.items():
        values = {name: row.get(name) for name in CURVES} | _components(row.get("metrics"))
        points += _points({f"epoch/{name}": value for name, value in values.items()}, milliseconds(row["time"]), epoch)
    return points


def _selected_points(trial: Trial) -> list[Point]:
    """The record's numbers, all of the selected epoch."""
    record = trial.record
    if not record or record["epoch"] is None:
        return []
    names = ("score", "selection_score", "mean_layers", "gpu_seconds", "wall_seconds")
    values = (
        {name: record[name] for name in names} | {"selected_epoch": record["epoch"]} | _components(record["metrics"])
    )
    if record["mean_layers"]:
        values["layer_ratio"] = record["num_layers"] / record["mean_layers"]
    return _points(values, milliseconds(record["ended"]), record["epoch"])


def _points(values: dict[str, float | None], time: int, step: int) -> list[Point]:
    """Without those that have no finite value."""
    return [
        Point(name, float(value), time, step)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    ]


def _components(metrics: dict[str, float] | None) -> dict[str, float]:
    """The metrics that the score is the mean of; none where it is the only one."""
    return metrics if metrics and len(metrics) > 1 else {}


def _median_points(trials: list[Trial]) -> tuple[Point, ...]:
    time = _last_end(trials)
    assert time is not None
    values = {name: median(trial.record[name] for trial in trials) for name in ("score", "mean_layers")}
    return tuple(_points(values, time, 0))


def _last_end(trials: list[Trial]) -> int | None:
    return max((milliseconds(trial.ended["time"]) for trial in trials if trial.ended), default=None)


def _trial_note(trial: Trial, status: str) -> str:
    record, decision = trial.record, trial.decision
    if status == "failed":
        return f"Failed: {record['error']}"
    if status == "interrupted":
        return f"Cut off after {len(trial.rows)} epochs; the next launch goes on from its saved state."
    if status == "stopped" and decision:
        cutoff = f"the cutoff of {decision['recorded']} earlier trials was {decision['cutoff']:.4f}"
        return f"Stopped by ASHA after epoch {decision['rung']}: score {decision['score']:.4f}, {cutoff}."
    if _has_score(trial):
        return f"Score {record['score']:.4f} at epoch {record['epoch']} of {record['epochs']}."
    return ""


def _counts(statuses: Counter[str]) -> str:
    return ", ".join(f"{statuses[status]} {status}" for status in MLFLOW_STATUS if statuses[status])


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _has_score(trial: Trial) -> bool:
    return trial.record.get("score") is not None
