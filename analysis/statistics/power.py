"""Predict which differences between two methods a study will find: `python -m analysis.statistics.power < REQUEST`.

The test is that of the tables. `study.launch --dry-run` sends the request, because `study` never imports this package.
Without scores of the study itself, the spread of scores is that of the kept real studies (`SPREADS`, which
`python -m benchmarks.seed_spreads` computes). `python -m benchmarks.statistics planned` measures how often simulated
studies find the predicted difference.
"""

from __future__ import annotations

import csv
import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from pathlib import Path

import numpy as np
from scipy import special

from analysis.statistics import uncertainty
from analysis.statistics.comparisons import FEWEST_TO_DETECT, POWER, list_analyses
from analysis.statistics.samples import Scored, draw_samples
from analysis.statistics.uncertainty import Variance
from analysis.studies.cells import make_rows
from analysis.studies.load import Study, load_study
from study.facts.plan_file import FILE as PLAN
from study.plans.resolved_plan import ResolvedPlan
from study.terminal.text import counted, joined, wrap_line
from trainables.configuration.schema import Typed, from_json
from trainables.data.tasks import TASKS, Task

SPREADS = Path(__file__).with_name("seed_spreads.csv")
MORE_SEEDS, MOST_SEEDS = 10, 100
TARGETS = (1, 2, 3)  # points
WIDTH = 100  # columns
_ESTIMATES, _HALVINGS = 16, 30  # of a variance over seeds, and steps of the search for a difference


class Request(Typed, frozen=True, kw_only=True):
    """The study whose power is asked for."""

    plan: ResolvedPlan
    folder: str
    rows: Mapping[str, int]  # dev rows by task
    assumed: Mapping[str, float]  # standard deviation over seeds in points, by task


@dataclass(frozen=True)
class Spread:
    """Variances of scores on a dev set of `rows` examples."""

    rows: int
    over_seeds: float  # variance of a score over seeds
    interaction: float  # part of it: each seed is right on other examples
    over_examples: float  # variance of two methods' difference over dev examples, besides the interaction
    source: str

    def scale(self, rows: int) -> Spread:
        """Return the spread on a dev set of another size. Only the variance of the seeds themselves stays."""
        ratio = self.rows / rows
        return replace(
            self,
            rows=rows,
            over_seeds=max(0.0, self.over_seeds - self.interaction) + ratio * self.interaction,
            interaction=ratio * self.interaction,
            over_examples=ratio * self.over_examples,
        )

    def predict(self, seeds: int, *, comparisons: int) -> float:
        """Predict the true difference that a study finds with 80 % power, with this many seeds of each method."""
        of_mean, level = self.over_seeds / seeds, 1 - uncertainty.ALPHA / comparisons / 2
        places = (np.arange(_ESTIMATES) + 0.5) / _ESTIMATES
        estimates = of_mean * special.chdtri(seeds - 1, places) / (seeds - 1)  # what studies estimate instead
        tests = [
            uncertainty.paired_test(
                0.0, [Variance(self.over_examples, math.inf), Variance(one, seeds - 1), Variance(other, seeds - 1)]
            )
            for one, other in combinations_with_replacement(estimates.tolist(), 2)
        ]
        weights = np.array([1 + (one != other) for one, other in combinations_with_replacement(range(_ESTIMATES), 2)])
        bounds = np.array([special.stdtrit(test.freedom, level) * test.standard_error for test in tests])
        error: float = (self.over_examples + 2 * of_mean) ** 0.5
        low, high = 0.0, float(bounds.max()) + 4 * error
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            found = special.ndtr((middle - bounds) / error) @ weights / weights.sum()
            low, high = (low, middle) if found > POWER else (middle, high)
        return float(high)

    def find_seeds(self, difference: float, *, comparisons: int) -> int | None:
        """Return the fewest seeds that find the difference; None if `MOST_SEEDS` are too few."""
        numbers = range(2, MOST_SEEDS + 1)
        place = bisect_left(numbers, -difference, key=lambda seeds: -self.predict(seeds, comparisons=comparisons))
        return numbers[place] if place < len(numbers) else None


def measure_spread(samples: Sequence[Scored], *, rows: int, source: str) -> Spread | None:
    """Measure the spread of several methods' scores on `rows` dev examples; None if too few seeds have a score.

    The variances are means over the methods, or over the pairs of methods. A single method has no pairs.
    """
    samples = [sample for sample in samples if len(sample.scores) >= FEWEST_TO_DETECT]
    if not samples:
        return None
    pairs = combinations([sample.resampled for sample in samples], 2)
    differences = [uncertainty.variance_over_examples(one, other) for one, other in pairs]
    return Spread(
        rows=rows,
        over_seeds=float(np.mean([np.var(sample.scores, ddof=1) for sample in samples])),
        interaction=float(np.mean([uncertainty.variance_of_interaction(sample.resampled) for sample in samples])),
        over_examples=float(np.mean(differences)) if differences else math.nan,
        source=source,
    )


def read_spreads() -> dict[str, Spread]:
    """Read the spreads of the kept real studies, by task."""
    with SPREADS.open(encoding="utf-8") as file:
        return {
            row["task"]: Spread(
                rows=int(row["rows"]),
                over_seeds=(float(row["over_seeds"]) / 100) ** 2,
                interaction=(float(row["interaction"]) / 100) ** 2,
                over_examples=(float(row["over_examples"]) / 100) ** 2,
                source=f"{TASKS[row['task']].title} in {row['study']}",
            )
            for row in csv.DictReader(file)
        }


