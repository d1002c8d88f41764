"""The search trials of an arm as far as its journal knows them: the scores of their epochs, and what comes after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from study.facts.events import AshaDecided, EpochReported, Event
from study.facts.study_facts import ArmFacts, TrialFacts
from trainables.schema import Configuration

Moments = Mapping[tuple[str, int], int]  # (key of a trial, epoch) -> place in the journal


@dataclass(frozen=True)
class Epoch:
    """An epoch of a trial."""

    score: float  # its selection score
    seconds: float  # wall clock of the trial so far
    moment: float  # its place in the journal; inf: some time later, as of epochs that an audit has added


@dataclass(frozen=True)
class Curve:
    """A search trial that the search under another rule would have run."""

    key: str | None  # of the trial in the journal; None: that configuration was never tried
    config: Configuration
    epochs: tuple[Epoch, ...]  # from the first on
    is_over: bool  # whether it had no epoch left, or failed; else there are more than the journal knows
    final: float | None  # its selection score, had nothing stopped it; None: not known, or failed


def moments_of(events: Iterable[Event]) -> Moments:
    """When each epoch was reported; where ASHA decided after it, when it did."""
    moments: dict[tuple[str, int], int] = {}
    for place, event in enumerate(events):
        if isinstance(event, EpochReported):
            moments.setdefault((event.key, event.report.row.epoch), place)
        if isinstance(event, AshaDecided):
            moments[event.key, event.rung] = place
    return moments


def curves_of(arm: ArmFacts, moments: Moments) -> list[Curve]:
    """One curve per search trial, in the order they were started; of audited ones up to their end."""
    audits = {audited(trial): trial for trial in arm.audit}
    return [_curve(trial, audits.get(audited(trial)), moments) for trial in arm.search]


def audited(trial: TrialFacts) -> tuple[int, str]:
    """What a search trial and its audit have in common."""
    return trial.seed, repr(sorted(trial.config.items()))


def untried(config: Configuration) -> Curve:
    """Of a configuration that the journal says nothing about."""
    return Curve(None, config, (), False, None)


def _curve(trial: TrialFacts, audit: TrialFacts | None, moments: Moments) -> Curve:
    epochs = [_epoch(trial, number, moments) for number in range(trial.epochs)]
    source = trial
    if audit is not None and audit.record is not None and audit.record.status == "completed":
        source = audit
        epochs += [_epoch(audit, number, {}) for number in range(trial.epochs, audit.epochs)]
    has_failed = source.record is not None and source.record.status == "failed"
    outcome = source.last.report.outcome if source.last else None
    final = outcome.selection_score if outcome and not has_failed else None
    return Curve(trial.key, trial.config, tuple(epochs), has_failed or outcome is not None, final)


def _epoch(trial: TrialFacts, number: int, moments: Moments) -> Epoch:
    report = trial.reports[number].report
    moment = moments.get((trial.key, report.row.epoch), inf)
    return Epoch(report.row.selection_score, report.wall_seconds, moment)
