"""How good a search is for the epochs it spends: this engine's, Ray Tune's way and full training, on synthetic curves.

    python -m benchmarks.search

Learning curves with known optima stand in for training, a virtual clock with four slots for the cluster. Contenders:

    study    `study.state`: TPE told of stopped trials as PRUNED, ASHA; after a restart all is rebuilt from the events
    tune     Ray Tune's OptunaSearch and AsyncHyperBandScheduler: stopped trials are told as COMPLETE with their last
             score; after a restart the searcher is as it was and the scheduler has forgotten its rungs
    full     `study.state` without ASHA

Each is restarted at a third and at two thirds of the largest budget; running trials go on from their last epoch. All
see the same curves. Regret is what the final score of the configuration with the best score seen so far lacks to the
optimum. Results go to benchmarks/results/search.json.
"""

from __future__ import annotations

import argparse
import heapq
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from optuna.distributions import CategoricalDistribution, FloatDistribution
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch
from scipy.stats import wilcoxon

from benchmarks.results_file import write_results
from study import profiles
from study.plan import Arm, ResolvedPlan
from study.state import StudyState

SIGNIFICANT = 0.05
EPOCHS = 9  # of a full training
FACTOR = 3  # ASHA's, of each
SLOTS = 4
SPACE = {
    "learning_rate": FloatDistribution(1e-5, 1e-3, log=True),
    "weight_decay": FloatDistribution(0.0, 0.3),
    "dropout": FloatDistribution(0.0, 0.5),
    "batch_size": CategoricalDistribution([16, 32, 128]),
}


@dataclass(frozen=True)
class Landscape:
    """Learning curves over `SPACE`; the best configuration reaches 1."""

    name: str
    noise: float  # standard deviation of a score
    slowness: float  # 0: all curves rise alike; more: low learning rates rise later, and early scores mislead
    seed: int = 0

    def final(self, config: dict[str, Any]) -> float:
        """The score after all epochs, without noise: falls with the squared distance from the optimum."""
        random = np.random.default_rng(self.seed)
        best = [*random.uniform(0.1, 0.9, size=3), random.choice([0.0, 0.5, 1.0])]
        return 1 - float(np.sum((position(config) - best) ** 2)) / 2

    def score(self, config: dict[str, Any], epoch: int) -> float:
        """What a trial reports: the same whoever asks."""
        where = position(config)
        rate = 0.6 * math.exp(self.slowness * (where[0] - 1))
        progress = (1 - math.exp(-rate * epoch)) / (1 - math.exp(-rate * EPOCHS))
        random = np.random.default_rng([self.seed, epoch, *(int(1e9 * value) for value in where)])
        return self.final(config) * progress + self.noise * float(random.normal())


LANDSCAPES = (
    Landscape("steady", noise=0.01, slowness=0.0),
    Landscape("noisy", noise=0.05, slowness=0.0),
    Landscape("crossing", noise=0.01, slowness=1.5),
)


def position(config: dict[str, Any]) -> np.ndarray:
    """The configuration in the unit cube."""
    learning_rate = math.log10(config["learning_rate"] / 1e-5) / 2
    batch_size = [16, 32, 128].index(config["batch_size"]) / 2
    return np.array([learning_rate, config["weight_decay"] / 0.3, config["dropout"] / 0.5, batch_size])


# ---- the contenders


class Search(Protocol):
    def next_trial(self) -> tuple[str, dict[str, Any]]:
        """Key and configuration of the trial to run now: one cut off by a restart, or a new one."""

    def report(self, key: str, epoch: int, score: float) -> bool:
        """Whether the trial is over."""

    def restart(self) -> None:
        """The process is gone, and a new one has read what was on disk."""


