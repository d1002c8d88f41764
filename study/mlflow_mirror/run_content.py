"""What a study looks like in MLflow: its facts as study > arm > trial runs. Pure data, without MLflow.

A run's status in MLflow says what became of the trial:

| trial | MLflow status | tag `status` |
|---|---|---|
| trained to its end | FINISHED | `completed` |
| stopped early by ASHA | FINISHED | `stopped`, and `stopped` is `asha` |
| failed, by a fault of its method | FAILED | `failed` |
| cut off with its launch, goes on with the next | SCHEDULED | `interrupted` |
| under way | RUNNING | `running` |

An arm that lacks confirm trials and gets no more, and a study that is over and lacks cells, have failed; one that
another launch would go on with is `waiting` or `interrupted`.

A metric `epoch/NAME` is a curve; a plain `NAME` is the record's number, of the selected epoch, or an arm's median. The
`score` of a trial begins as NaN: so it is the first of its metrics, with which MLflow's page "Compare" opens. A confirm
trial that does not repeat the arm's winner has the tag `superseded` and is in no median. A pretraining has its held-out
scores under their own names, and no `score`; trials that load its model have its key as tag `pretrained_by`.

Tags to search by: `level` (study, arm, trial), `arm`, `method`, `task`, `phase`; `counts` is `true` for the confirm
trials that make the arm's number, `best` for the one of them with the highest score. The parameters of an arm are the
configuration that its confirm trials repeat. Values of `git_commit`, `versions` and `device` are several where trials
differ.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import median

from msgspec import UNSET

from study.decisions.progress import ArmProgress, PretrainingProgress, last_progress
from study.facts.events import EpochReported, Failure
from study.facts.other_code import first_code, other_code_of
from study.facts.plain_words import counted
from study.facts.record import Phase, Record, held_out_scores
from study.facts.study_facts import StudyFacts, TrialFacts
from study.facts.study_folder import JournalDigest
from study.plans.plan_file import PlanFile
from trainables.runs.trial import EpochRow
from trainables.schema import to_plain

NOTE_ERROR_CHARACTERS = 500  # of the first line of an error, which may have a tensor in it
MLFLOW_STATUS = {
    "completed": "FINISHED",
    "stopped": "FINISHED",
    "failed": "FAILED",
    "interrupted": "SCHEDULED",
    "waiting": "SCHEDULED",
    "running": "RUNNING",
}


@dataclass(frozen=True)
class Point:
    """One point of a curve."""

    name: str
    value: float
    time: int  # milliseconds since 1970
    step: int  # whole epochs


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


class StudyRuns:
    """The MLflow runs of one study, made from its plan and its facts."""

    def __init__(
        self, name: str, plan: PlanFile, facts: StudyFacts, reports: Mapping[str, Sequence[EpochReported]]
    ) -> None:
        """`reports`: those of each trial, by its key, each epoch once."""
        self.name, self.plan, self.facts, self.reports = name, plan, facts, reports
        self._first = first_code(facts)
        self.progress = last_progress(plan.plan, facts)

    def trial(self, key: str) -> Run:
        trial = self.facts.trials[key]
        started, status = trial.started, self.status(trial)
        is_superseded = self._is_superseded(trial)
        return Run(
            key=key,
            name=f"{started.phase} {started.trial} · {started.arm.replace('/', ' / ')}",  # MLflow cuts the end off
            parent=started.arm,
            status=status,
            started=milliseconds(started.time),
            ended=_last_end([trial]),
            params=self._params(started.arm, started.config) | {"seed": str(started.seed)},
            tags=self._tags("trial", status, arm=started.arm, method=started.method, task=started.task)
            | {"mlflow.note.content": _trial_note(trial, status, is_superseded=is_superseded)}
            | {"phase": started.phase, "trial": str(started.trial)}
            | ({"retries": str(len(trial.retries))} if trial.retries else {})
            | self._backbone_tags(trial)
            | ({"stopped": "asha"} if status == "stopped" else {})
            | self._standing_tags(trial)
            | _provenance_tags([trial.record] if trial.record else [])
            | self._code_tag([trial])
            | ({"superseded": "true"} if is_superseded else {}),
            points=(
                *_first_points(trial),
                *_curve_points(self.reports[key], trial.phase),
                *_selected_points(trial.record),
            ),
        )

    def arm(self, name: str) -> Run:
        arm = self.progress.arm(name)
        trials = arm.facts.trials
        statuses = Counter(self.status(trial) for trial in trials)
        status = self._arm_status(arm, statuses)
        return Run(
            key=name,
            name=arm.arm.name.replace("/", " / "),
            parent="study",
            status=status,
            started=min((milliseconds(trial.started.time) for trial in trials), default=None),
            ended=_last_end(trials) if status in ("completed", "failed") else None,
            params=self._params(name, arm.winner.config) if arm.winner and arm.is_search_over else {},
            tags=self._tags("arm", status, arm=name, method=arm.arm.method, task=arm.arm.task)
            | {"trials": _counts(statuses), "backbone": arm.arm.pinned_backbone, "data": self.plan.plan.asked.data}
            | {"data_fingerprint": arm.arm.data_fingerprint, "mlflow.note.content": _arm_note(arm)}
            | _provenance_tags(arm.confirmed)
            | self._code_tag(trials),
            points=_median_points(arm.confirmed) if arm.confirmed and status == "completed" else (),
        )

    def study(self, *, files: dict[str, tuple[str, ...]], note: str, journal: JournalDigest | None = None) -> Run:
        """`files`: artifact folder -> paths; `note`: Markdown that MLflow shows as the run's description.

        `journal`: once the launch is over.
        """
        last = self.facts.last_launch
        assert last is not None, "a study without a launch"
        statuses = Counter(self.status(trial) for trial in self.facts.trials.values())
        status = self._status_of_all() if last.is_over() else "running"
        return Run(
            key="study",
            name=self.name,
            parent=None,
            status=status,
            started=milliseconds(self.facts.launches[min(self.facts.launches)].began.time),
            ended=milliseconds(last.ended.time) if last.ended else None,
            params=_texts(to_plain(self.plan.plan.protocol)),
            tags=self._tags("study", status)
            | {"mlflow.note.content": note, "trials": _counts(statuses)}
            | {"command": last.began.command, "launches": str(last.began.launch)}
            | ({"journal": journal.describe()} if journal else {}),
            points=tuple(self._medians()),
            files=files,
        )

    def _params(self, arm: str, config: Mapping[str, object]) -> dict[str, str]:
        """Those first that are searched: MLflow shows them in this order."""
        searched = [name for name in self.progress.arm(arm).arm.space if name in config]
        return {name: str(config[name]) for name in dict.fromkeys([*searched, *config])}

    def _status_of_all(self) -> str:
        """What the study has come to when its last launch is over."""
        if not self.progress.missing:
            return "completed"
        return "failed" if self.progress.is_finished else "interrupted"

    def _code_tag(self, trials: Sequence[TrialFacts]) -> dict[str, str]:
        """What code of these trials is another than the study began with, if any is."""
        codes = dict.fromkeys(code for trial in trials for code in other_code_of(trial, self.facts, self._first))
        return {"other_code": "; ".join(codes)} if codes else {}

    def _backbone_tags(self, trial: TrialFacts) -> dict[str, str]:
        """Which run has made the backbone of the trial, where one has."""
        made_by = self.plan.plan.arm(trial.started.arm).pretrained_by
        return {} if made_by is UNSET else {"pretrained_by": self.plan.plan.pretraining_key}

    def _standing_tags(self, trial: TrialFacts) -> dict[str, str]:
        """Of a confirm trial: whether it makes the arm's number, and whether it is the best that does."""
        if trial.phase != "confirm":
            return {}
        arm = self.progress.arm(trial.started.arm)
        best = arm.best_confirmed
        counts = any(record.key == trial.key for record in arm.confirmed)
        return {"counts": str(counts).lower(), "best": str(best is not None and best.key == trial.key).lower()}

    def status(self, trial: TrialFacts) -> str:
        """A key of MLFLOW_STATUS."""
        if trial.record:
            return trial.record.status
        last = self.facts.last_launch
        assert last is not None, "a trial started outside a launch"
        return "interrupted" if trial.launch < last.began.launch or last.is_over() else "running"

    def _is_superseded(self, trial: TrialFacts) -> bool:
        """Whether it is a confirm trial of a configuration that is the arm's winner no more."""
        return trial.phase == "confirm" and trial not in self.progress.arm(trial.started.arm).confirm_trials

    def _medians(self) -> list[Point]:
        """The median score of every complete arm, as a metric METHOD/TASK of the study."""
        arms = [self.arm(name) for name, facts in self.facts.arms.items() if facts.trials]
        scores = [(arm.key, point) for arm in arms for point in arm.points if point.name == "score"]
        return [replace(point, name=key) for key, point in scores]

    def _tags(self, level: str, status: str, **tags: str) -> dict[str, str]:
        common = {"level": level, "study": self.name, "protocol_hash": self.plan.protocol_hash, "status": status}
        return common | tags | {"mlflow.source.name": "study.launch", "mlflow.source.type": "LOCAL"}

    def _arm_status(self, arm: ArmProgress, statuses: Counter[str]) -> str:
        if statuses["running"]:
            return "running"
        if isinstance(arm, PretrainingProgress):
            return next(iter(statuses), "waiting")  # it has one trial
        if len(arm.confirmed) >= len(arm.arm.seeds):
            return "completed"
        has_no_winner = arm.is_search_over and arm.winner is None
        if has_no_winner or any(self.status(trial) == "failed" for trial in arm.confirm_trials):
            return "failed"
        return "interrupted" if statuses["interrupted"] else "waiting"


