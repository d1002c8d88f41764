"""Rows and outcome of a pretraining in the terms of a trial, as the journal has them. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from trainables.encoders.backbones import backbone_fingerprint
from trainables.runs.pretraining_trial import PretrainingOutcome, PretrainingRow
from trainables.runs.trial import EpochRow, Outcome


def epoch_row(row: PretrainingRow, *, num_layers: int) -> EpochRow:
    """The epoch as one of a trial: nothing of it is a score of a GLUE task, and nothing exits."""
    return EpochRow(
        epoch=row.epoch,
        selection_score=row.score,
        score=None,
        metrics=_metrics(row.scores, row.steps, row.tokens),
        mean_layers=float(num_layers),
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
        mean_layers=float(num_layers),
        train_examples=outcome.examples,
        train_seconds=outcome.train_seconds,
        eval_seconds=outcome.eval_seconds,
        data_differences=(),
        model=outcome.model,
        model_fingerprint=backbone_fingerprint(outcome.model),
    )


def _metrics(scores: Mapping[str, float], steps: int, tokens: int) -> dict[str, float]:
    return {**scores, "steps": float(steps), "tokens": float(tokens)}
