"""The winner of an arm (a method on a task): the best configuration of the search, to be repeated by confirm trials.

Only this module decides which trials count as results. If a longer search finds a better configuration, the earlier
confirm trials are kept, but no longer count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from study.facts.record import Record
from study.facts.study_facts import TrialFacts
from study.plans.resolved_plan import Arm
from trainables.configuration.schema import Configuration

Trial = TypeVar("Trial", TrialFacts, Record)


@dataclass(frozen=True)
class Winner:
    """The configuration that an arm's confirm trials repeat, and the model from which these trials begin."""

    config: Configuration
    start: str | None  # key of the trial whose model the confirm trials begin from
    search: Record | None  # the best search trial; None if nothing is searched

    def confirm_trials(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the confirm trials that have the winner's configuration and starting model, sorted by seed."""
        wanted = ("confirm", self.config, self.start)
        repeating = [trial for trial in trials if (trial.phase, trial.config, trial.start) == wanted]
        return sorted(repeating, key=lambda trial: trial.seed)


def choose_winner(arm: Arm, records: Sequence[Record], *, start: str | None = None) -> Winner | None:
    """Return the configuration of the best completed search trial; None if no search trial has completed.

    If the arm has no search, return its only configuration. The field `start` of this winner is the argument `start`
    or, if that is None, the `start` of the first record.
    """
    if not arm.space:
        return Winner(arm.fixed, start or next((record.start for record in records), None), None)
    best = best_search_record(records)
    return None if best is None else Winner(arm.make_confirm_configuration(best.config), best.start, best)


def best_search_record(records: Iterable[Record]) -> Record | None:
    """Return the completed search trial with the best selection score; None if no search trial has completed.

    Of several trials with this score, return the first.
    """
    completed = [record for record in records if record.phase == "search" and record.status == "completed"]
    return max(completed, key=lambda record: (record.selection_score, -record.trial), default=None)
