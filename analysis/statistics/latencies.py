"""Measured time of a cell's models, by the settings of their exit: medians over the confirm records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from analysis.studies.cells import Cell
from study.facts.plain_words import counted
from trainables.runs.trial import ExitLatency, Latency


@dataclass(frozen=True)
class TimedExit:
    """One setting of the exit at one batch size."""

    milliseconds: float  # per example
    time_ratio: float  # of all layers' milliseconds to these
    layer_ratio: float  # depth to the layers run by the timed examples


@dataclass(frozen=True)
class MeasuredExit:
    """One setting of the exit."""

    rule: str
    setting: float | None
    flops: float  # per example
    by_batch_size: dict[int, TimedExit]

    @property
    def name(self) -> str:
        """`threshold 0.5`, `all layers`."""
        if self.rule == "last":
            return "all layers"
        return self.rule if self.setting is None else f"{self.rule} {self.setting:.3g}"


def latencies_of(cell: Cell) -> list[Latency]:
    """Of the records that have one."""
    return [record.latency for record in cell.records if record.latency is not None]


def measured_exits(cell: Cell) -> list[MeasuredExit]:
    """Every setting that was timed, the models' own first; empty where nothing was."""
    latencies = latencies_of(cell)
    settings = dict.fromkeys((own.rule, own.setting) for latency in latencies for own in latency.exits)
    return [_measured_exit(latencies, *setting) for setting in settings]


def devices_in_words(cells: Iterable[Cell]) -> str:
    """What the cells' models were timed on; empty where nothing was."""
    latencies = [latency for cell in cells for latency in latencies_of(cell)]
    return " or ".join(dict.fromkeys(f"{own.device}, {counted(own.threads, 'thread')}" for own in latencies))


def _measured_exit(latencies: list[Latency], rule: str, setting: float | None) -> MeasuredExit:
    pairs = [
        (own, latency.all_layers)
        for latency in latencies
        for own in latency.exits
        if (own.rule, own.setting) == (rule, setting)
    ]
    sizes = dict.fromkeys(timing.batch_size for own, _ in pairs for timing in own.timings)
    return MeasuredExit(
        rule, setting, _median(own.flops for own, _ in pairs), {size: _timed_exit(pairs, size) for size in sizes}
    )


def _timed_exit(pairs: list[tuple[ExitLatency, ExitLatency]], batch_size: int) -> TimedExit:
    found = [(own.timing(batch_size), whole.timing(batch_size)) for own, whole in pairs]
    timings = [(own, whole) for own, whole in found if own and whole]
    return TimedExit(
        milliseconds=_median(own.milliseconds for own, _ in timings),
        time_ratio=_median(whole.milliseconds / own.milliseconds for own, whole in timings),
        layer_ratio=_median(whole.mean_layers / own.mean_layers for own, whole in timings),
    )


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))
