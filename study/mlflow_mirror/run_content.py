"""Build the content of a study's MLflow runs, as plain data that does not need MLflow.

The run of a study has a child run for each arm (a method on a task). The run of an arm has a child run for each trial.
docs/mlflow.md describes the statuses, and the tags to search for.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from study.decisions.progress import ArmProgress, compute_progress
from study.facts.code_history import FirstCode
from study.facts.events import EpochReported
from study.facts.record import Record, summarise
from study.facts.study_facts import StudyFacts, TrialFacts
from study.plans.resolved_plan import ResolvedPlan
from study.terminal.text import points
from trainables.configuration.schema import to_plain
from trainables.data.glue import HUB_NAME
from trainables.data.tasks import TASKS

NOTE_ERROR_CHARACTERS = 500  # an error's first line may contain a whole tensor
MLFLOW_STATUS = {
    "completed": "FINISHED",
    "stopped": "FINISHED",
    "failed": "FAILED",
    "dropped": "KILLED",
    "interrupted": "SCHEDULED",
    "waiting": "SCHEDULED",
    "running": "RUNNING",
}
CURVES = ("selection_score", "train_loss", "mean_layers", "train_seconds", "eval_seconds")  # fields of an epoch's row
SPREAD = {  # metrics of an arm: name in MLflow -> key of `summarise`
    "mean_score": "mean",
    "score_deviation": "standard_deviation",
    "lowest_score": "lowest",
    "highest_score": "highest",
}
_METRIC_SIGN = re.compile(r"[^\w -]")  # in a name of a user's, which MLflow may refuse
NUMBERS = ("score", "selection_score", "mean_layers", "gpu_seconds", "wall_seconds")  # fields of a record


class Point(NamedTuple):
    """One logged value of a metric. As tuples, two points with `math.nan` are equal in every version of Python."""

    name: str
    value: float
    time: int  # milliseconds since 1970
    step: int  # epoch, or training step of a pretraining


@dataclass(frozen=True)
class DataSet:
    """The data of a trial, as MLflow shows them on the page of its run."""

    name: str
    digest: str
    source_type: str  # a kind that MLflow's page knows
    source: str  # JSON, in the form of that kind
    rows: int  # of train


@dataclass(frozen=True)
class Run:
    """The content of one MLflow run."""

    key: str  # identifies the run within its study
    name: str
    parent: str | None  # key of the parent run
    status: str  # a key of MLFLOW_STATUS
    started: int | None  # milliseconds since 1970
    ended: int | None
    params: dict[str, str]  # values never change
    tags: dict[str, str]  # values may change
    points: Sequence[Point] = ()
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)  # artifact folder -> paths
    data: DataSet | None = None


class StudyRuns:
    """The content of a study's MLflow runs, built from its plan and its journal."""

    def __init__(
        self,
        name: str,
        plan: ResolvedPlan,
        facts: StudyFacts,
        reports: Mapping[str, Sequence[EpochReported]],
        intervals: Mapping[tuple[str, ...], tuple[float, float]] = MappingProxyType({}),
    ) -> None:
        """Take the plan and the state of the study.

        Args:
            reports: the reported epochs of each trial, by trial key. Each epoch occurs once.
            intervals: confidence intervals of mean scores, from `read_mean_intervals`.
        """
        self.name, self.plan, self.facts, self.reports, self.intervals = name, plan, facts, reports, intervals
        self._first = FirstCode(facts)
        self.progress = compute_progress(plan, facts)

    def trial(self, key: str) -> Run:
        """Build the run of the trial with this key."""
        trial = self.facts.trials[key]
        started, status, arm = trial.started, self.status(trial), self.progress.arm(trial.started.arm)
        decided = arm.planned.searched_fields
        searched = [name for name in decided if name in trial.config]  # first, because MLflow keeps the order
        on_dev = self.plan.protocol.selection == "dev"
        tags = self._build_tags("trial", status, arm=started.arm, method=trial.arm.method, task=trial.arm.task)
        tags |= {
            "phase": started.phase,
            "trial": str(started.trial),
            "mlflow.note.content": self._describe(trial, status),
        }
        tags |= {"retries": str(len(trial.retries))} if trial.retries else {}
        tags |= {"restarts": str(trial.restarts)} if trial.restarts else {}
        tags |= {"stopped": "asha"} if status == "stopped" else {}
        if trial.phase == "confirm":
            best = arm.best_confirmed
            tags |= {"counts": str(any(record.key == key for record in arm.confirmed)).lower()}
            tags |= {"best": str(best is not None and best.key == key).lower()}
            tags |= {} if trial in arm.confirm_trials else {"superseded": "true"}
        tags |= _build_provenance_tags([trial.record] if trial.record else [])
        tags |= self._build_code_tag([trial])
        return Run(
            key=key,
            name=f"{started.arm.replace('/', ' / ')} · {started.phase} {started.trial}",
            parent=started.arm,
            status=status,
            started=to_milliseconds(started.time),
            ended=_find_last_end([trial]),
            params={name: str(trial.config[name]) for name in dict.fromkeys([*searched, *trial.config])}
            | {"seed": str(started.seed)},
            tags=tags,
            points=(
                Point("score", math.nan, to_milliseconds(started.time), 0),  # makes `score` the first metric
                *(point for event in self.reports[key] for point in _build_epoch_points(event, selects_on_dev=on_dev)),
                *build_selected_points(trial.record),
            ),
            data=self._build_data(arm),
        )

    def _describe(self, trial: TrialFacts, status: str) -> str:
        """Describe a trial in Markdown: what it is, its result or its error, and how to find it in the study."""
        started, record = trial.started, trial.record
        what = f"**{started.arm}**, {started.phase} trial {started.trial}, seed {started.seed}: {status}"
        if record and record.score is not None:
            depth = f", {record.mean_layers:.1f} of {record.num_layers} layers" if record.mean_layers else ""
            what += f"; score {points(record.score)} at epoch {record.epoch} of {record.epochs}{depth}"
        elif trial.best and not (record and record.error):
            what += f"; selection score {points(trial.best.row.selection_score)} at epoch {trial.best.row.epoch}"
        found = f"Trial {trial.key} of study {self.name}."
        return "\n\n".join(filter(None, [f"{what}.", _format_error(trial), found]))

    def _build_data(self, arm: ArmProgress) -> DataSet:
        """Describe the data on which the arm's trials train."""
        name = arm.planned.task
        own = self.plan.own_task(name) or None
        place = (own and own.place) or self.plan.request.data
        sources: dict[str, tuple[str, dict[str, Any]]] = {
            "mini": ("code", {"tags": {"mlflow.source.name": "trainables/data/mini_glue.py"}}),
            "hub": ("hugging_face", {"path": HUB_NAME, "config_name": name}),
        }
        source_type, source = sources.get(place, ("local", {"uri": place}))
        return DataSet(
            name=f"{'' if own else 'mini-GLUE ' if place == 'mini' else 'GLUE '}{TASKS[name].title}",
            digest=arm.planned.data_fingerprint,
            source_type=source_type,
            source=json.dumps(source),
            rows=self.progress.count_examples_per_epoch(arm),
        )

    def arm(self, name: str) -> Run:
        """Build the run of the arm with this name."""
        arm = self.progress.arm(name)
        trials = arm.facts.trials
        statuses = Counter(self.status(trial) for trial in trials)
        status = self._choose_arm_status(arm, statuses)
        tags = self._build_tags("arm", status, arm=name, method=arm.planned.method, task=arm.planned.task)
        tags |= {
            "trials": _format_counts(statuses),
            "backbone": arm.planned.pinned_backbone,
            "data": self.plan.data,
        }
        tags |= {
            "backbone_fingerprint": arm.planned.backbone_fingerprint,
            "data_fingerprint": arm.planned.data_fingerprint,
        }
        tags |= {"mlflow.note.content": ""}  # earlier versions wrote a score here
        if arm.winner and arm.is_search_over:
            tags |= {f"winner.{field}": str(value) for field, value in arm.winner.config.items()}
        return Run(
            key=name,
            name=arm.name.replace("/", " / "),
            parent="study",
            status=status,
            started=min((to_milliseconds(trial.started.time) for trial in trials), default=None),
            ended=_find_last_end(trials) if status in ("completed", "failed") else None,
            params={},
            tags=tags | _build_provenance_tags(arm.confirmed) | self._build_code_tag(trials),
            points=self._build_arm_points(arm, has_scores=bool(arm.confirmed) and status == "completed"),
        )

    def study(self, *, files: dict[str, tuple[str, ...]], note: str, plan: str = "", journal: str = "") -> Run:
        """Build the run of the study.

        Args:
            files: maps each artifact folder to the paths of the files to upload there.
            note: the run's description, in Markdown.
            plan: digest of the plan at the start of the first trial.
            journal: digest of the journal; "" while a launch runs.
        """
        last = self.facts.last_launch
        assert last is not None, "a study without a launch"
        statuses = Counter(self.status(trial) for trial in self.facts.trials.values())
        status = self._choose_study_status() if last.is_over() else "running"
        tags = self._build_tags("study", status)
        tags |= {"mlflow.note.content": note, "trials": _format_counts(statuses)}
        tags |= {"command": last.began.command, "launches": str(last.began.launch)}
        tags |= {"plan": plan, **({"journal": journal} if journal else {})}
        return Run(
            key="study",
            name=self.name,
            parent=None,
            status=status,
            started=to_milliseconds(self.facts.launches[min(self.facts.launches)].began.time),
            ended=to_milliseconds(last.ended.time) if last.ended else None,
            params={
                name: value if isinstance(value, str) else json.dumps(value)
                for name, value in to_plain(self.plan.protocol).items()
                if value is not None
            },
            tags=tags,
            files=files,
        )

    def status(self, trial: TrialFacts) -> str:
        """Return the status of a trial, which is a key of `MLFLOW_STATUS`."""
        if trial.record:
            return trial.record.status
        last = self.facts.last_launch
        assert last is not None, "a trial started outside a launch"
        return "interrupted" if trial.launch < last.began.launch or last.is_over() else "running"

    def _choose_arm_status(self, arm: ArmProgress, statuses: Counter[str]) -> str:
        if statuses["running"]:
            return "running"
        if len(arm.confirmed) >= len(arm.planned.seeds):
            return "completed"
        has_no_winner = arm.is_search_over and arm.winner is None
        if has_no_winner or any(self.status(trial) in ("failed", "dropped") for trial in arm.confirm_trials):
            return "failed"
        return "interrupted" if statuses["interrupted"] else "waiting"

    def _choose_study_status(self) -> str:
        """Return the status of a study whose last launch has ended."""
        if not self.progress.missing:
            return "completed"
        return "failed" if self.progress.is_finished else "interrupted"

    def _build_arm_points(self, arm: ArmProgress, *, has_scores: bool) -> list[Point]:
        """Build the metrics of an arm: the median, mean and spread of its scores, and the layers used.

        MLflow shows the newest value, so after a trial was dropped or another winner was found, the metrics have that
        time. They are NaN for an arm that thereby lost its scores.
        """
        changed = _find_last_change(arm)
        if not has_scores:
            names = ("score", *SPREAD, "mean_score_low", "mean_score_high", "mean_layers")
            return [Point(name, math.nan, changed, 0) for name in names] if changed else []
        summary = summarise([record.score for record in arm.confirmed if record.score is not None])
        values = {"score": summary["median"], **{name: summary.get(of) for name, of in SPREAD.items()}}
        if (interval := self.intervals.get(tuple(record.key for record in arm.confirmed))) is not None:
            values["mean_score_low"], values["mean_score_high"] = interval
        values["mean_layers"] = median(record.mean_layers for record in arm.confirmed if record.mean_layers is not None)
        return _build_points(values, max(changed, *(to_milliseconds(record.ended) for record in arm.confirmed)), 0)

    def _build_tags(self, level: str, status: str, **tags: str) -> dict[str, str]:
        common = {"level": level, "study": self.name, "protocol_hash": self.plan.protocol_hash, "status": status}
        return common | tags | {"mlflow.source.name": "study.launch", "mlflow.source.type": "LOCAL"}

    def _build_code_tag(self, trials: Sequence[TrialFacts]) -> dict[str, str]:
        """Build a tag with the code of `trials` that differs from the first code; {} if there is none."""
        codes = dict.fromkeys(code for trial in trials for code in self._first.list_others(trial))
        return {"other_code": "; ".join(codes)} if codes else {}


