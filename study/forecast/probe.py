"""Measures on this machine what a trial of each arm costs: `python -m study.launch --dry-run --probe`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from study.forecast.estimate import Measured
from study.plans.resolved_plan import ResolvedPlan
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec
from trainables.sources import cache_folder

_STEPS = 5


def probe(resolved: ResolvedPlan) -> Iterator[tuple[str, Measured]]:
    """(name, cost) of each arm, one after the other: a few training steps and evaluation batches of one trial."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # as a trial has
    for arm in resolved.arms:
        spec = TrialSpec(
            method=arm.method,
            task=arm.task,
            config=arm.any_configuration,
            seed=0,
            data=resolved.asked.data,
            backbone=arm.pinned_backbone,
            tokenizer=arm.pinned_tokenizer,
        )
        run = TrainingRun(spec, device=device, cache=cache_folder())
        yield arm.name, Measured(run.measure_epoch_seconds(steps=_STEPS), run.model_bytes, "probe")
