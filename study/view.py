"""What a person sees while a study runs: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from study.eta import remaining_seconds
from study.record import Record
from study.state import ArmState, StudyState, Trial

_REFRESH_SECONDS = 0.5
_SIGN_OF_LIFE_SECONDS = 30.0  # without a terminal, when no trial ends


class View:
    """Shows the state of a study; `update` is cheap and may be called all the time."""

    def __init__(self, state: StudyState, *, slots: Callable[[], int], output: TextIO):
        self._state = state
        self._slots = slots
        self._console = Console(file=output, highlight=False)
        self._started = time.monotonic()
        self._next_refresh = 0.0
        self._next_sign_of_life = self._started + _SIGN_OF_LIFE_SECONDS
        self._told = len(state.ended)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.update(self._table(), refresh=True)
            self._live.stop()
        else:
            self._tell_ended()

    def update(self) -> None:
        now = time.monotonic()
        if now < self._next_refresh:
            return
        self._next_refresh = now + _REFRESH_SECONDS
        if self._live:
            self._live.update(self._table(), refresh=True)
        else:
            self._tell_ended()

    def _tell_ended(self) -> None:
        now = time.monotonic()
        if now > self._next_sign_of_life:
            self._next_sign_of_life = now + _SIGN_OF_LIFE_SECONDS
            self._console.print(f"{self._under_way()}  {self._time_line()}", markup=False, soft_wrap=True)
        for record in self._state.ended[self._told :]:
            self._told += 1
            self._next_sign_of_life = now + _SIGN_OF_LIFE_SECONDS
            place = f"{self._told}/{self._state.total_trials}"
            self._console.print(f"[{place}] {describe(record)}  {self._time_line()}", markup=False, soft_wrap=True)

    def _under_way(self) -> str:
        trials = self._state.unfinished
        words = [
            f"{trial.start['method']}/{trial.start['task']} {trial.phase} {trial.start['trial']} "
            + (f"past epoch {trial.last['epoch']}" if trial.last else "in its first epoch, or waiting for a slot")
            for trial in trials
        ]
        return f"under way: {'; '.join(words) or 'nothing yet'}"

    def _table(self) -> Group:
        table = arms_table(self._state)
        done = f"{len(self._state.ended)}/{self._state.total_trials} trials"
        word = "saving and stopping" if self._state.draining else done
        return Group(table, Text(f"{word}  {self._time_line()}"))

    def _time_line(self) -> str:
        elapsed = time.monotonic() - self._started
        left = remaining_seconds(self._state)
        eta = f", about {clock(left / max(1, self._slots()))} left" if left is not None else ""
        return f"elapsed {clock(elapsed)}{eta}"


def arms_table(state: StudyState) -> Table:
    """How far every arm is."""
    table = Table(box=None, pad_edge=False)
    for column in ("arm", "search", "stopped", "failed", "under way", "confirm", "best", "median"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm in state.arms:
        table.add_row(arm.arm.name, *_cells(state, arm))
    return table


def _cells(state: StudyState, arm: ArmState) -> list[str]:
    search, confirm = arm.phase("search"), state.confirm_trials(arm)
    searched = [trial.record for trial in search if trial.record]
    failed = [trial for trial in arm.trials.values() if trial.record and trial.record.status == "failed"]
    return [
        f"{len(searched)}/{arm.arm.samples}",
        _count([record for record in searched if record.status == "stopped"]),
        _count(failed),
        _count([trial for trial in arm.trials.values() if not trial.record]),
        f"{sum(1 for trial in confirm if trial.record)}/{len(state.resolved.seeds)}",
        _points(best_score(search)),
        _points(state.median(arm)),
    ]


def describe(record: Record) -> str:
    """One ended trial in words."""
    name = f"{record.method}/{record.task} {record.phase} {record.trial}"
    if record.status == "failed":
        return f"{name} failed: {record.error}"
    verb = f"stopped at epoch {record.epochs}" if record.status == "stopped" else f"{record.epochs} epochs"
    return f"{name}: {_points(record.score or record.selection_score)} ({verb}, {record.mean_layers:.1f} layers)"


def best_score(trials: list[Trial]) -> float | None:
    scores = [trial.best["selection_score"] for trial in trials if trial.best]
    return max(scores, default=None)


def clock(seconds: float) -> str:
    """`75` as `1:15`, `3675` as `1:01:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _points(score: float | None) -> str:
    return "" if score is None else f"{100 * score:.1f}"


def _count(things: list) -> str:
    return str(len(things) or "")
