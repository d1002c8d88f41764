"""What a driver and the actors that train say to each other: JSON, read and checked on both sides."""

from __future__ import annotations

from typing import Literal

from study.facts.attestation import Attestation
from study.facts.events import Report
from trainables.runs.trial import TrialSpec
from trainables.schema import Reader, Typed


class AssignedTrial(Typed, frozen=True, kw_only=True):
    """One trial for an actor."""

    key: str
    spec: TrialSpec
    expected: Attestation  # what the worker must find
    place: str  # its place in the storage, a path or a URI
    predictions: str | None  # path, also from within its place; None where neither they nor the model stay


class Assignment(Typed, frozen=True, kw_only=True):
    """What an actor works on, all trials side by side, and what it holds meanwhile."""

    trials: tuple[AssignedTrial, ...]
    device: Literal["cpu", "cuda"]
    cpus: float
    gpus: float
    threads: int


class News(Typed, frozen=True, kw_only=True):
    """What became of one trial: an epoch, a failure with a known cause that ends it, or that it is another trial here
    than the plan's, which was not trained."""

    key: str
    host: str
    report: Report | None = None
    failure: str | None = None
    refused: Attestation | None = None


class Message(Typed, frozen=True, kw_only=True):
    """What an actor says after a step: one epoch of each of its trials that goes on."""

    news: tuple[News, ...]


ASSIGNMENTS = Reader(Assignment)
MESSAGES = Reader(Message)
