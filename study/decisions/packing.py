"""How much of a GPU a trial needs, by what the arm's trials have held."""

from __future__ import annotations

import math

from study.facts.study_facts import ArmFacts, TrialFacts

MARGIN = 1.25  # over the measured memory: for the CUDA context, which PyTorch does not count, and longer batches


def gpu_share(trial: TrialFacts, arm: ArmFacts) -> float:
    """The part of a GPU that the trial needs: a whole one before any is measured; else, with a margin, the most that
    the arm's trials of its precision and batch size have held, or those of the next larger one."""
    measured: dict[int, float] = {}
    alike = [other for other in arm.trials if other.config.get("precision") == trial.config.get("precision")]
    for other in alike:
        if other.last and other.last.report.gpu_share:
            size = _batch_size(other)
            measured[size] = max(other.last.report.gpu_share, measured.get(size, 0.0))
    enough = [size for size in measured if size >= _batch_size(trial)]
    return min(1.0, math.ceil(20 * MARGIN * measured[min(enough)]) / 20) if enough else 1.0


def _batch_size(trial: TrialFacts) -> int:
    size = trial.config["batch_size"]
    assert isinstance(size, int)
    return size
