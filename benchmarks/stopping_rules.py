"""Which rule of early stopping finds the better trial for the epochs it spends, on learning curves of a real study.

    python -m benchmarks.stopping_rules                      # curves of a small study, which is run first
    python -m benchmarks.stopping_rules --study runs/NAME    # of any study without early stopping of its own

The search trials of an arm run in an order that the seed draws, four at a time on the clock of `search_strategies`:

    asha         `study.decisions.asha`, as a study runs it: a trial goes on at a rung or is over (arXiv:1810.05934)
    late-asha    the same without the first rung: what that is worth, and so what rungs finer than an epoch can be
    promotion    ASHA as the paper has it: a trial waits at a rung until it is among the best third there
    pasha        the same, the highest rung growing while two rungs rank trials unlike (arXiv:2207.06940)
    hyperband    Optuna's `HyperbandPruner`: its asynchronous brackets, 1 to `epochs` (arXiv:1603.06560)
    none         every trial runs to its end

Regret is what the final score of the trial with the best score seen so far lacks to the best final score of the arm;
`all` is the end of the search, where every trial was started, with the mean epochs until then: a rule that stops more
is through with the study's trials earlier, and would have tried others.
The intervals (95 %) are over the order in which trials come, not over other trials or other studies. Results go to
benchmarks/results/stopping_rules.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from scipy import stats

from analysis.statistics.uncertainty import Interval, median_interval
from benchmarks.counts import count
from benchmarks.results_file import write_results
from benchmarks.search_strategies import Clock, Search, in_words, paired
from study.counterfactual.curves import Epochs, curves_of, epochs_of
from study.decisions import asha
from study.facts.events import read_events
from study.facts.plan_on_disk import require_plan
from study.facts.study_facts import ArmFacts, StudyFacts
from study.plans.plan import EarlyStopping
from study.plans.resolved_plan import Arm

LEVEL = 0.95
STOPPING = EarlyStopping()  # a study's, of each contender that has rungs but the late one
LATE = EarlyStopping(grace=STOPPING.factor)
RUNS = Path("runs")
CURVES = "stopping-rules"  # name of the study that is run where none is given
ASKED = "--profile mini --method palbert --task rte,sst2 --sampler random --samples 32 --epochs 9 --seeds 1"
PERCENTILE = 90  # of distances between crossing curves: PASHA's default

Key = str


@dataclass(frozen=True)
class StoredCurves:
    """The search trials of an arm; a configuration is the number of its curve."""

    arm: str
    epochs: int  # of a trial, at most
    scores: tuple[tuple[float, ...], ...]  # by curve and epoch
    finals: tuple[float, ...]  # by curve: the score that the trial is chosen by
    seconds: tuple[float, ...]  # of an epoch

    def score(self, config: dict[str, Any], epoch: int) -> float:
        return self.scores[config["curve"]][epoch - 1]

    def regret(self, config: dict[str, Any]) -> float:
        return max(self.finals) - self.finals[config["curve"]]

    def epoch_seconds(self, config: dict[str, Any]) -> float:
        return self.seconds[config["curve"]]


def curves_in(folder: Path) -> list[StoredCurves]:
    """The curves of every arm of a study.

    Raises:
        ValueError: the folder is no study, or as `curves_of_arm`.
    """
    file, events, facts = require_plan(folder), read_events(folder), StudyFacts()
    for event in events:
        facts.apply(event)
    epochs = epochs_of(events)
    return [curves_of_arm(arm, facts.arm(arm.name), epochs) for arm in file.plan.arms if arm.space]


def curves_of_arm(arm: Arm, facts: ArmFacts, epochs: Epochs) -> StoredCurves:
    """Those of its search trials that did not fail.

    Raises:
        ValueError: some did not come to their own end.
    """
    known = curves_of(facts, epochs)
    if cut := sum(not curve.is_over for curve in known):
        raise ValueError(
            f"{cut} of {len(known)} search trials of {arm.name} were cut short; allowed: --early-stopping none"
        )
    ended = [(curve, curve.final) for curve in known if curve.final is not None]
    return StoredCurves(
        arm=arm.name,
        epochs=arm.epochs,
        scores=tuple(tuple(epoch.score for epoch in curve.epochs) for curve, _ in ended),
        finals=tuple(final for _, final in ended),
        seconds=tuple(curve.epochs[-1].seconds / len(curve.epochs) for curve, _ in ended),
    )


# ---- the contenders


class DrawnOrder:
    """The trials in the order of a seed, each to its end."""

    def __init__(self, curves: StoredCurves, seed: int):
        self._curves = curves
        self._left = [int(number) for number in np.random.default_rng(seed).permutation(len(curves.scores))]

    def next_trial(self) -> tuple[Key, dict[str, Any]] | None:
        return self._config(str(self._left.pop())) if self._left else None

    def report(self, key: Key, epoch: int, score: float) -> bool:
        return epoch == len(self._curves.scores[int(key)])

    def _config(self, key: Key) -> tuple[Key, dict[str, Any]]:
        return key, {"curve": int(key)}


class Asha(DrawnOrder):
    """What a study does."""

    def __init__(self, curves: StoredCurves, seed: int, *, stopping: EarlyStopping = STOPPING):
        super().__init__(curves, seed)
        self._stopping = stopping
        self._rungs: defaultdict[int, dict[Key, float]] = defaultdict(dict)

    def report(self, key: Key, epoch: int, score: float) -> bool:
        if super().report(key, epoch, score):
            return True
        decision = asha.decide(
            self._rungs, key, epoch=epoch, score=score, epochs=self._curves.epochs, stopping=self._stopping
        )
        if decision is not None:
            self._rungs[epoch][key] = score
        return decision is not None and decision.decision == "stop"


class Hyperband(DrawnOrder):
    """Optuna's."""

    def __init__(self, curves: StoredCurves, seed: int):
        super().__init__(curves, seed)
        pruner = optuna.pruners.HyperbandPruner(1, curves.epochs, STOPPING.factor)
        name = f"{curves.arm} {seed}"  # decides the trials' brackets
        self._study = optuna.create_study(direction="maximize", pruner=pruner, study_name=name)
        self._trials: dict[Key, optuna.Trial] = {}

    def report(self, key: Key, epoch: int, score: float) -> bool:
        if key not in self._trials:
            self._trials[key] = self._study.ask()
        trial = self._trials[key]
        trial.report(score, epoch)
        is_whole = super().report(key, epoch, score)
        is_over = is_whole or trial.should_prune()
        if is_over:
            state = optuna.trial.TrialState.COMPLETE if is_whole else optuna.trial.TrialState.PRUNED
            self._study.tell(trial, score if is_whole else None, state=state)
        return is_over


