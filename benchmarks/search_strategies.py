"""Which sampler finds the best configuration in a small search: their regret, as a ratio to random search.

    python -m study.launch --profile mini --method palbert --task cola,sst2 --sampler random --samples 120 --seeds 1 \\
        --early-stopping none --name surface
    python -m benchmarks.search_strategies runs/surface --trials 4 8 10 16

The surface of an arm is what its recorded trials scored, between them the mean of the nearest three. Searches of other
seeds are run on it, without ASHA, by the study's own proposals. Regret: the mean of the three best trials, which is the
most of any place, minus the best that a search found, in points. Writes `benchmarks/results/search_strategies.json`.

    python -m benchmarks.search_strategies --exit-settings 200

What it gains to evaluate every exit setting of each trial instead of searching for one: so many simulated
configurations of PABEE (see `simulate`), and searches that draw from them with a patience each, or with all. One half
of the examples chooses, the other scores the choice. Regret is to the choice among all. Writes
`benchmarks/results/exit_settings_in_search.json`.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.counts import count
from benchmarks.results_file import write_results
from study.decisions.proposals import Proposals
from study.facts.plan_file import require_plan
from study.facts.study_facts import read_facts
from study.plans.resolution import resolve
from study.plans.resolved_plan import Arm
from trainables.configuration.ranges import Interval
from trainables.models.exit_rules import LayerOutputs, apply_exit, every_patience

SAMPLERS = ("random", "tpe", "qmc", "grid", "cmaes", "gp")
NEAREST = 3
DEPTH, EXAMPLES = 12, 1_000  # of the models of --exit-settings


class Surface:
    """The scores of an arm's recorded search trials, and between them."""

    def __init__(self, folder: Path, arm: Arm) -> None:
        self._arm = arm
        trials = [trial for trial in read_facts(folder).arms[arm.name].search if trial.record]
        self._places = np.array([self._place(trial.config) for trial in trials])
        self._scores = np.array([100 * trial.record.selection_score for trial in trials if trial.record])
        self.best = float(np.sort(self._scores)[-NEAREST:].mean())  # no place scores more

    def _place(self, config: Any) -> list[float]:
        """The point in a cube: each range from 0 to 1 as it is drawn, and each choice an axis of its own."""
        place: list[float] = []
        for name, allowed in self._arm.space.items():
            match allowed:
                case Interval(low=low, high=high, log=True):
                    place.append(math.log(config[name] / low) / math.log(high / low))
                case Interval(low=low, high=high):
                    place.append((config[name] - low) / (high - low))
                case choices:
                    place += [0.5**0.5 * (config[name] == choice) for choice in choices]
        return place

    def score(self, config: Any) -> float:
        """The mean score of the nearest trials."""
        distances = np.linalg.norm(self._places - self._place(config), axis=1)
        return float(self._scores[np.argsort(distances)[:NEAREST]].mean())


def regret(surface: Surface, arm: Arm, *, sampler: str, trials: int) -> float:
    """What one search, one trial after the other, leaves below the best of the surface."""
    proposals, search = Proposals(arm, sampler=sampler), list[Any]()
    while len(search) < trials and (config := proposals.next(SimpleNamespace(search=search))) is not None:  # type: ignore[arg-type]
        record = SimpleNamespace(status="completed", selection_score=surface.score(config))
        search.append(SimpleNamespace(key=str(len(search)), config=config, scores={}, record=record))
    return surface.best - max(trial.record.selection_score for trial in search)


@dataclass(frozen=True)
class Trained:
    """Random configurations under every patience: what the half that chooses sees, and the other's scores."""

    chosen_by: np.ndarray  # (configurations, settings), points
    layers: np.ndarray  # (configurations, settings), run by the half that chooses
    scores: np.ndarray  # (configurations, settings), points, of the other half


def simulate(number: int, *, seed: int = 0) -> Trained:
    """PABEE with so many random configurations, on simulated layers: twelve, 1,000 examples of two classes.

    A configuration has a chance of a right answer after all layers (normal, 80 ± 4 %) and what it loses at the first
    (uniform, 5 to 40 points, less from layer to layer). An example is as hard for each layer, up to some noise.
    """
    rng, found = np.random.default_rng(seed), []
    share = np.linspace(1 / DEPTH, 1, DEPTH)[:, None]
    rules = every_patience(DEPTH, None)
    for _ in range(number):
        chance = rng.normal(0.8, 0.04) - rng.uniform(0.05, 0.4) * (1 - share) ** 2
        labels, hardness = rng.integers(2, size=EXAMPLES), rng.random(EXAMPLES)
        right = hardness + rng.normal(0, 0.05, (DEPTH, EXAMPLES)) < chance
        outputs = LayerOutputs(np.eye(2)[np.where(right, labels, 1 - labels)])
        results = [apply_exit(rule, outputs) for rule in rules]
        correct = np.stack([result.logits.argmax(axis=1) == labels for result in results])
        layers, half = np.stack([result.exit_layer for result in results]), EXAMPLES // 2
        points = (
            100 * correct[:, :half].mean(axis=1),
            layers[:, :half].mean(axis=1),
            100 * correct[:, half:].mean(axis=1),
        )
        found.append(np.stack(points))
    return Trained(*np.stack(found, axis=1))


