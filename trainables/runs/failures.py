"""Why a trial cannot go on, as types: who catches one knows whether trying again can help. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TrainingError(RuntimeError):
    """The method's own failure, whose cause is known: it would fail again."""


class OutOfMemory(TrainingError):
    """Memory did not suffice: the configuration's fault, or that of whoever else uses the device."""


class Unavailable(ValueError):
    """Something that a trial is made of (data, backbone, start) is not there, or not whole, where it should be."""


class UnreadableState(ValueError):
    """What was saved of a trial is damaged, incomplete or of another trial: it can only be trained anew."""


@contextmanager
def available() -> Iterator[None]:
    """What is wrong with the data, the backbone or the start becomes `Unavailable`: it is no fault of the trial."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise Unavailable(str(error)) from error