def to_milliseconds(time: str) -> int:
    """Convert an event's time to milliseconds since 1970."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


# ---- points


def _build_epoch_points(event: EpochReported, *, selects_on_dev: bool) -> list[Point]:
    """Build the metrics of one epoch."""
    row = event.row
    values = {"score": row.reported.score if selects_on_dev else None}
    values |= {name: getattr(row, name) for name in CURVES} | dict(_select_components(row.metrics))
    named = {f"epoch/{name}": value for name, value in values.items()}
    time = to_milliseconds(event.time)
    return [*_build_points(named, time, int(row.epoch)), *_build_loss_points(event, time)]


def _build_loss_points(event: EpochReported, time: int) -> list[Point]:
    """Build the curves of the loss and its parts, with the training step of the trial as MLflow's step.

    A loss without parts that has one point in the epoch is `epoch/train_loss`.
    """
    losses, points = event.row.losses, list[Point]()
    if losses is None or (len(losses.means) == len(losses.steps) == 1):
        return []
    before = (event.row.epoch - 1) * losses.steps[-1]
    for place, step in enumerate(losses.steps):
        named = {f"loss/{_METRIC_SIGN.sub('_', name)}": values[place] for name, values in losses.means.items()}
        points += _build_points(named, time, before + step)
    return points


def build_selected_points(record: Record | None) -> list[Point]:
    """Build the metrics of a trial's record, with the selected epoch as MLflow's step."""
    if record is None or record.epoch is None:
        return []
    values: dict[str, float | None] = {name: getattr(record, name) for name in NUMBERS}
    values |= {"selected_epoch": record.epoch, **_select_components(record.metrics)}
    return _build_points(values, to_milliseconds(record.ended), int(record.epoch))


def _build_points(values: Mapping[str, float | None], time: int, step: int) -> list[Point]:
    """Build a point for each finite value. Skip None, NaN and infinite values."""
    finite = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    return [Point(name, float(value), time, step) for name, value in finite.items()]


def _select_components(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Return the metrics, or {} if the score is the only metric."""
    return metrics if len(metrics) > 1 else {}