class StudySearch:
    """The searcher and scheduler of a study."""

    def __init__(self, seed: int, *, stopping: bool):
        grace = 1 if stopping else EPOCHS
        arm = Arm(
            method="synthetic",
            task=f"seed-{seed}",
            space=SPACE,
            fixed={"epochs": EPOCHS},
            first=(),
            samples=sys.maxsize,
            backbone="",
            data_fingerprint="",
        )
        plan = replace(profiles.load("mini"), sampler="tpe", asha_grace=grace, asha_factor=FACTOR)
        self._resolved = ResolvedPlan(plan=plan, arms=(arm,), protocol={})
        self._events: list[dict[str, Any]] = []
        self._rows: dict[str, dict[str, Any]] = {}  # the best of each trial
        self.restart()

    def restart(self) -> None:
        nothing = {"versions": {}, "git_commit": None}
        events = list(self._events)
        self._state = StudyState("search", self._resolved, events=events, append=self._append, provenance=nothing)
        for trial in self._state.unsettled:
            self._state.end(trial.start["key"])

    def next_trial(self) -> tuple[str, dict[str, Any]]:
        trial = self._state.next_trial()
        assert trial is not None
        return trial.start["key"], trial.start["config"]

    def report(self, key: str, epoch: int, score: float) -> bool:
        row = {"epoch": epoch, "score": score, "selection_score": score, "num_layers": 1, "mean_layers": 1.0}
        best = max(self._rows.get(key, row), row, key=lambda row: row["selection_score"])
        self._rows[key] = best
        over = epoch == EPOCHS
        outcome = {"outcome": best} if over else {}
        decision = self._state.report(key, {**row, **outcome, "best_epoch": best["epoch"], "finished": over})
        if over or decision == "stop":
            self._state.end(key)
        return over or decision == "stop"

    def _append(self, event: str, **values: Any) -> dict[str, Any]:
        self._events.append({"event": event, "time": "", **values})
        return self._events[-1]


class TuneSearch:
    """Ray Tune's searcher and scheduler, called as its `TuneController` calls them."""

    def __init__(self, seed: int):
        self._searcher = OptunaSearch(space=SPACE, metric="score", mode="max", seed=seed)
        self._running: dict[str, dict[str, Any]] = {}
        self._cut_off: list[str] = []
        self._started = 0
        self.restart()

    def restart(self) -> None:
        self._scheduler = AsyncHyperBandScheduler(metric="score", mode="max", max_t=EPOCHS, reduction_factor=FACTOR)
        self._cut_off = list(self._running)

    def next_trial(self) -> tuple[str, dict[str, Any]]:
        if self._cut_off:
            key = self._cut_off.pop(0)
        else:
            self._started += 1
            key = str(self._started)
            self._running[key] = self._searcher.suggest(key)
        self._scheduler.on_trial_add(None, SimpleNamespace(trial_id=key))
        return key, self._running[key]

    def report(self, key: str, epoch: int, score: float) -> bool:
        result = {"score": score, "training_iteration": epoch}
        over = self._scheduler.on_trial_result(None, SimpleNamespace(trial_id=key), result) == TrialScheduler.STOP
        if over:
            self._searcher.on_trial_complete(key, result)
            del self._running[key]
        else:
            self._searcher.on_trial_result(key, result)
        return over


CONTENDERS: dict[str, Callable[[int], Search]] = {
    "study": partial(StudySearch, stopping=True),
    "tune": TuneSearch,
    "full": partial(StudySearch, stopping=False),
}


# ---- the virtual clock


@dataclass
class Clock:
    """Four slots that run the trials of a search until an epoch budget is spent."""

    search: Search
    landscape: Landscape
    epochs_done: Counter = field(default_factory=Counter)  # by key
    running: list[tuple[float, str, dict[str, Any]]] = field(
        default_factory=list
    )  # end of the epoch, key, configuration
    now: float = 0.0
    best: tuple[float, float] = (-math.inf, 1.0)  # the best score seen, and the regret of its configuration

    def step(self) -> None:
        """One epoch more."""
        while len(self.running) < SLOTS:
            self._begin_epoch(*self.search.next_trial())
        self.now, key, config = heapq.heappop(self.running)
        self.epochs_done[key] += 1
        score = self.landscape.score(config, self.epochs_done[key])
        self.best = max(self.best, (score, 1 - self.landscape.final(config)))
        if not self.search.report(key, self.epochs_done[key], score):
            self._begin_epoch(key, config)

    def restart(self) -> None:
        """Running trials lose the epoch that they are in."""
        self.running.clear()
        self.search.restart()

    def _begin_epoch(self, key: str, config: dict[str, Any]) -> None:
        seconds = 2 - config["batch_size"] / 128  # so that trials get out of step
        heapq.heappush(self.running, (self.now + seconds, key, config))


