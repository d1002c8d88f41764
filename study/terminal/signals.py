"""Delays and handles the signals that ask a command to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from study.terminal.processes import STOP_SIGNALS


@contextmanager
def delay_signals() -> Iterator[None]:
    """Delay `STOP_SIGNALS` until the block ends.

    Outside the main thread, nothing is delayed, because only the main thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    try:
        with handle_signals(lambda number, _: received.append(number)):
            yield
    finally:
        for number in received:
            signal.raise_signal(number)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `handler` on any of `STOP_SIGNALS` until the block ends."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
