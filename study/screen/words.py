"""Numbers and trials in words, the same on every screen."""

from __future__ import annotations

from study.facts.record import Record
from study.facts.study_facts import TrialFacts


def clock(seconds: float) -> str:
    """`75` as `1:15`, `3675` as `1:01:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def points(score: float | None) -> str:
    """A score in [-1, 1] as the papers print it; nothing where there is none."""
    return "" if score is None else f"{100 * score:.1f}"


def trial_name(trial: TrialFacts) -> str:
    started = trial.started
    return f"{started.arm} {started.phase} {started.trial}"


def describe_record(record: Record) -> str:
    """An ended trial in a line."""
    if record.status == "failed":
        return f"{_record_name(record)} failed: {record.error}"
    verb = f"stopped at epoch {record.epochs}" if record.status == "stopped" else f"{record.epochs} epochs"
    score = points(record.selection_score if record.score is None else record.score)
    return f"{_record_name(record)}: {score} ({verb}, {record.mean_layers:.1f} layers)"


def describe_failure(record: Record) -> str:
    """A failed trial and its error in a line."""
    return f"{_record_name(record)}: {record.error}"


def _record_name(record: Record) -> str:
    return f"{record.arm} {record.phase} {record.trial}"
