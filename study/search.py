"""The search of one arm: which configuration next. Optuna proposes; what it knows is told from the journal.

Every proposal has a seed of its own, derived from the arm and the number of trials before it, so a search that is
rebuilt from the journal goes on as if it had never stopped.
"""

from __future__ import annotations

import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from study.plan import Arm, digest
from study.record import Record

STATES = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
_PROPOSALS_WITHOUT_NEWS = 50  # so many proposals in a row that were drawn before: the space is spent


class ArmSearch:
    """Proposes the configurations of one arm, and knows its trials by key. Lives in memory."""

    def __init__(self, arm: Arm, *, sampler: str):
        self.arm = arm
        self._sampler_name = sampler
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would announce every study and trial
        self._study = optuna.create_study(direction="maximize", study_name=arm.name)
        self._trials: dict[str, Trial] = {}
        self._drawn: list[dict[str, Any]] = []
        self._ended: list[Record] = []

    def propose(self) -> dict[str, Any] | None:
        """Values of the tuned fields that no trial of the arm has had yet; None when the space is spent.

        The first proposals are the arm's `first` configurations, what they leave open sampled.
        """
        number = len(self._drawn)
        if number < len(self.arm.first):
            point = self._sample(0) | self.arm.first[number]
            if point not in self._drawn:
                return point
        if self._sampler_name == "grid":
            return None
        proposals = (self._sample(attempt) for attempt in range(_PROPOSALS_WITHOUT_NEWS))
        return next((point for point in proposals if point not in self._drawn), None)

    def started(self, key: str, config: dict[str, Any]) -> None:
        """Takes note of a trial, proposed here just now or in an earlier launch."""
        point = {name: config[name] for name in self.arm.space}
        self._drawn.append(point)
        self._study.enqueue_trial(point)
        self._trials[key] = self._study.ask(self.arm.space)

    def reported(self, key: str, *, epoch: int, score: float) -> None:
        self._trials[key].report(score, epoch)

    def ended(self, record: Record) -> None:
        """A trial that ASHA stopped is pruned, not complete: its score is not one of full training."""
        value = record.selection_score if record.status == "completed" else None
        self._study.tell(self._trials[record.key], value, state=STATES[record.status])
        self._ended.append(record)

    def ended_trials(self, *, skip: int) -> list[tuple[FrozenTrial, Record]]:
        """The ended trials as Optuna sees them, in the order they ended, without the first `skip`."""
        trials = self._study.get_trials(deepcopy=False)
        return [(trials[self._trials[record.key].number], record) for record in self._ended[skip:]]

    def _sample(self, attempt: int) -> dict[str, Any]:
        """What the sampler proposes next. The trial it is asked through is withdrawn: `started` makes the real one."""
        seed = int(digest([self.arm.name, len(self._drawn), attempt], length=8), 16)
        self._study.sampler = TPESampler(seed=seed) if self._sampler_name == "tpe" else RandomSampler(seed=seed)
        trial = self._study.ask(self.arm.space)
        self._study.tell(trial, state=TrialState.FAIL)
        return trial.params


class OptunaJournal:
    """`optuna.journal`: every ended search trial, one Optuna study per arm, for optuna-dashboard and users' scripts.

    Written from the journal's events, never read for a decision: one that a crash has broken is written anew.
    """

    def __init__(self, path: Path):
        """Opens the file, which one launch at a time writes to: a lock that is there is a dead process's."""
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        if not _is_whole(path):
            warnings.warn(f"{path}: broken, written anew", stacklevel=2)
            path.unlink()
        self._storage = JournalStorage(JournalFileBackend(str(path)))
        self._studies: dict[str, optuna.Study] = {}
        self._added: dict[str, int] = {}

    def add_ended(self, search: ArmSearch) -> None:
        """Adds the trials of the arm that have ended and are not there yet."""
        arm = search.arm.name
        if arm not in self._studies:
            self._studies[arm] = optuna.create_study(
                storage=self._storage, study_name=arm, direction="maximize", load_if_exists=True
            )
            self._added[arm] = len(self._studies[arm].get_trials(deepcopy=False))
        for trial, record in search.ended_trials(skip=self._added[arm]):
            self._studies[arm].add_trial(_as_recorded(trial, record))
            self._added[arm] += 1


def _is_whole(path: Path) -> bool:
    """Whether Optuna can go on with the file: its last line has an end, and it can read every line."""
    if not path.exists():
        return True
    try:
        JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, KeyError, TypeError, AssertionError):
        return False
    return path.read_bytes()[-1:] in (b"", b"\n")


def _as_recorded(trial: FrozenTrial, record: Record) -> FrozenTrial:
    copy = create_trial(
        state=trial.state,
        value=trial.value,
        params=trial.params,
        distributions=trial.distributions,
        intermediate_values=trial.intermediate_values,
        user_attrs={"key": record.key, "trial": record.trial, "seed": record.seed, "status": record.status},
    )
    copy.datetime_start = datetime.fromisoformat(record.started).astimezone().replace(tzinfo=None)
    copy.datetime_complete = datetime.fromisoformat(record.ended).astimezone().replace(tzinfo=None)
    return copy
