"""What broke trials off, and what ended them: attempts at trials that failed, each with its traceback."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from study.facts.events import Failure
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
