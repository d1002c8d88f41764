"""The search trials of an arm as far as its journal knows them: the scores of their epochs, and what comes after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from study.facts.events import AshaDecided, EpochReported, Event, TrialReopened, TrialRestarted
from study.facts.study_facts import ArmFacts, TrialFacts
from trainables.schema import Configuration


@dataclass(frozen=True)
class Epoch:
    """An epoch of a trial."""

    score: float  # its selection score
    seconds: float  # wall clock of the trial so far
    moment: float  # its place in the journal; inf: some time later, as of epochs that an audit has added


Epochs = Mapping[str, Mapping[int, Epoch]]  # by the key of the trial and the epoch's number


@dataclass(frozen=True)
class Curve:
    """A search trial that the search under another rule would have run."""

    key: str | None  # of the trial in the journal; None: that configuration was never tried
    config: Configuration
    epochs: tuple[Epoch, ...]  # from the first on
    is_over: bool  # whether it had no epoch left, or failed; else there are more than the journal knows
    final: float | None  # its selection score, had nothing stopped it; None: not known, or failed


def epochs_of(events: Iterable[Event]) -> Epochs:
    """Every epoch that counts, by its trial: when it was reported; where ASHA decided after it, when it did."""
    epochs: defaultdict[str, dict[int, Epoch]] = defaultdict(dict)
    for place, event in enumerate(events):
        match event:
            case EpochReported() if isinstance(number := event.report.row.epoch, int):  # a part is no epoch
                epoch = Epoch(event.report.row.selection_score, event.report.wall_seconds, place)
                epochs[event.key].setdefault(number, epoch)
            case AshaDecided() if isinstance(event.rung, int):
                epochs[event.key][event.rung] = replace(epochs[event.key][event.rung], moment=place)
            case TrialRestarted() | TrialReopened():
                epochs.pop(event.key, None)
    return epochs


def curves_of(arm: ArmFacts, epochs: Epochs) -> list[Curve]:
    """One curve per search trial, in the order they were started; of audited ones up to their end."""
    audits = {audited(trial): trial for trial in arm.audit}
    return [_curve(trial, audits.get(audited(trial)), epochs) for trial in arm.search]


def audited(trial: TrialFacts) -> tuple[int, str]:
    """What a search trial and its audit have in common."""
    return trial.seed, repr(sorted(trial.config.items()))


def untried(config: Configuration) -> Curve:
    """Of a configuration that the journal says nothing about."""
    return Curve(None, config, (), False, None)


def _curve(trial: TrialFacts, audit: TrialFacts | None, epochs: Epochs) -> Curve:
    known = [epochs[trial.key][number] for number in range(1, int(trial.epochs) + 1)]
    source = trial
    if audit is not None and audit.record is not None and audit.record.status == "completed":
        source = audit
        later = range(int(trial.epochs) + 1, int(audit.epochs) + 1)
        known += [replace(epochs[audit.key][number], moment=inf) for number in later]
    has_failed = source.record is not None and source.record.status == "failed"
    outcome = source.last.report.outcome if source.last else None
    final = outcome.selection_score if outcome and not has_failed else None
    return Curve(trial.key, trial.config, tuple(known), has_failed or outcome is not None, final)