class Promotion(DrawnOrder):
    """ASHA that never stops a trial for good: where a slot is free, the best one that waits goes on, or a new one."""

    def __init__(self, curves: StoredCurves, seed: int):
        super().__init__(curves, seed)
        self._levels = asha.whole_rungs_of(curves.epochs, STOPPING)
        self._rungs: dict[int, dict[Key, float]] = {level: {} for level in self._levels}
        self._promoted: dict[int, set[Key]] = {level: set() for level in self._levels}

    def next_trial(self) -> tuple[Key, dict[str, Any]] | None:
        for level in reversed(self._open_levels()):
            rung = self._rungs[level]
            best = sorted(rung, key=rung.__getitem__, reverse=True)[: len(rung) // STOPPING.factor]
            for key in best:
                if key not in self._promoted[level]:
                    self._promoted[level].add(key)
                    return self._config(key)
        return super().next_trial()

    def report(self, key: Key, epoch: int, score: float) -> bool:
        if super().report(key, epoch, score):
            return True
        if epoch in self._rungs:
            self._rungs[epoch][key] = score
        return epoch in self._rungs

    def _open_levels(self) -> list[int]:
        """Those that trials may leave."""
        return self._levels


class Pasha(Promotion):
    """Promotion up to a highest rung: the second, and another one whenever the two highest rank trials unlike."""

    def __init__(self, curves: StoredCurves, seed: int):
        super().__init__(curves, seed)
        self._seen: defaultdict[Key, list[float]] = defaultdict(list)
        self._highest = 1  # index of a level; one more than the last: the trials' end
        self._epsilon = 0.0

    def report(self, key: Key, epoch: int, score: float) -> bool:
        leaves = super().report(key, epoch, score)
        self._seen[key].append(score)
        if self._highest < len(self._levels):
            below, top = self._levels[self._highest - 1], self._levels[self._highest]
            self._epsilon = noise_between(list(self._seen.values()), above=below, otherwise=self._epsilon)
            self._highest += not same_ranking(self._rungs[top], self._rungs[below], self._epsilon)
        return leaves

    def _open_levels(self) -> list[int]:
        return self._levels[: self._highest]


def noise_between(curves: Sequence[Sequence[float]], *, above: int, otherwise: float) -> float:
    """PASHA's ε: how far curves lie apart that have crossed twice, at the last epoch of both if it is `above` that."""
    distances = []
    for one, other in combinations(curves, 2):
        last = min(len(one), len(other)) - 1
        crossings = [a > b for a, b in zip(one, other, strict=False)]
        if last >= above and sum(now != then for then, now in pairwise(crossings)) >= 2:
            distances.append(abs(one[last] - other[last]))
    return float(np.percentile(distances, PERCENTILE)) if distances else otherwise


def same_ranking(top: dict[Key, float], below: dict[Key, float], epsilon: float) -> bool:
    """Whether every trial of the higher rung has the place that it had below, or that of one within ε of it."""
    ranked = sorted(top, key=top.__getitem__, reverse=True)
    ranked_below = sorted(top, key=below.__getitem__, reverse=True)
    return all(abs(below[key] - below[there]) <= epsilon for key, there in zip(ranked, ranked_below, strict=True))


CONTENDERS: dict[str, Callable[[StoredCurves, int], Search]] = {
    "asha": Asha,
    "late-asha": partial(Asha, stopping=LATE),
    "promotion": Promotion,
    "pasha": Pasha,
    "hyperband": Hyperband,
    "none": DrawnOrder,
}


# ---- the comparison


@dataclass(frozen=True)
class Replay:
    """What came of a search."""

    regrets: list[float]  # at each budget, then at its end
    epochs: int  # until its end


def replayed(seed: int, curves: StoredCurves, contender: str, budgets: Sequence[int]) -> Replay:
    """A search until no trial is left to run; budgets are epochs, and a search that is over keeps its last regret."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    clock, found = Clock(CONTENDERS[contender](curves, seed), curves), []
    for epoch in range(1, max(*budgets, sum(map(len, curves.scores))) + 1):
        clock.step()
        if epoch in budgets:
            found.append(clock.best[1])
    return Replay([*found, clock.best[1]], sum(clock.epochs_done.values()))


def main() -> int:
    options = build_parser().parse_args()
    rows = []
    try:
        stored = curves_in(Path(options.study) if options.study else small_study())
    except ValueError as error:
        raise SystemExit(str(error)) from None
    with ProcessPoolExecutor(options.processes) as pool:
        for curves in stored:
            rows += compare(measure(pool, curves, options.seeds, options.budgets), curves.arm, options.budgets)
    print_table(rows, options.seeds)
    write_results("stopping_rules", {"seeds": options.seeds, "study": options.study or ASKED, "rows": rows})
    return 0


def build_parser() -> argparse.ArgumentParser:
    first_line = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stopping_rules", description=first_line)
    parser.add_argument("--study", metavar="runs/NAME", help="a study of --early-stopping none; default: a small one")
    parser.add_argument("--seeds", type=count, default=200, help="orders of each arm's trials (%(default)s)")
    parser.add_argument(
        "--budgets", type=count, nargs="+", default=[2, 4, 6, 8, 12, 16], help="in full trainings, rising"
    )
    parser.add_argument("--processes", type=count, default=2)
    return parser


def small_study() -> Path:
    """The folder of the study that is run for this; a run that was broken off goes on."""
    more = ["--early-stopping", "none", "--name", CURVES, "--out", str(RUNS), "--tracking-uri", "none"]
    subprocess.run([sys.executable, "-m", "study.launch", *ASKED.split(), *more], check=True)
    return RUNS / CURVES


def measure(
    pool: Executor, curves: StoredCurves, seeds: int, budgets: Sequence[int]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By contender: regrets, (seeds, budgets + 1), and epochs until the end, (seeds,)."""
    spent = [curves.epochs * budget for budget in budgets]
    measured = {}
    for name in CONTENDERS:
        found = list(pool.map(partial(replayed, curves=curves, contender=name, budgets=spent), range(seeds)))
        measured[name] = np.array([one.regrets for one in found]), np.array([one.epochs for one in found])
    return measured


def compare(
    measured: dict[str, tuple[np.ndarray, np.ndarray]], arm: str, budgets: Sequence[int]
) -> list[dict[str, Any]]:
    """One row per budget and contender: mean and median with their intervals, and ASHA held against it."""
    return [
        {
            "arm": arm,
            "budget": budget,
            "contender": name,
            "epochs": float(np.mean(epochs)),
            "mean": float(np.mean(values[:, column])),
            "mean_interval": ends(mean_interval(values[:, column])),
            "median": float(np.median(values[:, column])),
            "median_interval": ends(median_interval(values[:, column].tolist(), level=LEVEL)),
            "asha_against_it": paired(measured["asha"][0][:, column], values[:, column]),
        }
        for column, budget in enumerate([*budgets, "all"])
        for name, (values, epochs) in measured.items()
    ]


def mean_interval(values: np.ndarray) -> Interval:
    """By Student's t."""
    half = float(stats.sem(values) * stats.t.ppf((1 + LEVEL) / 2, len(values) - 1))
    return Interval(low=float(np.mean(values)) - half, high=float(np.mean(values)) + half, coverage=LEVEL)


def ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def print_table(rows: list[dict[str, Any]], seeds: int) -> None:
    print(f"regret in points over {seeds} orders; ASHA against the others: orders better/worse, p, verdict")
    print(f"{'arm':13} budget  {'rule':10}  mean (95 %)          median (95 %)        asha against it")
    for row in rows:
        mean, median = (with_interval(row[name], row[f"{name}_interval"]) for name in ("mean", "median"))
        against = "" if row["contender"] == "asha" else in_words(row["asha_against_it"])
        epochs = f"  {row['epochs']:.0f} epochs" if row["budget"] == "all" else ""
        print(
            f"{row['arm']:13} {row['budget']:>6}  {row['contender']:10}  {mean:19}  {median:19}  {against:26}{epochs}"
        )


def with_interval(value: float, interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{100 * value:5.2f} ({100 * low:.2f}-{100 * high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