def find_default(task: Task) -> Spread | None:
    """Return the spread on the task in the kept real studies, or else on a task with one of its metrics.

    MNLI's two accuracies are one metric. Return None for a metric that no kept study has.
    """
    spreads = read_spreads()
    if task.name in spreads:
        return spreads[task.name]
    metrics = {name.partition("_")[0] for name in task.metrics}
    for other, spread in spreads.items():
        if shared := metrics & {*TASKS[other].metrics}:
            return replace(spread, source=f"{spread.source}, also {'/'.join(sorted(shared))}")
    return None


def measure_own(study: Study, tasks: Iterable[str]) -> dict[str, Spread]:
    """Measure the spreads of a study's own scores, by task; tasks with too few seeds are left out."""
    samples = draw_samples(make_rows([study]))
    own = {task: [sample for (_, name), sample in samples.items() if name == task] for task in tasks}
    measured = {
        task: measure_spread(of_task, rows=len(of_task[0].answers[0].labels), source="this study")
        for task, of_task in own.items()
        if of_task
    }
    return {task: spread for task, spread in measured.items() if spread is not None}


def choose_spread(
    task: Task, *, rows: int, assumed: float | None, own: Spread | None, is_generated: bool = False
) -> Spread | None:
    """Choose the assumed spread over seeds, else the study's own, else that of the kept studies; None if unknown.

    The kept studies are of real data, so they predict no spread over the seeds of a generated task.
    """
    if is_generated and assumed is None and (own is None or math.isnan(own.over_examples)):
        return None
    default = find_default(task)
    default = default and default.scale(rows)
    chosen = own or default
    if chosen is None or (default is None and math.isnan(chosen.over_examples)):
        return None
    if math.isnan(chosen.over_examples) and default is not None:
        chosen = replace(chosen, over_examples=default.over_examples)
    if assumed is not None:
        return replace(chosen, over_seeds=(assumed / 100) ** 2, source="--assume-spread")
    return chosen


def count_comparisons(plan: ResolvedPlan) -> int:
    """Count the comparisons with the baseline in the tables of a plan: rows with its backbone, on each task."""
    baselines = {arm.task: arm for arm in plan.first_arms if arm.method == plan.request.baseline}
    return sum(
        arm.method != plan.request.baseline
        and arm.task in baselines
        and (arm.backbone_fingerprint == baselines[arm.task].backbone_fingerprint or bool(plan.request.test_across))
        for arm in plan.first_arms
    )


def describe_power(request: Request) -> list[str]:
    """Describe by task which difference the study will find four times in five, and the seeds for other differences."""
    plan, folder = request.plan, Path(request.folder)
    number, study = count_comparisons(plan), load_study(folder) if (folder / PLAN).exists() else None
    own = {} if study is None else measure_own(study, plan.request.tasks)
    seen = [] if study is None else study.reported_plans
    analyses = len(list_analyses([*seen, plan.request]))
    tasks = [plan.own_task(name) or TASKS[name] for name in plan.request.tasks]
    spreads = {
        task.title: choose_spread(
            task,
            rows=request.rows[task.name],
            assumed=request.assumed.get(task.name),
            own=own.get(task.name),
            is_generated=plan.request.is_generated,
        )
        for task in tasks
    }
    known = {title: spread for title, spread in spreads.items() if spread is not None}
    generated = f"the data are generated, and fewer than {counted(FEWEST_TO_DETECT, 'seed')} of two methods have scores"
    unknown = [
        f"power on {task.title} is unknown"
        + (
            f": {generated}; --assume-spread POINTS predicts it"
            if plan.request.is_generated and find_default(task)
            else f" before its first scores, because no kept study has {joined(task.metrics)}, and --assume-spread is "
            "the spread over seeds alone, not over dev examples"
        )
        for task in tasks
        if task.title not in known
    ]
    return [*(_format_table(known, plan.request.seeds, number, analyses) if known else []), *unknown]


def _format_table(spreads: Mapping[str, Spread], seeds: int, number: int, analyses: int) -> list[str]:
    numbers = [each for each in dict.fromkeys((seeds, MORE_SEEDS)) if each > 1]
    heads = ["task", "dev rows", "spread", *(f"{each} seeds" for each in numbers), *(f"for {each}" for each in TARGETS)]
    rows = [heads]
    for title, spread in spreads.items():
        corrected = max(1, number) * analyses
        found = [f"{100 * spread.predict(each, comparisons=corrected):.1f}" for each in numbers]
        needed = [spread.find_seeds(target / 100, comparisons=corrected) for target in TARGETS]
        seeds_needed = [f">{MOST_SEEDS}" if each is None else str(each) for each in needed]
        rows.append([title, f"{spread.rows:,}", f"{100 * spread.over_seeds**0.5:.1f}", *found, *seeds_needed])
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    table = [
        "  ".join([f"  {row[0]:{first}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))])
        for row in rows
    ]
    sources: dict[str, list[str]] = {}
    for title, spread in spreads.items():
        sources.setdefault(spread.source, []).append(title)
    return [
        "power: the points that a test finds four times in five, and the seeds that find 1, 2 and 3 points",
        *table,
        *(f"spread over seeds on {joined(titles)}: {source}" for source, titles in sources.items()),
        f"the tables make {counted(number, 'comparison')} with the baseline"
        if number
        else "the tables make no comparison with the baseline; these numbers are for one",
        *[f"p-values are corrected for {analyses} analyses of this study"] * (analyses > 1),
    ]


def main() -> int:
    """Read a `Request` from standard input, and print the lines."""
    request = from_json(Request, sys.stdin.buffer.read(), where="the request")
    for line in describe_power(request):
        print(wrap_line(line, WIDTH))
    return 0


if __name__ == "__main__":
    sys.exit(main())
