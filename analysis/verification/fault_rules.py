"""What the journal must say of the machine's faults, by those before: pauses, and nodes that are left out."""

from __future__ import annotations

from analysis.verification.differences import unlike
from study.decisions.machine_faults import LEFT_OUT_SECONDS, pause_seconds
from study.facts.events import EpochReported, Event, LaunchBegan, NodeLeftOut, NodeTakenBack, StudyPaused, TrialRetried
from study.facts.study_facts import StudyFacts


class FaultRules:
    """The rules, and the faults since a trial last got on."""

    def __init__(self) -> None:
        self._in_a_row: list[TrialRetried] = []
        self._pauses = 0

    def take(self, event: Event) -> None:
        """Takes an event in, after it was looked at."""
        match event:
            case LaunchBegan() | EpochReported():
                self._in_a_row, self._pauses = [], 0
            case TrialRetried() if event.failure.cause != "preemption":
                self._in_a_row.append(event)
            case StudyPaused():
                self._pauses += 1

    def faults(self, event: NodeLeftOut | NodeTakenBack | StudyPaused, facts: StudyFacts) -> list[str]:
        """What is wrong with what followed from a fault."""
        if isinstance(event, NodeTakenBack):
            left_out = facts.left_out.get(event.node)
            return unlike(event, {"host": left_out.host}) if left_out else [f"node {event.node} was not left out"]
        if not self._in_a_row:
            return ["no trial broke off before"]
        last = self._in_a_row[-1].failure
        if isinstance(event, StudyPaused):
            seconds = pause_seconds(self._pauses + 1)
            return unlike(event, {"error": last.error, "faults": len(self._in_a_row), "seconds": seconds})
        return unlike(event, {"error": last.error, "node": last.node, "host": last.host, "seconds": LEFT_OUT_SECONDS})