def found_by(trained: Trained, *, trials: int, most: float, every: bool, searches: int = 2_000) -> float:
    """The mean score of what searches choose: the best within `most` layers, or else what runs the fewest.

    Args:
        every: whether each trial is evaluated under every patience; otherwise it draws one.
    """
    rng, scores = np.random.default_rng(0), []
    number, settings = trained.scores.shape
    for _ in range(searches):
        rows = rng.choice(number, size=min(trials, number), replace=trials > number)
        drawn = np.zeros((len(rows), settings), dtype=bool)
        drawn[np.arange(len(rows)), rng.integers(settings, size=len(rows))] = True
        tried = np.ones_like(drawn) if every else drawn
        over = np.maximum(trained.layers[rows] - most, 0)  # first within the layers, then by score
        value = np.where(tried, trained.chosen_by[rows] - 1e3 * over, -np.inf)
        row, setting = np.unravel_index(value.argmax(), value.shape)
        scores.append(float(trained.scores[rows[row], setting]))
    return fmean(scores)


def compare_exit_settings(number: int) -> list[dict[str, Any]]:
    """Prints and returns what searches find with a patience among what is searched, and with all evaluated."""
    rows, trained = [], simulate(number)
    for most, trials in itertools.product((DEPTH, DEPTH / 2), (4, 8, 16)):
        best = found_by(trained, trials=number, most=most, every=True, searches=1)
        searched, every = (found_by(trained, trials=trials, most=most, every=own) for own in (False, True))
        more = (n for n in range(trials, number) if found_by(trained, trials=n, most=most, every=False) >= every)
        same = next(more, None)
        numbers = {"best": best, "searched": searched, "every": every, "trials_for_the_same": same}
        rows.append({"most_layers": most, "trials": trials, **numbers})
        more_trials = f"{same / trials:.1f}" if same else f"more than {number / trials:.1f}"
        print(
            f"at most {most:3.0f} layers, {trials:2} trials: {searched:5.1f} with patience searched, {every:5.1f} with "
            f"all evaluated (regret {best - searched:5.2f} and {best - every:5.2f}, ratio "
            f"{(best - every) / (best - searched):4.2f}); as good with {more_trials} times the trials",
            flush=True,
        )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, nargs="?", help="of random search without early stopping")
    parser.add_argument("--exit-settings", type=count, metavar="CONFIGURATIONS")
    parser.add_argument("--trials", type=count, nargs="+", default=[4, 8, 10, 16])
    parser.add_argument("--searches", type=count, default=200, help="of each sampler, on each arm")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=["random", "tpe", "qmc", "grid"])
    options = parser.parse_args(argv)
    if options.exit_settings:
        found = compare_exit_settings(options.exit_settings)
        write_results("exit_settings_in_search", {"configurations": options.exit_settings, "rows": found})
        return 0
    if options.study is None:
        parser.error("give a study, or --exit-settings")
    plan, rows = require_plan(options.study).plan, list[dict[str, Any]]()
    grids = resolve(replace(plan.request, sampler="grid", samples=None))
    for trials in options.trials:
        for arm in plan.first_arms:
            surface = Surface(options.study, arm)
            means: dict[str, float] = {}
            for sampler in dict.fromkeys(["random", *options.samplers]):
                searched = grids.arm(arm.name) if sampler == "grid" else arm
                repeats = 1 if sampler == "grid" else options.searches  # of a grid every search is the same
                arms = [replace(searched, repeat=repeat) for repeat in range(repeats)]
                means[sampler] = fmean(regret(surface, each, sampler=sampler, trials=trials) for each in arms)
                ratio, where = means[sampler] / means["random"], f"{trials:3} trials  {arm.name:16} {sampler:7}"
                rows.append({"trials": trials, "arm": arm.name, "sampler": sampler, "regret": means[sampler]})
                print(
                    f"{where} {means[sampler]:6.2f} points  {ratio:5.2f}",
                    flush=True,
                )
    write_results("search_strategies", {"searches": options.searches, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
