"""What broke trials off, and what ended them: every failure that the journal has, with its traceback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from study.facts.events import (
    Event,
    Failure,
    LaunchBegan,
    SmokeStepFailed,
    TrialEnded,
    TrialReopened,
    TrialRetried,
    TrialStarted,
)
from trainables.configuration import AtLeastOne
from trainables.schema import Configuration, Typed


class FailedAttempt(Typed, frozen=True, kw_only=True):
    """An attempt at a trial that failed, or a smoke step that did."""

    time: str
    launch: AtLeastOne
    arm: str
    trial: str  # its phase and number, or "smoke step"
    key: str | None  # None of a smoke step
    attempt: AtLeastOne  # at the trial, since it was started or reopened
    config: Configuration
    became: Literal["tried again", "failed", "launch refused"]
    failure: Failure


def alike(attempts: Iterable[FailedAttempt]) -> list[list[FailedAttempt]]:
    """Attempts of one arm that failed with the same error together; those that are not the method's fault by host."""
    found: dict[tuple[object, ...], list[FailedAttempt]] = {}
    for attempt in attempts:
        failure = attempt.failure
        host = None if failure.cause == "method" else failure.host
        of = attempt.arm, attempt.key is None, attempt.became, failure.cause, failure.error, host
        found.setdefault(of, []).append(attempt)
    return list(found.values())


def failed_attempts(events: Iterable[Event]) -> list[FailedAttempt]:
    """Of all trials, those that have run again since too, in the order in which they happened."""
    started: dict[str, TrialStarted] = {}
    attempts = Counter[str]()
    found, launch = list[FailedAttempt](), 1

    def note(event: TrialRetried | TrialEnded, failure: Failure, became: Literal["tried again", "failed"]) -> None:
        attempts[event.key] += 1
        trial = started[event.key]
        found.append(
            FailedAttempt(
                time=event.time,
                launch=launch,
                arm=trial.arm,
                trial=f"{trial.phase} {trial.trial}",
                key=event.key,
                attempt=attempts[event.key],
                config=trial.config,
                became=became,
                failure=failure,
            )
        )

    for event in events:
        match event:
            case LaunchBegan():
                launch = event.launch
            case TrialStarted():
                started[event.key] = event
            case TrialRetried():
                note(event, event.failure, "tried again")
            case TrialEnded() if event.failure is not None:
                note(event, event.failure, "failed")
            case TrialReopened():
                attempts.pop(event.key, None)
            case SmokeStepFailed():
                found.append(
                    FailedAttempt(
                        time=event.time,
                        launch=launch,
                        arm=event.arm,
                        trial="smoke step",
                        key=None,
                        attempt=1,
                        config=event.config,
                        became="launch refused",
                        failure=event.failure,
                    )
                )
    return found
