"""The reported epochs of a study's trials, and the parts of the training loss in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analysis.studies.load import Study
from study.facts.events import EpochReported, read_events
from trainables.runs.trial import Losses


def read_epochs(study: Study) -> list[EpochReported]:
    """Read the reported epochs of all trials, each once, without those before a restart from scratch."""
    reported = {(e.key, e.row.epoch): e for e in read_events(study.folder) if isinstance(e, EpochReported)}
    trials = study.facts.trials
    return [event for (key, epoch), event in reported.items() if key in trials and epoch in trials[key].scores]


@dataclass(frozen=True)
class LossPoint:
    """The parts of the loss at one point of a trial, as means over the steps since the point before."""

    step: int  # training step of the trial
    epochs: float  # done so far, such as 1.5
    means: Mapping[str, float]  # by name; NaN: not finite, or absent


def list_loss_points(event: EpochReported) -> Iterator[LossPoint]:
    """List the points of an epoch; there are none in older journals."""
    losses, before = event.row.losses, event.row.epoch - 1
    for place, step in enumerate(losses.steps if losses else ()):
        assert losses is not None
        num_steps = losses.steps[-1]
        means = {name: _to_number(values[place]) for name, values in losses.means.items()}
        yield LossPoint(before * num_steps + step, before + step / num_steps, means)


def compute_epoch_means(losses: Losses | None) -> dict[str, float]:
    """Compute the mean of each part of the loss over the epoch; NaN if a point lacks it."""
    if losses is None:
        return {}
    spans = [end - start for start, end in zip((0, *losses.steps[:-1]), losses.steps, strict=True)]
    return {
        name: sum(span * _to_number(value) for span, value in zip(spans, values, strict=True)) / losses.steps[-1]
        for name, values in losses.means.items()
    }


def _to_number(value: float | None) -> float:
    return math.nan if value is None else value
