"""What a terminal can show: what moves, a line while nothing else is to see, and nothing once it is gone."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_OUTPUTS = ("stdout", "stderr")


def console_on(output: TextIO) -> Console:
    return Console(file=output, highlight=False)


def can_redraw(console: Console) -> bool:
    """Whether what stands there can be written over: `TERM=dumb` is a terminal too, but cannot move its cursor."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def waiting_for(what: str, *, output: TextIO) -> Iterator[Callable[[], None]]:
    """A line that moves, until it is over or what this gives is called; nothing where no line can move."""
    console = console_on(output)
    words = f"waiting for {what}"
    if not can_redraw(console):
        yield lambda: None
        return
    columns = (SpinnerColumn(), TextColumn(words, markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    with progress:
        progress.add_task(words, total=None)
        yield progress.stop


class LastingOutput(io.TextIOWrapper):
    """Standard output or error of a process that goes on in silence once its reader or its terminal is gone."""

    def __init__(self, stream: TextIO):
        """Takes the place of a stream with a file descriptor."""
        settings: dict[str, Any] = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering")}
        super().__init__(os.fdopen(stream.fileno(), "wb", closefd=False), **settings)
        self.lost: OSError | None = None  # what came first when it could not be written

    def write(self, text: str, /) -> int:
        with self._silent_when_lost():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._silent_when_lost():
            super().flush()

    @contextmanager
    def _silent_when_lost(self) -> Iterator[None]:
        """Has the descriptor lead nowhere after an error, for the processes that inherit it too."""
        try:
            yield
        except OSError as error:
            self.lost = self.lost or error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


@contextmanager
def lasting_outputs() -> Iterator[None]:
    """Has this process outlive its terminal and the readers of its outputs, and what it starts ignore SIGHUP too."""
    streams, on_hangup = (sys.stdout, sys.stderr), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for name, stream in zip(_OUTPUTS, streams, strict=True):
        stream.flush()
        with suppress(io.UnsupportedOperation):  # it is in memory
            setattr(sys, name, LastingOutput(stream))
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = streams
        signal.signal(signal.SIGHUP, on_hangup)


def lost_outputs() -> str | None:
    """A line about the outputs that were lost; None if all are written."""
    outputs = {name: getattr(sys, name) for name in _OUTPUTS}
    errors = {name: out.lost.strerror for name, out in outputs.items() if isinstance(out, LastingOutput) and out.lost}
    return f"went on without {' and '.join(f'{name} ({error})' for name, error in errors.items())}" if errors else None
