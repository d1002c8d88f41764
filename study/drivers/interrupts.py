"""What Ctrl-C does to a study that runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from study.decisions.scheduler import Scheduler


@contextmanager
def drain_on_interrupt(scheduler: Scheduler) -> Iterator[None]:
    """The first Ctrl-C lets running trials save their epoch and hands out nothing more; the second stops at once."""

    def interrupted(signal_number: int, frame: FrameType | None) -> None:
        if scheduler.draining:
            raise KeyboardInterrupt
        scheduler.draining = True
        print("saving the epochs under way, then stopping; Ctrl-C again stops at once", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
