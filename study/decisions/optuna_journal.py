"""`optuna.journal`: every ended search trial, one Optuna study per arm, for optuna-dashboard and users' scripts.

Written from the facts, never read for a decision: one that a crash has broken is written anew.
"""

from __future__ import annotations

import warnings
from datetime import datetime
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, create_trial

from study.decisions.proposals import STATES, distributions_of
from study.facts.record import Record
from study.facts.study_facts import StudyFacts, TrialFacts
from study.plans.resolved_plan import Arm


class OptunaJournal:
    """The file of one study, which one launch at a time writes to."""

    def __init__(self, path: Path, facts: StudyFacts):
        """Opens the file. A lock that is there is a dead process's."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would announce every study
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        if not _is_whole(path):
            warnings.warn(f"{path}: broken, written anew", stacklevel=2)
            path.unlink()
        elif path.exists() and not _is_of(path, facts):
            path.unlink()
        self._storage = JournalStorage(JournalFileBackend(str(path)))
        self._facts = facts
        self._studies: dict[str, optuna.Study] = {}
        self._added: dict[str, int] = {}

    def add_ended(self, arm: Arm) -> None:
        """Adds the search trials of the arm that have ended and are not there yet, in the order of their numbers: one
        that has ended before an earlier one waits for that, so that Optuna's numbers are ours."""
        if arm.name not in self._studies:
            self._studies[arm.name] = optuna.create_study(
                storage=self._storage, study_name=arm.name, direction="maximize", load_if_exists=True
            )
            self._added[arm.name] = len(self._studies[arm.name].get_trials(deepcopy=False))
        for record in self._facts.arm(arm.name).searched[self._added[arm.name] :]:
            self._studies[arm.name].add_trial(_as_recorded(arm, self._facts.trials[record.key], record))
            self._added[arm.name] += 1


def _is_of(path: Path, facts: StudyFacts) -> bool:
    """Whether what the file has is as the facts have it; a trial that was reopened is not, until it has ended again."""
    storage = JournalStorage(JournalFileBackend(str(path)))
    for study in storage.get_all_studies():
        added = [trial.user_attrs for trial in storage.get_all_trials(study._study_id, deepcopy=False)]
        searched = [
            {"key": r.key, "trial": r.trial, "seed": r.seed, "status": r.status}
            for r in facts.arm(study.study_name).searched
        ]
        if added != searched[: len(added)]:
            return False
    return True


def _is_whole(path: Path) -> bool:
    """Whether Optuna can go on with the file: its last line has an end, and it can read every line."""
    if not path.exists():
        return True
    try:
        JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, KeyError, TypeError, AssertionError):
        return False
    return path.read_bytes()[-1:] in (b"", b"\n")


def _as_recorded(arm: Arm, trial: TrialFacts, record: Record) -> FrozenTrial:
    copy = create_trial(
        state=STATES[record.status],
        value=record.selection_score if record.status == "completed" else None,
        params={name: record.config[name] for name in arm.space},
        distributions=distributions_of(arm),
        intermediate_values={} if record.status == "failed" else trial.scores,  # a failed one may run again
        user_attrs=_told_of(record),
    )
    copy.datetime_start = datetime.fromisoformat(record.started).astimezone().replace(tzinfo=None)
    copy.datetime_complete = datetime.fromisoformat(record.ended).astimezone().replace(tzinfo=None)
    return copy


def _told_of(record: Record) -> dict[str, object]:
    return {"key": record.key, "trial": record.trial, "seed": record.seed, "status": record.status}