def milliseconds(time: str) -> int:
    """An event's time as milliseconds since 1970."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def _first_points(trial: TrialFacts) -> list[Point]:
    """Opens the score, before any curve."""
    if trial.phase == "pretrain":
        return []
    return [Point("score", math.nan, milliseconds(trial.started.time), 0)]


def _curve_points(reports: Sequence[EpochReported], phase: Phase) -> list[Point]:
    values = _pretraining_values if phase == "pretrain" else _curve_values
    return [
        point
        for event in reports
        for point in _points(values(event.report.row), milliseconds(event.time), event.report.row.epoch)
    ]


def _pretraining_values(row: EpochRow) -> dict[str, float | None]:
    """Held-out scores, steps and tokens; nothing of it is a score of a GLUE task, and nothing exits."""
    costs = {"train_loss": row.train_loss, "train_seconds": row.train_seconds, "eval_seconds": row.eval_seconds}
    return {f"epoch/{name}": value for name, value in {**costs, **row.metrics}.items()}


def _curve_values(row: EpochRow) -> dict[str, float | None]:
    values = {
        "score": row.score,
        "selection_score": row.selection_score,
        "train_loss": row.train_loss,
        "mean_layers": row.mean_layers,
        "train_seconds": row.train_seconds,
        "eval_seconds": row.eval_seconds,
        **_components(row.metrics),
    }
    return {f"epoch/{name}": value for name, value in values.items()}


def _selected_points(record: Record | None) -> list[Point]:
    """The record's numbers, all of the selected epoch."""
    if record is None or record.epoch is None:
        return []
    if record.phase == "pretrain":
        costs = {"gpu_seconds": record.gpu_seconds, "wall_seconds": record.wall_seconds}
        return _points({**costs, **record.metrics}, milliseconds(record.ended), record.epoch)
    values = {
        "score": record.score,
        "selection_score": record.selection_score,
        "mean_layers": record.mean_layers,
        "gpu_seconds": record.gpu_seconds,
        "wall_seconds": record.wall_seconds,
        "selected_epoch": record.epoch,
        **_components(record.metrics),
    }
    if record.mean_layers and record.num_layers:
        values["layer_ratio"] = record.num_layers / record.mean_layers
    if record.latency:
        own = record.latency.own
        values["gigaflops"] = own.flops / 1e9  # per example, as the times are
        values |= {f"milliseconds/batch_{timing.batch_size}": timing.milliseconds for timing in own.timings}
    return _points(values, milliseconds(record.ended), record.epoch)