def _find_last_end(trials: list[TrialFacts]) -> int | None:
    return max((to_milliseconds(trial.ended.time) for trial in trials if trial.ended), default=None)


def _find_last_change(arm: ArmProgress) -> int:
    """Find when a trial of the arm was last dropped, or its winner replaced one with confirm trials; 0 if never."""
    is_replaced = any(trial.ended and trial not in arm.confirm_trials for trial in arm.facts.confirm)
    times = [arm.facts.dropped] if arm.facts.dropped else []
    times += [arm.winner.search.ended] if is_replaced and arm.winner and arm.winner.search else []
    return max(map(to_milliseconds, times), default=0)


# ---- tags


def _build_provenance_tags(records: Sequence[Record]) -> dict[str, str]:
    """Build tags with the commits, versions and devices of `records`."""
    if not records:
        return {}
    names = dict.fromkeys(name for record in records for name in record.versions)
    versions = [f"{name} {_join_distinct(record.versions.get(name) for record in records)}" for name in names]
    tags = {"versions": ", ".join(versions)}
    if devices := _join_distinct(record.device for record in records):
        tags |= {"device": devices}
    if commits := _join_distinct(record.git_commit for record in records):
        tags |= {"git_commit": commits, "mlflow.source.git.commit": commits.replace(" | ", ", ").rpartition(", ")[2]}
    return tags


def _join_distinct(values: Iterable[str | None]) -> str:
    return " | ".join(dict.fromkeys(filter(None, values)))


def _format_counts(statuses: Counter[str]) -> str:
    return ", ".join(f"{statuses[status]} {status}" for status in MLFLOW_STATUS if statuses[status])


def _format_error(trial: TrialFacts) -> str:
    """Format the trial's error and traceback in Markdown, for MLflow's description of the run; "" without an error."""
    if trial.record is None or trial.record.error is None:
        return ""
    error = trial.record.error[:NOTE_ERROR_CHARACTERS]
    failure = trial.ended.failure if trial.ended else None
    return f"{error}\n\n~~~text\n{failure.traceback.rstrip()}\n~~~" if failure and failure.traceback else error