def regrets(landscape: Landscape, contender: str, budgets: list[int]) -> list[float]:
    """The regret at each budget, counted in epochs, of one search with two restarts."""
    clock = Clock(CONTENDERS[contender](landscape.seed), landscape)
    restarts = {budgets[-1] // 3, 2 * budgets[-1] // 3}
    found = []
    for epoch in range(1, budgets[-1] + 1):
        clock.step()
        if epoch in budgets:
            found.append(clock.best[1])
        if epoch in restarts:
            clock.restart()
    return found


# ---- the comparison


def main() -> int:
    options = build_parser().parse_args()
    logging.disable(logging.WARNING)  # OptunaSearch announces every study
    budgets = [EPOCHS * budget for budget in options.budgets]
    rows = []
    with ProcessPoolExecutor(options.processes) as pool:
        for landscape in LANDSCAPES:
            rows += compare(measure(pool, landscape, options.seeds, budgets), landscape.name, options.budgets)
    print_table(rows, options.seeds)
    print_where_worse(rows)
    write_results("search", {"seeds": options.seeds, "epochs": EPOCHS, "rows": rows})
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50, help="searches of each contender (%(default)s)")
    parser.add_argument("--budgets", type=int, nargs="+", default=[5, 10, 20, 40], help="in full trainings, rising")
    parser.add_argument("--processes", type=int, default=2)
    return parser


def measure(pool: Executor, landscape: Landscape, seeds: int, budgets: list[int]) -> dict[str, np.ndarray]:
    """Regrets by contender, (seeds, budgets)."""
    landscapes = [replace(landscape, seed=seed) for seed in range(seeds)]
    return {
        contender: np.array(list(pool.map(partial(regrets, contender=contender, budgets=budgets), landscapes)))
        for contender in CONTENDERS
    }


def compare(measured: dict[str, np.ndarray], landscape: str, budgets: list[int]) -> list[dict[str, Any]]:
    """One row per budget: medians, and the study held against each of the others, seed by seed."""
    ours = measured["study"]
    others = {contender: values for contender, values in measured.items() if contender != "study"}
    return [
        {
            "landscape": landscape,
            "budget": budget,
            "median": {contender: float(np.median(values[:, column])) for contender, values in measured.items()},
            "against": {other: paired(ours[:, column], values[:, column]) for other, values in others.items()},
        }
        for column, budget in enumerate(budgets)
    ]


def paired(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Seeds in which ours is better and worse, the p-value of Wilcoxon's signed-rank test, and what they say."""
    better, worse = int(np.sum(ours < theirs)), int(np.sum(ours > theirs))
    p = float(wilcoxon(ours, theirs).pvalue) if better + worse else 1.0
    verdict = "equal" if p >= SIGNIFICANT else "better" if better > worse else "WORSE"
    return {"better": better, "worse": worse, "p": p, "verdict": verdict}


def print_table(rows: list[dict[str, Any]], seeds: int) -> None:
    print(f"median regret over {seeds} seeds; the study against the others: seeds better/worse, p, verdict")
    print(f"landscape  budget   {'study':>8}{'tune':>8}{'full':>8}    {'against tune':28}against full")
    for row in rows:
        regret = "".join(f"{value:8.4f}" for value in row["median"].values())
        against = "".join(f"{in_words(comparison):28}" for comparison in row["against"].values())
        print(f"{row['landscape']:9}  {row['budget']:6}   {regret}    {against}")


def print_where_worse(rows: list[dict[str, Any]]) -> None:
    worse = [
        f"{row['landscape']} {row['budget']} against {other}"
        for row in rows
        for other, comparison in row["against"].items()
        if comparison["verdict"] == "WORSE"
    ]
    print(f"the study is at least as good everywhere but at: {', '.join(worse) or 'nowhere'}")


def in_words(comparison: dict[str, Any]) -> str:
    return "{better:2}/{worse:2}  p {p:.3f}  {verdict}".format(**comparison)


if __name__ == "__main__":
    sys.exit(main())
