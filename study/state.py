"""The decisions of a study: what runs next, what is stopped, what is finished. No Ray; all state is from events.

Every change of state is an event: a live call writes the event to the journal and applies it, opening a study
applies the events on disk. So a study that was interrupted anywhere decides on as if it never was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from study.asha import Asha
from study.journal import utc_now
from study.plan import Arm, ResolvedPlan, digest, trial_key
from study.record import Phase, Record, Status, best_search_record
from study.search import ArmSearch
from trainables.data.tasks import TASKS

GPU_MARGIN = 1.25  # over the measured memory: for the CUDA context, which PyTorch does not count, and longer batches

Event = dict[str, Any]
LaunchStatus = Literal["complete", "drained", "interrupted"]


@dataclass
class Trial:
    """A trial that was started, and how far it came."""

    start: Event
    last: Event | None = None  # the last epoch reported
    best: Event | None = None  # the best epoch so far, by the trial's own rule
    stopped_at: int | None = None  # epoch at which ASHA stopped it
    failures: int = 0
    record: Record | None = None  # once it has ended
    handed_out: bool = False  # running in this launch

    @property
    def phase(self) -> Phase:
        return self.start["phase"]


@dataclass
class ArmState:
    """The trials of one arm, in the order they were started."""

    arm: Arm
    search: ArmSearch
    asha: Asha
    trials: dict[str, Trial] = field(default_factory=dict)
    spent: bool = False  # no configuration is left that was not drawn, or no GPU time for it

    def phase(self, phase: Phase) -> list[Trial]:
        return [trial for trial in self.trials.values() if trial.phase == phase]

    @property
    def search_ended(self) -> bool:
        trials = self.phase("search")
        return (self.spent or len(trials) >= self.arm.samples) and all(trial.record for trial in trials)

    @property
    def winner(self) -> Record | None:
        """The completed search record with the best selection score; the first of equals. None if all failed."""
        return best_search_record([trial.record for trial in self.trials.values() if trial.record])


class StudyState:
    """What the engine asks: `next_trial`, `report`, `end`. Built from the plan and the events on disk."""

    def __init__(
        self,
        name: str,
        resolved: ResolvedPlan,
        *,
        events: Iterable[Event],
        append: Callable[..., Event],
        provenance: dict[str, Any],
        max_gpu_hours: float | None = None,
    ):
        """`append(event, **values)` makes an event safe on disk and returns it; `provenance` holds the `versions`
        and the `git_commit` of this launch; no search trial is started that would leave too little of
        `max_gpu_hours` for the confirm trials."""
        self.name = name
        self.resolved = resolved
        self.draining = False
        self.launch = 0  # number of the launch under way, or of the last one
        self._append = append
        self._provenance = provenance
        self._max_gpu_hours = max_gpu_hours
        self._arms = {
            (arm.method, arm.task): ArmState(
                arm=arm,
                search=ArmSearch(arm, sampler=resolved.plan.sampler),
                asha=Asha(
                    grace=resolved.plan.asha_grace, factor=resolved.plan.asha_factor, max_epochs=arm.fixed["epochs"]
                ),
            )
            for arm in resolved.arms
        }
        self._trials: dict[str, Trial] = {}
        self.ended: list[Record] = []  # in the order they ended
        for line, event in enumerate(events, start=1):
            try:
                self._apply(event)
            except (KeyError, TypeError) as error:
                raise ValueError(f"events.jsonl:{line}: not a whole {event['event']} event: {error!r}") from None

    # ---- questions

    @property
    def arms(self) -> list[ArmState]:
        return list(self._arms.values())

    @property
    def total_trials(self) -> int:
        """Trials of the study when it is complete, as far as it is known."""
        return len(self._trials) + sum(sum(self.still_to_start(arm)) for arm in self.arms)

    def still_to_start(self, arm: ArmState) -> tuple[int, int]:
        """Search and confirm trials of the arm that have not been started, as far as it is known."""
        if arm.search_ended:
            return 0, len(self.missing_confirm(arm))
        search = 0 if arm.spent else max(0, arm.arm.samples - len(arm.phase("search")))
        return search, len(self.resolved.seeds)

    def examples_per_epoch(self, arm: ArmState) -> int:
        """Training examples of the arm's task; the generated tasks are all alike, and count as one."""
        return 1 if self.resolved.plan.data == "mini" else TASKS[arm.arm.task].sizes["train"]

    def median(self, arm: ArmState) -> float | None:
        """The median score of the arm's confirm trials that are done."""
        records = [trial.record for trial in self.confirm_trials(arm) if trial.record]
        scores = [record.score for record in records if record.score is not None]
        return median(scores) if scores else None

    def arm(self, method: str, task: str) -> ArmState:
        return self._arms[method, task]

    def trial(self, key: str) -> Trial:
        return self._trials[key]

    @property
    def unfinished(self) -> list[Trial]:
        """Trials that were started and have not ended, running now or not."""
        return [trial for trial in self._trials.values() if not trial.record]

    @property
    def unsettled(self) -> list[Trial]:
        """Trials that had nothing left to do but to be ended when an earlier launch broke off."""
        return [t for t in self.unfinished if t.last and (t.last["finished"] or t.stopped_at is not None)]

    @property
    def finished(self) -> bool:
        """Whether every trial of the plan has ended."""
        return not (self.unfinished or any(map(self._has_work, self.arms)))

    def missing_confirm(self, arm: ArmState) -> list[int]:
        """Seeds of the arm's confirm trials that have not been started; empty while its search goes on."""
        if not arm.search_ended or arm.winner is None:
            return []
        present = {trial.start["seed"] for trial in self.confirm_trials(arm)}
        return [seed for seed in self.resolved.seeds if seed not in present]

    def confirm_trials(self, arm: ArmState) -> list[Trial]:
        """The confirm trials of the arm's best configuration, by seed; none while its search goes on."""
        if not arm.search_ended or arm.winner is None:
            return []
        trials = [trial for trial in arm.phase("confirm") if trial.start["config"] == arm.winner.config]
        return sorted(trials, key=lambda trial: trial.start["seed"])

    def trial_spec(self, trial: Trial) -> dict[str, Any]:
        """The fields of the trial's `trainables.runs.training.TrialSpec`."""
        plan, start = self.resolved.plan, trial.start
        return {
            **{name: start[name] for name in ("method", "task", "config", "seed")},
            "data": plan.data if plan.data in ("mini", "hub") else _as_seen_from_anywhere(plan.data),
            "backbone": _as_seen_from_anywhere(self._arm_of(trial).arm.backbone),
            "selection": plan.selection,
            "report_dev": trial.phase == "confirm" or plan.selection == "dev",
            "start_from": self._model_of(start.get("start_from")),
        }

    def gpu_share(self, trial: Trial) -> float:
        """The part of a GPU that the trial needs: a whole one before any is measured; else, with a margin, the most
        that the arm's trials of its batch size have held, or those of the next larger one."""
        batch_size = trial.start["config"]["batch_size"]
        measured: dict[int, float] = {}
        for other in self._arm_of(trial).trials.values():
            if other.last and other.last["gpu_share"]:
                size = other.start["config"]["batch_size"]
                measured[size] = max(other.last["gpu_share"], measured.get(size, 0.0))
        enough = [size for size in measured if size >= batch_size]
        return min(1.0, math.ceil(20 * GPU_MARGIN * measured[min(enough)]) / 20) if enough else 1.0

    # ---- moves

    def begin_launch(self, **facts: Any) -> None:
        """Notes that a launch begins: its `command`, `host` and `pid`, and what it may spend."""
        limit = {"max_gpu_hours": self._max_gpu_hours}
        self._record_event("launch_began", launch=self.launch + 1, **facts, **limit, **self._provenance)

    def end_launch(self, status: LaunchStatus) -> None:
        self._record_event("launch_ended", launch=self.launch, status=status)

    def next_trial(self) -> Trial | None:
        """The trial to run now, its start on disk; None when there is nothing to hand out at present."""
        if self.draining:
            return None
        for trial in self.unfinished:
            if not trial.handed_out:
                trial.handed_out = True
                return trial
        self._keep_to_budget()
        ready = [arm for arm in self.arms if arm.arm.start_from is None or self._start_model(arm)]
        for arm in sorted(ready, key=self._length, reverse=True):  # stable: equals stay in the plan's order
            started = self._start_next_of(arm)
            if started is not None:
                started.handed_out = True
                return started
        return None

    def report(self, key: str, row: dict[str, Any]) -> Literal["continue", "stop"]:
        """Takes in one epoch of a trial. Known rows change nothing: a trial that came back repeats its own."""
        trial = self._trials[key]
        if trial.last is None or row["epoch"] > trial.last["epoch"]:
            self._record_event("epoch_reported", key=key, **row)
        if trial.phase == "confirm" or row["finished"]:
            return "continue"
        if trial.stopped_at is None:
            self._decide(trial, row)
        return "stop" if trial.stopped_at is not None and row["epoch"] >= trial.stopped_at else "continue"

    def retry(self, key: str, error: str, *, counts: bool) -> int:
        """Takes back a trial whose process is gone, to be handed out again; its failures so far.

        `counts` is False where the trial is not to blame: a preempted node.
        """
        trial = self._trials[key]
        self._record_event("trial_retried", key=key, error=error, failures=trial.failures + counts)
        trial.handed_out = False
        return trial.failures

    def end(self, key: str, *, error: str | None = None) -> Record:
        """The record of a trial that has ended, safe on disk: failed if there is an error, stopped if ASHA said so."""
        trial = self._trials[key]
        status: Status = "failed" if error else "stopped" if trial.stopped_at is not None else "completed"
        record = self._build_record(trial, status, error)
        self._record_event("trial_ended", key=key, status=status, error=error, record=record.to_json())
        return record

    # ---- inside

    def _record_event(self, event: str, **values: Any) -> Event:
        written = self._append(event, **values)
        self._apply(written)
        return written

    def _apply(self, event: Event) -> None:
        handler = getattr(self, f"_apply_{event['event']}", None)
        if handler is not None:
            handler(event)

    def _apply_launch_began(self, event: Event) -> None:
        self.launch = event["launch"]

    def _apply_search_closed(self, event: Event) -> None:
        hours = event["max_gpu_hours"]  # null: every configuration was drawn
        limit = math.inf if self._max_gpu_hours is None else self._max_gpu_hours
        if hours is None or hours >= limit:  # a launch with a larger budget searches on
            for arm in self.arms:
                arm.spent |= arm.arm.name in event["arms"]

    def _apply_trial_started(self, event: Event) -> None:
        arm = self._arms.get((event["method"], event["task"]))
        if arm is None:
            return  # an arm of an earlier launch that this one was not asked for
        trial = self._trials[event["key"]] = arm.trials[event["key"]] = Trial(event)
        if trial.phase == "search":
            arm.search.started(event["key"], event["config"])

    def _apply_epoch_reported(self, event: Event) -> None:
        trial = self._trials.get(event["key"])
        if trial is None:
            return
        trial.last = event
        if trial.best is None or event["best_epoch"] == event["epoch"]:
            trial.best = event
        if trial.phase == "search":
            self._arm_of(trial).search.reported(event["key"], epoch=event["epoch"], score=event["selection_score"])

    def _apply_asha_decided(self, event: Event) -> None:
        trial = self._trials.get(event["key"])
        if trial is None:
            return
        self._arm_of(trial).asha.apply(event)
        if event["decision"] == "stop":
            trial.stopped_at = event["rung"]

    def _apply_trial_retried(self, event: Event) -> None:
        if event["key"] in self._trials:
            self._trials[event["key"]].failures = event["failures"]

    def _apply_trial_ended(self, event: Event) -> None:
        trial = self._trials.get(event["key"])
        if trial is None:
            return
        trial.record = Record.from_json(event["record"])
        self.ended.append(trial.record)
        if trial.phase == "search":
            self._arm_of(trial).search.ended(trial.record)

    def _keep_to_budget(self) -> None:
        """Ends every search once another search trial would not leave enough GPU time for the confirm trials."""
        if self._max_gpu_hours is None:
            return  # without a look at every trial, which takes longer the more there are
        searching = [arm for arm in self.arms if self.still_to_start(arm)[0]]
        if searching and self.ended and self._committed_gpu_seconds() > 3600 * self._max_gpu_hours:
            arms = [arm.arm.name for arm in searching]
            self._record_event("search_closed", arms=arms, max_gpu_hours=self._max_gpu_hours)

    def _committed_gpu_seconds(self) -> float:
        """GPU time used, to be used by trials under way, by all confirm trials, and by one more search trial."""
        used = sum(record.gpu_seconds for record in self.ended)
        under_way = sum(self._gpu_seconds(self._arm_of(trial)) for trial in self.unfinished)
        confirm = sum(self.still_to_start(arm)[1] * self._gpu_seconds(arm) for arm in self.arms)
        return used + under_way + confirm + max(map(self._gpu_seconds, self.arms))

    def _gpu_seconds(self, arm: ArmState) -> float:
        """Mean GPU seconds of the arm's completed trials, of all ended trials while it has none."""
        ended = [trial.record for trial in arm.trials.values() if trial.record and trial.record.status == "completed"]
        return fmean(record.gpu_seconds for record in ended or self.ended)

    def _arm_of(self, trial: Trial) -> ArmState:
        return self._arms[trial.start["method"], trial.start["task"]]

    def _start_model(self, arm: ArmState) -> Record | None:
        """The best confirm record of the arm that this one starts from; None until all have ended, or if none did."""
        source = self._arms[arm.arm.method, arm.arm.start_from or ""]
        trials = self.confirm_trials(source)
        records = [trial.record for trial in trials if trial.record and trial.record.status == "completed"]
        if self._is_under_way(source):
            return None
        return max(records, key=lambda record: (record.score, -record.seed), default=None)

    def _model_of(self, key: str | None) -> str | None:
        record = self._trials[key].record if key else None
        return record.model if record else None

    def _is_under_way(self, arm: ArmState) -> bool:
        return self._has_work(arm) or any(trial.record is None for trial in arm.trials.values())

    def _has_work(self, arm: ArmState) -> bool:
        if arm.arm.start_from and not self._start_model(arm):
            return self._is_under_way(self._arms[arm.arm.method, arm.arm.start_from])
        search, confirm = self.still_to_start(arm)
        return bool(search or (confirm and arm.search_ended))

    def _length(self, arm: ArmState) -> int:
        """Examples that a full trial of the arm sees. Long trials first, so that short ones fill the end."""
        return self.examples_per_epoch(arm) * arm.arm.fixed["epochs"]

    def _start_next_of(self, arm: ArmState) -> Trial | None:
        if not arm.spent and len(arm.phase("search")) < arm.arm.samples:
            point = arm.search.propose()
            if point is not None:
                return self._start(arm, "search", {**arm.arm.fixed, **point})
            self._record_event("search_closed", arms=[arm.arm.name], max_gpu_hours=None)
        seeds = self.missing_confirm(arm)
        if seeds:
            assert arm.winner is not None
            return self._start(arm, "confirm", arm.winner.config, seed=seeds[0])
        return None

    def _start(self, arm: ArmState, phase: Phase, config: dict[str, Any], *, seed: int | None = None) -> Trial:
        number = len(arm.phase(phase))
        if seed is None:
            seed = search_seed(arm.arm, number)
        identity: dict[str, Any] = {
            "method": arm.arm.method,
            "task": arm.arm.task,
            "phase": phase,
            "config": config,
            "seed": seed,
        }
        if arm.arm.start_from:
            model = self._start_model(arm)
            assert model is not None
            identity["start_from"] = model.key
        key = trial_key(self.resolved.protocol_hash, **identity)
        self._record_event("trial_started", key=key, trial=number, **identity, launch=self.launch)
        return self._trials[key]

    def _decide(self, trial: Trial, row: dict[str, Any]) -> None:
        arm = self._arm_of(trial)
        decision = arm.asha.decide(trial.start["key"], epoch=row["epoch"], score=row["selection_score"])
        if decision is not None:
            where = {name: trial.start[name] for name in ("key", "method", "task")}
            self._record_event("asha_decided", **where, **vars(decision))

    def _build_record(self, trial: Trial, status: Status, error: str | None) -> Record:
        start, last, best = trial.start, trial.last or {}, trial.best or {}
        chosen = {} if status == "failed" else best | last.get("outcome", {})
        return Record.from_json(
            {
                **{name: start[name] for name in ("key", "method", "task", "phase", "trial", "seed", "config")},
                "study": self.name,
                "protocol_hash": self.resolved.protocol_hash,
                "status": status,
                "error": error,
                **{name: chosen.get(name) for name in ("score", "selection_score", "epoch", "mean_layers", "model")},
                "metrics": chosen.get("metrics", {}),
                "epochs": last.get("epoch", 0),
                "num_layers": last.get("num_layers"),
                **{name: last.get(name, 0) for name in COSTS},
                "data_fingerprint": self._arm_of(trial).arm.data_fingerprint,
                **self._provenance,
                "host": last.get("host", ""),
                "device": last.get("device", ""),
                "started": start["time"],
                "ended": utc_now(),
            }
        )


def _as_seen_from_anywhere(name: str) -> str:
    """A folder by its whole path, since workers stand elsewhere; any other name as it is."""
    return str(Path(name).resolve()) if Path(name).is_dir() else name


COSTS = ("train_examples", "train_seconds", "eval_seconds", "gpu_seconds", "wall_seconds")


def search_seed(arm: Arm, number: int) -> int:
    """The seed of the arm's search trial `number`; never one of the confirm seeds."""
    return 1_000 + int(digest([arm.name, number], length=7), 16)