def _points(values: Mapping[str, float | None], time: int, step: int) -> list[Point]:
    """Without those that have no finite value."""
    return [
        Point(name, float(value), time, step)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    ]


def _provenance_tags(records: Sequence[Record]) -> dict[str, str]:
    """Which commits and versions of packages have made them, and on what."""
    commits = _one_or_several([record.git_commit for record in records if record.git_commit])
    names = dict.fromkeys(name for record in records for name in record.versions)
    versions = {name: _one_or_several([r.versions[name] for r in records if name in r.versions]) for name in names}
    tags = {"versions": ", ".join(f"{name} {version}" for name, version in versions.items())}
    if devices := _one_or_several([record.device for record in records if record.device]):
        tags |= {"device": devices}
    if commits:
        tags |= {"git_commit": commits, "mlflow.source.git.commit": commits.replace(" | ", ", ").rpartition(", ")[2]}
    return tags if records else {}


def _one_or_several(values: Sequence[str]) -> str:
    return " | ".join(dict.fromkeys(values))


def _components(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """The metrics that the score is the mean of; none where it is the only one."""
    return metrics if len(metrics) > 1 else {}


def _median_points(records: list[Record]) -> tuple[Point, ...]:
    time = max(milliseconds(record.ended) for record in records)
    scores = [record.score for record in records if record.score is not None]
    layers = [record.mean_layers for record in records if record.mean_layers is not None]
    return tuple(_points({"score": median(scores), "mean_layers": median(layers)}, time, 0))


def _last_end(trials: list[TrialFacts]) -> int | None:
    return max((milliseconds(trial.ended.time) for trial in trials if trial.ended), default=None)


def _trial_note(trial: TrialFacts, status: str, *, is_superseded: bool) -> str:
    record, decision = trial.record, trial.decision
    if status == "interrupted":
        return f"Cut off after {counted(trial.epochs, 'epoch')}; the next launch goes on from its saved state."
    if record is None:
        return ""
    if status == "failed":
        return _failure_note(record, trial.ended.failure if trial.ended else None)
    if status == "stopped" and decision and decision.cutoff is not None:
        cutoff = f"the cutoff of {decision.recorded} earlier trials was {decision.cutoff:.4f}"
        return f"Stopped by ASHA after epoch {decision.rung}: score {decision.score:.4f}, {cutoff}."
    if record.score is None:
        return ""
    if record.phase == "pretrain":
        scores = ", ".join(f"{name} {value:.4f}" for name, value in held_out_scores(record).items())
        return f"After {record.metrics['steps']:,.0f} steps, held out: {scores}."
    superseded = " Superseded: a better configuration was found later." if is_superseded else ""
    return f"Score {record.score:.4f} at epoch {record.epoch} of {record.epochs}.{superseded}"


def _arm_note(arm: ArmProgress) -> str:
    """The arm's number, the score of each seed, and what is missing."""
    scores = [f"{record.score:.4f} (seed {record.seed})" for record in arm.confirmed]
    number = f"Score {arm.median:.4f}, the median of {', '.join(scores)}." if arm.median is not None else ""
    missing = f"Missing: {arm.missing}." if arm.missing else ""
    return " ".join(part for part in (number, missing) if part)


def _failure_note(record: Record, failure: Failure | None) -> str:
    """The error, and as a block of code the traceback; a tag of MLflow's has room for both."""
    error = f"Failed: {(record.error or '')[:NOTE_ERROR_CHARACTERS]}"
    if failure is None or failure.traceback is None:
        return error
    return f"{error}\n\n~~~text\n{failure.traceback.rstrip()}\n~~~"


def _counts(statuses: Counter[str]) -> str:
    return ", ".join(f"{statuses[status]} {status}" for status in MLFLOW_STATUS if statuses[status])


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value is not None
    }
