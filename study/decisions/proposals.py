"""The next configuration of an arm (a method on a task), which Optuna proposes from the arm's earlier trials.

Each proposal depends only on the journal, so an interruption of the search does not change the proposals. For each
proposal, a new sampler is created; its seed depends on the arm and the number of earlier trials. If the kind of sampler
keeps state between trials, the earlier trials are replayed first.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import islice, product

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from study.facts.record import Status
from study.facts.study_facts import ArmFacts, TrialFacts
from study.plans.resolved_plan import Arm, digest
from study.plans.samplers import OWN, make_own_sampler
from trainables.configuration.ranges import Choices, Interval, list_allowed
from trainables.configuration.schema import Value

STATES: dict[Status, TrialState] = {
    "completed": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "failed": TrialState.FAIL,
    "dropped": TrialState.FAIL,
}
_ATTEMPTS = 50  # proposals per trial; if all were drawn before, the points of a finite space are tried in turn


class Proposals:
    """Optuna's proposals for one arm. Each call of `next` first reports the arm's new results to Optuna."""

    def __init__(self, arm: Arm, *, sampler: str):
        """Start without trials; `sampler` is a sampler's name or `package.module:Factory`."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # otherwise Optuna logs every trial, also in replays
        self._arm = arm
        self._sampler = sampler
        self._space = make_distributions(arm)
        self._is_replayed = sampler in ("qmc", "cmaes") or OWN in sampler  # these keep state between trials
        self._forget()

    def _forget(self) -> None:
        self._study = optuna.create_study(direction="maximize", study_name=self._arm.name)
        self._drawn: list[dict[str, Value]] = []
        self._open: dict[str, Trial] = {}  # key -> Optuna's trial, for trials that have not ended
        self._reported: dict[str, int] = {}  # key -> number of the trial's reports that Optuna has

    def next(self, facts: ArmFacts) -> dict[str, Value] | None:
        """Propose a new combination of values for the tuned fields; None if no new combination is found.

        The arm's `first` configurations are proposed first. If such a configuration lacks a tuned field, the sampler
        chooses the value of this field.
        """
        if self._is_replayed:
            self._forget()
            self._study.sampler = self._make_sampler(number=len(facts.search))
        self._catch_up(facts)
        if self._sampler == "grid":  # by content, because a repeated command may order its ranges in another way
            return next((dict(point) for point in self._arm.first if point not in self._drawn), None)
        number = len(self._drawn)
        if number < len(self._arm.first):
            point = self._sample(0) | dict(self._arm.first[number])
            if point not in self._drawn:
                return point
        proposals = (self._sample(attempt) for attempt in range(_ATTEMPTS))
        new = next((point for point in proposals if point not in self._drawn), None)
        return new or self._first_new_point()

    def _first_new_point(self) -> dict[str, Value] | None:
        """Return an untried point of a finite search space; None if all points were tried or the space is infinite."""
        menus = [list_allowed(allowed) for allowed in self._arm.space.values()]
        finite = [menu for menu in menus if menu is not None]
        if len(finite) < len(menus):
            return None
        points = (dict(zip(self._space, point, strict=True)) for point in product(*finite))
        return next((point for point in points if point not in self._drawn), None)

    def _catch_up(self, facts: ArmFacts) -> None:
        for number, trial in enumerate(facts.search):
            if number >= len(self._drawn):
                point = {name: trial.config[name] for name in self._space}
                self._drawn.append(point)
                self._study.enqueue_trial(point)
                self._open[trial.key] = self._study.ask(self._space)
            if trial.key in self._open:
                self._tell(trial)

    def _tell(self, trial: TrialFacts) -> None:
        """Report the progress of a trial to Optuna; a trial that ASHA stopped is reported as pruned."""
        reported = self._reported.get(trial.key, 0)
        for step, score in islice(trial.scores.items(), reported, None):
            self._open[trial.key].report(score, step)
        self._reported[trial.key] = max(reported, len(trial.scores))  # a restarted trial has fewer
        if trial.record:
            value = trial.record.selection_score if trial.record.status == "completed" else None
            self._study.tell(self._open.pop(trial.key), value, state=STATES[trial.record.status])

    def _sample(self, attempt: int) -> dict[str, Value]:
        """Draw a point from the sampler, in an Optuna trial that is ended at once."""
        if not self._is_replayed:
            self._study.sampler = self._make_sampler(number=len(self._drawn), attempt=attempt)
        trial = self._study.ask(self._space)
        self._study.tell(trial, state=TrialState.FAIL)
        return trial.params

    def _make_sampler(self, *, number: int, attempt: int = 0) -> BaseSampler:
        seed = int(digest([self._arm.name, number, attempt], length=8), 16)
        match self._sampler:
            case "tpe":
                return TPESampler(seed=seed)
            case "qmc":  # one sequence for the whole search
                return _Sequence(self._space, seed=int(digest([self._arm.name], length=8), 16))
            case "cmaes":
                return CmaEsSampler(seed=seed, warn_independent_sampling=False)
            case "gp":
                return GPSampler(seed=seed, warn_independent_sampling=False)
            case "random":
                return RandomSampler(seed=seed)
            case factory:
                return make_own_sampler(factory, seed=seed)


class _Sequence(QMCSampler):
    """Optuna's scrambled Sobol sampler, but the first point also comes from the sequence."""

    def __init__(self, space: Mapping[str, BaseDistribution], *, seed: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            super().__init__(scramble=True, seed=seed, warn_independent_sampling=False)
        self._whole_space = dict(space)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._whole_space


def make_distributions(arm: Arm) -> dict[str, BaseDistribution]:
    """Convert the arm's search space to Optuna distributions."""
    return {name: make_distribution(allowed) for name, allowed in arm.space.items()}


def make_distribution(allowed: Choices | Interval) -> BaseDistribution:
    """Convert a range to an Optuna distribution."""
    if isinstance(allowed, tuple):
        return CategoricalDistribution(allowed)
    if allowed.is_whole:
        low, high, step = int(allowed.low), int(allowed.high), int(allowed.distance or 1)
        return IntDistribution(low, high, log=allowed.log, step=step)
    return FloatDistribution(allowed.low, allowed.high, log=allowed.log, step=allowed.distance)
