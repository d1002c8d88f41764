"""A pretraining run with what a worker asks of any run: epochs, a saved state, an outcome, what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainables.data.tokenised import cache_folder
from trainables.encoders.backbones import backbone_fingerprint
from trainables.runs.pretraining_run import PretrainingRun, content_of_pretraining
from trainables.runs.pretraining_trial import PretrainingOutcome, PretrainingRow, PretrainingSpec
from trainables.runs.trial import Content, EpochRow, Outcome


class PretrainingTrial:
    """The run in the terms of a trial: its last epoch is the selected one, and every example runs all layers."""

    def __init__(self, run: PretrainingRun) -> None:
        self.run = run

    @classmethod
    def new(cls, spec: PretrainingSpec, device: str) -> PretrainingTrial:
        return cls(PretrainingRun(spec, device=device, cache=cache_folder()))

    @classmethod
    def resume(cls, folder: Path, spec: PretrainingSpec, device: str) -> PretrainingTrial:
        """The run that was saved in `folder`; see `PretrainingRun.resume`."""
        return cls(PretrainingRun.resume(folder, spec=spec, device=device, cache=cache_folder()))

    def content(self) -> Content:
        """What it is made of, by what this process has read."""
        return content_of_pretraining(self.run)

    @property
    def history(self) -> list[EpochRow]:
        return [epoch_row(row, num_layers=self.run.num_layers) for row in self.run.history]

    def run_epoch(self) -> EpochRow:
        """Trains for an epoch; see `PretrainingRun.run_epoch`."""
        return epoch_row(self.run.run_epoch(), num_layers=self.run.num_layers)

    def save(self, folder: Path) -> None:
        """Replaces what is saved in `folder`."""
        self.run.save(folder)

    def outcome(self, predictions: Path | None = None) -> Outcome:
        """The outcome, with the content of the model that is left, as a backbone. There are no predictions."""
        assert predictions is None
        return outcome_of(self.run.outcome(), num_layers=self.run.num_layers)


def epoch_row(row: PretrainingRow, *, num_layers: int) -> EpochRow:
    """The epoch as one of a trial: nothing of it is a score of a GLUE task, and nothing exits."""
    return EpochRow(
        epoch=row.epoch,
        selection_score=row.score,
        score=None,
        metrics=_metrics(row.scores, row.steps, row.tokens),
        mean_layers=num_layers,
        num_layers=num_layers,
        exit_histogram=[],
        train_loss=row.train_loss,
        train_examples=row.examples,
        train_seconds=row.train_seconds,
        eval_seconds=row.eval_seconds,
        best_epoch=row.epoch,
        improved=True,
        finished=row.finished,
    )


def outcome_of(outcome: PretrainingOutcome, *, num_layers: int) -> Outcome:
    """The outcome as that of a trial."""
    assert outcome.model is not None
    return Outcome(
        score=outcome.score,
        selection_score=outcome.score,
        metrics=_metrics(outcome.scores, outcome.steps, outcome.tokens),
        epoch=outcome.epochs,
        epochs=outcome.epochs,
        num_layers=num_layers,
        num_parameters=outcome.num_parameters,
        mean_layers=num_layers,
        train_examples=outcome.examples,
        train_seconds=outcome.train_seconds,
        eval_seconds=outcome.eval_seconds,
        data_differences=(),
        model=outcome.model,
        model_fingerprint=backbone_fingerprint(outcome.model),
    )


def _metrics(scores: Mapping[str, float], steps: int, tokens: int) -> dict[str, float]:
    return {**scores, "steps": steps, "tokens": tokens}
