"""Which failed trials run again: a failure is the method's, under the code and the versions that its record names."""

from __future__ import annotations

from study.decisions.progress import StudyProgress
from study.decisions.specs import Provenance
from study.facts.events import Reopening
from study.facts.record import Record


def to_reopen(progress: StudyProgress, provenance: Provenance, *, asked: bool) -> dict[str, Reopening]:
    """Keys of the failed trials that a launch of this provenance lets run again, and why; all of them if `asked`."""
    reasons = {record.key: "asked" if asked else _change(record, provenance) for record in progress.failures}
    return {key: reason for key, reason in reasons.items() if reason}


def _change(record: Record, now: Provenance) -> Reopening | None:
    if record.code_digest != now.code_digest:
        return "code"
    return "versions" if dict(record.versions) != dict(now.versions) else None
