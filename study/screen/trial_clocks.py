"""How long trials have run, by the second, though they say so at the end of an epoch alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from study.facts.study_facts import TrialFacts


class TrialClocks:
    """For each trial that runs the seconds of its last report, and those since that report was first seen here."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}  # key -> epochs reported, and when that was seen

    def seconds(self, running: Iterable[TrialFacts]) -> dict[str, float]:
        """By key; to be asked now and then. A trial that ran before and does not now begins anew where it goes on."""
        now = self._clock()
        trials = {trial.key: trial for trial in running}
        self._seen = {key: self._as_seen(trial, now) for key, trial in trials.items()}
        return {key: _reported(trial) + now - self._seen[key][1] for key, trial in trials.items()}

    def _as_seen(self, trial: TrialFacts, now: float) -> tuple[int, float]:
        epochs, since = self._seen.get(trial.key, (None, now))
        return (trial.epochs, since if epochs == trial.epochs else now)


def _reported(trial: TrialFacts) -> float:
    return trial.last.report.wall_seconds if trial.last else 0.0
