"""What trials have cost in all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from study.facts.events import EpochReported
from study.facts.record import Record


@dataclass
class Totals:
    """Sums over trials, kept up to date, so that nobody has to go through the trials for them."""

    trials: int = 0
    epochs: int = 0
    gpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    most_gpu_seconds: float = 0.0  # of one ended trial

    def add(self, other: Totals) -> None:
        self.trials += other.trials
        self.epochs += other.epochs
        self.gpu_seconds += other.gpu_seconds
        self.wall_seconds += other.wall_seconds
        self.most_gpu_seconds = max(self.most_gpu_seconds, other.most_gpu_seconds)

    @staticmethod
    def of_record(record: Record) -> Totals:
        gpu_seconds = record.gpu_seconds
        return Totals(1, record.epochs, gpu_seconds, record.wall_seconds, most_gpu_seconds=gpu_seconds)

    def add_epoch(self, before: EpochReported | None, now: EpochReported) -> None:
        """Adds what a trial has done from one report, or from its beginning, to another."""
        if before is None:
            self.trials += 1
            self.epochs += now.row.epoch
            self.gpu_seconds += now.gpu_seconds
            self.wall_seconds += now.wall_seconds
        else:
            self.epochs += now.row.epoch - before.row.epoch
            self.gpu_seconds += now.gpu_seconds - before.gpu_seconds
            self.wall_seconds += now.wall_seconds - before.wall_seconds

    @staticmethod
    def of(several: Iterable[Totals]) -> Totals:
        """Their sum."""
        total = Totals()
        for own in several:
            total.add(own)
        return total
