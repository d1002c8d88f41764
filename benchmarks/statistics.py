"""Whether the statistics keep what they state: simulated studies of which the truth is known.

    python -m benchmarks.statistics                  # everything, about ten minutes
    python -m benchmarks.statistics search verdict   # these alone
    python -m benchmarks.statistics --quick          # a tenth of the repetitions

Each line is a rate with its Monte-Carlo standard error, beside the level that is stated. A rate counts as off beyond
three standard errors; exit status 1 if any is. Writes `benchmarks/results/statistics.json`.

    null          tables of five methods on eight tasks that are all alike: how often a table marks anything
    freedom       the t-test of a difference with two kinds of variance, at the level of the first of 32 comparisons
    unequal       two methods that are alike, one with 2 or 3 seeds, the other with 5 or 10: how often they differ
    drops         two methods that are alike, and a user who drops seeds that hide a difference: how often they differ
    search        methods that are alike, each searched afresh: how often their chosen configurations differ
    mean          coverage of the interval of a mean score, and of those of several methods' means over the tasks
    metrics       coverage of the interval of a mean score in the other metrics, also if some seeds failed to train
    differences   coverage of the interval of a difference, and marks among rows other than the baseline
    repeats       methods that are alike, each searched several times: level and coverage of the test over searches
    power         how often a study on RTE's 277 examples finds a true difference of the size that another study, which
                  found nothing, printed as found with 80 % power
    planned       how often a study finds the difference that the dry run predicts from the spread of another study
    verdict       coverage against a published median, and how often each word is wrong
    verdict-on-dev  the same, with models that answer the same dev examples
    searched      the same number searched and published afresh: how often it is called not reproduced
    looks         methods alike, in a study that grows by seeds, tasks, methods ... until one is marked: how often the
                  last table does, or any did
    epochs        two methods alike, of which dev chose the best epochs of many or of few: refused, and why
    chosen        coverage of the interval of a mean score, and of a difference, if each trial kept the best of 6 or 25
                  epochs by its score on the same dev rows, or on a holdout
    constant      models that are right as often as one answer for all examples: how often ° is left out
    curves        two methods alike over layers, one with 2 exit settings, one with 30: how often their curves differ
    gains         exits by the toss of a coin, and exits that know hard examples: coverage of the gain's interval,
                  and how often blind exits are called better than a coin
    rules         greatest probability against other exits of the same models, with no more layers: coverage of the
                  interval of the difference, and how often one is called better if none is
    safe          exits that are shown to lose few right answers: how often they lose more on new examples, if the model
                  or the rule was chosen on the same rows
    times         coverage of the interval of a ratio of two methods' times, and how often two methods that take equally
                  long differ
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict

from benchmarks.rates import Rate
from benchmarks.results_file import write_results
from benchmarks.simulated_choices import (
    best_epochs,
    chosen_epochs,
    dropped_seeds,
    looks_at_tables,
    repeats_of_searches,
    searched_and_published,
    searched_once,
    verdicts,
    verdicts_on_dev,
)
from benchmarks.simulated_exits import curves_of_exits, gains_of_exits, rules_at_equal_layers, safe_exits
from benchmarks.simulated_scores import (
    as_good_as_a_constant,
    degrees_of_freedom,
    differences_of_methods,
    mean_scores,
    null_tables,
    other_metrics,
    planned_power,
    power_on_rte,
    unequal_seeds,
)
from benchmarks.simulated_times import ratios_of_times

QUICK = 10


def main() -> int:
    options = build_parser().parse_args()
    rates: dict[str, list[Rate]] = {}
    for name in options.simulations or SIMULATIONS:
        print(f"{name}:", flush=True)
        rates[name] = []
        for rate in SIMULATIONS[name](QUICK if options.quick else 1):
            rates[name].append(rate)
            print(f"  {rate.describe()}", flush=True)
    facts = {name: [asdict(rate) | {"error": rate.error} for rate in own] for name, own in rates.items()}
    write_results("statistics", {"quick": options.quick, "rates": facts})
    return 0 if all(rate.holds for own in rates.values() for rate in own) else 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.statistics", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("simulations", nargs="*", metavar="NAME", help=", ".join(SIMULATIONS))
    parser.add_argument("--quick", action="store_true", help=f"repetitions divided by {QUICK}")
    return parser


SIMULATIONS: dict[str, Callable[[int], Iterator[Rate]]] = {
    "null": null_tables,
    "freedom": degrees_of_freedom,
    "unequal": unequal_seeds,
    "drops": dropped_seeds,
    "search": searched_once,
    "mean": mean_scores,
    "metrics": other_metrics,
    "differences": differences_of_methods,
    "repeats": repeats_of_searches,
    "power": power_on_rte,
    "planned": planned_power,
    "verdict": verdicts,
    "verdict-on-dev": verdicts_on_dev,
    "searched": searched_and_published,
    "looks": looks_at_tables,
    "epochs": chosen_epochs,
    "chosen": best_epochs,
    "constant": as_good_as_a_constant,
    "curves": curves_of_exits,
    "gains": gains_of_exits,
    "rules": rules_at_equal_layers,
    "safe": safe_exits,
    "times": ratios_of_times,
}


if __name__ == "__main__":
    sys.exit(main())
