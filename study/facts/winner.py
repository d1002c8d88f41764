"""The winner of an arm: the configuration and start that its confirm trials repeat, and those trials.

Only this module decides which trials count for an arm. Decisions, tables, notebooks, MLflow, the model registry and
submissions all use it. An extended search may find a better configuration. The confirm trials of the former winner are
then superseded: they are kept and count nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from study.facts.record import Phase, Record
from study.plans.resolved_plan import Arm
from trainables.schema import Configuration


class _Identity(Protocol):
    """The fields that a started trial and its record share."""

    @property
    def phase(self) -> Phase: ...
    @property
    def seed(self) -> int: ...
    @property
    def config(self) -> Configuration: ...
    @property
    def start(self) -> str | None: ...


Trial = TypeVar("Trial", bound=_Identity)


@dataclass(frozen=True)
class Winner:
    """The configuration that the confirm trials of an arm repeat."""

    config: Configuration
    start: str | None  # key of the trial whose model the confirm trials begin from
    search: Record | None  # the best search trial; None if nothing is searched

    def confirm_trials(self, trials: Iterable[Trial]) -> list[Trial]:
        """Select the trials that repeat the winner, sorted by seed."""
        repeating = [trial for trial in trials if trial.phase == "confirm" and self._is_repeated_by(trial)]
        return sorted(repeating, key=lambda trial: trial.seed)

    def _is_repeated_by(self, trial: _Identity) -> bool:
        return trial.config == self.config and trial.start == self.start


def winner_of(arm: Arm, records: Sequence[Record], *, start: str | None = None) -> Winner | None:
    """Find the winner: the configuration of the best completed search trial; None if no search trial has completed.

    If nothing is searched, the winner is the arm's only configuration. It begins from `start` or, if that is None, from
    the start of the arm's first record.
    """
    if not arm.space:
        return Winner(arm.fixed, start or next((record.start for record in records), None), None)
    best = best_search_record(records)
    return None if best is None else Winner(arm.repeated(best.config), best.start, best)


def best_search_record(records: Iterable[Record]) -> Record | None:
    """Find the completed search trial with the best selection score, the earliest of equals, if any has completed."""
    completed = [record for record in records if record.phase == "search" and record.status == "completed"]
    return max(completed, key=lambda record: (record.selection_score, -record.trial), default=None)
