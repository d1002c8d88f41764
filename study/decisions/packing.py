"""How much of a GPU a trial gets: what its memory needs, and no less than one of as many parts as pay off.

Ray cannot change what an actor holds, so a trial that runs, or waits for its slot, keeps its share until its end, and
the next one gets the new share. Trials are added to a GPU one by one: n + 1 share it once n were measured to do at
least `LEAST_GAIN` times the trials per hour of n - 1; where they do not, n - 1 share it from there on. All of that is
read off the journal, so a launch that goes on decides as the one before would have.
"""

from __future__ import annotations

import math
from statistics import median

from study.facts.study_facts import ArmFacts, StudyFacts, TrialFacts

MARGIN = 1.25  # over the measured memory: for the CUDA context, which PyTorch does not count, and longer batches
LEAST_GAIN = 1.05  # in trials per hour, that one trial more on a GPU must bring
MEASURED_EPOCHS = 8  # that a number of trials is judged by, at least
_PARTS = 10_000  # of a GPU: as fine as Ray divides one


def gpu_share(trial: TrialFacts, facts: StudyFacts) -> float:
    """The part of a GPU that the trial gets if it is handed out now."""
    part = math.floor(_PARTS / trials_at_once(facts)) / _PARTS
    return max(part, memory_share(trial, facts.arm(trial.started.arm)))


def memory_share(trial: TrialFacts, arm: ArmFacts) -> float:
    """The part of a GPU whose memory the trial needs: a whole one before any is measured; else, with a margin, the most
    that the arm's trials of its precision and batch size have held, or those of the next larger one."""
    measured: dict[int, float] = {}
    alike = [other for other in arm.trials if other.config.get("precision") == trial.config.get("precision")]
    for other in alike:
        if other.last and other.last.report.gpu_share:
            size = _batch_size(other)
            measured[size] = max(other.last.report.gpu_share, measured.get(size, 0.0))
    enough = [size for size in measured if size >= _batch_size(trial)]
    return min(1.0, math.ceil(20 * MARGIN * measured[min(enough)]) / 20) if enough else 1.0


def trials_at_once(facts: StudyFacts) -> int:
    """How many trials that start now may share a GPU, if their memory lets them: the most that pay off, or one more
    while that is not measured."""
    rates = measured_rates(facts)
    return len(rates) + 1 if _pays_off(rates) else len(rates) - 1


def measured_rates(facts: StudyFacts) -> list[float]:
    """Trials per hour of one trial on a GPU, of two, three, ... as multiples of one alone; up to the first number that
    is not measured or does not pay off."""
    rates: list[float] = []
    while _pays_off(rates) and (rate := _rate(facts, len(rates) + 1)) is not None:
        rates.append(rate)
    return rates


def _pays_off(rates: list[float]) -> bool:
    """Whether the last trial that was added did."""
    return len(rates) < 2 or rates[-1] >= LEAST_GAIN * rates[-2]


def _rate(facts: StudyFacts, number: int) -> float | None:
    """Of `number` trials on a GPU, by the median of their epochs, each compared with those of the same arm, batch size
    and precision that ran alone; None where too few can be.

    The first trial of an arm runs alone, for its memory is unknown.
    """
    speeds = [
        median(alone) / seconds
        for arm in facts.arms.values()
        for (alike, at_once), epochs in arm.epoch_seconds.items()
        if at_once == number and (alone := arm.epoch_seconds.get((alike, 1)))
        for seconds in epochs
    ]
    return number * median(speeds) if len(speeds) >= MEASURED_EPOCHS else None


def _batch_size(trial: TrialFacts) -> int:
    size = trial.config["batch_size"]
    assert isinstance(size, int)
    return size
