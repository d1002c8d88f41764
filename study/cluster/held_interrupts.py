"""Ctrl-C while something starts or stops that must not be left half done."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held(doing: str) -> Iterator[None]:
    """One Ctrl-C within is heard at the end; a second ends the process there and then, without a clean-up.

    A Ray that is left half started or half stopped may crash the interpreter.
    """
    held = False

    def interrupted(signal_number: int, frame: FrameType | None) -> None:
        nonlocal held
        if held:
            os._exit(1)
        held = True
        print(f"{doing}; interrupted as soon as that is done, Ctrl-C again stops at once", file=sys.stderr, flush=True)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, interrupted) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        raise KeyboardInterrupt
