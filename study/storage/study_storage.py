"""Where the trials of a study keep their states: where the launch before had them, unless that is said otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

from study.facts.study_facts import StudyFacts, TrialFacts
from study.storage.addresses import storage_address
from study.storage.trial_places import place_at, trial_address


def storage_for(asked: str | None, folder: Path, facts: StudyFacts) -> str:
    """The storage of a launch: what `--storage` asks for, or else that of the last launch, which is told.

    Raises:
        ValueError: trials under way would train anew, since their states lie in the storage of the last launch.
    """
    last = facts.last_launch
    before = (last.began.storage if last else None) or str(folder.resolve())
    if asked is None:
        if last and last.began.storage:
            print(f"--storage is {before}, as in the launch before", file=sys.stderr)
        return before
    storage = storage_address(asked)
    if storage != before:
        _check_states(storage, before, _with_states(facts))
    return storage


def _with_states(facts: StudyFacts) -> list[TrialFacts]:
    """The trials under way that have saved an epoch."""
    return [trial for trial in facts.under_way.values() if trial.epochs]


def _check_states(storage: str, before: str, trials: list[TrialFacts]) -> None:
    absent = [trial for trial in trials if not place_at(trial_address(storage, trial.key)).has_work()]
    left = [trial for trial in absent if place_at(trial_address(before, trial.key)).has_work()]
    if left:
        raise ValueError(
            f"--storage is {storage}, but the states of {len(left)} trials under way are in {before}; allowed: "
            f"--storage {before}, or copy its folder trials there"
        )
    if absent:
        print(f"the states of {len(absent)} trials under way are gone from {before}: trained anew", file=sys.stderr)
