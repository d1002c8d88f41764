"""Which sampler finds the best configuration in a small search: their regret, as a ratio to random search.

    python -m study.launch --profile mini --method palbert --task cola,sst2 --sampler random --samples 120 --seeds 1 \\
        --early-stopping none --name surface
    python -m benchmarks.search_strategies runs/surface --trials 4 8 10 16

The surface of an arm is what its recorded trials scored, between them the mean of the nearest three. Searches of other
seeds are run on it, without ASHA, by the study's own proposals. Regret: the mean of the three best trials, which is the
most of any place, minus the best that a search found, in points. Writes `benchmarks/results/search_strategies.json`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.counts import count
from benchmarks.results_file import write_results
from study.decisions.proposals import Proposals
from study.facts.study_facts import read_facts
from study.plans.plan_file import require_plan
from study.plans.resolution import resolve
from study.plans.resolved_plan import Arm

SAMPLERS = ("random", "tpe", "qmc", "grid", "cmaes", "gp")
NEAREST = 3


class Surface:
    """The scores of an arm's recorded search trials, and between them."""

    def __init__(self, folder: Path, arm: Arm) -> None:
        self._arm = arm
        trials = [trial for trial in read_facts(folder).arm(arm.name).search if trial.record]
        self._places = np.array([self._place(trial.config) for trial in trials])
        self._scores = np.array([100 * trial.record.selection_score for trial in trials if trial.record])
        self.best = float(np.sort(self._scores)[-NEAREST:].mean())  # no place scores more

    def _place(self, config: Any) -> list[float]:
        """The point in a cube: each range from 0 to 1 as it is drawn, and each choice an axis of its own."""
        place: list[float] = []
        for name, allowed in self._arm.space.items():
            match allowed.attributes:
                case {"choices": list(choices)}:
                    place += [0.5**0.5 * (config[name] == choice) for choice in choices]
                case {"low": low, "high": high, "log": True}:
                    place.append(math.log(config[name] / low) / math.log(high / low))
                case {"low": low, "high": high}:
                    place.append((config[name] - low) / (high - low))
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="of random search without early stopping")
    parser.add_argument("--trials", type=count, nargs="+", default=[4, 8, 10, 16])
    parser.add_argument("--searches", type=count, default=200, help="of each sampler, on each arm")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=["random", "tpe", "qmc", "grid"])
    options = parser.parse_args(argv)
    plan, rows = require_plan(options.study).plan, list[dict[str, Any]]()
    grids = resolve(replace(plan.asked, sampler="grid", samples=None))
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
