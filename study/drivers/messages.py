"""The messages between a driver and its workers: JSON, read and checked on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from study.facts.attestation import Attestation
from study.facts.events import Failure, Report
from trainables.configuration import AtLeastOne, Count, NotNegative
from trainables.method_files import IncludedMethods
from trainables.runs.trial import TrialSpec
from trainables.schema import Reader, Typed


class AssignedTrial(Typed, frozen=True, kw_only=True):
    """One trial for a worker."""

    key: str
    spec: TrialSpec
    expected: Attestation  # what the worker must find
    epochs: Count  # that it has reported, in earlier launches too: its saved state has them
    place: str  # its place in the storage, a path or a URI
    predictions: str | None  # path, absolute or within its place; None: none will stay
    marks: tuple[str, ...] = ()  # files of the launch that the worker must find in the storage


class Assignment(Typed, frozen=True, kw_only=True):
    """The work of a worker, and the resources that it holds meanwhile."""

    trial: AssignedTrial | None = None
    smoke: Mapping[str, TrialSpec] = {}  # without a trial, before all of them: arms whose methods take one step each
    device: Literal["cpu", "cuda"]
    cpus: float
    gpus: float
    threads: int
    avoid: tuple[str, ...] = ()  # numbers of nodes that it is not placed on
    included: IncludedMethods | None = None  # methods that are not the package's, as the launcher has read them
    log: str | None = None  # file that gets what the process prints; None: its output goes elsewhere already


class News(Typed, frozen=True, kw_only=True):
    """An epoch of a trial, a failure that ends the work on it here, or its refusal.

    It is refused if code or data here are not the plan's.
    """

    key: str
    host: str
    report: Report | None = None
    failure: Failure | None = None
    restarted: str | None = None  # why it began anew although it had been saved
    refused: Attestation | None = None


class Steps(Typed, frozen=True, kw_only=True):
    """The steps of the epoch under way, which the journal does not hold."""

    key: str
    done: Count
    of: AtLeastOne
    seconds: NotNegative  # since the epoch began


class SmokeReport(Typed, frozen=True, kw_only=True):
    """The arms whose methods failed in their first step, and the code that ran there."""

    failures: Mapping[str, Failure]
    code_digest: str
    versions: Mapping[str, str]


class Message(Typed, frozen=True, kw_only=True):
    """A worker's message after a step."""

    news: News | None = None  # of its trial, if that goes on
    steps: Steps | None = None  # of an epoch that is not over; the next step goes on with it
    node: str | None = None  # number of the worker's
    smoke: SmokeReport | None = None
    broken: str | None = None  # the exception that ends a process of the launch; Ray reports an actor's


ASSIGNMENTS = Reader(Assignment)
MESSAGES = Reader(Message)
