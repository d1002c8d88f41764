"""Which failed trials run again, and which arms have trials of other code: a failure is the method's, under the code
and the versions that its record names.
"""

from __future__ import annotations

from study.decisions.progress import StudyProgress
from study.facts.attestation import Provenance
from study.facts.events import Reopening, TrialReopened
from study.facts.journal import EventLog
from study.facts.record import Record


def reopen_failed(journal: EventLog, progress: StudyProgress, provenance: Provenance, *, asked: bool) -> None:
    """Lets trials run again that failed with other code or versions than this launch has; all of them, if asked."""
    for key, reason in to_reopen(progress, provenance, asked=asked).items():
        journal.append(TrialReopened(time=journal.now(), key=key, reason=reason))


def to_reopen(progress: StudyProgress, provenance: Provenance, *, asked: bool) -> dict[str, Reopening]:
    """Keys of the failed trials that a launch of this provenance lets run again, and why; all of them if `asked`."""
    others = {arm.arm.name for arm in progress.arms} - {arm.arm.name for arm in progress.launched}
    failures = [record for record in progress.failures if record.arm not in others]
    reasons = {record.key: "asked" if asked else change_of(record, provenance) for record in failures}
    return {key: reason for key, reason in reasons.items() if reason}


def arms_of_other_code(progress: StudyProgress, provenance: Provenance) -> list[str]:
    """The arms that have a trial which was trained with other code than this launch has."""
    trained = [record for arm in progress.arms for record in arm.facts.records if record.epochs]
    return list(dict.fromkeys(record.arm for record in trained if change_of(record, provenance) == "code"))


def change_of(record: Record, now: Provenance) -> Reopening | None:
    """What of the code that the trial last failed with is another one now; None where nothing is."""
    if _last(record.code_digest) != now.of_method(record.method).code_digest:
        return "code"
    versions = {name: _last(version) for name, version in record.versions.items()}
    return "versions" if versions != dict(now.versions) else None


def _last(text: str) -> str:
    """Of what a record names of several launches."""
    return text.rpartition(", ")[2]
