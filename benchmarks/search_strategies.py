"""How good a search is for the epochs it spends: this engine's, Ray Tune's way and full training, on synthetic curves.

    python -m benchmarks.search_strategies

Learning curves with known optima stand in for training, a virtual clock with four slots for the cluster. Contenders:

    study    `study.decisions`: TPE told of stopped trials as PRUNED, ASHA; rebuilt from the events after a restart
    tune     Ray Tune's OptunaSearch and AsyncHyperBandScheduler: stopped trials are told as COMPLETE with their last
             score; after a restart the searcher is as it was and the scheduler has forgotten its rungs
    full     `study.decisions` without ASHA

Each is restarted at a third and at two thirds of the largest budget; running trials go on from their last epoch. All
see the same curves. Regret is what the final score of the configuration with the best score seen so far lacks to the
optimum. Results go to benchmarks/results/search_strategies.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace
from optuna.distributions import CategoricalDistribution, FloatDistribution
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch
from scipy.stats import wilcoxon

from benchmarks.counts import count
from benchmarks.results_file import write_results
from study import profiles
from study.decisions.scheduler import Scheduler
from study.decisions.specs import Provenance
from study.facts.events import Report
from study.facts.journal import MemoryJournal
from study.facts.study_facts import TrialFacts
from study.plans.plan import EarlyStopping
from study.plans.resolution import range_of, resolve
from trainables.runs.trial import EpochRow, Outcome

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

    def regret(self, config: dict[str, Any]) -> float:
        return 1 - self.final(config)

    def epoch_seconds(self, config: dict[str, Any]) -> float:
        """Unlike ones, so that trials get out of step."""
        return 2 - config["batch_size"] / 128


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
    def next_trial(self) -> tuple[str, dict[str, Any]] | None:
        """Key and configuration of the trial to run now, an earlier one or a new one; None: none at present."""

    def report(self, key: str, epoch: int, score: float) -> bool:
        """Whether the trial leaves its slot."""


class RestartedSearch(Search, Protocol):
    def restart(self) -> None:
        """The process is gone, and a new one has read what was on disk."""


class StudySearch:
    """The searcher and scheduler of a study."""

    def __init__(self, seed: int, *, stopping: bool):
        grace = 1 if stopping else EPOCHS
        rule = EarlyStopping(grace=grace, factor=FACTOR)
        resolved = resolve(replace(profiles.load("mini"), methods=("albert",), tasks=("rte",), early_stopping=rule))
        arm = replace(
            resolved.arms[0],
            method="synthetic",
            task=f"seed-{seed}",
            space={name: range_of(distribution) for name, distribution in SPACE.items()},
            fixed={"epochs": EPOCHS},
            samples=sys.maxsize,
        )
        self._plan = replace(resolved, arms=(arm,))
        self._journal = MemoryJournal()
        self.restart()

    def restart(self) -> None:
        self._journal = MemoryJournal(self._journal.events)
        nothing = Provenance(versions={}, git_commit=None, code_digest="")
        self._scheduler = Scheduler("search", self._plan, self._journal, nothing)
        self._scheduler.begin_launch(command="", host="", pid=0)
        for trial in self._scheduler.progress.unsettled:
            self._scheduler.end(trial.key)

    def next_trial(self) -> tuple[str, dict[str, Any]]:
        trial = self._scheduler.next_trial()
        assert trial is not None
        return trial.key, dict(trial.config)

    def report(self, key: str, epoch: int, score: float) -> bool:
        before = self._journal.facts.trials[key].best
        is_best = before is None or score > before.report.row.selection_score
        best_epoch = epoch if is_best or before is None else before.report.row.epoch
        said = report_of(epoch, score, best_epoch, self._journal.facts.trials[key])
        decision = self._scheduler.report(key, said)
        over = epoch == EPOCHS or decision == "stop"
        if over:
            self._scheduler.end(key)
        return over


def report_of(epoch: int, score: float, best_epoch: int, trial: TrialFacts) -> Report:
    """What a trial says after an epoch with this score; its outcome is its best epoch."""
    costs: dict[str, Any] = {"train_examples": 0, "train_seconds": 0.0, "eval_seconds": 0.0}
    shape: dict[str, Any] = {"metrics": {}, "mean_layers": 1.0, "num_layers": 1, **costs}
    row = EpochRow(
        epoch=epoch,
        selection_score=score,
        score=score,
        exit_histogram=[],
        train_loss=0.0,
        best_epoch=best_epoch,
        improved=best_epoch == epoch,
        finished=epoch == EPOCHS,
        **shape,
    )
    best = score if best_epoch == epoch or trial.best is None else trial.best.report.row.selection_score
    content: dict[str, Any] = {"num_parameters": 1, "data_differences": ()}
    outcome = Outcome(score=best, selection_score=best, epoch=best_epoch, epochs=epoch, model=None, **shape, **content)
    final = outcome if epoch == EPOCHS else None
    return Report(
        row=row, outcome=final, wall_seconds=0.0, gpu_seconds=0.0, host="", device="", gpu_share=None, gpu=None
    )


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


CONTENDERS: dict[str, Callable[[int], RestartedSearch]] = {
    "study": partial(StudySearch, stopping=True),
    "tune": TuneSearch,
    "full": partial(StudySearch, stopping=False),
}


# ---- the virtual clock


class Curves(Protocol):
    """Learning curves by configuration."""

    def score(self, config: dict[str, Any], epoch: int) -> float:
        """What a trial reports after an epoch, counted from 1."""

    def regret(self, config: dict[str, Any]) -> float:
        """What the final score of the configuration lacks to the best there is."""

    def epoch_seconds(self, config: dict[str, Any]) -> float:
        """How long an epoch takes."""


@dataclass
class Clock:
    """Four slots that run the trials of a search until an epoch budget is spent."""

    search: Search
    landscape: Curves
    epochs_done: Counter = field(default_factory=Counter)  # by key
    running: list[tuple[float, str, dict[str, Any]]] = field(
        default_factory=list
    )  # end of the epoch, key, configuration
    now: float = 0.0
    best: tuple[float, float] = (-math.inf, 1.0)  # the best score seen, and the regret of its configuration

    def step(self) -> None:
        """One epoch more, unless the search is over."""
        while len(self.running) < SLOTS and (trial := self.search.next_trial()) is not None:
            self._begin_epoch(*trial)
        if not self.running:
            return
        self.now, key, config = heapq.heappop(self.running)
        self.epochs_done[key] += 1
        score = self.landscape.score(config, self.epochs_done[key])
        self.best = max(self.best, (score, self.landscape.regret(config)))
        if not self.search.report(key, self.epochs_done[key], score):
            self._begin_epoch(key, config)

    def cut_off(self) -> None:
        """Running trials lose the epoch that they are in."""
        self.running.clear()

    def _begin_epoch(self, key: str, config: dict[str, Any]) -> None:
        heapq.heappush(self.running, (self.now + self.landscape.epoch_seconds(config), key, config))


def regrets(landscape: Landscape, contender: str, budgets: list[int]) -> list[float]:
    """The regret at each budget, counted in epochs, of one search with two restarts."""
    search = CONTENDERS[contender](landscape.seed)
    clock = Clock(search, landscape)
    restarts = {budgets[-1] // 3, 2 * budgets[-1] // 3}
    found = []
    for epoch in range(1, budgets[-1] + 1):
        clock.step()
        if epoch in budgets:
            found.append(clock.best[1])
        if epoch in restarts:
            clock.cut_off()
            search.restart()
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
    write_results("search_strategies", {"seeds": options.seeds, "epochs": EPOCHS, "rows": rows})
    return 0


def build_parser() -> argparse.ArgumentParser:
    first_line = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_strategies", description=first_line)
    parser.add_argument("--seeds", type=count, default=50, help="searches of each contender (%(default)s)")
    parser.add_argument("--budgets", type=count, nargs="+", default=[5, 10, 20, 40], help="in full trainings, rising")
    parser.add_argument("--processes", type=count, default=2)
    return parser


def measure(pool: Executor, landscape: Landscape, seeds: int, budgets: list[int]) -> dict[str, np.ndarray]:
    """Regrets by contender, (seeds, budgets)."""
    landscapes = [dataclasses.replace(landscape, seed=seed) for seed in range(seeds)]
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
